"""`dihedral query`: `ask` for a path of relations."""

from __future__ import annotations

from typing import Annotated

import typer

import dihedral as dh
from dihedral.ask.messages import WIDTH
from dihedral.ask.tree import path_query
from dihedral.cli.ask import print_answers
from dihedral.cli.options import Json, ModelFolder, Wide


def command(
    model: ModelFolder,
    start: Annotated[str, typer.Option("--from", help="The entity where the path starts.")],
    via: Annotated[list[str], typer.Option(help="The next relation; ~RELATION follows it backwards; repeatable.")],
    top: Annotated[int, typer.Option(help="Number of answers.")] = 10,
    width: Annotated[int, typer.Option(help="Entities of a variable from which predictions are followed.")] = WIDTH,
    wide: Wide = False,
    json: Json = False,
) -> None:
    """Follow a path of relations from an entity; the same as `ask` with a path.

    Example: dihedral query out/demo --from man_0600 --via spouse --via parent --top 3
    """
    predictor = dh.load(model)
    query = path_query(start, via, predictor.graph.relations)
    (found,) = predictor.ask_many([query], top=top, width=width)
    print_answers(found.answers, predictor.graph, json=json)
