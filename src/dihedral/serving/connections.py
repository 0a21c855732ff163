"""A connection that waits only so long for its client, and the number of connections kept small.

uvicorn waits for ever for the head of a request and for an answer to be taken, and at its end closes idle connections
on which a request may be under way. Bodies are timed by the guard, which can say what is wrong.
"""

from __future__ import annotations

import asyncio

from uvicorn.protocols.http.h11_impl import H11Protocol

HEAD_SECONDS = 20  # for the head of a request to arrive
SEND_SECONDS = 60  # for an answer to be taken
LAST_SECONDS = 2  # for a last request on an idle connection, when the server stops
REST_SECONDS = 10  # for the rest of a body or of an answer to pass, when the server stops
MAX_CONNECTIONS = 500  # below the 1024 files that a process may usually open


class Connection(H11Protocol):
    """uvicorn's, with one timer: it runs whenever the client is to do something."""

    timer: asyncio.TimerHandle | None = None
    since = 0.0  # when the timer was last started

    @property
    def answering(self) -> bool:
        """Whether a request is being read or answered."""
        return self.cycle is not None and not self.cycle.response_complete

    @property
    def waits(self) -> bool:
        """Whether the client is to do something: send a head or a body, or take an answer."""
        return not self.answering or self.cycle.more_body or self.flow.write_paused

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._wait_for(HEAD_SECONDS)
        if len(self.connections) > MAX_CONNECTIONS:
            waiting = [each for each in self.connections if isinstance(each, Connection) and each.waits]  # itself too
            eldest = min(waiting, key=lambda each: each.since)
            self.connections.discard(eldest)  # now, not when it is gone: more may come before
            eldest.transport.abort()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self.answering and not self.flow.write_paused:
            self._wait_for(None)

    def on_response_complete(self) -> None:
        if not self.flow.write_paused:
            self._wait_for(HEAD_SECONDS)
        super().on_response_complete()  # which may find the next request in what was sent already
        if self.answering and not self.flow.write_paused:
            self._wait_for(None)

    def pause_writing(self) -> None:
        super().pause_writing()
        self._wait_for(SEND_SECONDS)

    def resume_writing(self) -> None:
        super().resume_writing()
        self._wait_for(None if self.answering else HEAD_SECONDS)

    def connection_lost(self, exc: Exception | None) -> None:
        self._wait_for(None)
        super().connection_lost(exc)

    def shutdown(self) -> None:
        """Answer a request that is under way; every answer now says that it is the connection's last."""
        if self.answering:
            super().shutdown()
        if self.waits:
            self._wait_for(REST_SECONDS if self.answering else LAST_SECONDS)

    def _wait_for(self, seconds: float | None) -> None:
        if self.timer is not None:
            self.timer.cancel()
        self.timer = None
        if seconds is not None:
            self.since = self.loop.time()
            self.timer = self.loop.call_later(seconds, self._give_up)

    def _give_up(self) -> None:
        if self.transport.get_write_buffer_size():
            self.transport.abort()  # closing would wait for the client to take the rest
        else:
            self.transport.close()
