"""`dihedral label`: give the entities and relations of a model labels."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from dihedral.cli.options import Json, Language, ModelFolder
from dihedral.cli.output import print_json, say
from dihedral.graph.labels import count_labels
from dihedral.store.folder import relabel_model


def command(
    model: ModelFolder,
    labels: Annotated[
        Path,
        typer.Argument(
            metavar="FILE", help="TSV, CSV, JSON, Parquet or RDF: id, label and optionally description, type, language."
        ),
    ],
    language: Language = "en",
    json: Json = False,
) -> None:
    """Store labels of entities and relations in a model folder; the model itself does not change.

    Labels are shown with the names, and accepted instead of them. Earlier labels stay where the file has none.

    Example: dihedral label out/mine labels.tsv
    """
    graph = relabel_model(model, labels, language)
    if json:
        found = {names.kind: names.labels.count if names.labels else 0 for names in (graph.entities, graph.relations)}
        print_json({"entities": found["entity"], "relations": found["relation"]})
        return
    say(f"labels: {count_labels(graph.entities, graph.relations)}")
