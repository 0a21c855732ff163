"""`dihedral predict`: the best completions of a triple, or the score of a whole one."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

import dihedral as dh
from dihedral.cli.output import Json, print_json, print_table
from dihedral.errors import DihedralError
from dihedral.inference.predictor import Predictor
from dihedral.inference.questions import Among


def command(
    model: Annotated[Path, typer.Argument(help="A model folder.")],
    head: Annotated[str | None, typer.Option(help="The head entity.")] = None,
    relation: Annotated[str | None, typer.Option(help="The relation.")] = None,
    tail: Annotated[str | None, typer.Option(help="The tail entity.")] = None,
    top: Annotated[int, typer.Option(help="How many predictions.")] = 10,
    known: Annotated[str, typer.Option(help="include or exclude facts the graph holds already.")] = "include",
    among: Annotated[
        str | None, typer.Option(help="Only these entities: `range`, or RELATION=ENTITY for those with that fact.")
    ] = None,
    json: Json = False,
) -> None:
    """Give two of head, relation and tail: the third is predicted. Give all three: the score.

    Example: dihedral predict out/umls --head virus --relation causes --known exclude
    """
    predictor = dh.load(model)
    if head is not None and relation is not None and tail is not None:
        score = predictor.score(head, relation, tail)
        judged = predictor.classify([(head, relation, tail)])[0] if predictor.calibration else None
        if json:
            more = {"probability": judged.probability, "true": judged.true} if judged else {}
            print_json({"head": head, "relation": relation, "tail": tail, "score": score, **more})
        elif judged:
            print(f"{score:.4f}, probability {judged.probability:.3f}: {'true' if judged.true else 'false'}")
        else:
            print(f"{score:.4f}")
        return
    limits = {"known": known, "among": read_among(predictor, among)}
    found = predictor.predict(head=head, relation=relation, tail=tail, top=top, **limits)  # type: ignore[arg-type]
    if json:
        print_json([prediction._asdict() for prediction in found])
        return
    calibrated = bool(found) and found[0].probability is not None
    print_table(
        "",
        ["head", "relation", "tail", "score", *(["probability"] if calibrated else []), "known"],
        [
            [p.head, p.relation, p.tail, p.score, *([p.probability] if calibrated else []), "yes" if p.known else ""]
            for p in found
        ],
        predictor.graph.entities.short,
    )


def read_among(predictor: Predictor, among: str | None) -> Among:
    """`range` as it is; RELATION=ENTITY as the entities that have that fact."""
    if among is None or among == "range":
        return among
    relation, equals, entity = among.partition("=")
    if not equals:
        raise DihedralError(f"among is {among!r}; write range, or RELATION=ENTITY such as isa=Virus")
    return predictor.members(relation, entity)
