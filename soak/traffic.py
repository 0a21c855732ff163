"""Requests of every kind with their expected status, and a simple client that sends them."""

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

CLOSED_ERRORS = (http.client.RemoteDisconnected, ConnectionResetError, BrokenPipeError)
TIMEOUT_SECONDS = 300.0  # for an answer that never comes; a busy machine may be slow


@dataclass(frozen=True)
class TrafficRequest:
    kind: str
    path: str
    body: Any = None
    status: int = 200
    method: str | None = None


def generate_requests(graph: Graph, rng: random.Random) -> Iterator[TrafficRequest]:
    """An endless stream of random requests, valid and invalid, with their expected status."""
    make = TrafficRequest
    makers: list[Callable[[str, str, str], TrafficRequest]] = [
        lambda h, r, t: make("predict tail", _url("predict", head=h, relation=r)),
        lambda h, r, t: make("predict head", _url("predict", tail=t, relation=r, known="exclude", among="range")),
        lambda h, r, t: make("predict relation", "/v1/predict", {"head": h, "tail": t}),
        lambda h, r, t: make("predict batch", "/v1/predict", {"questions": _questions(graph, rng)}),
        lambda h, r, t: make("classify", "/v1/classify", {"triples": [{"head": h, "relation": r, "tail": t}] * 20}),
        lambda h, r, t: make("query by GET", _url("query", start=h, via=[r, f"~{r}"])),
        lambda h, r, t: make("query by POST", "/v1/query", {"start": h, "via": [r, r]}),
        lambda h, r, t: make("explain", _url("explain", head=h, relation=r, tail=t)),
        lambda h, r, t: make("search", _url("entities", search=h[: rng.randint(1, 6)])),
        lambda h, r, t: make("entity", f"/v1/entities/{quote(h, safe='')}"),
        lambda h, r, t: make("relations", "/v1/relations"),
        lambda h, r, t: make("relation", f"/v1/relations/{quote(r, safe='')}"),
        lambda h, r, t: make("compose", _url("compose", steps=[r, f"~{r}"])),
        lambda h, r, t: make("rules", _url("rules", top=20)),
        lambda h, r, t: make("missing", _url("missing", relation=r, top=5)),
        lambda h, r, t: make("models", "/v1/models"),
        lambda h, r, t: make("info", "/v1/info"),
        lambda h, r, t: make("metrics", "/metrics"),
        lambda h, r, t: make("page", rng.choice(["/", "/docs", "/static/explorer.js", "/static/explorer.css"])),
        lambda h, r, t: make("openapi", "/openapi.json"),
        lambda h, r, t: make("health", "/healthz"),
        lambda h, r, t: make("unknown entity", _url("predict", head=f"{h}x", relation=r), status=404),
        lambda h, r, t: make("unknown path", f"/v1/{r}", status=404),
        lambda h, r, t: make("wrong method", "/v1/rules", method="DELETE", status=405),
        lambda h, r, t: make("wrong field", "/v1/predict", {"head": h, "relation": r, "top": 0}, status=422),
        lambda h, r, t: make("not JSON", "/v1/predict", b'{"head": ', status=400),
        lambda h, r, t: make("too large", "/v1/predict", b" " * (1 << 20) + b"{}", status=413),
    ]
    while True:
        yield rng.choice(makers)(*_fact(graph, rng))


def _fact(graph: Graph, rng: random.Random) -> tuple[str, str, str]:
    return next(iter(graph.names_of(graph.train[[rng.randrange(len(graph.train))]])))


def _questions(graph: Graph, rng: random.Random) -> list[dict[str, Any]]:
    facts = [_fact(graph, rng) for _ in range(rng.randint(1, 30))]
    return [{"head": head, "relation": relation, "top": rng.randint(1, 20)} for head, relation, _ in facts]


def _url(name: str, **parameters: Any) -> str:
    return f"/v1/{name}?{urlencode(parameters, doseq=True)}"


@dataclass
class TrafficStats:
    """What the clients observed."""

    seconds: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))  # by kind
    losses: Counter[str] = field(default_factory=Counter)
    reopened: int = 0  # connections that the server had closed before the next request


class Client:
    """One persistent connection; if the server has closed it, the client reconnects once (RFC 9112, 9.3.1)."""

    def __init__(self, address: str, stats: TrafficStats) -> None:
        self.address = address
        self.stats = stats
        self.connection: http.client.HTTPConnection | None = None

    def send(self, request: TrafficRequest) -> bytes:
        started = time.perf_counter()
        try:
            status, content = self._send_or_reconnect(request)
        except (OSError, http.client.HTTPException) as error:
            self.close()
            self.stats.losses[f"{request.kind}: {type(error).__name__}: {error}"] += 1
            return b""
        self.stats.seconds[request.kind].append(time.perf_counter() - started)
        if status != request.status:
            self.stats.losses[f"{request.kind}: status {status}, expected {request.status}: {content[:200]!r}"] += 1
        return content

    def _send_or_reconnect(self, request: TrafficRequest) -> tuple[int, bytes]:
        if self.connection is not None:
            try:
                return self._send(self.connection, request)
            except CLOSED_ERRORS:
                self.close()
                self.stats.reopened += 1
        self.connection = http.client.HTTPConnection(self.address, timeout=TIMEOUT_SECONDS)
        return self._send(self.connection, request)

    def _send(self, connection: http.client.HTTPConnection, request: TrafficRequest) -> tuple[int, bytes]:
        body = request.body if request.body is None or isinstance(request.body, bytes) else json.dumps(request.body)
        method = request.method or ("GET" if body is None else "POST")
        connection.request(method, request.path, body, {} if body is None else {"Content-Type": "application/json"})
        response = connection.getresponse()
        content = response.read()
        if response.will_close:
            self.close()
        return response.status, content

    def close(self) -> None:
        if self.connection is not None:
            self.connection.close()
            self.connection = None
