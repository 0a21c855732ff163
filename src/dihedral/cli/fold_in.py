"""`dihedral fold-in`: place new entities by their facts, and ask about them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

import dihedral as dh
from dihedral.cli.options import Columns, Json, Known, ModelFolder, Seed
from dihedral.cli.output import cell, print_found, read_data, remark
from dihedral.errors import DihedralError
from dihedral.store.manifest import holds_model
from dihedral.update.folding import new_names


def command(
    model: ModelFolder,
    facts: Annotated[str, typer.Option(help="A file of facts that name the new entities.")],
    head: Annotated[str | None, typer.Option(help="The head entity of a question.")] = None,
    relation: Annotated[str | None, typer.Option(help="The relation of a question.")] = None,
    tail: Annotated[str | None, typer.Option(help="The tail entity of a question.")] = None,
    top: Annotated[int, typer.Option(help="Number of predictions.")] = 10,
    known: Known = "include",
    out: Annotated[Path | None, typer.Option(help="Write the model with the new entities to this folder.")] = None,
    seed: Seed = 0,
    columns: Columns = None,
    json: Json = False,
) -> None:
    """Place entities that a model does not know by their facts, without training, and predict with them.

    Example: dihedral fold-in out/umls --facts new.tsv --head new_virus --relation causes

    Example: dihedral fold-in out/umls --facts new.tsv --out out/umls-grown
    """
    asked = sum(part is not None for part in (head, relation, tail))
    if not asked and out is None:
        raise DihedralError("no question was given; give two of --head, --relation and --tail, or --out")
    if asked in (1, 3):
        raise DihedralError(f"{asked} of --head, --relation and --tail are given; give two of them")
    if out is not None and holds_model(out):
        raise DihedralError(f"folder {str(out)!r} already holds a model; choose another")
    predictor = dh.load(model)
    graph = read_data(facts, columns, all_as="train")
    triples = list(graph.names_of(graph.known))
    names = new_names(predictor.graph, triples)
    if not names:
        raise DihedralError(
            f"the facts in {facts!r} name no entity that the model does not know; use `dihedral update`"
        )
    listed = ", ".join(names[:5]) + (", …" if len(names) > 5 else "")
    remark(f"{len(names)} new {'entity' if len(names) == 1 else 'entities'}: {listed}")
    grown = predictor.fold_in(names, triples, seed=seed)
    if out is not None:
        grown.save(out)
        remark(f"wrote the model to {out}")
    if asked:
        options: dict[str, Any] = {"top": top, "known": known}
        found = grown.predict(head=head, relation=relation, tail=tail, **options)
        header = ["head", "relation", "tail", "score", "probability", "known"]
        rows = [[cell(getattr(prediction, name)) for name in header] for prediction in found]
        print_found(json, [prediction._asdict() for prediction in found], header, rows, grown.graph)
