"""What every request passes: the API key, the limits of its body, the headers of its answer, and the counting."""

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

BODY_SECONDS = 20  # for a body to arrive
OPEN = ("/", "/docs", "/healthz")  # no key: a page that asks for one must come first
METHODS = ("GET", "POST", "HEAD", "OPTIONS")
HEADERS = {
    "Content-Security-Policy": "default-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-cache",  # a page of an older version is asked for again
}


def problem(status: int, detail: str, suggestions: list[str] | None = None, headers: Any = None) -> Response:
    """An error as JSON; half a character in a name must not break the answer about it."""
    content = json.dumps({"detail": detail, "suggestions": suggestions or []}, ensure_ascii=False)
    return Response(content.encode("utf-8", "replace"), status, headers, media_type="application/json")


def check_key(key: str | None) -> None:
    """A key that no header can carry as it is would never match."""
    if key is not None and not (key.isascii() and key.isprintable() and key == key.strip()):
        raise DihedralError(
            "the API key holds letters outside ASCII, control characters or blanks at its ends, which a header does "
            "not carry; choose one of ASCII letters, digits and signs"
        )


class Metrics:
    """Counts for /metrics, of one server."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.requests = Counter(
            "dihedral_requests", "Requests by path, method and status.", ["path", "method", "status"],
            registry=self.registry,
        )  # fmt: skip
        self.seconds = Histogram(
            "dihedral_request_seconds", "Time until an answer is sent.", ["path"], registry=self.registry,
            buckets=(0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 10, 60),
        )  # fmt: skip
        self.batches = Histogram(
            "dihedral_batch_questions", "Questions answered by one product.", registry=self.registry,
            buckets=(1, 2, 4, 8, 16, 32, 64),
        )  # fmt: skip


class Guard:
    """The outermost layer of the app."""

    def __init__(self, app: ASGIApp, metrics: Metrics, api_key: str | None, body_limit: int) -> None:
        self.app = app
        self.metrics = metrics
        self.api_key = api_key
        self.body_limit = body_limit

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        started, status = perf_counter(), 500

        async def watched(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                MutableHeaders(scope=message).update(HEADERS)
            await send(message)

        refusal = self._refusal(scope)
        try:
            if refusal is not None:
                await refusal(scope, receive, watched)
            else:
                await self.app(scope, self._limited(receive), watched)
        finally:
            # the route's pattern, not the path asked for: else every name would be a time series of its own
            path = getattr(scope.get("route"), "path", "other") or "other"
            method = scope["method"] if scope["method"] in METHODS else "other"
            self.metrics.requests.labels(path, method, status).inc()
            self.metrics.seconds.labels(path).observe(perf_counter() - started)

    def _refusal(self, scope: Scope) -> Response | None:
        headers = Headers(scope=scope)
        path = scope["path"]
        if self.api_key is not None and path not in OPEN and not path.startswith("/static/"):
            given = headers.get("x-api-key", "")
            if not hmac.compare_digest(given.encode(), self.api_key.encode()):
                return problem(401, "the header X-API-Key does not hold this server's key")
        length = headers.get("content-length", "0")
        if length.isdecimal() and (len(length) > 15 or int(length) > self.body_limit):
            return problem(413, self._too_large)
        return None

    @property
    def _too_large(self) -> str:
        return f"the body is larger than {self.body_limit} bytes; ask in smaller batches"

    def _limited(self, receive: Receive) -> Receive:
        """A body without a length is counted as it comes, and one that comes slowly is given up."""
        size, whole, end = 0, False, asyncio.get_running_loop().time() + BODY_SECONDS

        async def counted() -> Message:
            nonlocal size, whole
            try:
                async with asyncio.timeout_at(None if whole else end):
                    message = await receive()
            except TimeoutError:
                raise HTTPException(408, f"the body did not arrive within {BODY_SECONDS} seconds") from None
            size += len(message.get("body", b""))
            whole = not message.get("more_body", False)
            if size > self.body_limit:
                raise HTTPException(413, self._too_large)
            return message

        return counted
