"""The review queue over HTTP: filters, decisions that are on the disk, undo, export, and who may write."""

from __future__ import annotations

import http.client
import itertools
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from fastapi.testclient import TestClient

import dihedral as dh
from dihedral.io.jsonl import LockedError
from dihedral.serve.app import create_app
from dihedral.serve.served_model import ServedModel
from dihedral.store.folder import relabel_model
from dihedral.store.reviews import Reviews

PARTS = ("head", "relation", "tail")


@pytest.fixture
def folder(family_folder, tmp_path) -> Path:
    return Path(shutil.copytree(family_folder, tmp_path / "family"))


@pytest.fixture
def client(folder):
    with TestClient(create_app({"family": ServedModel("family", folder)})) as client:
        yield client


def fact(row) -> dict[str, str]:
    return {part: row[part] for part in PARTS}


def queue(client, **params):
    answer = client.get("/v1/review", params={"reviewer": "eve", **params})
    assert answer.status_code == 200, answer.text
    return answer.json()


def decide(client, row, decision, reviewer="eve", **more):
    answer = client.post("/v1/review", json={**fact(row), "decision": decision, "reviewer": reviewer, **more})
    assert answer.status_code == 200, answer.text
    return answer.json()


def test_nothing_is_looked_for_unless_asked(client, monkeypatch):
    calls = []
    real = dh.predict.reviewing.missing_facts
    monkeypatch.setattr("dihedral.predict.reviewing.missing_facts", lambda *a, **k: calls.append(k) or real(*a, **k))
    first = queue(client)
    assert (first["found"], first["facts"], first["total"]) == (False, [], 0) and calls == []
    found = queue(client, find=True, top=5)
    assert found["found"] and len(found["facts"]) == 5 and found["total"] > 5
    queue(client, find=True)
    queue(client)
    assert len(calls) == 1


def test_decisions_leave_the_queue_and_are_on_the_disk(client, folder):
    rows = queue(client, find=True)["facts"]
    answer = decide(client, rows[0], "accept", note="seen")
    assert answer["fact"]["decision"] == answer["fact"]["decision"] | {"decision": "accept", "note": "seen"}
    assert answer["counts"] == {"accepted": 1, "rejected": 0, "skipped": 0}
    decide(client, rows[1], "reject")
    decide(client, rows[2], "skip")
    stored = [json.loads(line) for line in (folder / "reviews.jsonl").read_text().splitlines()]
    assert [row["decision"] for row in stored] == ["accept", "reject", "skip"]
    assert stored[0]["probability"] == pytest.approx(rows[0]["probability"], rel=1e-3)
    assert [fact(row) for row in queue(client, top=97)["facts"]] == [fact(row) for row in rows[3:]]
    assert fact(queue(client, reviewer="kim")["facts"][0]) == fact(rows[2])
    for state, row in (("accept", rows[0]), ("reject", rows[1]), ("skip", rows[2])):
        listed = queue(client, state=state)["facts"]
        assert [fact(each) for each in listed] == [fact(row)] and listed[0]["decision"]["decision"] == state


def test_skips_of_one_reviewer_are_open_to_others(client):
    """Also if one skipped them before the search."""
    params = {"relation": "spouse", "find": True}
    skipped = queue(client, **params)["facts"][0]
    decide(client, skipped, "skip")
    client.app.state.batchers["family"].served.proposals.clear()
    assert fact(skipped) not in [fact(row) for row in queue(client, **params)["facts"]]
    assert fact(queue(client, reviewer="kim", relation="spouse")["facts"][0]) == fact(skipped)
    assert fact(skipped) not in [fact(row) for row in queue(client, **params)["facts"]]


def test_skipped_facts_are_listed_with_their_probability(client):
    row = queue(client, find=True)["facts"][0]
    decide(client, row, "skip")
    (listed,) = queue(client, state="skip", min_probability=row["probability"] / 2)["facts"]
    assert listed["probability"] == pytest.approx(row["probability"], rel=1e-3)


def test_undo_takes_back_the_latest_or_the_one_named(client):
    rows = queue(client, find=True)["facts"][:3]
    for row in rows:
        decide(client, row, "accept")
    undone = client.post("/v1/review", json={"decision": "undo", "reviewer": "eve"}).json()
    assert fact(undone["fact"]) == fact(rows[2]) and undone["undone"]["decision"] == "accept"
    assert undone["fact"]["decision"] is None
    assert fact(decide(client, rows[0], "undo")["fact"]) == fact(rows[0])
    refused = client.post("/v1/review", json={"decision": "undo", "reviewer": "kim"})
    assert refused.status_code == 422 and "no decision that can be undone" in refused.json()["detail"]


def test_filters(folder):
    relabel_model(folder, {"man_0000": {"label": "Abe", "type": "Patriarch"}}, "en")
    with TestClient(create_app({"family": ServedModel("family", folder)})) as client:
        assert queue(client)["types"] == [{"name": "Patriarch", "entities": 1}]
        rows = queue(client, find=True, relation="spouse")["facts"]
        assert {row["relation"] for row in rows} == {"spouse"} and not queue(client)["found"]
        limit = rows[3]["probability"]
        assert all(
            row["probability"] >= limit for row in queue(client, relation="spouse", min_probability=limit)["facts"]
        )
        found = queue(client, find=True, type="Patriarch")
        assert found["facts"] and all("man_0000" in (row["head"], row["tail"]) for row in found["facts"])
        assert found["labels"]["man_0000"] == "Abe"
        decide(client, found["facts"][0], "accept")
        assert queue(client, state="accept", type="Patriarch")["total"] == 1
        assert queue(client, state="accept", relation="sibling", min_probability=1)["total"] == 0
        unknown = client.get("/v1/review", params={"type": "patriarchs"})
        assert unknown.status_code == 404 and unknown.json()["suggestions"] == ["Patriarch"]
        assert client.get("/v1/review", params={"relation": "spuse"}).json()["suggestions"] == ["spouse"]


@pytest.mark.parametrize(
    ("body", "detail"),
    [
        ({"decision": "accept", "reviewer": "eve"}, "is about a fact; give its head, relation and tail"),
        ({"decision": "undo", "reviewer": "eve", "head": "man_0000"}, "is about a fact"),
        ({"decision": "maybe", "reviewer": "eve"}, "decision is 'maybe'; it must be 'accept', 'reject'"),
        ({"decision": "undo"}, "reviewer is missing"),
        ({"decision": "undo", "reviewer": "  "}, "reviewer is ''; give a name"),
    ],
)
def test_invalid_decisions_are_refused(client, folder, body, detail):
    answer = client.post("/v1/review", json=body)
    assert answer.status_code == 422 and detail in answer.json()["detail"]
    assert not Reviews(folder).standing()


def test_a_known_fact_or_name_is_checked(client, models):
    known = dict(zip(PARTS, next(models["family"].graph.names_of(models["family"].graph.train)), strict=True))
    answer = client.post("/v1/review", json={**known, "decision": "accept", "reviewer": "eve"})
    assert answer.status_code == 422 and "is in the graph" in answer.json()["detail"]
    answer = client.post("/v1/review", json={**known, "head": "man_000", "decision": "accept", "reviewer": "eve"})
    assert answer.status_code == 404 and "man_0000" in answer.json()["suggestions"]


def test_rejected_facts_leave_the_list_of_missing_facts(client):
    rows = client.get("/v1/missing", params={"top": 3}).json()["facts"]
    decide(client, rows[0], "reject")
    decide(client, rows[1], "accept")
    after = client.get("/v1/missing", params={"top": 2}).json()["facts"]
    assert [fact(row) for row in after] == [fact(row) for row in rows[1:]]
    assert [row["decision"] for row in after] == ["accept", None]


def test_export(client):
    rows = queue(client, find=True)["facts"]
    decide(client, rows[0], "accept", note="a\tb")
    decide(client, rows[1], "reject", reviewer="kim")
    answer = client.get("/v1/review/export")
    assert answer.headers["content-disposition"] == 'attachment; filename="reviews.tsv"'
    lines = [line.split("\t") for line in answer.text.splitlines()]
    assert lines[0][:7] == [*PARTS, "decision", "probability", "uncorrected", "note"] and lines[1][6] == "a b"
    assert [line[3] for line in lines[1:]] == ["accept", "reject"]
    triples = client.get("/v1/review/export", params={"format": "ntriples"}).text
    assert triples == "<urn:dihedral:{head}> <urn:dihedral:{relation}> <urn:dihedral:{tail}> .\n".format(**rows[0])
    assert client.get("/v1/review/export", params={"format": "nquads"}).text.count("\n") == 2


def test_a_server_that_others_can_reach_takes_decisions_only_with_a_key(folder):
    app = create_app({"family": ServedModel("family", folder)}, takes_decisions=False)
    with TestClient(app) as client:
        assert queue(client)["writable"] is False
        answer = client.post("/v1/review", json={"decision": "undo", "reviewer": "eve"})
        assert answer.status_code == 403 and "--api-key" in answer.json()["detail"]


# --- several reviewers and crashes, on a real server ------------------------------------------------


class Server:
    """`dihedral serve` in another process."""

    def __init__(self, folder: Path) -> None:
        command = [sys.executable, "-m", "dihedral", "serve", str(folder), "--port", "0"]
        environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)
        assert self.process.stdout is not None
        self.port = int(self.process.stdout.readline().rsplit(":", 1)[1])

    def post(self, body) -> bool:
        """Whether a decision was acknowledged."""
        try:
            connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=300)
            connection.request("POST", "/v1/review", json.dumps(body), {"Content-Type": "application/json"})
            return connection.getresponse().status == 200
        except (OSError, http.client.HTTPException):
            return False

    def end(self, number: int) -> None:
        self.process.send_signal(number)
        self.process.wait(timeout=300)


@pytest.fixture
def proposals(folder) -> list[dict[str, str]]:
    found = dh.missing_facts(dh.load(folder), top=300).to_pylist()
    return [fact(row) for row in found]


def test_no_acknowledged_decision_is_lost_when_the_server_is_killed(folder, proposals):
    kept, rng, left = [], random.Random(0), iter(proposals)
    for _ in range(2):
        server = Server(folder)
        with ThreadPoolExecutor(1) as pool:
            for row in itertools.islice(left, rng.randrange(1, 10)):
                assert server.post({**row, "decision": "accept", "reviewer": "eve"})
                kept.append(tuple(row.values()))
            row = next(left)
            last = pool.submit(server.post, {**row, "decision": "accept", "reviewer": "eve"})
            server.end(signal.SIGKILL)  # while the last decision is sent
        if last.result():
            kept.append(tuple(row.values()))
        with (folder / "reviews.jsonl").open("ab") as stream:  # what a crash of the machine may leave
            stream.write(b'{"head": "man_')
        assert set(kept) <= set(Reviews(folder).facts("accept"))
    assert len(kept) >= 2


@pytest.mark.thorough
def test_reviewers_in_the_server_and_on_the_command_line_lose_nothing(folder, proposals, python):
    server = Server(folder)
    script = (
        "import sys, io; sys.stdin = io.StringIO('reject\\n' * 40)\n"
        "from dihedral.cli.main import main; sys.argv = ['dihedral', *sys.argv[1:]]; main()"
    )
    done, acknowledged = [], []

    def post(reviewer: str) -> None:
        for row in proposals[-60:]:
            acknowledged.append(server.post({**row, "decision": "accept", "reviewer": reviewer}))

    threads = [threading.Thread(target=post, args=(name,)) for name in ("kim", "lou", "mo")]
    words = ("-c", script, "review", folder, "--top", 40, "--reviewer", "eve")
    threads.append(threading.Thread(target=lambda: done.append(python(*words))))
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    server.end(signal.SIGTERM)
    assert done[0].returncode == 0 and all(acknowledged) and len(acknowledged) == 180
    reviews = Reviews(folder)
    assert {name: len(reviews.opinions(name)) for name in ("eve", "kim", "lou", "mo")} == {
        "eve": 40, "kim": 60, "lou": 60, "mo": 60,
    }  # fmt: skip


def test_a_decision_that_waits_for_another_process_delays_no_lookup(client, folder, monkeypatch):
    """Its lock is held by somebody else: the answer is 503 with a time to try again, and names no path."""
    waiting, go = threading.Event(), threading.Event()

    def wait(journal, descriptor):
        waiting.set()
        go.wait()
        raise LockedError(f"{str(journal.path)!r} is locked by another process; try again later")

    monkeypatch.setattr("dihedral.io.jsonl.Journal._wait", wait)
    row = {"head": "man_0000", "relation": "parent", "tail": "man_0001", "decision": "accept", "reviewer": "eve"}
    with ThreadPoolExecutor(20) as pool:
        decided = [pool.submit(client.post, "/v1/review", json=row) for _ in range(20)]
        waiting.wait()
        assert client.get("/v1/entities?search=man").status_code == client.get("/v1/review").status_code == 200
        go.set()
        for each in decided:
            answer = each.result()
            assert answer.status_code == 503 and answer.headers["retry-after"] == "5"
            assert answer.json()["detail"] == "'reviews.jsonl' is locked by another process; try again later"
