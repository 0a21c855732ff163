"""`dihedral similar`: find similar entities."""

from __future__ import annotations

from typing import Annotated

import typer

import dihedral as dh
from dihedral.cli.options import Json, ModelFolder, Wide
from dihedral.cli.output import print_found


def command(
    model: ModelFolder,
    entity: Annotated[str, typer.Argument(help="The entity to compare with.")],
    top: Annotated[int, typer.Option(help="Number of entities.")] = 10,
    wide: Wide = False,
    json: Json = False,
) -> None:
    """List the entities with the highest cosine similarity to an entity.

    Example: dihedral similar out/umls virus
    """
    predictor = dh.load(model)
    found = predictor.similar(entity, top=top)
    content = [each._asdict() for each in found]
    print_found(json, content, ["entity", "similarity"], found, predictor.graph)
