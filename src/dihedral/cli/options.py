"""Arguments and options that several commands share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from dihedral.cli import output
from dihedral.io.files import check_suffix
from dihedral.io.table_files import TABLE_SUFFIXES
from dihedral.runtime.threads import use_threads


def _set(context: typer.Context, option: typer.CallbackParam, value: bool) -> bool:
    output.settings[str(option.name)] = value
    return value


def _check_table_file(path: Path | None) -> Path | None:
    if path is not None:
        check_suffix("out", path, TABLE_SUFFIXES)
    return path


Json = Annotated[bool, typer.Option("--json", help="Print JSON, one line per result.")]
Wide = Annotated[bool, typer.Option("--wide", help="Print tables wider than the terminal.", callback=_set)]
Verbose = Annotated[bool, typer.Option("--verbose", "-v", help="Also print technical details.", callback=_set)]
ModelFolder = Annotated[Path, typer.Argument(help="A model folder.")]
Data = Annotated[str, typer.Argument(help="A benchmark, folder, archive or file (text, JSON lines, Parquet, RDF).")]
OtherGraph = Annotated[
    str | None, typer.Option("--graph", help="Answer from the facts of this graph instead; only a path model can.")
]
Device = Annotated[str, typer.Option(help="auto, cpu, cuda or mps.")]
Columns = Annotated[str | None, typer.Option(help="Columns of head, relation and tail, such as source,kind,target.")]
MergeSimilar = Annotated[
    bool, typer.Option("--merge-similar", help="Merge names that differ only in case, white space or Unicode form.")
]
SkipBlank = Annotated[bool, typer.Option("--skip-blank", help="Leave out rows with a blank cell.")]
Labels = Annotated[Path | None, typer.Option(help="TSV, CSV, JSON, Parquet or RDF with ids and labels.")]
Language = Annotated[str, typer.Option(help="Languages of labels, the preferred one first, such as en,de.")]
TableFile = Annotated[
    Path | None, typer.Option(help="Write .parquet, .csv or .tsv instead of printing.", callback=_check_table_file)
]
SpreadsheetSafe = Annotated[
    bool, typer.Option("--spreadsheet-safe", help="In .csv and .tsv, put ' before names that start with = + - or @.")
]
Head = Annotated[str | None, typer.Option("--head", help="The head entity.")]
Relation = Annotated[str | None, typer.Option("--relation", help="The relation.")]
Tail = Annotated[str | None, typer.Option("--tail", help="The tail entity.")]
Relations = Annotated[list[str] | None, typer.Option("--relation", help="Only facts of this relation; repeatable.")]
Top = Annotated[int, typer.Option(help="Number of answers.")]
Among = Annotated[str, typer.Option(help="Candidate entities: all, signature, range, or RELATION=ENTITY.")]
Order = Annotated[str, typer.Option(help="probability, score, or auto: the one that ranked the valid triples better.")]
Known = Annotated[str, typer.Option(help="include or exclude: whether to list facts that the graph holds.")]
Base = Annotated[str, typer.Option(help="In RDF, what comes before names that are not IRIs.")]
Csv = Annotated[bool, typer.Option("--csv", help="Print CSV.")]
Settings = Annotated[list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Change a setting; repeatable.")]
Seed = Annotated[int, typer.Option(help="Random seed.")]
Threads = Annotated[int | None, typer.Option(help="CPU threads (default: one per core).", callback=use_threads)]
