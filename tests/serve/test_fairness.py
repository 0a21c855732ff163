"""Vanished clients, full queues, time limits, shutdown, and requests of other sites, against a real server."""

from __future__ import annotations

import http.client
import json
import socket
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path

import pytest
from fastapi.testclient import TestClient

from dihedral.errors import DihedralError
from dihedral.serve.app import create_app
from dihedral.serve.guard import check_key
from dihedral.serve.served_model import read_models
from dihedral.serve.server import listen
from soak.server import Running

# Missing facts are looked for until a file exists, or until they are told to stop. A request prints when it asks for
# work, when its work starts, and when it has left the queue.
SCRIPT = """
import os, time
from dihedral.runtime import interruption
from dihedral.serve import served_model, workers

def missing(self, *_, **__):
    os.write(1, b"started\\n")  # at once, not in two parts
    while not os.path.exists({gate!r}):
        time.sleep(0.01)
        interruption.check()
    return []

async def printed(self, call):
    os.write(1, b"asked\\n")
    try:
        return await run(self, call)
    finally:
        os.write(1, b"left\\n")

served_model.ServedModel.missing, run, workers.Workers.run = missing, workers.Workers.run, printed
"""
PREDICT = "/v1/predict?head=man_0000&relation=spouse"
MAX_SECONDS = 300  # for an answer that never comes; a busy machine may be slow


@dataclass
class GatedServer:
    """A server in another process; missing facts wait until the gate is opened."""

    running: Running
    address: tuple[str, int]
    gate: Path
    seen: Counter[str] = field(default_factory=Counter)

    def wait_for(self, event: str, count: int) -> None:
        """Until so many requests have asked for work, started it or left."""
        while self.seen[event] < count:
            line = self.running.process.stdout.readline()
            assert line, "the server has ended"
            self.seen[line.strip()] += 1

    def get(self, path: str, body: bytes | None = None, **headers: str) -> tuple[int, dict[str, str], bytes]:
        """GET a path, or POST a body to it."""
        connection = http.client.HTTPConnection(*self.address, timeout=MAX_SECONDS)
        sent = {name.replace("_", "-"): value for name, value in headers.items()}
        connection.request("GET" if body is None else "POST", path, body, sent)
        answer = connection.getresponse()
        content = answer.read()
        connection.close()
        return answer.status, {name.lower(): value for name, value in answer.getheaders()}, content

    def send(self, path: str) -> socket.socket:
        """Send a request and do not wait for the answer."""
        connection = socket.create_connection(self.address)
        connection.sendall(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
        return connection


@contextmanager
def serve(folder: Path, tmp_path: Path, script: str = "", *options: str) -> Iterator[GatedServer]:
    gate = tmp_path / "gate"
    whole = SCRIPT.format(gate=str(gate)) + script
    with listen("127.0.0.1", 0) as listener, Running(folder, listener, whole, *options) as running:
        yield GatedServer(running.wait_until_ready(), listener.getsockname(), gate)


def test_work_of_vanished_clients_is_dropped(family_folder, tmp_path):
    with serve(family_folder, tmp_path) as server, ThreadPoolExecutor(1) as pool:
        with server.send("/v1/missing"):
            server.wait_for("started", 1)
        server.wait_for("left", 1)  # its work was stopped
        staying = pool.submit(server.get, "/v1/missing")
        server.wait_for("started", 2)
        vanishing = [server.send("/v1/missing") for _ in range(50)]
        server.wait_for("asked", 52)
        for connection in vanishing:
            connection.close()
        server.wait_for("left", 51)  # of the queue
        server.gate.touch()
        assert staying.result()[0] == server.get("/v1/missing")[0] == 200
        server.wait_for("left", 53)
        assert server.seen["started"] == 3
        assert server.running.stop() == (0, "stopped")


@pytest.mark.thorough
def test_predictions_are_answered_while_heavy_requests_wait(family_folder, tmp_path):
    with serve(family_folder, tmp_path) as server, ThreadPoolExecutor(3) as pool:
        heavy = [pool.submit(server.get, "/v1/missing") for _ in range(3)]
        server.wait_for("asked", 3)
        for path in (PREDICT, "/healthz", "/v1/entities?search=man", "/", "/static/explorer.js"):
            assert server.get(path)[0] == 200
        assert not any(each.done() for each in heavy)
        server.gate.touch()
        assert [each.result()[0] for each in heavy] == [200, 200, 200]


@pytest.mark.thorough
def test_a_full_queue_is_503_with_a_time_to_try_again(family_folder, tmp_path):
    with serve(family_folder, tmp_path, "workers.MAX_WAITING = 2") as server:
        with ThreadPoolExecutor(8) as pool:
            answers = [pool.submit(server.get, "/v1/missing") for _ in range(8)]
            refused = [each.result() for each in islice(as_completed(answers), 5)]
            server.gate.touch()
        assert sorted(each.result()[0] for each in answers) == [200, 200, 200, 503, 503, 503, 503, 503]
        for status, headers, content in refused:
            assert status == 503 and headers["retry-after"] == "5"
            assert "2 requests of this kind are waiting" in content.decode()


@pytest.mark.thorough
def test_a_request_has_a_time_limit(family_folder, tmp_path):
    with serve(family_folder, tmp_path, "", "--max-seconds", "1") as server:
        status, headers, content = server.get("/v1/missing")
        assert status == 503 and headers["retry-after"] == "5"
        assert json.loads(content)["detail"].startswith("the request took longer than 1 seconds; ")


@pytest.mark.thorough
def test_the_time_limit_includes_waiting(family_folder, tmp_path):
    """The work of the first request cannot be stopped: nothing that waits is ever started."""
    script = "interruption.check = lambda: None"
    with serve(family_folder, tmp_path, script, "--max-seconds", "3") as server, ThreadPoolExecutor(3) as pool:
        first = pool.submit(server.get, "/v1/missing")
        server.wait_for("started", 1)
        for status, _, content in pool.map(lambda _: server.get("/v1/missing"), range(2)):
            assert status == 503 and b"the request took longer than 3 seconds; " in content
        server.gate.touch()
        first.result()
        server.wait_for("left", 3)
        assert server.seen["started"] == 1


@pytest.mark.thorough
def test_one_client_may_be_limited(family_folder, tmp_path):
    with serve(family_folder, tmp_path, "", "--max-per-client", "2") as server:
        with ThreadPoolExecutor(5) as pool:
            answers = [pool.submit(server.get, "/v1/missing") for _ in range(5)]
            assert [each.result()[0] for each in islice(as_completed(answers), 3)] == [429, 429, 429]
            server.gate.touch()
        assert sorted(each.result()[0] for each in answers) == [200, 200, 429, 429, 429]
        assert server.get(PREDICT)[0] == server.get("/healthz")[0] == 200


@pytest.mark.thorough
def test_every_accepted_request_is_answered_when_the_server_stops(family_folder, tmp_path):
    with serve(family_folder, tmp_path, "workers.MAX_STOP_SECONDS = 1") as server, ThreadPoolExecutor(8) as pool:
        heavy = [pool.submit(server.get, "/v1/missing") for _ in range(5)]
        server.wait_for("asked", 5)
        light = [pool.submit(server.get, "/v1/entities?search=man") for _ in range(3)]
        server.wait_for("asked", 8)
        assert server.running.stop() == (0, "stopped")
        answers = [each.result() for each in heavy]
        assert [status for status, _, _ in answers] == [503] * 5
        assert all("the server is stopping" in content.decode() for _, _, content in answers)
        assert {each.result()[0] for each in light} <= {200, 503}


def test_a_web_page_of_another_site_cannot_use_a_local_server(family_folder, tmp_path):
    with serve(family_folder, tmp_path, "", "--allow-host", "Models.Example") as server:
        for host in ("localhost", "127.0.0.1:8000", "[::1]:80", "models.example", "LOCALHOST:1"):
            assert server.get("/v1/models", Host=host)[0] == 200
        for host in ("evil.example", "localhost.evil.example", "127.0.0.1.evil.example:8000", ""):
            status, _, content = server.get("/v1/models", Host=host)
            assert status == 403 and "--allow-host" in content.decode()
        assert server.get("/v1/models", Sec_Fetch_Site="same-origin")[0] == 200
        assert server.get("/v1/models", Sec_Fetch_Site="none")[0] == 200
        for site in ("cross-site", "same-site"):
            assert server.get("/v1/models", Sec_Fetch_Site=site)[0] == 403
            assert server.get("/v1/models", Sec_Fetch_Site=site, Sec_Fetch_Mode="navigate")[0] == 403
            assert server.get("/", Sec_Fetch_Site=site, Sec_Fetch_Mode="navigate")[0] == 200  # a link


@pytest.mark.thorough
def test_two_lengths_close_the_connection(family_folder, tmp_path):
    """Also where the request would be refused with 401, 403, 404 or 413."""
    smuggled = b"GET /v1/models HTTP/1.1\r\nHost: localhost\r\n\r\n"
    with serve(family_folder, tmp_path, "", "--api-key", "secret") as server:
        for host, path, length in (
            ("localhost", "/v1/predict", 5), ("evil.example", "/v1/predict", 5), ("localhost", "/nowhere", 5),
            ("localhost", "/v1/predict", 1 << 30),
        ):  # fmt: skip
            head = f"POST {path} HTTP/1.1\r\nHost: {host}\r\nContent-Length: {length}\r\n"
            with socket.create_connection(server.address) as connection:
                connection.settimeout(MAX_SECONDS)
                connection.sendall(f"{head}Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n".encode() + smuggled)
                answer = b"".join(iter(lambda: connection.recv(65536), b""))
            assert answer.startswith(b"HTTP/1.1 400") and answer.count(b"HTTP/1.1") == 1
            assert b"both Content-Length and Transfer-Encoding" in answer


@pytest.mark.thorough
@pytest.mark.parametrize("options", [(), ("--behind-proxy", "127.0.0.1")])
def test_only_a_proxy_that_is_named_says_who_the_client_is(family_folder, tmp_path, options):
    with serve(family_folder, tmp_path, "", "--max-per-client", "1", *options) as server, ThreadPoolExecutor(1) as pool:
        first = pool.submit(server.get, "/v1/missing", X_Forwarded_For="10.0.0.1")
        server.wait_for("started", 1)
        assert server.get(PREDICT, X_Forwarded_For="10.0.0.2")[0] == (200 if options else 429)
        server.gate.touch()
        assert first.result()[0] == 200


def test_a_proxy_that_is_no_address_is_refused(family_folder, cli):
    refused = cli("serve", family_folder, "--port", 0, "--behind-proxy", "*").err
    assert "--behind-proxy is '*'; give the address of the proxy" in refused


@pytest.mark.thorough
@pytest.mark.parametrize("kind", ["relations", "labels"])
def test_predictions_of_entities_do_not_wait_for(kind, labelled_folder, tmp_path):
    """Questions for relations and classification are heavy work; the labels of an answer change no queue."""
    script = """
from dihedral.errors import DihedralError
from dihedral.predict.predictor import Predictor

def gated(self, *_, **__):
    missing(self)
    raise DihedralError("the gate is open")

Predictor.predict_relations = Predictor.classify = gated
"""
    triple = {"head": "man_0000", "relation": "spouse", "tail": "man_0001"}
    paths = {"relations": "/v1/predict?head=man_0000&tail=man_0001", "labels": "/v1/classify"}
    body = json.dumps({"triples": [triple] * 256}).encode() if kind == "labels" else None
    with serve(labelled_folder, tmp_path, script) as server, ThreadPoolExecutor(20) as pool:
        waiting = [pool.submit(server.get, paths[kind], body, Content_Type="application/json") for _ in range(20)]
        server.wait_for("started", 1)
        for _ in range(3):
            status, _, content = server.get(PREDICT)
            assert status == 200 and "Jürgen Müller" in content.decode()
        assert not any(each.done() for each in waiting)
        server.gate.touch()
        assert {each.result()[0] for each in waiting} == {422}


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
        assert served.rules is None
        mined = client.get("/v1/rules").json()
        assert mined["mined"] and mined["rules"] and client.get("/v1/rules?mine=false").json() == mined
        assert client.get("/v1/relation?name=spouse&mine=false").json()["compositions"]


@pytest.mark.thorough
def test_a_batch_survives_the_client_that_started_it(family_folder, tmp_path):
    with serve(family_folder, tmp_path) as server, ThreadPoolExecutor(1) as pool:
        for _ in range(50):
            vanishing = [server.send(PREDICT) for _ in range(4)]
            staying = pool.submit(server.get, PREDICT)
            for connection in vanishing:
                connection.close()
            assert staying.result()[0] == 200
