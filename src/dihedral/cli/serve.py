"""`dihedral serve`: models over HTTP, and the explorer."""

from __future__ import annotations

import os
import webbrowser
from typing import Annotated

import typer

from dihedral.cli.output import remark, say
from dihedral.errors import DihedralError


def command(
    models: Annotated[list[str], typer.Argument(help="Model folders: DIR or name=DIR; the first is the default.")],
    host: Annotated[str, typer.Option(help="Address to listen at; 0.0.0.0 lets other machines in.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port to listen at; 0 takes a free one.")] = 8000,
    fd: Annotated[
        int | None, typer.Option(min=0, help="A listening socket to take over, in place of host and port.")
    ] = None,
    api_key: Annotated[
        str | None, typer.Option(help="Ask for this key in the header X-API-Key; else DIHEDRAL_API_KEY, if set.")
    ] = None,
    open_browser: Annotated[bool, typer.Option("--open", help="Open the explorer in the browser.")] = False,
) -> None:
    """Answer over HTTP and show the explorer, a web page to look at models; Ctrl-C stops, SIGHUP reads models anew.

    Example: dihedral serve out/demo
    """
    try:
        from dihedral.serving.server import serve
    except ModuleNotFoundError as error:
        raise DihedralError(f"serving needs {error.name}: pip install 'dihedral[serve]'") from None

    def ready(names: list[str], address: str) -> None:
        say(f"serving {', '.join(names)} at {address}")
        say(f"the explorer is {address}/ and the API is described at {address}/docs")
        if open_browser:
            webbrowser.open(address)

    key = api_key or os.environ.get("DIHEDRAL_API_KEY") or None
    serve(models, host=host, port=port, fd=fd, api_key=key, on_ready=ready, note=remark)
    remark("stopped")
