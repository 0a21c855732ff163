"""`dihedral query`: where a path of relations leads."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Annotated

import typer

import dihedral as dh
from dihedral.cli.output import Json, print_json, print_table
from dihedral.inference.paths import WIDTH


def command(
    model: Annotated[Path, typer.Argument(help="A model folder.")],
    start: Annotated[str, typer.Option("--from", help="The entity that the path starts from.")],
    via: Annotated[list[str], typer.Option(help="A relation to follow, in order; ~relation walks backwards.")],
    top: Annotated[int, typer.Option(help="How many answers.")] = 10,
    mode: Annotated[str, typer.Option(help="product: the whole path at once; beam: step by step.")] = "product",
    width: Annotated[int, typer.Option(help="Entities kept after each step of a beam.")] = WIDTH,
    json: Json = False,
) -> None:
    """Follow relations from an entity: the product of the relations answers for the whole path.

    Example: dihedral query out/demo --from man_0600 --via spouse --via parent --top 3
    """
    predictor = dh.load(model)
    found = predictor.query(start, via, top=top, mode=mode, width=width)  # type: ignore[arg-type]
    if json:
        print_json([answer._asdict() for answer in found])
        return
    if mode == "beam":
        rows = [[a.entity, math.exp(a.score), " · ".join(a.through)] for a in found]
        print_table("", ["answer", "probability", "through"], rows, predictor.graph.entities.short)
    else:
        print_table("", ["answer", "score"], [[a.entity, a.score] for a in found], predictor.graph.entities.short)
