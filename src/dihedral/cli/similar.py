"""`dihedral similar`: entities like one."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

import dihedral as dh
from dihedral.cli.output import Json, print_json, print_table


def command(
    model: Annotated[Path, typer.Argument(help="A model folder.")],
    entity: Annotated[str, typer.Argument(help="The entity.")],
    top: Annotated[int, typer.Option(help="How many.")] = 10,
    json: Json = False,
) -> None:
    """The entities whose vectors point most nearly the same way.

    Example: dihedral similar out/umls virus
    """
    predictor = dh.load(model)
    found = predictor.similar(entity, top=top)
    if json:
        print_json([each._asdict() for each in found])
    else:
        print_table("", ["entity", "similarity"], [list(each) for each in found], predictor.graph.entities.short)
