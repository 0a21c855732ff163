"""Files and lists of questions, and the most probable facts missing from a graph, as tables."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import torch
from numpy.typing import NDArray
from torch import Tensor

from dihedral.errors import DihedralError, check_triples
from dihedral.graph.columns import PARTS, common_columns
from dihedral.graph.patterns import wilson_interval
from dihedral.graph.steps import SIDES
from dihedral.io.sources import Source
from dihedral.io.table_files import BLANKS, Columns, read_table
from dihedral.predict.predictor import Predictor
from dihedral.predict.results import with_labels
from dihedral.probability.calibration import Calibration
from dihedral.probability.proposals import is_among, propose, select
from dihedral.scoring.questions import (
    Among,
    Known,
    Order,
    Part,
    Question,
    check_names,
    check_options,
    missing_part,
    unknown_names,
)

OnProgress = Callable[[int, int], None]
COLUMNS = [
    ("rank", pa.int64()), ("head", pa.string()), ("relation", pa.string()), ("tail", pa.string()),
    ("score", pa.float32()), ("probability", pa.float32()),
]  # fmt: skip


def read_questions(path: Path) -> list[Question]:
    """Rows of head, relation and tail, one of them empty or `?`, from a TSV, CSV or Parquet file.

    A header is recognised by the usual column names, in any order, and blanks around names are left out, as in files
    of triples.
    """
    if not path.is_file():
        raise DihedralError(f"file {str(path)!r} does not exist; give a TSV, CSV or Parquet file of questions")

    def by_name(names: Sequence[str]) -> Columns | None:
        places = common_columns(names)
        return None if places is None else dict(zip(PARTS, places, strict=True))

    def part(cell: str | None) -> str | None:
        name = (cell or "").strip(BLANKS)
        return None if name in ("", "?") else name

    expected = "questions have head, relation, tail"
    table = read_table(Source(str(path), path), by_name, PARTS, required=3, expected=expected)
    return list(zip(*(map(part, table[name].to_pylist()) for name in PARTS), strict=True))


def complete(
    predictor: Predictor,
    questions: Sequence[Question],
    *,
    top: int = 10,
    known: Known = "include",
    among: Among = None,
    order: Order = "auto",
    skip_unknown: bool = False,
    on_progress: OnProgress | None = None,
) -> pa.Table:
    """The best answers of each question: one row per answer, with the question's number (from 1) and the answer's rank.

    These are the answers that `predictor.predict` gives one by one.

    skip_unknown: leave out questions with unknown names; otherwise the error lists all of these names.
    """
    check_options(top, known, order=order)
    check_triples(questions)
    unknown = unknown_names(predictor.graph, questions)
    if not skip_unknown:
        check_names(predictor.graph, unknown)
    skipped = {number - 1 for numbers in unknown.values() for number in numbers}
    groups: dict[tuple[Part, str], list[int]] = {}  # by the part asked for, and the relation if entities are limited
    for number, question in enumerate(questions):
        if number in skipped:
            continue
        try:
            part = missing_part(*question)
            check_options(top, known, among=among, part=part)
        except DihedralError as error:
            raise DihedralError(f"question {number + 1}: {error}") from None
        limited_by = str(question[1]) if among not in (None, "all") else ""
        groups.setdefault((part, limited_by), []).append(number)
    rows: dict[int, list[dict[str, Any]]] = {}
    for (part, limited_by), numbers in groups.items():
        here = [questions[number] for number in numbers]
        if part == "relation":
            answers = [predictor.predict(head=head, tail=tail, top=top, known=known) for head, _, tail in here]
        else:
            anchors = [str(each[0 if part == "tail" else 2]) for each in here]
            relations = [str(each[1]) for each in here]
            allowed = predictor.allowed(among, limited_by, part) if limited_by else None
            answers = predictor.predict_many(
                part, anchors, relations, top=top, known=known, allowed=allowed, order=order
            )
        for number, found in zip(numbers, answers, strict=True):
            rows[number] = [
                {"question": number + 1, "rank": rank, **each._asdict()} for rank, each in enumerate(found, start=1)
            ]
        if on_progress:
            on_progress(len(rows), len(questions) - len(skipped))
    schema = pa.schema([("question", pa.int64()), *COLUMNS, ("known", pa.bool_())])
    found = pa.Table.from_pylist([row for number in sorted(rows) for row in rows[number]], schema=schema)
    return with_labels(found, predictor.graph)


@torch.no_grad()
def missing_facts(
    predictor: Predictor,
    *,
    relations: Sequence[str] = (),
    top: int = 100,
    per_relation: int | None = None,
    among: Among = "signature",
    min_precision: float | None = None,
    missing: int | None = None,
    about: NDArray[np.int64] | None = None,
    exclude: Sequence[tuple[str, str, str]] = (),
    on_progress: OnProgress | None = None,
) -> pa.Table:
    """The most probable facts that the graph does not hold, best first; by score if the model is not calibrated.

    relations: only facts of these. per_relation: at most so many facts of each relation.
    among: which entities may stand on either side (`Predictor.predict`).
    min_precision: end the list where fewer than this share of its facts are expected to hold.
    missing: how many facts are missing from the graph, instead of the estimate (`probability.missing_share`).
    about: only facts with one of these entities, by id, as head or as tail. exclude: facts to leave out, such as those
    that reviewers rejected.
    The columns precision, precision_low and precision_high give the share of the facts down to a row that are expected
    to hold, and its 95 % confidence interval; there is none for a part of the facts, nor after a correction by
    decisions (`Predictor.use_reviews`), which `missing` replaces.
    """
    check_options(top, "exclude")
    check_share(predictor, "min_precision", min_precision)
    if per_relation is not None and per_relation < 1:
        raise DihedralError(f"per_relation is {per_relation}; ask for at least 1 fact per relation")
    if missing is not None and missing < 1:
        raise DihedralError(f"missing is {missing}; give the number of facts that are missing, 1 or more")
    graph, calibration = predictor.graph, predictor.calibration
    if calibration is not None and missing is not None:
        calibration = replace(calibration, offsets=None)
    relations = (relations,) if isinstance(relations, str) else relations
    numbers = list(dict.fromkeys(map(graph.relations.id, relations))) or list(range(graph.num_relations))
    is_left = _filter(predictor, about, exclude)
    best, best_scores = torch.empty(0, 3, dtype=torch.int64), torch.empty(0)
    order = np.zeros((2, 0))  # what they are ordered by, and z, which is the same without a correction
    for done, relation in enumerate(numbers, start=1):
        heads, tails = (predictor.candidates(among, relation, side) for side in SIDES)
        if len(graph.evidence_index.members(relation)):
            triples, scores = propose(predictor.evidence, relation, heads.numpy(), tails.numpy())
            left = is_left(triples)
            triples, scores = triples[left], scores[left]
            value = z = scores.double().numpy()
            if calibration is not None:
                least = order[1].min() if len(best) == top and calibration.offsets is None else -np.inf
                triples, scores, _, z = select(predictor.evidence, calibration.proposals, triples, scores, least)
                value = calibration.sort_keys(z, relation)
            own = np.argsort(-value, kind="stable")[:per_relation]
            best, best_scores = torch.cat([best, triples[own]]), torch.cat([best_scores, scores[own]])
            order = np.concatenate([order, np.stack([value, z])[:, own]], axis=1)
            kept = np.argsort(-order[0], kind="stable")[:top]
            best, best_scores, order = best[kept], best_scores[kept], order[:, kept]
        if on_progress:
            on_progress(done, len(numbers))
    likely, ratio = np.full(len(best), None), None if missing is None else missing / max(len(graph.valid), 1)
    if calibration is not None:
        likely = calibration.at(order[1], best[:, 1].numpy(), ratio)
    columns = zip(graph.names_of(best.numpy()), best_scores.tolist(), likely.tolist(), strict=True)
    schema = pa.schema(COLUMNS)
    rows = [(rank, *triple, score, p) for rank, (triple, score, p) in enumerate(columns, start=1)]
    table = pa.Table.from_pylist([dict(zip(schema.names, row, strict=True)) for row in rows], schema=schema)
    is_all = not relations and per_relation is None and missing is None and about is None
    found = _with_precision(calibration, table, order[1] if is_all else None, min_precision)
    return with_labels(found, graph)


def check_share(predictor: Predictor, name: str, value: float | None) -> None:
    """A share of facts that must hold; it needs probabilities."""
    if value is not None and not 0 <= value <= 1:
        raise DihedralError(f"{name} is {value}; it must be between 0 and 1")
    if value is not None and predictor.calibration is None:
        raise DihedralError(f"{name} needs probabilities: {predictor.why_not_calibrated}")


def _filter(
    predictor: Predictor, about: NDArray[np.int64] | None, exclude: Sequence[tuple[str, str, str]]
) -> Callable[[Tensor], Tensor]:
    """Which triples [n, 3] may be listed: no known fact, also none of test, which proposals may be.

    Excluded facts with names that the model does not know do not matter.
    """
    entities, relations, index = predictor.graph.entities, predictor.graph.relations, predictor.graph.index
    known = [(h, r, t) for h, r, t in exclude if h in entities and r in relations and t in entities]
    gone = np.array([(entities.id(h), relations.id(r), entities.id(t)) for h, r, t in known], np.int32).reshape(-1, 3)
    member = torch.ones(len(entities), dtype=torch.bool)
    if about is not None:
        member[:] = False
        member[torch.from_numpy(about)] = True

    def is_left(triples: Tensor) -> Tensor:
        kept = member[triples[:, 0]] | member[triples[:, 2]]
        kept &= index.locate(*triples.unbind(1)) < 0
        return kept & torch.from_numpy(~is_among(triples, gone, len(entities)))

    return is_left


def _with_precision(
    calibration: Calibration | None, table: pa.Table, z: NDArray[np.float64] | None, min_precision: float | None
) -> pa.Table:
    """Add the expected precision of the list down to each row, and end the list where it gets too low.

    z: the values behind the probabilities, for an interval. It has three parts: how many facts are missing, the number
    of similar proposals that the fit has seen, and the chance that a list of this length is better or worse.
    """
    columns = dict.fromkeys(("precision", "precision_low", "precision_high"), pa.nulls(len(table), pa.float32()))
    length = len(table)
    if calibration is not None:
        rows = np.arange(1, length + 1)
        precision = table["probability"].to_numpy().astype(np.float64).cumsum() / rows
        columns["precision"] = pa.array(precision, pa.float32())
        if z is not None and calibration.offsets is None:
            shares = calibration.proposals.at(z)
            similar = np.array([calibration.num_similar(each) for each in shares.tolist()])
            low, high = (each.cumsum() / rows for each in calibration.missing.bounds(shares))
            examples = 1 / (1 / rows + 1 / similar)
            low, high = wilson_interval(low, examples)[0], wilson_interval(high, examples)[1]
            columns |= {"precision_low": pa.array(low, pa.float32()), "precision_high": pa.array(high, pa.float32())}
        if min_precision is not None:
            length = 1 + int(np.flatnonzero(precision >= min_precision).max(initial=-1))
    for name, column in columns.items():
        table = table.append_column(name, column)
    return table.slice(0, length)
