"""`dihedral predict`: the best completions of a triple, or the score of a whole one."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

import dihedral as dh
from dihedral.cli.output import Json, print_json, print_table


def command(
    model: Annotated[Path, typer.Argument(help="A model folder.")],
    head: Annotated[str | None, typer.Option(help="The head entity.")] = None,
    relation: Annotated[str | None, typer.Option(help="The relation.")] = None,
    tail: Annotated[str | None, typer.Option(help="The tail entity.")] = None,
    top: Annotated[int, typer.Option(help="How many predictions.")] = 10,
    known: Annotated[str, typer.Option(help="include or exclude facts the graph holds already.")] = "include",
    json: Json = False,
) -> None:
    """Give two of head, relation and tail: the third is predicted. Give all three: the score.

    Example: dihedral predict out/umls --head virus --relation causes --known exclude
    """
    predictor = dh.load(model)
    if head is not None and relation is not None and tail is not None:
        score = predictor.score(head, relation, tail)
        if json:
            print_json({"head": head, "relation": relation, "tail": tail, "score": score})
        else:
            print(f"{score:.4f}")
        return
    found = predictor.predict(head=head, relation=relation, tail=tail, top=top, known=known)  # type: ignore[arg-type]
    if json:
        print_json([prediction._asdict() for prediction in found])
        return
    print_table(
        "",
        ["head", "relation", "tail", "score", "known"],
        [[p.head, p.relation, p.tail, p.score, "yes" if p.known else ""] for p in found],
        predictor.graph.entities.short,
    )
