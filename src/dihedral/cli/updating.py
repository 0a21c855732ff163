"""`dihedral update`: add facts to a model and remove some; `dihedral fold-in`: place new entities without training."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

import dihedral as dh
from dihedral.cli.options import (
    Columns,
    Device,
    HeadOption,
    Json,
    Known,
    ModelFolder,
    RelationOption,
    Seed,
    TailOption,
    Threads,
    Top,
)
from dihedral.cli.output import print_json, print_predictions, read_data, remark, say
from dihedral.errors import DihedralError
from dihedral.learn import Interrupted
from dihedral.store.history import Version
from dihedral.store.manifest import holds_model, read_manifest
from dihedral.update.folding import new_names
from dihedral.update.update import update_folder

Facts = list[tuple[str, str, str]]


def update_command(
    model: ModelFolder,
    add: Annotated[
        str | None, typer.Option(help="A file of facts to add; new names become entities or relations.")
    ] = None,
    remove: Annotated[str | None, typer.Option(help="A file of facts to remove.")] = None,
    reviews: Annotated[
        bool, typer.Option("--reviews", help="Add the facts that were accepted with `dihedral review`.")
    ] = False,
    out: Annotated[Path | None, typer.Option(help="Write the model to this folder; by default it is replaced.")] = None,
    relations: Annotated[
        bool, typer.Option("--relations", help="Also train known relations (models with --keep-optimiser).")
    ] = False,
    epochs: Annotated[int | None, typer.Option(help="Passes over the facts of the update; chosen by default.")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Continue the same update after it was stopped.")] = False,
    seed: Seed = 0,
    device: Device = "auto",
    threads: Threads = None,
    columns: Columns = None,
    json: Json = False,
) -> None:
    """Add facts to a model and remove facts from it, without training it again from the start.

    Example: dihedral update out/umls --add new.tsv --remove old.tsv

    Example: dihedral update out/umls --add new.tsv --out out/umls-2

    Example: dihedral update out/umls --reviews
    """
    if add is None and remove is None and not reviews:
        raise DihedralError("there is nothing to change; give --add, --remove or --reviews")
    added, removed = _read(add, columns), _read(remove, columns)
    before = read_manifest(model) if holds_model(model) else None
    try:
        updated = update_folder(
            model, out=out, device=device, seed=seed, resume=resume, relations=relations, epochs=epochs, add=added,
            remove=removed, reviews=reviews,
        )  # fmt: skip
    except Interrupted:
        remark(f"interrupted; the model in {model} is as it was. To continue, repeat the command with --resume")
        raise typer.Exit(1) from None
    except KeyboardInterrupt:
        state = "as it was" if read_manifest(model) == before else "already updated"
        remark(f"interrupted; the model in {model} is {state}")
        raise typer.Exit(1) from None
    version = updated.history.latest
    if json:
        print_json(asdict(version))
    else:
        print_version(version)
        remark(f"wrote the model to {out or model}")


def _read(source: str | None, columns: str | None) -> Facts:
    if source is None:
        return []
    graph = read_data(source, columns, all_as="train")
    return list(graph.names_of(graph.known))


def print_version(version: Version) -> None:
    """What an update did, measured and advises."""
    counts = {name: getattr(version, name) for name in ("added", "removed", "new_entities", "new_relations")}
    changed = ", ".join(f"{name.replace('_', ' ')} {count:,}" for name, count in counts.items() if count)
    say(f"version {version.version}: {changed}")
    if version.known_already:
        say(f"facts that the graph had already: {version.known_already:,}")
    if version.trained_again:
        why = "most rows are new or learned from removed facts"
        say(f"a new model was trained in {version.train_seconds:.1f} s: {why}")
    else:
        new = f"{version.new_entities:,} entity rows added, " if version.new_entities else ""
        rows = f"{version.rows_changed:,} of {version.rows:,}"
        say(f"{new}{rows} entity rows changed in {version.train_seconds:.1f} s")
    for split in ("valid", "test"):
        before, after = version.mrr(split)
        if before is not None and after is not None:
            say(f"{split} MRR {before:.4f} before, {after:.4f} after")
    drift = version.drift
    if drift["added_mrr_before"] is not None:
        say(f"added facts: MRR {drift['added_mrr_before']:.4f} before, {drift['added_known_mrr_after']:.4f} after")
    if drift["added_mrr_after"] != drift["added_known_mrr_after"]:
        which = (
            "all added facts, those with new names included" if drift["added_mrr_before"] is not None else "added facts"
        )
        say(f"{which}: MRR {drift['added_mrr_after']:.4f} after")
    if version.not_undone is not None:
        say(f"not undone: {version.not_undone}")
    say("retraining is not needed" if version.advice is None else f"retraining is recommended: {version.advice}")


def fold_in_command(
    model: ModelFolder,
    facts: Annotated[str, typer.Option(help="A file of facts that name the new entities.")],
    head: HeadOption = None,
    relation: RelationOption = None,
    tail: TailOption = None,
    top: Top = 10,
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
    triples = _read(facts, columns)
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
        found = grown.predict(head=head, relation=relation, tail=tail, top=top, known=known)  # type: ignore[arg-type]
        print_predictions(found, grown.graph, json)
