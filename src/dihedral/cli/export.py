"""`dihedral export`: vectors and codes for other programs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

import dihedral as dh
from dihedral.cli.output import Json, print_json, say


def command(
    model: Annotated[Path, typer.Argument(help="A model folder.")],
    out: Annotated[
        Path,
        typer.Option(help="NAME.npz: all in one; NAME.parquet or NAME.txt (word2vec): relations in NAME.relations.*."),
    ],
    json: Json = False,
) -> None:
    """Write entity vectors and relation codes to NPZ, Parquet or word2vec text, by the ending of OUT.

    Example: dihedral export out/umls --out umls.parquet
    """
    written = dh.load(model).export(out)
    if json:
        print_json({"files": [str(path) for path in written]})
        return
    say(f"written: {', '.join(map(str, written))}")
