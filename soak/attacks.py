"""Malicious clients: hostile requests, and clients that keep a connection open."""

from __future__ import annotations

import random
import socket
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from multiprocessing.queues import Queue
from typing import Any, NamedTuple

JSON = "Content-Type: application/json"
SLOW = ("idle", "slow head", "slow body", "never reads", "endless body")
CLOSED = "closed"  # instead of a status: the server closed the connection


def request(method: str, target: str, body: bytes = b"", *headers: str) -> bytes:
    lines = [f"{method} {target} HTTP/1.1", "Host: localhost", f"Content-Length: {len(body)}", *headers]
    return "\r\n".join(lines).encode("utf-8", "surrogateescape") + b"\r\n\r\n" + body


def post(body: bytes, path: str = "/v1/predict") -> bytes:
    return request("POST", path, body, JSON)


def attacks(rng: random.Random) -> Iterator[tuple[str, bytes]]:
    """One of each kind. The status must never be 5xx, and for path tricks never 200."""
    yield from _body_attacks()
    yield from _head_attacks()
    for junk in (
        b"\x16\x03\x01\x02\x00\x01\x00",
        b"GET /\r\n\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        rng.randbytes(3000),
    ):
        yield "not HTTP", junk + b"\r\n\r\n"
    yield "pipelined", request("GET", "/healthz") * 200


def _body_attacks() -> Iterator[tuple[str, bytes]]:
    for number in ("9" * 6000, "1e999", "-1e999", "NaN", "-Infinity", "-1", "1e-999", "0." + "3" * 5000):
        yield "numbers", post(f'{{"head": "man_0000", "relation": "spouse", "top": {number}}}'.encode())
    for depth in (500, 5_000, 200_000):
        yield "nesting", post(b"[" * depth)
        yield "nesting", post(b'{"head": ' + b"[" * depth + b"]" * depth + b"}")
        yield "nesting", post(b'{"questions":' * depth + b"1" + b"}" * depth)
    for text in (
        b"",
        b"{",
        b"\xff\xfe",
        b"\x00",
        b'{"head": "\\ud800", "relation": "\\udfff"}',
        b'"a"',
        b"null",
        b"[{}]",
    ):
        yield "bad JSON", post(text)
    yield "bad JSON", post(b'{"head": "a", ' * 5_000)
    for name in ("nobody", "\\u0000", "x" * 1_000_000, "‮", "\\ud83d", "%s%n", "'; --", "<script>"):
        yield "unknown names", post(f'{{"head": "{name}", "relation": "spouse"}}'.encode())
        yield "unknown names", post(f'{{"start": "{name}", "via": ["spouse"]}}'.encode(), "/v1/query")
    yield "huge body", request("POST", "/v1/predict", b"", JSON).replace(b"Length: 0", b"Length: 99999999999")
    yield "huge body", request("POST", "/v1/predict", b"", JSON).replace(b"Length: 0", b"Length: " + b"9" * 5000)
    yield "huge body", post(b"[" + b"1," * 900_000 + b"1]")
    yield (
        "many answers",
        post(
            b'{"questions": [' + b",".join([b'{"head": "man_0000", "relation": "spouse", "top": 1000}'] * 256) + b"]}"
        ),
    )
    yield "lengths", request("POST", "/v1/predict", b"{}", JSON, "Content-Length: 3")
    yield "lengths", request("POST", "/v1/predict", b"zz\r\n", JSON, "Transfer-Encoding: chunked")
    yield "lengths", request("POST", "/v1/predict", b"", JSON).replace(b"Length: 0", b"Length: -1")
    yield "lengths", request("POST", "/v1/predict", b"", JSON).replace(b"Length: 0", b"Length: 1e3")
    for rest in (b"zz\r\n", b"-1\r\n", b"fffffffffffffffffffffffff\r\n", b"2\r\n{}x\r\n0\r\n\r\n"):
        yield "chunks", request("POST", "/v1/predict", b"", JSON).replace(
            b"Content-Length: 0", b"Transfer-Encoding: chunked"
        ) + rest  # fmt: skip


def _head_attacks() -> Iterator[tuple[str, bytes]]:
    for trick in (
        "../../etc/passwd", "%2e%2e%2f%2e%2e%2fetc%2fpasswd", "..%5c..%5cwin.ini", "%00", "model%00.json",
        "/etc/passwd", "%252e%252e%252f", "..;/", "a" * 6000, "file:///etc/passwd", "~root", "%f0%28%8c%28", "C:%5c",
    ):  # fmt: skip
        yield "path tricks", request("GET", f"/v1/info?model={trick}")
        yield "path tricks", request("GET", f"/v1/entities/{trick}")
        yield "path tricks", request("GET", f"/v1/models/{trick}")
        yield "path tricks", request("GET", f"/static/{trick}")
        yield "path tricks", request("GET", f"/static/../{trick}")
    yield "headers", request("GET", "/healthz", b"", *(f"X-{i}: {i}" for i in range(5_000)))
    yield "headers", request("GET", "/healthz", b"", f"X-Long: {'a' * 200_000}")
    yield "headers", request("GET", "/v1/models", b"", f"X-API-Key: {'k' * 15_000}", "X-API-Key: other")
    yield "headers", request("GET", "/healthz", b"", "X-Bad\x00: 1")
    yield "headers", request("GET", "/healthz", b"", "Connection: upgrade", "Upgrade: websocket")
    yield "long path", request("GET", "/" + "a" * 100_000)
    for method in ("BREW", "PUT", "TRACE", "CONNECT", "A" * 5_000, "get"):
        yield "methods", request(method, "/v1/predict")
    yield "unicode", request("GET", "/v1/entities/ü\u2028\U0001f600")
    yield "unicode", request("GET", "/v1/entities?search=%ff%fe%c0%af")


def outcome(address: tuple[str, int], raw: bytes, seconds: float = 300) -> str:
    """The status of the first response to raw bytes."""
    try:
        with socket.create_connection(address, timeout=seconds) as connection:
            with suppress(OSError):  # the server may respond and close before everything is sent
                connection.sendall(raw)
            answer = connection.recv(12)
    except ConnectionError:
        return CLOSED
    return answer[9:12].decode("latin-1") or CLOSED


class Held(NamedTuple):
    """How long a slow client kept its connection, and whether the server closed it."""

    seconds: float
    closed_by_server: bool


def hold(address: tuple[str, int], kind: str, max_seconds: float) -> Held:
    """Keep a connection open as a slow client, until the server closes it or `max_seconds` have passed."""
    opening, more = _slow(kind)
    started = time.monotonic()
    with socket.socket() as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection.connect(address)
        connection.settimeout(0.2)
        try:
            connection.sendall(opening)
            while time.monotonic() - started < max_seconds:
                if kind == "never reads":
                    time.sleep(0.2)
                elif _closed(connection):
                    return Held(time.monotonic() - started, True)
                connection.send(more)
        except ConnectionError:
            return Held(time.monotonic() - started, True)
    return Held(time.monotonic() - started, False)


def _slow(kind: str) -> tuple[bytes, bytes]:
    """What a slow client sends first, and then five times per second."""
    head = b"POST /v1/predict HTTP/1.1\r\nHost: localhost\r\n"
    large = request("GET", "/openapi.json")
    return {
        "idle": (b"", b""),
        "slow head": (head + b"X-Slow: ", b"a"),
        "slow body": (head + b"Content-Length: 100000\r\n\r\n", b" "),
        "endless body": (head + b"Transfer-Encoding: chunked\r\n\r\n", b"2000\r\n" + b" " * 0x2000 + b"\r\n"),
        "never reads": (large * 200, large),
    }[kind]


def _closed(connection: socket.socket) -> bool:
    """Whether the server has closed the connection or sent a timeout error."""
    try:
        answer = connection.recv(4096)
    except TimeoutError:
        return False
    return not answer or answer.startswith(b"HTTP/1.1 408")


def attack(
    address: tuple[str, int], seconds: float, num_holders: int, max_held: float, seed: int, results: Queue[Any]
) -> None:
    """Send all attacks repeatedly, with slow clients of each kind; runs in a separate process."""
    statuses: Counter[str] = Counter()
    held: dict[str, list[float]] = {kind: [] for kind in SLOW}
    end = time.monotonic() + seconds
    rng = random.Random(seed)

    def keep_holding(kind: str) -> None:
        while time.monotonic() < end:
            try:
                held[kind].append(hold(address, kind, max_held).seconds)
            except OSError:  # could not connect
                time.sleep(0.5)

    for kind in SLOW * num_holders:
        threading.Thread(target=keep_holding, args=(kind,), daemon=True).start()
    while time.monotonic() < end:
        for kind, raw in attacks(rng):
            if time.monotonic() > end:
                break
            try:
                status = outcome(address, raw)
            except TimeoutError:
                status = "hangs"
            statuses[f"{kind}: {status}"] += 1
            time.sleep(0.02)
    results.put((dict(statuses), {kind: [len(each), max(each, default=0.0)] for kind, each in held.items()}))
