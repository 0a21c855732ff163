"""`python -m paper`: the paper's tables and figures."""

from __future__ import annotations

import typer

from dihedral.cli.main import main
from paper.command import command

app = typer.Typer(rich_markup_mode="rich", pretty_exceptions_enable=False, add_completion=False)
app.command("paper")(command)

if __name__ == "__main__":
    main(app)
