"""The server's process: a socket, models, and a stop that lets requests finish."""

from __future__ import annotations

import signal
import socket
from collections.abc import Callable

import uvicorn

from dihedral.errors import DihedralError
from dihedral.serving.app import create_app, set_threads
from dihedral.serving.served import Served

STOP_SECONDS = 5  # that requests have to finish


def serve(
    models: dict[str, Served],
    *,
    host: str = "127.0.0.1",
    port: int = 8000,
    api_key: str | None = None,
    on_ready: Callable[[str], None] = lambda address: None,
) -> None:
    """Serve until Ctrl-C or a request to end; `on_ready` is told the address."""
    set_threads()
    app = create_app(models, api_key=api_key)
    with listen(host, port) as listener:
        config = uvicorn.Config(
            app, log_level="warning", access_log=False, server_header=False, timeout_graceful_shutdown=STOP_SECONDS
        )
        # uvicorn stops in peace at these and then raises them again; a server that was told to stop did well
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda *_: None)
        shown = f"[{host}]" if ":" in host else host
        on_ready(f"http://{shown}:{listener.getsockname()[1]}")
        uvicorn.Server(config).run(sockets=[listener])


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
