"""The Typer application and its entry point, which turns errors into one line and an exit code."""

from __future__ import annotations

import ast
import sys
from functools import cached_property
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

import dihedral
from dihedral.errors import DihedralError, TrainingError
from dihedral.io.display import visible

COMMANDS = {
    "train": "training", "update": "folders", "tune": "training", "evaluate": "folders", "predict": "answers",
    "missing": "answers", "review": "review", "complete": "answers", "classify": "answers", "similar": "answers",
    "explain": "answers", "rules": "rules", "query": "answers", "ask": "answers",
    "materialise": "rules", "label": "folders", "serve": "serve", "info": "folders", "export": "folders",
    "recipes": "training", "demo": "training", "data": "data",
}  # fmt: skip
"""The module of each command, in the order of the help text. It holds a function NAME_command, or a Typer `app`."""


def _function(name: str) -> str:
    return f"{name.replace('-', '_')}_command"


class LazyCommand(TyperCommand):
    """A command whose module is imported when it is called, not to be listed: torch takes seconds to import."""

    def __init__(self, name: str) -> None:
        super().__init__(name, help=_help(name))

    @cached_property
    def command(self) -> Any:
        """The command itself."""
        name = str(self.name)
        module = import_module(f"dihedral.cli.{COMMANDS[name]}")
        if hasattr(module, "app"):
            return typer.main.get_command(module.app)
        single = typer.Typer(rich_markup_mode="rich", add_completion=False)
        single.command(name)(getattr(module, _function(name)))
        return typer.main.get_command(single)

    def make_context(self, *arguments: Any, **more: Any) -> Any:
        return self.command.make_context(*arguments, **more)


class Commands(TyperGroup):
    """The commands of `dihedral`."""

    def list_commands(self, ctx: Any) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> LazyCommand | None:
        return LazyCommand(cmd_name) if cmd_name in COMMANDS else None


def _help(name: str) -> str:
    """The first paragraph of a command's help text, read from its source."""
    module = ast.parse(Path(__file__).with_name(f"{COMMANDS[name]}.py").read_text("utf-8"))
    functions = (node for node in module.body if isinstance(node, ast.FunctionDef) and node.name == _function(name))
    text = ast.get_docstring(next(functions, module)) or ""
    return text.split("\n\n")[0]


def all_commands() -> dict[str, Any]:
    """Every command by its name, imported."""
    return {name: LazyCommand(name).command for name in COMMANDS}


app = typer.Typer(
    name="dihedral",
    help="Link prediction on knowledge graphs whose relations are elements of a dihedral group.",
    epilog="Words are explained in docs/glossary.md.",
    cls=Commands,
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
    from dihedral.runtime.distributed import world_size
    from dihedral.runtime.threads import use_threads

    use_threads()
    if world_size() > 1 and context.invoked_subcommand != "train":
        raise DihedralError(
            f"torchrun started {world_size()} processes of `dihedral {context.invoked_subcommand}`; "
            "only `train` supports several processes"
        )


def main(application: typer.Typer = app) -> None:
    """Run a command. Exit code 0: success; 1: the work failed or was interrupted; 2: invalid arguments or input."""
    try:
        application()
    except TrainingError as error:
        _fail(str(error), 1)
    except DihedralError as error:
        _fail(str(error), 2)
    except KeyboardInterrupt:
        _fail("interrupted", 1)
    except RuntimeError as error:
        from dihedral.runtime.distributed import world_size

        if world_size() == 1:
            raise
        _fail(f"another process exited or cannot be reached: {(str(error) or repr(error)).splitlines()[0]}", 1)
    except OSError as error:
        _fail(f"{error.filename or 'a file'}: {error.strerror or error}", 1)


def _fail(message: str, code: int) -> None:
    from dihedral.runtime.distributed import rank

    if code != 2 or rank() == 0:  # all ranks see the same invalid argument: rank zero reports it
        print(f"error: {visible(message)}", file=sys.stderr)
    sys.exit(code)
