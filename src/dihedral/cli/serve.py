"""`dihedral serve`: serve models over HTTP, with a web explorer."""

from __future__ import annotations

import os
import webbrowser
from typing import Annotated

import typer

from dihedral.cli.output import remark, say
from dihedral.errors import DihedralError


def serve_command(
    models: Annotated[list[str], typer.Argument(help="Model folders, each DIR or NAME=DIR; the first is the default.")],
    host: Annotated[str, typer.Option(help="Address to listen on; 0.0.0.0 accepts other machines.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port to listen on; 0 picks a free one.")] = 8000,
    fd: Annotated[int | None, typer.Option(min=0, help="Descriptor of a listening socket, not a port.")] = None,
    api_key: Annotated[
        str | None, typer.Option(help="Require this key in the X-API-Key header; by default DIHEDRAL_API_KEY, if set.")
    ] = None,
    allow_host: Annotated[list[str] | None, typer.Option(help="Host name that requests may use; repeatable.")] = None,
    max_seconds: Annotated[float, typer.Option(min=1, help="Maximum time for one request.")] = 60,
    max_per_client: Annotated[int | None, typer.Option(min=1, help="Maximum concurrent requests per address.")] = None,
    behind_proxy: Annotated[
        str | None, typer.Option(help="Address of a reverse proxy whose X-Forwarded-For names the client.")
    ] = None,
    open_browser: Annotated[bool, typer.Option("--open", help="Open the explorer in a browser.")] = False,
) -> None:
    """Serve models over an HTTP API, with a web explorer; Ctrl-C stops the server, SIGHUP reloads the models.

    Example: dihedral serve out/demo
    """
    try:
        from dihedral.serve.server import serve
    except ModuleNotFoundError as error:
        raise DihedralError(f"serving needs {error.name}: pip install 'dihedral[serve]'") from None

    def ready(names: list[str], address: str) -> None:
        say(f"serving {', '.join(names)} at {address}")
        say(f"explorer: {address}/, API documentation: {address}/docs")
        if open_browser:
            webbrowser.open(address)

    key = os.environ.get("DIHEDRAL_API_KEY") if api_key is None else api_key  # not envvar, which ignores an empty key
    serve(
        models, host=host, port=port, fd=fd, api_key=key, allow_hosts=allow_host or (), max_seconds=max_seconds,
        max_per_client=max_per_client, behind_proxy=behind_proxy, on_ready=ready, note=remark,
    )  # fmt: skip
    remark("stopped")
