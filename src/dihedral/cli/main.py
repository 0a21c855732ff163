"""The Typer application and its entry point, which turns errors into one line and an exit code."""

from __future__ import annotations

import sys
from importlib import import_module
from typing import Annotated

import typer

import dihedral
from dihedral.cli import data
from dihedral.errors import DihedralError, TrainingError
from dihedral.runtime.distributed import rank, world_size
from dihedral.runtime.threads import use_threads

COMMANDS: tuple[str, ...] = ("train", "tune", "evaluate", "predict", "complete", "similar", "explain", "rules", "query")
COMMANDS += ("serve", "info", "export", "recipes", "reproduce", "demo")
"""In the order of the help text; each is the function `command` of the module of its name."""

app = typer.Typer(
    name="dihedral",
    help="Link prediction on knowledge graphs whose relations are elements of a dihedral group.",
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    add_completion=False,
)


def _show_version(wanted: bool) -> None:
    if wanted:
        print(dihedral.__version__)
        raise typer.Exit


@app.callback()
def _options(
    context: typer.Context,
    version: Annotated[
        bool, typer.Option("--version", help="Show the version and exit.", is_eager=True, callback=_show_version)
    ] = False,
) -> None:
    use_threads()
    if world_size() > 1 and context.invoked_subcommand != "train":
        raise DihedralError(
            f"torchrun started {world_size()} processes of `dihedral {context.invoked_subcommand}`; "
            "only `train` supports several processes"
        )


for _name in COMMANDS:
    app.command(_name)(import_module(f"dihedral.cli.{_name}").command)
app.add_typer(data.app, name="data")


def main() -> None:
    """Run a command. Exit code 0: success; 1: the work failed or was interrupted; 2: invalid arguments or input."""
    try:
        app()
    except TrainingError as error:
        _fail(str(error), 1)
    except DihedralError as error:
        _fail(str(error), 2)
    except KeyboardInterrupt:
        _fail("interrupted", 1)
    except RuntimeError as error:
        if world_size() == 1:
            raise
        _fail(f"another process exited or cannot be reached: {(str(error) or repr(error)).splitlines()[0]}", 1)
    except OSError as error:
        _fail(f"{error.filename or 'a file'}: {error.strerror or error}", 1)


def _fail(message: str, code: int) -> None:
    if code != 2 or rank() == 0:  # all ranks see the same invalid argument: rank zero reports it
        print(f"error: {message}", file=sys.stderr)
    sys.exit(code)
