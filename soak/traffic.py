"""Requests of every kind with the status that is right for them, and a plain client that asks them."""

from __future__ import annotations

import http.client
import json
import random
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote, urlencode

from dihedral.graph import Graph

STALE = (http.client.RemoteDisconnected, ConnectionResetError, BrokenPipeError)
TIMEOUT = 30.0


@dataclass(frozen=True)
class Ask:
    kind: str
    path: str
    body: Any = None
    status: int = 200
    method: str | None = None


def asks(graph: Graph, rng: random.Random) -> Iterator[Ask]:
    """Without end: good requests of all kinds, and wrong ones whose right answer is an error."""
    makers: list[Callable[[str, str, str], Ask]] = [
        lambda h, r, t: Ask("predict tail", _url("predict", head=h, relation=r)),
        lambda h, r, t: Ask("predict head", _url("predict", tail=t, relation=r, known="exclude", among="range")),
        lambda h, r, t: Ask("predict relation", "/v1/predict", {"head": h, "tail": t}),
        lambda h, r, t: Ask("predict batch", "/v1/predict", {"questions": _questions(graph, rng)}),
        lambda h, r, t: Ask("classify", "/v1/classify", {"triples": [{"head": h, "relation": r, "tail": t}] * 20}),
        lambda h, r, t: Ask("query product", _url("query", start=h, via=[r, f"~{r}"])),
        lambda h, r, t: Ask("query beam", "/v1/query", {"start": h, "via": [r, r], "mode": "beam"}),
        lambda h, r, t: Ask("explain", _url("explain", head=h, relation=r, tail=t)),
        lambda h, r, t: Ask("search", _url("entities", search=h[: rng.randint(1, 6)])),
        lambda h, r, t: Ask("entity", f"/v1/entities/{quote(h, safe='')}"),
        lambda h, r, t: Ask("relations", "/v1/relations"),
        lambda h, r, t: Ask("relation", f"/v1/relations/{quote(r, safe='')}"),
        lambda h, r, t: Ask("compose", _url("compose", steps=[r, f"~{r}"])),
        lambda h, r, t: Ask("rules", _url("rules", top=20)),
        lambda h, r, t: Ask("missing", _url("missing", relation=r, top=5)),
        lambda h, r, t: Ask("models", "/v1/models"),
        lambda h, r, t: Ask("info", "/v1/info"),
        lambda h, r, t: Ask("metrics", "/metrics"),
        lambda h, r, t: Ask("page", rng.choice(["/", "/docs", "/static/explorer.js", "/static/explorer.css"])),
        lambda h, r, t: Ask("openapi", "/openapi.json"),
        lambda h, r, t: Ask("health", "/healthz"),
        lambda h, r, t: Ask("unknown entity", _url("predict", head=f"{h}x", relation=r), status=404),
        lambda h, r, t: Ask("unknown path", f"/v1/{r}", status=404),
        lambda h, r, t: Ask("wrong method", "/v1/rules", method="DELETE", status=405),
        lambda h, r, t: Ask("wrong field", "/v1/predict", {"head": h, "relation": r, "top": 0}, status=422),
        lambda h, r, t: Ask("not JSON", "/v1/predict", b'{"head": ', status=400),
        lambda h, r, t: Ask("too large", "/v1/predict", b" " * (1 << 20) + b"{}", status=413),
    ]
    while True:
        yield rng.choice(makers)(*_fact(graph, rng))


def _fact(graph: Graph, rng: random.Random) -> tuple[str, str, str]:
    return next(iter(graph.labels(graph.train[[rng.randrange(len(graph.train))]])))


def _questions(graph: Graph, rng: random.Random) -> list[dict[str, Any]]:
    facts = [_fact(graph, rng) for _ in range(rng.randint(1, 30))]
    return [{"head": head, "relation": relation, "top": rng.randint(1, 20)} for head, relation, _ in facts]


def _url(name: str, **parameters: Any) -> str:
    return f"/v1/{name}?{urlencode(parameters, doseq=True)}"


@dataclass
class Tally:
    """What clients saw."""

    seconds: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))  # by kind
    losses: Counter[str] = field(default_factory=Counter)
    reopened: int = 0  # connections that turned out to be closed when used again


class Client:
    """One open connection, opened again once where the server has closed it, as clients do (RFC 9112, 9.3.1)."""

    def __init__(self, address: str, tally: Tally) -> None:
        self.address = address
        self.tally = tally
        self.connection: http.client.HTTPConnection | None = None

    def ask(self, asked: Ask) -> bytes:
        begin = time.perf_counter()
        try:
            status, content = self._ask(asked)
        except (OSError, http.client.HTTPException) as error:
            self.close()
            self.tally.losses[f"{asked.kind}: {type(error).__name__}: {error}"] += 1
            return b""
        self.tally.seconds[asked.kind].append(time.perf_counter() - begin)
        if status != asked.status:
            self.tally.losses[f"{asked.kind}: status {status}, not {asked.status}: {content[:200]!r}"] += 1
        return content

    def _ask(self, asked: Ask) -> tuple[int, bytes]:
        if self.connection is not None:
            try:
                return self._send(self.connection, asked)
            except STALE:
                self.close()
                self.tally.reopened += 1
        self.connection = http.client.HTTPConnection(self.address, timeout=TIMEOUT)
        return self._send(self.connection, asked)

    def _send(self, connection: http.client.HTTPConnection, asked: Ask) -> tuple[int, bytes]:
        body = asked.body if asked.body is None or isinstance(asked.body, bytes) else json.dumps(asked.body)
        method = asked.method or ("GET" if body is None else "POST")
        connection.request(method, asked.path, body, {} if body is None else {"Content-Type": "application/json"})
        answer = connection.getresponse()
        content = answer.read()
        if answer.will_close:
            self.close()
        return answer.status, content

    def close(self) -> None:
        if self.connection is not None:
            self.connection.close()
            self.connection = None
