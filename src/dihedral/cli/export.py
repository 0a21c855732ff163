"""`dihedral export`: write embeddings and codes in other formats."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

import dihedral as dh
from dihedral.cli.options import Json, ModelFolder
from dihedral.cli.output import print_json, say


def command(
    model: ModelFolder,
    out: Annotated[
        Path,
        typer.Option(help="NAME.npz, or NAME.parquet or NAME.txt (word2vec) with relations in NAME.relations.*."),
    ],
    json: Json = False,
) -> None:
    """Write entity vectors and relation codes as NPZ, Parquet or word2vec text; the extension selects the format.

    Example: dihedral export out/umls --out umls.parquet
    """
    written = dh.load(model).export(out)
    if json:
        print_json({"files": [str(path) for path in written]})
        return
    say(f"wrote {', '.join(map(str, written))}")
