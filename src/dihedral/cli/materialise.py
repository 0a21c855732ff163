"""`dihedral materialise`: write the facts that a file of rules derives from a graph."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from dihedral.cli.options import Columns, Json, Wide
from dihedral.cli.output import cell, counted_bar, print_found, read_data, remark
from dihedral.cli.rules import Base, read_rules_of
from dihedral.interpretation.derivation import check_path, materialise
from dihedral.io.iris import BASE


def command(
    rules: Annotated[Path, typer.Argument(help="A file of rules by AMIE, AnyBURL or `dihedral rules --format json`.")],
    data: Annotated[str, typer.Argument(metavar="GRAPH", help="The graph: anything that `train` reads.")],
    out: Annotated[
        Path | None, typer.Option(help="Write .tsv, .csv, .parquet, .nt or .nq (with provenance) instead of printing.")
    ] = None,
    min_confidence: Annotated[float, typer.Option(help="Leave out rules with a lower confidence in the graph.")] = 0.0,
    min_support: Annotated[int, typer.Option(help="Leave out rules with a lower support in the graph.")] = 1,
    base: Base = BASE,
    columns: Columns = None,
    wide: Wide = False,
    json: Json = False,
) -> None:
    """Derive new facts from a graph with rules, each with the confidence of its best rule and one reason.

    Rules are counted in the training facts of the graph and applied to them once. Facts that it holds are left out.

    Example: dihedral materialise rules.tsv umls --min-confidence 0.5 --out derived.tsv
    """
    if out is not None:
        check_path(out)
    graph = read_data(data, columns, all_as="train")
    known = read_rules_of(rules, graph)
    with counted_bar("rules") as on_progress:
        found = materialise(
            known, graph, min_confidence=min_confidence, min_support=min_support, on_progress=on_progress
        )
    if out is not None:
        found.write(out, base)
        remark(f"wrote {len(found)} facts that {len(found.rules)} of {len(known)} rules derive to {out}")
        return
    table = found.to_arrow()
    rows = table.to_pylist()
    header = [name for name in table.column_names if name not in ("pca_confidence", "support")]
    print_found(json, rows, header, [[cell(row[name]) for name in header] for row in rows], graph)
