"""Batch completion: answers to many questions, and the most probable facts missing from a graph, as tables.

Scores are computed in tiles, so memory does not grow with the number of questions.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pyarrow as pa
import torch
from torch import Tensor

from dihedral.errors import DihedralError, check_triples
from dihedral.graph.steps import SIDES, Side
from dihedral.inference.predictor import Predictor
from dihedral.inference.questions import Among, Known, Part, Question, check_options, missing_part
from dihedral.inference.scorer import MEMORY_MB

OnProgress = Callable[[int, int], None]


def complete(
    predictor: Predictor,
    questions: Sequence[Question],
    *,
    top: int = 10,
    known: Known = "include",
    among: Among = None,
    on_progress: OnProgress | None = None,
) -> pa.Table:
    """The best answers of each question: one row per answer, with the question's number (from 1) and the answer's rank.

    These are the answers that `predictor.predict` gives one by one.
    """
    check_options(top, known)
    check_triples(questions)
    groups: dict[tuple[Part, str], list[int]] = {}  # by the part asked for, and the relation if entities are limited
    for number, question in enumerate(questions):
        try:
            part = missing_part(*question)
            check_options(top, known, among=among, part=part)
        except DihedralError as error:
            raise DihedralError(f"question {number + 1}: {error}") from None
        limited_by = str(question[1]) if among is not None else ""
        groups.setdefault((part, limited_by), []).append(number)
    found: list[pa.Table] = []
    done = 0
    for (part, limited_by), numbers in groups.items():
        here = [questions[number] for number in numbers]
        if part == "relation":
            found.append(_relations(predictor, here, numbers, top, known))
        else:
            allowed = predictor.allowed(among, limited_by, part) if limited_by else None
            found.append(_entities(predictor, here, numbers, part, top, known, allowed))
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
    anchors = [str(question[0 if side == "tail" else 2]) for question in questions]
    entities, steps = predictor.question_ids(side, anchors, [str(question[1]) for question in questions])
    exclude = predictor.known if known == "exclude" else None
    ids, scores = predictor.scorer.top(entities, steps, top, exclude=exclude, allowed=allowed)
    row, place = torch.nonzero(scores > float("-inf"), as_tuple=True)
    answers, given, relations = ids[row, place], entities[row], (steps % predictor.graph.num_relations)[row]
    columns = [given, relations, answers] if side == "tail" else [answers, relations, given]
    question = torch.tensor(numbers)[row.cpu()] + 1
    return _table(predictor, torch.stack(columns, dim=1), scores[row, place], question, place)


def _relations(predictor: Predictor, questions: list[Question], numbers: list[int], top: int, known: Known) -> pa.Table:
    rows = []
    for number, (head, _, tail) in zip(numbers, questions, strict=True):
        for rank, p in enumerate(predictor.predict(head=head, tail=tail, top=top, known=known), start=1):
            rows.append({"question": number + 1, "rank": rank, **p._asdict()})
    return pa.Table.from_pylist(rows, schema=_SCHEMA)


def _table(predictor: Predictor, triples: Tensor, scores: Tensor, question: Tensor, place: Tensor) -> pa.Table:
    """Answers [n, 3] by id as a table of names."""
    graph = predictor.graph
    head, relation, tail = triples.T
    is_known = predictor.known.contains(head, relation, tail)
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
    """The most probable facts that the graph does not hold, best first; by score if the model is not calibrated.

    relations: only facts of these. among: which entities may stand on either side (`Predictor.predict`); None for all.
    Heads are scored in tiles and only the best facts are kept, so memory does not grow with the square of the entities.
    """
    check_options(top, "exclude")
    graph, device, calibration = predictor.graph, predictor.device, predictor.calibration
    relations = (relations,) if isinstance(relations, str) else relations
    names = list(dict.fromkeys(relations)) or list(graph.relations)
    best = torch.empty(0, 3, dtype=torch.int64, device=device)
    best_scores = best_value = torch.empty(0, device=device)
    for number, name in enumerate(names, start=1):
        heads, tails = (predictor.allowed(among, name, side) for side in SIDES)
        anchors = torch.arange(graph.num_entities, device=device) if heads is None else heads.nonzero()[:, 0]
        steps = torch.full_like(anchors, graph.relations.id(name))
        for part, scores in predictor.scorer.tiles(anchors, steps, memory_mb):
            entities, which = anchors[part], steps[part]
            scores[predictor.known(entities, which)] = float("-inf")
            scores[torch.arange(len(entities), device=device), entities] = float("-inf")  # an entity and itself
            if tails is not None:
                scores[:, ~tails] = float("-inf")
            values, flat = scores.flatten().topk(min(top, scores.numel()))
            values, flat = values[values > float("-inf")], flat[values > float("-inf")]
            row, tail = flat // scores.shape[1], flat % scores.shape[1]
            value = calibration.probabilities(values, which[row]) if calibration else values
            best = torch.cat([best, torch.stack([entities[row], which[row], tail], dim=1)])
            best_scores, best_value = torch.cat([best_scores, values]), torch.cat([best_value, value])
            kept = best_value.argsort(descending=True, stable=True)[:top]
            best, best_scores, best_value = best[kept], best_scores[kept], best_value[kept]
        if on_progress:
            on_progress(number, len(names))
    place = torch.arange(len(best), device=device)
    return _table(predictor, best, best_scores, torch.zeros_like(place), place).drop_columns("question")
