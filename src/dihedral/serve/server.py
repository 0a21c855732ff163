"""The server process: listening socket, reloading of models, and graceful shutdown."""

from __future__ import annotations

import asyncio
import gc
import ipaddress
import signal
import socket
import sys
from collections.abc import Callable, Sequence

import anyio
import scipy.sparse  # noqa: F401  here, because the library would import it during a request
import torch
import uvicorn
from fastapi import FastAPI

from dihedral.engine import compiled
from dihedral.errors import DihedralError
from dihedral.runtime.threads import num_cores
from dihedral.serve.app import create_app
from dihedral.serve.batching import Batcher
from dihedral.serve.connections import Connection
from dihedral.serve.guard import check_key
from dihedral.serve.served_model import ServedModel, read_models
from dihedral.serve.workers import MAX_SECONDS, WORKERS

OnReady = Callable[[list[str], str], None]  # names of the models, address
Note = Callable[[str], None]
MAX_SHUTDOWN_SECONDS = 8  # for current requests to be answered: their work stops earlier (`workers.MAX_STOP_SECONDS`)
SWITCH_SECONDS = 0.0001  # a busy thread lets the event loop take over after this time; Python's default is 5 ms
LOOPBACK_HOSTS = ("localhost", "127.0.0.1", "[::1]")


def serve(
    models: list[str],
    *,
    host: str = "127.0.0.1",
    port: int = 8000,
    fd: int | None = None,
    api_key: str | None = None,
    allow_hosts: Sequence[str] = (),
    max_seconds: float = MAX_SECONDS,
    max_per_client: int | None = None,
    behind_proxy: str | None = None,
    on_ready: OnReady = lambda names, address: None,
    note: Note = lambda text: None,
) -> None:
    """Serve models, each given as `name=DIR` or `DIR`, until Ctrl-C or SIGTERM. SIGHUP reloads them.

    fd: an inherited listening socket, instead of host and port.
    allow_hosts: names by which requests may address this server, and then no others but those of this machine. Without
    them a server on a loopback address answers only to the names of this machine, others to all names.
    max_seconds: for one request. max_per_client: requests of one address at a time; by default unlimited.
    behind_proxy: the address, or network, of a reverse proxy whose X-Forwarded-For names the client's address.
    Decisions of reviewers are taken only with a key, or from this machine alone.
    on_ready: called with the names of the models and the address.
    note: called with messages for the operator.
    """
    check_key(api_key)
    try:
        ipaddress.ip_network(behind_proxy or "::", strict=False)
    except ValueError:
        raise DihedralError(f"--behind-proxy is {behind_proxy!r:.80}; give the address of the proxy") from None
    if hasattr(signal, "SIGHUP"):
        signal.signal(signal.SIGHUP, lambda *_: None)  # ignored while the models are loading
    with listen(host, port) if fd is None else inherit(fd) as listener:
        address, port = listener.getsockname()[:2]
        is_loopback = ipaddress.ip_address(address).is_loopback
        own = f"[{address}]" if ":" in address else address
        is_limited = is_loopback or allow_hosts
        hosts = frozenset((*LOOPBACK_HOSTS, own, *map(str.lower, allow_hosts))) if is_limited else None
        if api_key is None and not is_loopback:
            note("note: other machines can send requests without a key; set --api-key")
        torch.set_num_threads(max(1, num_cores() // WORKERS))  # all workers together use every core once
        sys.setswitchinterval(SWITCH_SECONDS)
        if compiled.available():  # load the kernels now: during a request that would hold up all others
            compiled.count_ranks(torch.zeros(1, 1), torch.zeros(1))
        gc.collect()
        gc.freeze()  # a full collection holds up all requests: leave out the modules, which live until the end
        app = create_app(  # the only reference to the models, so that a replaced one is freed
            read_models(models), api_key=api_key, hosts=hosts, max_seconds=max_seconds, max_per_client=max_per_client,
            takes_decisions=api_key is not None or (is_loopback and not allow_hosts),
        )  # fmt: skip
        config = uvicorn.Config(
            app, http=Connection, ws="none", log_level="error", access_log=False, server_header=False,
            timeout_graceful_shutdown=MAX_SHUTDOWN_SECONDS,
            proxy_headers=behind_proxy is not None, forwarded_allow_ips=behind_proxy or "",
        )  # fmt: skip
        # uvicorn shuts down gracefully and then raises these signals again; a requested stop must exit with 0
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda *_: None)
        Server(config, app, lambda: on_ready(list(app.state.batchers), f"http://{own}:{port}"), note).run([listener])


class Server(uvicorn.Server):
    """uvicorn's server, which also reloads models on SIGHUP and closes connections on shutdown."""

    def __init__(self, config: uvicorn.Config, app: FastAPI, on_ready: Callable[[], None], note: Note) -> None:
        super().__init__(config)
        self.app, self.on_ready, self.note = app, on_ready, note
        self.reload_lock = asyncio.Lock()
        self.reloads: set[asyncio.Task[None]] = set()
        self.started_in_terminal = sys.stderr.isatty()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if hasattr(signal, "SIGHUP"):
            asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, self._on_sighup)
        anyio.to_thread.current_default_thread_limiter().total_tokens = WORKERS
        self.on_ready()

    def _on_sighup(self) -> None:
        if self.started_in_terminal and not sys.stderr.isatty():  # the terminal was closed: stop
            self.should_exit = True
            return
        task = asyncio.get_running_loop().create_task(self._reload())
        self.reloads.add(task)
        task.add_done_callback(self.reloads.discard)

    async def _reload(self) -> None:
        async with self.reload_lock:
            await reload_models(self.app, self.note)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self.server_state.default_headers.append((b"connection", b"close"))  # also in responses under way
        self.app.state.requests.stop()
        await super().shutdown(sockets)


async def reload_models(app: FastAPI, note: Note) -> None:
    """Load each model from its folder again; current requests finish with the old one, which stays if loading fails."""
    batchers: dict[str, Batcher] = app.state.batchers
    for name, batcher in list(batchers.items()):
        folder = batcher.served.folder
        try:
            served = await anyio.to_thread.run_sync(ServedModel, name, folder, limiter=anyio.CapacityLimiter(1))
        except Exception as error:  # noqa: BLE001  whatever it is, the server keeps the old model
            note(f"model {name!r} was not reloaded: {str(error) or repr(error)}")
        else:
            batchers[name] = Batcher(served, batcher.on_batch)
            note(f"model {name!r} was reloaded")


def listen(host: str, port: int) -> socket.socket:
    """A listening socket; port 0 selects a free port."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # the protocol is explicit because asyncio disables Nagle's delay of 40 ms only for sockets declared as TCP
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
    """A listening socket that this process inherited."""
    try:
        listener = socket.socket(fileno=fd)
        listening = listener.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN)
    except OSError as error:
        raise DihedralError(f"--fd {fd} is not a socket: {error.strerror}; pass a listening socket") from None
    if not listening or listener.family not in (socket.AF_INET, socket.AF_INET6):
        listener.close()
        raise DihedralError(f"--fd {fd} is not listening for TCP connections; pass a listening socket")
    return listener
