"""The server's process: a socket, models that are opened again on request, and a stop that loses no request."""

from __future__ import annotations

import asyncio
import ipaddress
import signal
import socket
import sys
from collections.abc import Callable

import anyio
import uvicorn
from fastapi import FastAPI

from dihedral.errors import DihedralError
from dihedral.serving.app import create_app, set_threads
from dihedral.serving.batching import Batcher
from dihedral.serving.connections import Connection
from dihedral.serving.guard import check_key
from dihedral.serving.served import open_model, read_models

STOP_SECONDS = 60  # that requests have to finish: missing facts may take half of it


def serve(
    models: list[str],
    *,
    host: str = "127.0.0.1",
    port: int = 8000,
    fd: int | None = None,
    api_key: str | None = None,
    on_ready: Callable[[list[str], str], None] = lambda names, address: None,
    note: Callable[[str], None] = lambda text: None,
) -> None:
    """Serve models, each `name=DIR` or `DIR`, until Ctrl-C or SIGTERM; SIGHUP opens them again.

    fd: a listening socket that is open already, in place of host and port. `on_ready` is told the models' names and
    the address, and `note` what an owner should know.
    """
    check_key(api_key)
    if hasattr(signal, "SIGHUP"):
        signal.signal(signal.SIGHUP, lambda *_: None)  # models that are only just being opened
    with listen(host, port) if fd is None else inherit(fd) as listener:
        if api_key is None and not ipaddress.ip_address(listener.getsockname()[0]).is_loopback:
            note("note: other machines may ask without a key; set --api-key")
        set_threads()
        app = create_app(read_models(models), api_key=api_key)  # nothing else holds the models: one swapped is freed
        config = uvicorn.Config(
            app, http=Connection, ws="none", log_level="error", access_log=False, server_header=False,
            timeout_graceful_shutdown=STOP_SECONDS,
        )  # fmt: skip
        # uvicorn stops in peace at these and then raises them again; a server that was told to stop did well
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda *_: None)
        Server(config, app, on_ready, note).run(sockets=[listener])


class Server(uvicorn.Server):
    """uvicorn's, which also opens models again, and at its end tells clients to connect anew."""

    def __init__(
        self,
        config: uvicorn.Config,
        app: FastAPI,
        on_ready: Callable[[list[str], str], None],
        note: Callable[[str], None],
    ) -> None:
        super().__init__(config)
        self.app = app
        self.on_ready = on_ready
        self.note = note
        self.swapping = asyncio.Lock()
        self.swaps: set[asyncio.Task[None]] = set()
        self.in_terminal = sys.stderr.isatty()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if hasattr(signal, "SIGHUP"):
            asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, self._hang_up)
        for listener in sockets or []:
            self.on_ready(list(self.app.state.batchers), address_of(listener))

    def _hang_up(self) -> None:
        if self.in_terminal and not sys.stderr.isatty():  # the terminal was closed, which means the end
            self.should_exit = True
            return
        task = asyncio.get_running_loop().create_task(self._swap())
        self.swaps.add(task)
        task.add_done_callback(self.swaps.discard)

    async def _swap(self) -> None:
        async with self.swapping:
            await reopen_models(self.app, self.note)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self.server_state.default_headers.append((b"connection", b"close"))  # of answers in the making too
        await super().shutdown(sockets)


async def reopen_models(app: FastAPI, note: Callable[[str], None]) -> None:
    """Each model from its folder anew, beside the old one, which stays where that fails and for requests begun."""
    batchers: dict[str, Batcher] = app.state.batchers
    for name, batcher in list(batchers.items()):
        folder = batcher.served.folder
        if folder is None:
            continue
        try:
            fresh = await anyio.to_thread.run_sync(open_model, name, folder, limiter=anyio.CapacityLimiter(1))
        except Exception as error:  # noqa: BLE001  whatever it is, the server goes on with the model that it has
            note(f"model {name!r} stays as it was: {str(error) or repr(error)}")
        else:
            batchers[name] = Batcher(fresh, batcher.on_batch)
            note(f"model {name!r} was opened again")


def listen(host: str, port: int) -> socket.socket:
    """A listening socket; port 0 takes a free one."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # with its protocol named: asyncio turns Nagle's delay of 40 ms off only for sockets that say they are TCP
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
    except (OSError, OverflowError) as error:
        listener.close()
        reason = getattr(error, "strerror", None) or str(error)
        raise DihedralError(f"cannot listen at {host}:{port}: {reason}; choose another --host or --port") from None
    listener.listen(128)
    return listener


def inherit(fd: int) -> socket.socket:
    """A listening socket that this process was started with."""
    try:
        listener = socket.socket(fileno=fd)
        listening = listener.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN)
    except OSError as error:
        raise DihedralError(f"--fd {fd} is not a socket: {error.strerror}; pass a listening one") from None
    if not listening or listener.family not in (socket.AF_INET, socket.AF_INET6):
        listener.close()
        raise DihedralError(f"--fd {fd} is a socket that does not listen for TCP connections; pass one that does")
    return listener


def address_of(listener: socket.socket) -> str:
    host, port = listener.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
