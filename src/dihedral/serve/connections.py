"""Timeouts for slow clients, which uvicorn lacks, a limit on connections, and a shutdown that answers late requests."""

from __future__ import annotations

import asyncio

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

MAX_HEAD_SECONDS = 20  # until the head of a request has arrived
MAX_READ_SECONDS = 60  # until the client has read a response
MAX_IDLE_SHUTDOWN_SECONDS = 2  # for a last request on an idle connection during shutdown
MAX_BUSY_SHUTDOWN_SECONDS = 6  # for the rest of a body or of a response during shutdown
MAX_CONNECTIONS = 500  # below 1024, the usual limit on open files per process


class Connection(H11Protocol):
    """uvicorn's connection with one timer, which runs whenever the server waits for the client."""

    timer: asyncio.TimerHandle | None = None
    waiting_since = 0.0  # when the timer was last started

    @property
    def answering(self) -> bool:
        """Whether a request is being received or answered."""
        return self.cycle is not None and not self.cycle.response_complete

    @property
    def waiting(self) -> bool:
        """Whether the server waits for the client to send a head or a body, or to read a response."""
        return not self.answering or self.cycle.more_body or self.flow.write_paused

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._start_timer(MAX_HEAD_SECONDS)
        if len(self.connections) > MAX_CONNECTIONS:
            waiting = [each for each in self.connections if isinstance(each, Connection) and each.waiting]  # also self
            oldest = min(waiting, key=lambda each: each.waiting_since)
            self.connections.discard(oldest)  # now, not in connection_lost: more connections may arrive before that
            oldest.transport.abort()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self.answering and not self.flow.write_paused:
            self._stop_timer()

    def send_400_response(self, msg: str) -> None:
        """Refuse a malformed request; another answer to it may be sent already, and is not sent later."""
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            super().send_400_response(msg)
        else:
            self.transport.close()
        if self.cycle is not None:
            self.cycle.disconnected = True

    def on_response_complete(self) -> None:
        if not self.flow.write_paused:
            self._start_timer(MAX_HEAD_SECONDS)
        super().on_response_complete()  # may start a pipelined request
        if self.answering and not self.flow.write_paused:
            self._stop_timer()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._start_timer(MAX_READ_SECONDS)

    def resume_writing(self) -> None:
        super().resume_writing()
        if self.answering:
            self._stop_timer()
        else:
            self._start_timer(MAX_HEAD_SECONDS)

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_timer()
        super().connection_lost(exc)

    def shutdown(self) -> None:
        """Finish the current request; every response now announces that the connection closes."""
        if self.answering:
            super().shutdown()
        if self.waiting:
            self._start_timer(MAX_BUSY_SHUTDOWN_SECONDS if self.answering else MAX_IDLE_SHUTDOWN_SECONDS)

    def _start_timer(self, seconds: float) -> None:
        self._stop_timer()
        self.waiting_since = self.loop.time()
        self.timer = self.loop.call_later(seconds, self._disconnect)

    def _stop_timer(self) -> None:
        if self.timer is not None:
            self.timer.cancel()
        self.timer = None

    def _disconnect(self) -> None:
        if self.transport.get_write_buffer_size():
            self.transport.abort()  # close() would wait for the client to read the rest
        else:
            self.transport.close()
