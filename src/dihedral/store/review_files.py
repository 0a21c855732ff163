"""Files of decisions: tables, RDF, and decisions that were made elsewhere."""

from __future__ import annotations

from pathlib import Path
from typing import Literal, get_args

import pyarrow as pa

from dihedral.errors import DihedralError
from dihedral.graph.columns import PARTS, common_columns
from dihedral.io.files import check_suffix, make_folder, write_text
from dihedral.io.iris import BASE, check_base, to_statement
from dihedral.io.sources import TEXT_SUFFIXES, Source
from dihedral.io.table_files import tab_separated, text_rows, write_table
from dihedral.store.reviews import PAST, Decision, Reviews

ReviewFormat = Literal["tsv", "ntriples", "nquads"]
RDF_SUFFIXES: dict[str, ReviewFormat] = {".nt": "ntriples", ".nq": "nquads"}
SUFFIXES = (".tsv", ".csv", ".parquet", *RDF_SUFFIXES)
MEDIA_TYPES: dict[ReviewFormat, str] = {
    "tsv": "text/tab-separated-values", "ntriples": "application/n-triples", "nquads": "application/n-quads",
}  # fmt: skip
PROBABILITIES = ("probability", "uncorrected")
IMPORTED = ("decision", *PROBABILITIES, "note", "reviewer", "time")  # columns besides the fact
VERBS = {past: verdict for verdict, past in PAST.items()}


def to_table(reviews: Reviews) -> pa.Table:
    """One row per accepted or rejected fact, with the decision that stands."""
    disputed = reviews.disputed()
    rows = [
        each.to_dict() | {"disputed": "yes" if each.fact in disputed else ""} for each in reviews.standing().values()
    ]
    columns = (*PARTS, *IMPORTED, "disputed")
    kinds = [(name, pa.float64() if name in PROBABILITIES else pa.string()) for name in columns]
    return pa.Table.from_pylist(rows, pa.schema(kinds))


def to_text(reviews: Reviews, form: ReviewFormat, base: str = BASE) -> str:
    """Decisions as text: N-Triples hold the accepted facts, N-Quads the accepted and the rejected in two graphs."""
    if form not in get_args(ReviewFormat):
        raise DihedralError(f"format is {form!r:.80}; choose {', '.join(get_args(ReviewFormat))}")
    if form == "tsv":
        return "".join(tab_separated(to_table(reviews), Path("the export")))
    base, lines = check_base(base), []
    for each in reviews.standing().values():
        statement = to_statement(each.fact, base)
        if form == "nquads":
            lines.append(f"{statement} <{base}review#{PAST[each.decision]}> .\n")
        elif each.decision == "accept":
            lines.append(f"{statement} .\n")
    return "".join(lines)


def write_reviews(reviews: Reviews, path: Path, *, base: str = BASE, spreadsheet_safe: bool = False) -> int:
    """Write decisions as a table (.tsv, .csv, .parquet), N-Triples (.nt) or N-Quads (.nq); returns their number."""
    check_suffix("export", path, SUFFIXES)
    if path.suffix in RDF_SUFFIXES:
        text = to_text(reviews, RDF_SUFFIXES[path.suffix], base)
        make_folder(path.parent)
        write_text(path, text)
        return text.count("\n")
    write_table(to_table(reviews), path, spreadsheet_safe=spreadsheet_safe)
    return len(reviews.standing())


def read_decisions(path: Path, reviewer: str) -> list[Decision]:
    """Decisions from a TSV or CSV file with head, relation, tail and decision; reviewer: of rows without one."""
    if path.suffix not in TEXT_SUFFIXES or not path.is_file():
        raise DihedralError(f"import is {str(path)!r}; give a file that exists and ends in {', '.join(TEXT_SUFFIXES)}")
    try:
        rows = list(text_rows(Source(str(path), path)))
    except (UnicodeDecodeError, OSError) as error:
        raise DihedralError(f"file {str(path)!r} cannot be read: {error}") from None
    header = [cell.strip().lower() for cell in rows[0][1]] if rows else []
    places = common_columns(header)
    if places is None or "decision" not in header:
        raise DihedralError(f"file {str(path)!r} has no columns head, relation, tail and decision in its first line")
    found = []
    for number, cells in rows[1:]:
        if len(cells) != len(header):
            raise DihedralError(f"{path}, line {number}: {len(cells)} columns; expected {len(header)}")
        row = {name: cells[header.index(name)].strip() if name in header else "" for name in IMPORTED}
        head, relation, tail = (cells[place].strip() for place in places)
        decision = VERBS.get(row["decision"], row["decision"])
        try:
            likely = [float(row[name]) if row[name] else None for name in PROBABILITIES]
        except ValueError as error:
            raise DihedralError(f"{path}, line {number}: {error}; a probability is a number from 0 to 1") from None
        who = row["reviewer"] or reviewer
        found.append(Decision((head, relation, tail), decision, who, row["time"], row["note"], *likely))
    return found
