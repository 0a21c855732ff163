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
    api_key: Annotated[
        str | None, typer.Option(help="Ask for this key in the header X-API-Key; else DIHEDRAL_API_KEY, if set.")
    ] = None,
    open_browser: Annotated[bool, typer.Option("--open", help="Open the explorer in the browser.")] = False,
) -> None:
    """Answer over HTTP and show the explorer, a web page to look at models; Ctrl-C stops.

    Example: dihedral serve out/demo
    """
    try:
        from dihedral.serving.served import read_models
        from dihedral.serving.server import serve
    except ModuleNotFoundError as error:
        raise DihedralError(f"serving needs {error.name}: pip install 'dihedral[serve]'") from None

    def ready(address: str) -> None:
        say(f"serving {', '.join(held)} at {address}")
        say(f"the explorer is {address}/ and the API is described at {address}/docs")
        if open_browser:
            webbrowser.open(address)

    key = api_key or os.environ.get("DIHEDRAL_API_KEY") or None
    if key is None and host not in ("127.0.0.1", "localhost", "::1"):
        remark("note: other machines may ask without a key; set --api-key", style="yellow")
    held = read_models(models)
    serve(held, host=host, port=port, api_key=key, on_ready=ready)
    remark("stopped")
