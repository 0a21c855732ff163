"""Many questions at once, and the best facts that a graph lacks, as tables.

A question is a triple of which one part is missing. Nothing here ever holds more scores than fit into a tile.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as papq
import torch
from torch import Tensor

from dihedral.engine.scratch import Scratch
from dihedral.errors import DihedralError, check_triples
from dihedral.evaluation.ranking import MEMORY_MB, score_all, tile_rows
from dihedral.graph.readers import split_line, usual_columns
from dihedral.graph.steps import Side
from dihedral.inference.predictor import Among, Known, Predictor
from dihedral.io.files import atomic_path, make_folder

PARTS = ("head", "relation", "tail")
MISSING = ("", "?")
Question = tuple[str | None, str | None, str | None]
OnProgress = Callable[[int, int], None]


def read_questions(path: Path) -> list[Question]:
    """Rows of head, relation and tail, one of them empty or `?`, from a TSV, CSV or Parquet file.

    A header is known by the usual names of columns, in any order, as in files of triples.
    """
    if not path.is_file():
        raise DihedralError(f"file {str(path)!r} does not exist; give a TSV, CSV or Parquet file of questions")
    try:
        rows = _parquet_rows(path) if path.suffix.lower() == ".parquet" else _text_rows(path)
    except (pa.ArrowException, UnicodeDecodeError, OSError) as error:
        raise DihedralError(f"file {str(path)!r} cannot be read: {str(error).splitlines()[0]}") from None
    return [tuple(None if part is None or part in MISSING else part for part in row) for row in rows]  # type: ignore[misc]


def _parquet_rows(path: Path) -> list[list[str | None]]:
    table = papq.read_table(path)
    places = usual_columns(table.column_names) or range(min(3, table.num_columns))
    if len(places) != 3:
        raise DihedralError(f"file {str(path)!r} has {table.num_columns} columns; questions have head, relation, tail")
    columns = [table.column(place).cast(pa.string()).to_pylist() for place in places]
    return [list(row) for row in zip(*columns, strict=True)]


def _text_rows(path: Path) -> list[list[str]]:
    delimiter = "," if path.suffix.lower() == ".csv" else "\t"
    rows: list[list[str]] = []
    places: Sequence[int] = range(3)
    for number, line in enumerate(path.read_text(encoding="utf-8-sig").splitlines(), start=1):
        if not line.strip(delimiter + " "):
            continue
        cells = split_line(line, delimiter)
        if len(cells) < 3:
            raise DihedralError(f"{path}, line {number}: {len(cells)} columns; questions have head, relation, tail")
        header = usual_columns(cells) if number == 1 else None
        if header:
            places = header
        else:
            rows.append([cells[place] for place in places])
    return rows


def complete(
    predictor: Predictor,
    questions: Sequence[Question],
    *,
    top: int = 10,
    known: Known = "include",
    among: Among = None,
    on_progress: OnProgress | None = None,
) -> pa.Table:
    """The best answers of each question: a row an answer, with the question's number (from 1) and the answer's rank.

    The same answers as `predictor.predict` gives one by one.
    """
    if top < 1:
        raise DihedralError(f"top is {top}; ask for at least 1 answer a question")
    check_triples(questions)
    groups: dict[tuple[str, int], list[int]] = {}  # by the part asked for, and the relation where entities are limited
    for number, question in enumerate(questions):
        missing = [part for part, value in zip(PARTS, question, strict=True) if value is None]
        if len(missing) != 1:
            raise DihedralError(f"question {number + 1} lacks {len(missing)} parts; exactly one is to be missing")
        relation = predictor.graph.relations.id(question[1]) if among is not None and question[1] is not None else -1
        groups.setdefault((missing[0], relation), []).append(number)
    found: list[pa.Table] = []
    done = 0
    for (part, relation), numbers in groups.items():
        here = [questions[number] for number in numbers]
        if part == "relation":
            found.append(_relations(predictor, here, numbers, top, known))
        else:
            allowed = predictor.allowed(among, relation, part)  # type: ignore[arg-type]
            found.append(_entities(predictor, here, numbers, part, top, known, allowed))  # type: ignore[arg-type]
        done += len(numbers)
        if on_progress:
            on_progress(done, len(questions))
    if not found:
        return _SCHEMA.empty_table()
    return pa.concat_tables(found).sort_by([("question", "ascending"), ("rank", "ascending")])


_SCHEMA = pa.schema(
    [("question", pa.int64()), ("rank", pa.int64()), ("head", pa.string()), ("relation", pa.string()),
     ("tail", pa.string()), ("score", pa.float32()), ("probability", pa.float32()), ("known", pa.bool_())]
)  # fmt: skip


def _entities(
    predictor: Predictor, questions: list[Question], numbers: list[int], side: Side, top: int, known: Known,
    allowed: Tensor | None,
) -> pa.Table:  # fmt: skip
    graph, device = predictor.graph, predictor.device
    given = [str(question[0 if side == "tail" else 2]) for question in questions]
    anchors = torch.from_numpy(graph.entities.ids(given).astype(np.int64)).to(device)
    relations = torch.from_numpy(graph.relations.ids([str(question[1]) for question in questions]).astype(np.int64))
    relations = relations.to(device)
    ids, scores = predictor.top(anchors, relations, side, top, known=known, allowed=allowed)
    row, place = torch.nonzero(scores > float("-inf"), as_tuple=True)
    answers = ids[row, place]
    triples = [anchors[row], relations[row], answers] if side == "tail" else [answers, relations[row], anchors[row]]
    return _table(
        predictor, torch.stack(triples, dim=1), scores[row, place], torch.tensor(numbers)[row.cpu()] + 1, place
    )


def _relations(predictor: Predictor, questions: list[Question], numbers: list[int], top: int, known: Known) -> pa.Table:
    rows = []
    for number, (head, _, tail) in zip(numbers, questions, strict=True):
        for rank, p in enumerate(predictor.predict(head=head, tail=tail, top=top, known=known), start=1):
            rows.append({"question": number + 1, "rank": rank, **p._asdict()})
    return pa.Table.from_pylist(rows, schema=_SCHEMA)


def _table(predictor: Predictor, triples: Tensor, scores: Tensor, question: Tensor, place: Tensor) -> pa.Table:
    """Answers [n, 3] by number as a table of names."""
    graph = predictor.graph
    head, relation, tail = triples.T
    is_known = torch.zeros(len(triples), dtype=torch.bool, device=triples.device)
    for part in torch.arange(len(triples), device=triples.device).split(1 << 14):
        row, answer = predictor.known["tail"].of(head[part], relation[part])
        is_known[part[row[answer == tail[part][row]]]] = True
    calibration = predictor.calibration
    likely = calibration.probabilities(scores, relation).cpu().numpy() if calibration else None
    names = [
        vocabulary.array.take(pa.array(ids.cpu().numpy()))
        for vocabulary, ids in ((graph.entities, head), (graph.relations, relation), (graph.entities, tail))
    ]
    columns = [
        pa.array(question.cpu().numpy()), pa.array(place.cpu().numpy() + 1), *names,
        pa.array(scores.float().cpu().numpy()),
        pa.nulls(len(triples), pa.float32()) if likely is None else pa.array(likely, pa.float32()),
        pa.array(is_known.cpu().numpy()),
    ]  # fmt: skip
    return pa.Table.from_arrays(columns, schema=_SCHEMA)


@torch.no_grad()
def missing_facts(
    predictor: Predictor,
    *,
    relations: Sequence[str] = (),
    top: int = 100,
    among: Among = "range",
    memory_mb: int = MEMORY_MB,
    on_progress: OnProgress | None = None,
) -> pa.Table:
    """The likeliest facts that the graph does not hold, best first; by score where the model is not calibrated.

    relations: only of these. among: which entities may stand on either side (`Predictor.predict`); None for all.
    Heads are gone through in tiles and only the best are kept, so memory does not grow with the square of entities.
    """
    if top < 1:
        raise DihedralError(f"top is {top}; ask for at least 1 fact")
    graph, device = predictor.graph, predictor.device
    relations = (relations,) if isinstance(relations, str) else relations
    names = list(dict.fromkeys(relations)) or list(graph.relations)
    candidates, calibration = predictor.candidates, predictor.calibration
    best = torch.empty(0, 3, dtype=torch.int64, device=device)
    best_scores = best_value = torch.empty(0, device=device)
    scratch = Scratch()
    for number, relation in enumerate(graph.relations.ids(names).tolist(), start=1):
        heads, tails = (predictor.allowed(among, relation, side) for side in ("head", "tail"))
        anchors = torch.arange(graph.num_entities, device=device) if heads is None else heads.nonzero()[:, 0]
        for part in anchors.split(tile_rows(predictor.model, memory_mb)):
            which = torch.full_like(part, relation)
            scores = score_all(predictor.model.queries(part, which, "tail", predictor.operators), candidates, scratch)
            scores[predictor.known["tail"].of(part, which)] = float("-inf")
            scores[torch.arange(len(part), device=device), part] = float("-inf")  # no fact of an entity and itself
            if tails is not None:
                scores[:, ~tails] = float("-inf")
            values, flat = scores.flatten().topk(min(top, scores.numel()))
            values, flat = values[values > float("-inf")], flat[values > float("-inf")]
            row, tail = flat // scores.shape[1], flat % scores.shape[1]
            triples = torch.stack([part[row], which[row], tail], dim=1)
            value = calibration.probabilities(values, which[row]) if calibration else values
            best, best_scores = torch.cat([best, triples]), torch.cat([best_scores, values])
            best_value = torch.cat([best_value, value])
            kept = best_value.argsort(descending=True, stable=True)[:top]
            best, best_scores, best_value = best[kept], best_scores[kept], best_value[kept]
        if on_progress:
            on_progress(number, len(names))
    place = torch.arange(len(best), device=device)
    return _table(predictor, best, best_scores, torch.zeros(len(best), dtype=torch.int64), place).drop_columns(
        "question"
    )


def check_table_path(path: Path) -> None:
    """Before the work: a table is written as Parquet, CSV or TSV."""
    if path.suffix not in (".parquet", ".csv", ".tsv"):
        raise DihedralError(f"out is {str(path)!r}; its name must end in .parquet, .csv or .tsv")


def write_table(table: pa.Table, path: Path) -> None:
    """As Parquet, CSV or TSV, by the file's suffix."""
    check_table_path(path)
    make_folder(path.parent)
    with atomic_path(path) as part:
        if path.suffix == ".parquet":
            papq.write_table(table, part)
        else:
            pacsv.write_csv(table, part, pacsv.WriteOptions(delimiter="," if path.suffix == ".csv" else "\t"))
