"""The server process: reloading and replacement under traffic, slow clients, attacks, and flat memory."""

from __future__ import annotations

import asyncio
import gc
import json
import random
import shutil
import socket
import threading
import time
import weakref
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from http.client import HTTPConnection
from pathlib import Path

import pytest
from fastapi.testclient import TestClient

import dihedral as dh
from dihedral.serve.app import create_app
from dihedral.serve.served_model import read_models
from dihedral.serve.server import listen, reload_models
from dihedral.update.update import update_folder
from soak.attacks import SLOW, attacks, hold, outcome, request
from soak.server import Running, served_seed
from soak.traffic import Client, TrafficRequest, TrafficStats, generate_requests

SHORT_TIMEOUTS = """
import dihedral.serve.connections as c, dihedral.serve.guard as g
c.MAX_HEAD_SECONDS, c.MAX_READ_SECONDS, g.MAX_BODY_SECONDS, c.MAX_CONNECTIONS = 1.5, 1.5, 1.5, 60
"""
pytestmark = [pytest.mark.thorough, pytest.mark.usefixtures("probabilities_of_small_graphs")]
MIN_REQUESTS = 4  # per client
MAX_SECONDS = 300  # a hang, not a slow machine
HEALTH = TrafficRequest("health", "/healthz")


@pytest.fixture(scope="module")
def graph() -> dh.Graph:
    return dh.make_family(80)


@dataclass(frozen=True)
class StrictServer:
    """A server with short timeouts and few connections, and its model folder."""

    folder: Path
    running: Running
    address: tuple[str, int]

    @property
    def location(self) -> str:
        return "{}:{}".format(*self.address)


@pytest.fixture(scope="module")
def strict_server(family_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[StrictServer]:
    """It must exit with 0 after all tests."""
    folder = tmp_path_factory.mktemp("strict") / "model"
    shutil.copytree(family_folder, folder)
    with listen("127.0.0.1", 0) as listener, Running(folder, listener, SHORT_TIMEOUTS) as server:
        yield StrictServer(folder, server.wait_until_ready(), listener.getsockname())
        assert server.stop() == (0, "stopped")


@contextmanager
def traffic(location: str, graph: dh.Graph, num_clients: int = 6) -> Iterator[TrafficStats]:
    """Requests of all kinds while the block runs, at least MIN_REQUESTS per client."""
    stats, stop = TrafficStats(), threading.Event()

    def work(number: int) -> None:
        client = Client(location, stats)
        for count, each in enumerate(generate_requests(graph, random.Random(number))):
            if stop.is_set() and count >= MIN_REQUESTS:
                break
            client.send(each)
        client.close()

    with ThreadPoolExecutor(num_clients) as pool:
        clients = [pool.submit(work, number) for number in range(num_clients)]
        try:
            yield stats
        finally:
            stop.set()
    for client in clients:
        client.result()


def test_a_model_is_reloaded_under_traffic(strict_server, graph):
    server, folder, location = strict_server.running, strict_server.folder, strict_server.location
    another = dh.train(graph, "demo/family", dimension=64, epochs=1, seed=7, progress=False, device="cpu")
    with traffic(location, graph) as stats:
        manifest = (folder / "model.json").read_bytes()
        (folder / "model.json").write_bytes(manifest[:-20])
        assert server.reload().startswith("model 'model' was not reloaded: ") and served_seed(location) == 0
        (folder / "model.json").write_bytes(manifest)
        another.save(folder, overwrite=True)
        assert server.reload() == "model 'model' was reloaded" and served_seed(location) == 7
    assert stats.losses == {} and sum(map(len, stats.seconds.values())) >= 6 * MIN_REQUESTS


def test_an_updated_model_is_taken_under_traffic(strict_server, graph):
    server, folder, location = strict_server.running, strict_server.folder, strict_server.location
    facts = [("zoe", "sibling", "man_0001"), ("zoe", "likes", "man_0002")]
    with traffic(location, graph) as stats:
        update_folder(folder, add=facts, remove=list(graph.names_of(graph.train[:1])), progress=False)
        assert server.reload() == "model 'model' was reloaded"
        status, body = ask(location, "/v1/predict?head=zoe&relation=likes&top=1")
        assert status == 200 and json.loads(body)["predictions"][0]["head"] == "zoe"
    assert stats.losses == {} and sum(map(len, stats.seconds.values())) >= 6 * MIN_REQUESTS


def ask(location: str, path: str) -> tuple[int, bytes]:
    connection = HTTPConnection(location, timeout=MAX_SECONDS)
    try:
        connection.request("GET", path)
        answer = connection.getresponse()
        return answer.status, answer.read()
    finally:
        connection.close()


def test_a_replaced_model_is_freed(family_folder):
    app = create_app(read_models([f"model={family_folder}"]))
    with TestClient(app) as client:
        old = weakref.ref(app.state.batchers["model"].served)
        for path in ("/v1/relations", "/v1/rules", "/v1/missing", "/v1/predict?head=man_0000&relation=spouse"):
            assert client.get(path).status_code == 200
        asyncio.run(reload_models(app, lambda text: None))
        end = time.monotonic() + MAX_SECONDS
        while old() is not None and time.monotonic() < end:  # the thread that answered last may still hold it
            gc.collect()
        assert old() is None and client.get("/v1/relations").status_code == 200


def test_a_server_is_replaced_under_traffic(family_folder, graph):
    with listen("127.0.0.1", 0) as listener, ExitStack() as stack:
        first, second = (stack.enter_context(Running(family_folder, listener)) for _ in range(2))
        location = "{}:{}".format(*listener.getsockname())
        first.wait_until_ready()
        with traffic(location, graph) as stats:
            second.wait_until_ready()
            assert first.stop() == (0, "stopped")
        assert stats.losses == {}


def test_open_connections_are_answered_during_shutdown(family_folder):
    with listen("127.0.0.1", 0) as listener, Running(family_folder, listener) as server:
        location, stats = "{}:{}".format(*listener.getsockname()), TrafficStats()
        server.wait_until_ready()
        idle, busy = Client(location, stats), Client(location, stats)
        for client in (idle, busy):
            client.send(HEALTH)
        batch = [{"head": "man_0000", "relation": "spouse", "top": 80}] * 256
        with ThreadPoolExecutor() as pool:
            answered = pool.submit(busy.send, TrafficRequest("batch", "/v1/predict", {"questions": batch}))
            stopped = pool.submit(server.stop)
            while idle.connection is not None:  # until a response announces that the connection closes
                idle.send(HEALTH)
        assert answered.result() and stopped.result() == (0, "stopped")
        assert stats.losses == {} and stats.reopened == 0


def test_slow_clients_are_disconnected(strict_server):
    with ThreadPoolExecutor() as pool:
        held = dict(zip(SLOW, pool.map(lambda kind: hold(strict_server.address, kind, MAX_SECONDS), SLOW), strict=True))
    assert {kind: each.closed_by_server for kind, each in held.items()} == dict.fromkeys(SLOW, True)


def test_slow_clients_beyond_the_limit_make_room_for_others(strict_server):
    stats = TrafficStats()
    with ThreadPoolExecutor(90) as pool:
        held = [pool.submit(hold, strict_server.address, "slow head", 3) for _ in range(90)]
        client = Client(strict_server.location, stats)
        for _ in range(20):
            client.send(HEALTH)
    assert all(each.exception() is None for each in held) and stats.losses == {}


def test_attacks_get_error_responses_and_the_server_survives(strict_server):
    for kind, raw in attacks(random.Random(0)):
        status = outcome(strict_server.address, raw, MAX_SECONDS)
        assert status[0] in ("4" if kind == "path tricks" else "24"), (kind, raw[:100], status)
    assert outcome(strict_server.address, request("GET", "/healthz")) == "200"


@pytest.mark.parametrize(("first", "later"), [(1, b""), (0, b"no size\r\n")])
def test_a_request_that_is_refused_and_malformed_gets_one_answer(strict_server, first, later):
    head = b"POST /v1/predict HTTP/1.1\r\nHost: elsewhere\r\nTransfer-Encoding: chunked\r\n\r\n"
    with socket.create_connection(strict_server.address) as client:
        client.sendall(head + first * b"no size\r\n")
        assert client.recv(1 << 16)[:12] in (b"HTTP/1.1 400", b"HTTP/1.1 403")
        with suppress(OSError):  # the server may have closed the connection
            client.sendall(later)


@pytest.mark.parametrize(
    ("warm_up", "requests", "megabytes"), [(400, 750, 4), pytest.param(700, 1500, 8, marks=pytest.mark.slow)]
)
def test_memory_stays_flat(strict_server, graph, warm_up, requests, megabytes):
    stats, traffic = TrafficStats(), generate_requests(graph, random.Random(0))
    client = Client(strict_server.location, stats)
    for _ in range(warm_up):
        client.send(next(traffic))
    before = strict_server.running.resident_mb()
    for _ in range(requests):
        client.send(next(traffic))
    assert strict_server.running.resident_mb() - before < megabytes and stats.losses == {}
