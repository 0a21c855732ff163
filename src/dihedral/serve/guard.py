"""Middleware for every request: API key, origin, limits on body and time, response headers, and metrics."""

from __future__ import annotations

import asyncio
import hmac
import json
from dataclasses import dataclass
from time import perf_counter
from typing import Any

from anyio import CancelScope
from prometheus_client import CollectorRegistry, Counter, Histogram
from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from dihedral.errors import DihedralError
from dihedral.runtime.interruption import Interruption
from dihedral.serve.workers import RETRY_SECONDS, ActiveRequests, BusyError

GONE = "the client has gone"
MAX_BODY_BYTES = 1 << 20
MAX_BODY_SECONDS = 20  # until the body has arrived
OPEN_PATHS = ("/", "/docs", "/healthz")  # need no key: the page that asks for the key must load without it
METHODS = ("GET", "POST", "HEAD", "OPTIONS")
HEADERS = {
    "Content-Security-Policy": "default-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-cache",  # a browser must not show a page of an older version
}


def error_response(status: int, detail: str, suggestions: list[str] | None = None, headers: Any = None) -> Response:
    """An error as JSON. Lone surrogates in a name are replaced, since UTF-8 cannot encode them."""
    content = json.dumps({"detail": detail, "suggestions": suggestions or []}, ensure_ascii=False)
    return Response(content.encode("utf-8", "replace"), status, headers, media_type="application/json")


def busy_response(error: BusyError) -> Response:
    return error_response(error.status, str(error), headers={"Retry-After": str(RETRY_SECONDS)})


def check_key(key: str | None) -> None:
    """Reject a key that is empty, or that cannot be sent in a header, since it would never match."""
    if key is not None and not (key and key.isascii() and key.isprintable() and key == key.strip()):
        raise DihedralError(
            "the API key is empty or cannot be sent in a header; give printable ASCII characters without blanks around "
            "them, or no key at all"
        )


class Metrics:
    """The metrics of one server, shown at /metrics."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.requests = Counter(
            "dihedral_requests", "Requests by path, method and status.", ["path", "method", "status"],
            registry=self.registry,
        )  # fmt: skip
        self.seconds = Histogram(
            "dihedral_request_seconds", "Time until the response is sent.", ["path"], registry=self.registry,
            buckets=(0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 10, 60),
        )  # fmt: skip
        self.batches = Histogram(
            "dihedral_batch_questions", "Questions answered by one matrix product.", registry=self.registry,
            buckets=(1, 2, 4, 8, 16, 32, 64),
        )  # fmt: skip


@dataclass
class Guard:
    """The outermost middleware of the application."""

    app: ASGIApp
    metrics: Metrics
    requests: ActiveRequests
    api_key: str | None
    hosts: frozenset[str] | None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        started, status = perf_counter(), 0

        async def send_with_headers(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                MutableHeaders(scope=message).update(HEADERS)
            await send(message)

        response = self._refusal(scope)
        try:
            if response is None:
                response = await self._answer(scope, receive, send_with_headers)
            if response is not None and not status:
                await response(scope, receive, send_with_headers)
        finally:
            # the pattern of the route, not the path: otherwise every name would create a time series
            path = getattr(scope.get("route"), "path", "other") or "other"
            method = scope["method"] if scope["method"] in METHODS else "other"
            self.metrics.requests.labels(path, method, status or "none").inc()
            self.metrics.seconds.labels(path).observe(perf_counter() - started)

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> Response | None:
        """Let the application answer while the client is there and time is left; otherwise the error to send."""
        try:
            body = await self._body(receive)
            if body is None:
                return None
            if not scope["path"].startswith("/v1/"):
                await self.app(scope, _one_message(body), send)
                return None
            with self.requests.admit((scope.get("client") or ("",))[0]) as (interruption, limit):
                watcher = asyncio.create_task(_watch(receive, interruption, limit))
                try:
                    await self.app(scope, _one_message(body), send)
                finally:
                    watcher.cancel()
        except HTTPException as error:
            return error_response(error.status_code, error.detail)
        except BusyError as error:
            return busy_response(error)
        if limit.cancelled_caught and interruption.reason != GONE:
            return busy_response(BusyError(self.requests.refusal))
        return None

    def _refusal(self, scope: Scope) -> Response | None:
        headers, path = Headers(scope=scope), scope["path"]
        if "content-length" in headers and "transfer-encoding" in headers:  # first: the next request may be forged
            detail = "the request has both Content-Length and Transfer-Encoding; send one of them"
            return error_response(400, detail, headers={"Connection": "close"})
        if self.hosts is not None and (foreign := self._foreign(headers, path)):
            return error_response(403, foreign)
        if self.api_key is not None and not _is_open(path):
            given = headers.get("x-api-key", "")
            if not hmac.compare_digest(given.encode(), self.api_key.encode()):
                return error_response(401, "the header X-API-Key does not match the key of this server")
        return None

    def _foreign(self, headers: Headers, path: str) -> str | None:
        """What is wrong if a page of another site may have sent the request, by its own name or through this host's."""
        assert self.hosts is not None
        host = headers.get("host", "")
        name = host.rsplit(":", 1)[0] if not host.endswith("]") else host
        if name.lower() not in self.hosts:
            return f"the host {host!r:.200} is not served here; start the server with --allow-host to allow it"
        if headers.get("sec-fetch-site", "none") in ("none", "same-origin"):
            return None
        if headers.get("sec-fetch-mode") == "navigate" and _is_open(path):  # a link to the explorer
            return None
        return "pages of other sites cannot send requests to this server"

    async def _body(self, receive: Receive) -> bytes | None:
        """The body, limited in size and time; None if the client has gone."""
        parts, size = [], 0
        try:
            async with asyncio.timeout(MAX_BODY_SECONDS):
                while True:
                    message = await receive()
                    if message["type"] == "http.disconnect":
                        return None
                    parts.append(message.get("body", b""))
                    size += len(parts[-1])
                    if size > MAX_BODY_BYTES:
                        raise HTTPException(413, f"the body is larger than {MAX_BODY_BYTES} bytes; send less")
                    if not message.get("more_body", False):
                        return b"".join(parts)
        except TimeoutError:
            raise HTTPException(408, f"the body did not arrive within {MAX_BODY_SECONDS} seconds") from None


def _is_open(path: str) -> bool:
    return path in OPEN_PATHS or path.startswith("/static/")


def _one_message(body: bytes) -> Receive:
    """What the application receives: the body, then nothing; who has gone is noticed by `_watch`."""
    messages: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def receive() -> Message:
        return messages.pop() if messages else await asyncio.Future()

    return receive


async def _watch(receive: Receive, interruption: Interruption, limit: CancelScope) -> None:
    """Stop the work of a client that has gone."""
    while (await receive())["type"] != "http.disconnect":
        pass
    interruption.stop(GONE)
    limit.cancel()
