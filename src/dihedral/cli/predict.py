"""`dihedral predict`: complete a triple."""

from __future__ import annotations

from typing import Annotated

import typer

import dihedral as dh
from dihedral.cli.options import Json, Known, ModelFolder, Wide
from dihedral.cli.output import cell, print_found
from dihedral.errors import DihedralError
from dihedral.predict.predictor import Predictor
from dihedral.scoring.questions import CANDIDATES, Among


def command(
    model: ModelFolder,
    head: Annotated[str | None, typer.Option(help="The head entity.")] = None,
    relation: Annotated[str | None, typer.Option(help="The relation.")] = None,
    tail: Annotated[str | None, typer.Option(help="The tail entity.")] = None,
    top: Annotated[int, typer.Option(help="Number of predictions.")] = 10,
    known: Known = "include",
    among: Annotated[
        str | None, typer.Option(help="Candidate entities: all, signature, range, or RELATION=ENTITY (default: all).")
    ] = None,
    order: Annotated[
        str, typer.Option(help="probability, score, or auto: the one that ranked the valid triples better.")
    ] = "auto",
    wide: Wide = False,
    json: Json = False,
) -> None:
    """Predict the missing one of head, relation and tail.

    Example: dihedral predict out/umls --head virus --relation causes --known exclude
    """
    if head is not None and relation is not None and tail is not None:
        raise DihedralError(
            "head, relation and tail are all given; leave out the one to predict, or use `dihedral classify`"
        )
    predictor = dh.load(model)
    limits = {"known": known, "among": read_among(predictor, among), "order": order}
    found = predictor.predict(head=head, relation=relation, tail=tail, top=top, **limits)  # type: ignore[arg-type]
    calibrated = bool(found) and found[0].probability is not None
    header = ["head", "relation", "tail", "score", *(["probability"] if calibrated else []), "known"]
    rows = [[cell(getattr(prediction, name)) for name in header] for prediction in found]
    least = [name for name, given in (("relation", relation), ("head", head), ("tail", tail)) if given is not None]
    print_found(json, [prediction._asdict() for prediction in found], header, rows, predictor.graph, least)


def read_among(predictor: Predictor, among: str | None) -> Among:
    """Parse --among: words stay, RELATION=ENTITY becomes the entities with that fact."""
    if among is None or among in CANDIDATES:
        return among
    relation, equals, entity = among.partition("=")
    if not equals:
        raise DihedralError(f"among is {among!r}; write {', '.join(CANDIDATES)}, or RELATION=ENTITY such as isa=Virus")
    return predictor.members(relation, entity)
