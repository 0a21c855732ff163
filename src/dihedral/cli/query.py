"""`dihedral query`: follow a path of relations."""

from __future__ import annotations

import math
from typing import Annotated

import typer

import dihedral as dh
from dihedral.ask.evaluation import WIDTH
from dihedral.cli.options import Json, ModelFolder, Wide
from dihedral.cli.output import print_found


def command(
    model: ModelFolder,
    start: Annotated[str, typer.Option("--from", help="The entity where the path starts.")],
    via: Annotated[list[str], typer.Option(help="The next relation; ~RELATION follows it backwards; repeatable.")],
    top: Annotated[int, typer.Option(help="Number of answers.")] = 10,
    mode: Annotated[str, typer.Option(help="beam: step by step; product: the complete path at once, faster.")] = "beam",
    width: Annotated[int, typer.Option(help="Beam width: entities kept after each step.")] = WIDTH,
    wide: Wide = False,
    json: Json = False,
) -> None:
    """Follow a path of relations from an entity, by beam search or by the product of the relations.

    Example: dihedral query out/demo --from man_0600 --via spouse --via parent --top 3
    """
    predictor = dh.load(model)
    found = predictor.query(start, via, top=top, mode=mode, width=width)  # type: ignore[arg-type]
    header, rows = ["answer", "score"], [[a.entity, a.score] for a in found]
    if mode == "beam":
        header = ["answer", "probability", "through"]
        rows = [[a.entity, math.exp(a.score), a.through] for a in found]
    print_found(json, [answer._asdict() for answer in found], header, rows, predictor.graph)
