"""Middleware for every request: API key, limits on the body, response headers, and metrics."""

from __future__ import annotations

import asyncio
import hmac
import json
from time import perf_counter
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Histogram
from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from dihedral.errors import DihedralError

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


def check_key(key: str | None) -> None:
    """Reject a key that cannot be sent in a header, since it would never match."""
    if key is not None and not (key.isascii() and key.isprintable() and key == key.strip()):
        raise DihedralError(
            "the API key contains non-ASCII characters, control characters, or leading or trailing blanks, which a "
            "header cannot carry; choose one of printable ASCII characters"
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


class Guard:
    """The outermost middleware of the application."""

    def __init__(self, app: ASGIApp, metrics: Metrics, api_key: str | None, max_body_bytes: int) -> None:
        self.app, self.metrics = app, metrics
        self.api_key, self.max_body_bytes = api_key, max_body_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        started, status = perf_counter(), 500

        async def send_with_headers(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                MutableHeaders(scope=message).update(HEADERS)
            await send(message)

        refusal = self._refusal(scope)
        try:
            if refusal is not None:
                await refusal(scope, receive, send_with_headers)
            else:
                await self.app(scope, self._limited(receive), send_with_headers)
        finally:
            # the pattern of the route, not the path: otherwise every name would create a time series
            path = getattr(scope.get("route"), "path", "other") or "other"
            method = scope["method"] if scope["method"] in METHODS else "other"
            self.metrics.requests.labels(path, method, status).inc()
            self.metrics.seconds.labels(path).observe(perf_counter() - started)

    def _refusal(self, scope: Scope) -> Response | None:
        headers = Headers(scope=scope)
        path = scope["path"]
        if self.api_key is not None and path not in OPEN_PATHS and not path.startswith("/static/"):
            given = headers.get("x-api-key", "")
            if not hmac.compare_digest(given.encode(), self.api_key.encode()):
                return error_response(401, "the header X-API-Key does not match the key of this server")
        length = headers.get("content-length", "0")
        if length.isdecimal() and (len(length) > 15 or int(length) > self.max_body_bytes):
            return error_response(413, self._too_large)
        return None

    @property
    def _too_large(self) -> str:
        return f"the body is larger than {self.max_body_bytes} bytes; use smaller batches"

    def _limited(self, receive: Receive) -> Receive:
        """Limit the size of a body without a declared length, and the time until it has arrived."""
        size, complete, deadline = 0, False, asyncio.get_running_loop().time() + MAX_BODY_SECONDS

        async def limited_receive() -> Message:
            nonlocal size, complete
            try:
                async with asyncio.timeout_at(None if complete else deadline):
                    message = await receive()
            except TimeoutError:
                raise HTTPException(408, f"the body did not arrive within {MAX_BODY_SECONDS} seconds") from None
            size += len(message.get("body", b""))
            complete = not message.get("more_body", False)
            if size > self.max_body_bytes:
                raise HTTPException(413, self._too_large)
            return message

        return limited_receive
