"""`dihedral explain`: show why a triple is predicted."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer

import dihedral as dh
from dihedral.cli.options import Json, ModelFolder
from dihedral.cli.output import print_json, remark, say
from dihedral.errors import DihedralError
from dihedral.graph import Graph
from dihedral.interpretation.explanations import Explanation, explain

FORMATS = (".png", ".svg")


def explain_command(
    model: ModelFolder,
    head: Annotated[str, typer.Argument(help="The head entity.")],
    relation: Annotated[str, typer.Argument(help="The relation.")],
    tail: Annotated[str, typer.Argument(help="The tail entity.")],
    top: Annotated[int, typer.Option(help="Maximum number of paths and of similar facts.")] = 5,
    figure: Annotated[Path | None, typer.Option(help="Draw the paths in this .png or .svg file.")] = None,
    json: Json = False,
) -> None:
    """Show the paths that support a triple, similar facts, and what each group element adds to its score.

    Example: dihedral explain out/demo man_0600 parent_in_law man_0012
    """
    if figure is not None and figure.suffix not in FORMATS:
        raise DihedralError(f"figure is {str(figure)!r}; its name must end in {' or '.join(FORMATS)}")
    draw = _drawer() if figure is not None else None  # without matplotlib, fail before the model is read
    predictor = dh.load(model)
    found = explain(predictor, head, relation, tail, top=top)
    if json:
        print_json(found.to_dict(), predictor.graph)
    else:
        say(found.text(predictor.graph.entities.shown, predictor.graph.relations.shown))
    if figure is not None and draw is not None:
        draw(found, figure, predictor.graph)
        remark(f"wrote {figure}")


def _drawer() -> Callable[[Explanation, Path, Graph], None]:
    try:
        from dihedral.figures.explanation import draw_explanation
    except ModuleNotFoundError:
        raise DihedralError("--figure needs matplotlib: pip install 'dihedral[plots]'") from None
    return draw_explanation
