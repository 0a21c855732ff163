"""The server as a process: models swapped and servers replaced under traffic, slow clients, attacks, flat memory."""

from __future__ import annotations

import asyncio
import gc
import json
import random
import shutil
import threading
import time
import weakref
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from fastapi.testclient import TestClient
from soak.attacks import SLOW, attacks, hold, outcome, request
from soak.server import Running
from soak.traffic import Ask, Client, Tally, asks

import dihedral as dh
from dihedral.serving.app import create_app
from dihedral.serving.served_model import read_models
from dihedral.serving.server import listen, reload_models

HASTY = """
import dihedral.serving.connections as c, dihedral.serving.guard as g
c.HEAD_SECONDS, c.SEND_SECONDS, g.BODY_SECONDS, c.MAX_CONNECTIONS = 1.5, 1.5, 1.5, 60
"""


@pytest.fixture(scope="module")
def graph() -> dh.Graph:
    return dh.make_family(80)


@dataclass(frozen=True)
class Hasty:
    """A server of little patience, with a model folder of its own."""

    folder: Path
    running: Running
    address: tuple[str, int]


@pytest.fixture(scope="module")
def hasty(family_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hasty]:
    """It must end in peace whatever was done to it."""
    folder = tmp_path_factory.mktemp("hasty") / "model"
    shutil.copytree(family_folder, folder)
    with listen("127.0.0.1", 0) as listener, Running(folder, listener, HASTY) as server:
        yield Hasty(folder, server.wait_until_ready(), listener.getsockname())
        assert server.stop() == (0, "stopped")


@contextmanager
def traffic(address: tuple[str, int], graph: dh.Graph, clients: int = 6) -> Iterator[Tally]:
    """Good requests of all kinds while the block runs."""
    tally, stop = Tally(), threading.Event()

    def work(number: int) -> None:
        client, stream = Client("{}:{}".format(*address), tally), asks(graph, random.Random(number))
        while not stop.is_set():
            client.ask(next(stream))
        client.close()

    threads = [threading.Thread(target=work, args=(number,)) for number in range(clients)]
    for thread in threads:
        thread.start()
    try:
        yield tally
    finally:
        stop.set()
        for thread in threads:
            thread.join()


def seed_of(address: tuple[str, int]) -> int:
    answer = Client("{}:{}".format(*address), Tally()).ask(Ask("info", "/v1/info"))
    return int(json.loads(answer)["metrics"]["seed"])


def test_a_model_is_swapped_under_traffic(hasty, graph):
    server, folder = hasty.running, hasty.folder
    another = dh.train(graph, "demo/family", dimension=64, epochs=1, seed=7, progress=False, device="cpu")
    with traffic(hasty.address, graph) as tally:
        manifest = (folder / "model.json").read_bytes()
        (folder / "model.json").write_bytes(manifest[:-20])
        refused = server.swap()
        assert refused.startswith("model 'model' stays as it was: ") and seed_of(hasty.address) == 0
        (folder / "model.json").write_bytes(manifest)
        another.save(folder, overwrite=True)
        assert server.swap() == "model 'model' was opened again" and seed_of(hasty.address) == 7
    assert tally.losses == {} and sum(map(len, tally.seconds.values())) > 20


def test_a_model_that_was_swapped_is_freed(family_folder):
    app = create_app(read_models([f"model={family_folder}"]))
    with TestClient(app) as client:
        old = weakref.ref(app.state.batchers["model"].served)
        for path in ("/v1/relations", "/v1/rules", "/v1/missing", "/v1/predict?head=man_0000&relation=spouse"):
            assert client.get(path).status_code == 200
        asyncio.run(reload_models(app, lambda text: None))
        gc.collect()
        assert old() is None and client.get("/v1/relations").status_code == 200


def test_a_server_is_replaced_under_traffic(family_folder, graph):
    with listen("127.0.0.1", 0) as listener, ExitStack() as stack:
        first, second = (stack.enter_context(Running(family_folder, listener)) for _ in range(2))
        address = listener.getsockname()
        first.wait_until_ready()
        with traffic(address, graph) as tally:
            second.wait_until_ready()
            assert first.stop() == (0, "stopped")
        assert tally.losses == {}

        tally.reopened = 0
        idle, busy = Client("{}:{}".format(*address), tally), Client("{}:{}".format(*address), tally)
        idle.ask(Ask("health", "/healthz"))
        batch = [{"head": "man_0000", "relation": "spouse", "top": 80}] * 256
        asking = threading.Thread(target=busy.ask, args=(Ask("batch", "/v1/predict", {"questions": batch}),))
        stopping = threading.Thread(target=second.stop)
        for thread in (asking, stopping):
            thread.start()
        time.sleep(0.3)
        idle.ask(Ask("health", "/healthz"))
        assert idle.connection is None  # the answer said that it is the last one
        for thread in (asking, stopping):
            thread.join()
        assert tally.losses == {} and tally.reopened == 0 and second.process.returncode == 0


def test_slow_clients_are_cut_off(hasty):
    with ThreadPoolExecutor() as pool:
        seconds = dict(zip(SLOW, pool.map(lambda kind: hold(hasty.address, kind, 10), SLOW), strict=True))
    assert max(seconds.values()) < 6, seconds


def test_slow_clients_beyond_the_limit_make_room_for_good_ones(hasty, graph):
    held = [threading.Thread(target=hold, args=(hasty.address, "slow head", 3), daemon=True) for _ in range(90)]
    for thread in held:
        thread.start()
    tally = Tally()
    client = Client("{}:{}".format(*hasty.address), tally)
    for _ in range(20):
        client.ask(Ask("health", "/healthz"))
    for thread in held:
        thread.join()
    assert tally.losses == {}


def test_attacks_are_answered_with_errors_and_the_server_lives(hasty):
    for kind, raw in attacks(random.Random(0)):
        status = outcome(hasty.address, raw, 10)
        assert status[0] in ("4" if kind == "path tricks" else "24"), (kind, raw[:100], status)
    assert outcome(hasty.address, request("GET", "/healthz")) == "200"


def test_memory_stays_flat(hasty, graph):
    server = hasty.running
    tally, stream = Tally(), asks(graph, random.Random(0))
    client = Client("{}:{}".format(*hasty.address), tally)
    for _ in range(700):
        client.ask(next(stream))
    before = server.resident_mb()
    for _ in range(1500):
        client.ask(next(stream))
    assert server.resident_mb() - before < 8 and tally.losses == {}
