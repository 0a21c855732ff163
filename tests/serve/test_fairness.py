"""Vanished clients, full queues, time limits, shutdown, and requests of other sites, against a real server."""

from __future__ import annotations

import http.client
import json
import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest
from fastapi.testclient import TestClient

from dihedral.errors import DihedralError
from dihedral.serve.app import create_app
from dihedral.serve.guard import check_key
from dihedral.serve.served_model import read_models
from dihedral.serve.server import listen
from soak.server import Running

# missing facts take three seconds, and stop when they are told to
SLOW = """
import time
from dihedral.runtime import interruption
from dihedral.serve import served_model, workers
started = []
def slow(self, *_):
    started.append(1)
    print("missing", flush=True)
    for _ in range(60):
        time.sleep(0.05)
        interruption.check()
    return []
served_model.ServedModel.missing = slow
"""
PREDICT = "/v1/predict?head=man_0000&relation=spouse"


@contextmanager
def server(folder: Path, script: str = "", *options: str) -> Iterator[tuple[Running, tuple[str, int]]]:
    with listen("127.0.0.1", 0) as listener, Running(folder, listener, SLOW + script, *options) as running:
        yield running.wait_until_ready(), listener.getsockname()


def get(address: tuple[str, int], path: str, **headers: str) -> tuple[int, dict[str, str], bytes]:
    connection = http.client.HTTPConnection(*address, timeout=30)
    connection.request("GET", path, headers={name.replace("_", "-"): value for name, value in headers.items()})
    answer = connection.getresponse()
    content = answer.read()
    connection.close()
    return answer.status, {name.lower(): value for name, value in answer.getheaders()}, content


def abandon(address: tuple[str, int], path: str) -> None:
    """Send a request and go away."""
    with socket.create_connection(address) as connection:
        connection.sendall(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
        time.sleep(0.05)


def test_work_of_vanished_clients_is_dropped(family_folder):
    with server(family_folder) as (running, address):
        with ThreadPoolExecutor(50) as pool:
            list(pool.map(lambda _: abandon(address, "/v1/missing"), range(50)))
        started = time.monotonic()
        assert get(address, "/v1/missing")[0] == 200
        assert time.monotonic() - started < 6  # one such request takes three seconds, fifty would take minutes
        assert running.stop() == (0, "stopped")
        assert running.output.count("missing") < 10


def test_predictions_are_answered_while_heavy_requests_wait(family_folder):
    with server(family_folder) as (_, address), ThreadPoolExecutor(20) as pool:
        get(address, PREDICT)  # the first one fills caches
        heavy = [pool.submit(get, address, "/v1/missing") for _ in range(3)]
        time.sleep(0.3)
        for path in (PREDICT, "/healthz", "/v1/entities?search=man", "/", "/static/explorer.js"):
            started = time.monotonic()
            assert get(address, path)[0] == 200 and time.monotonic() - started < 0.5
        assert [each.result()[0] for each in heavy] == [200, 200, 200]


def test_a_full_queue_is_503_with_a_time_to_try_again(family_folder):
    with server(family_folder, "workers.Workers.__init__.__defaults__ = (2,)") as (_, address):
        with ThreadPoolExecutor(8) as pool:
            answers = list(pool.map(lambda _: get(address, "/v1/missing"), range(8)))
        statuses = sorted(status for status, _, _ in answers)
        assert statuses == [200, 200, 200, 503, 503, 503, 503, 503]
        refused = next(answer for answer in answers if answer[0] == 503)
        assert refused[1]["retry-after"] == "5" and "2 requests of this kind are waiting" in refused[2].decode()


def test_a_request_has_a_time_limit_waiting_included(family_folder):
    with server(family_folder, "", "--max-seconds", "1") as (_, address), ThreadPoolExecutor(3) as pool:
        started = time.monotonic()
        for status, headers, content in pool.map(lambda _: get(address, "/v1/missing"), range(3)):
            assert status == 503 and headers["retry-after"] == "5"
            assert json.loads(content)["detail"].startswith("the request took longer than 1 seconds; ")
        assert time.monotonic() - started < 2.5
        assert get(address, PREDICT)[0] == 200


def test_one_client_may_be_limited(family_folder):
    with server(family_folder, "", "--max-per-client", "2") as (_, address), ThreadPoolExecutor(5) as pool:
        statuses = sorted(each[0] for each in pool.map(lambda _: get(address, "/v1/missing"), range(5)))
        assert statuses == [200, 200, 429, 429, 429]
        assert get(address, PREDICT)[0] == 200 and get(address, "/healthz")[0] == 200


def test_every_accepted_request_is_answered_when_the_server_stops(family_folder):
    with server(family_folder, "workers.MAX_STOP_SECONDS = 2.5") as (running, address), ThreadPoolExecutor(8) as pool:
        get(address, PREDICT)  # the first one fills caches
        heavy = [pool.submit(get, address, "/v1/missing") for _ in range(5)]
        time.sleep(0.5)
        started = time.monotonic()
        predicted = [pool.submit(get, address, PREDICT) for _ in range(3)]
        time.sleep(0.2)
        assert running.stop() == (0, "stopped")
        assert time.monotonic() - started < 10
        answers = [each.result() for each in heavy]
        assert sorted(status for status, _, _ in answers)[1:] == [503] * 4  # one may just be done
        assert all("the server is stopping" in content.decode() for status, _, content in answers if status == 503)
        assert [each.result()[0] for each in predicted] == [200, 200, 200]


def test_a_web_page_of_another_site_cannot_use_a_local_server(family_folder):
    with server(family_folder, "", "--allow-host", "Models.Example") as (_, address):
        for host in ("localhost", "127.0.0.1:8000", "[::1]:80", "models.example", "LOCALHOST:1"):
            assert get(address, "/v1/models", Host=host)[0] == 200
        for host in ("evil.example", "localhost.evil.example", "127.0.0.1.evil.example:8000", ""):
            status, _, content = get(address, "/v1/models", Host=host)
            assert status == 403 and "--allow-host" in content.decode()
        assert get(address, "/v1/models", Sec_Fetch_Site="same-origin")[0] == 200
        assert get(address, "/v1/models", Sec_Fetch_Site="none")[0] == 200
        for site in ("cross-site", "same-site"):
            assert get(address, "/v1/models", Sec_Fetch_Site=site)[0] == 403
            assert get(address, "/v1/models", Sec_Fetch_Site=site, Sec_Fetch_Mode="navigate")[0] == 403
            assert get(address, "/", Sec_Fetch_Site=site, Sec_Fetch_Mode="navigate")[0] == 200  # a link


def test_two_lengths_close_the_connection(family_folder):
    smuggled = b"GET /v1/models HTTP/1.1\r\nHost: localhost\r\n\r\n"
    head = b"POST /v1/predict HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n"
    with server(family_folder) as (_, address), socket.create_connection(address, timeout=10) as connection:
        connection.sendall(head + b"0\r\n\r\n" + smuggled)
        answer = b"".join(iter(lambda: connection.recv(65536), b""))
        assert answer.startswith(b"HTTP/1.1 400") and answer.count(b"HTTP/1.1") == 1
        assert b"both Content-Length and Transfer-Encoding" in answer


def test_an_empty_key_is_refused(family_folder, monkeypatch, cli):
    with pytest.raises(DihedralError, match="the API key is empty"):
        check_key("")
    assert "the API key is empty" in cli("serve", family_folder, "--port", 0, "--api-key", "").err
    monkeypatch.setenv("DIHEDRAL_API_KEY", "")
    assert "the API key is empty" in cli("serve", family_folder, "--port", 0).err


def test_a_page_that_is_opened_does_not_mine_rules(family_folder):
    app = create_app(read_models([f"model={family_folder}"]))
    served = app.state.batchers["model"].served
    with TestClient(app) as client:
        assert client.get("/v1/rules?mine=false").json() == {
            "model": "model",
            "labels": {},
            "mined": False,
            "rules": [],
        }
        assert client.get("/v1/relation?name=spouse&mine=false").json()["compositions"] is None
        assert "rules" not in vars(served)
        mined = client.get("/v1/rules").json()
        assert mined["mined"] and mined["rules"] and client.get("/v1/rules?mine=false").json() == mined
        assert client.get("/v1/relation?name=spouse&mine=false").json()["compositions"]


def test_a_batch_survives_the_client_that_started_it(family_folder):
    with server(family_folder) as (_, address):
        stop = threading.Event()

        def vanish() -> None:
            while not stop.is_set():
                abandon(address, PREDICT)

        with ThreadPoolExecutor(6) as pool:
            vanishing = [pool.submit(vanish) for _ in range(4)]
            assert {get(address, PREDICT)[0] for _ in range(50)} == {200}
            stop.set()
            for each in vanishing:
                each.result()
