"""Everything but embeddings works with any scorer: here one without entity vectors, which counts common facts."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

import dihedral as dh
from dihedral.ask import Fact, Query, Variable
from dihedral.graph.index import GraphIndex
from dihedral.graph.steps import Side, anchors_and_targets, question_steps
from dihedral.scoring.scorer import MEMORY_MB, AnswerLookup, RowScores, best_answers, count_ranks


class CountingScorer:
    """φ(h, r, t): how many entities have a fact with both h and t, and whether t is a known answer of r."""

    max_questions = math.inf

    def __init__(self, facts: GraphIndex) -> None:
        self.device, self.num_entities, self.num_relations = (
            torch.device("cpu"),
            facts.num_entities,
            facts.num_relations,
        )
        source = torch.repeat_interleave(facts.keys // (2 * facts.num_relations), facts.starts.diff())
        linked = torch.zeros(facts.num_entities, facts.num_entities)
        linked[source, facts.ends.long()] = 1.0
        self.common = linked @ linked.T
        self.answers = torch.zeros(2 * facts.num_relations, facts.num_entities)
        steps = torch.repeat_interleave(facts.keys % (2 * facts.num_relations), facts.starts.diff())
        self.answers[steps, facts.ends.long()] = 1.0

    def score(self, triples: Tensor, side: Side = "tail") -> Tensor:
        head, relation, tail = triples.long().unbind(1)
        return self.rows()(head, relation).gather(1, tail[:, None])[:, 0]

    def rows(self, among: Tensor | None = None) -> RowScores:
        def score(entities: Tensor, steps: Tensor) -> Tensor:
            found = self.common[entities.long()] + self.answers[steps.long()]
            return found if among is None else found[:, among]

        return score

    def top(
        self, entities: Tensor, steps: Tensor, count: int = 10, *, exclude: AnswerLookup | None = None,
        allowed: Tensor | None = None, memory_mb: int = MEMORY_MB,
    ) -> tuple[Tensor, Tensor]:  # fmt: skip
        scores = self.rows()(entities, steps)
        if exclude is not None:
            scores[exclude(entities, steps)] = float("-inf")
        if allowed is not None:
            scores[:, ~allowed] = float("-inf")
        return best_answers(scores, min(count, self.num_entities))

    def rank_counts(
        self, triples: Tensor, side: Side, known: AnswerLookup, *, memory_mb: int = MEMORY_MB
    ) -> tuple[Tensor, Tensor]:
        anchors, relations, targets = anchors_and_targets(triples.long(), side)
        steps = question_steps(relations, side, self.num_relations)
        return count_ranks(self.rows()(anchors, steps), targets, *known(anchors, steps))


@pytest.fixture(scope="module")
def counting(family: dh.Graph) -> dh.Predictor:
    return dh.Predictor(dh.TrainedModel(CountingScorer(family.train_index), family))


def test_a_scorer_without_vectors_predicts(counting):
    found = counting.predict(head="man_0000", relation="spouse", top=5)
    assert [each.score for each in found] == sorted((each.score for each in found), reverse=True)
    assert found[0].score == counting.score(*found[0][:3])
    assert "CountingScorer" in repr(counting)


def test_a_scorer_without_vectors_is_evaluated(counting):
    assert 0 < dh.evaluate(counting).mrr < 1


@pytest.mark.usefixtures("probabilities_of_small_graphs")
def test_a_scorer_without_vectors_is_calibrated_and_finds_missing_facts(counting):
    counting.calibrate()
    found = dh.missing_facts(counting, top=5).column("probability").to_pylist()
    assert found == sorted(found, reverse=True) and all(0 < each < 1 for each in found)
    assert counting.classify([("man_0000", "spouse", "woman_0011")])[0].probability > 0
    assert dh.evaluate(counting, order="probability").order == "probability"


def test_a_scorer_without_vectors_answers_queries(counting):
    x, y = Variable("x"), Variable("y")
    assert len(counting.ask(Query(x, Fact("man_0000", "spouse", y) & Fact(y, "parent", x)), top=3)) == 3


@pytest.mark.parametrize(
    ("use", "purpose"),
    [
        (lambda p: dh.algebra(p), "the algebra"),
        (lambda p: dh.explain(p, "man_0000", "spouse", "woman_0011"), "an explanation"),
        (lambda p: p.update(add=[("new", "spouse", "woman_0011")]), "an update"),
        (lambda p: p.export("vectors.npz"), "an export"),
    ],
)
def test_what_needs_vectors_says_so(counting, use, purpose):
    with pytest.raises(dh.DihedralError, match=f"{purpose} needs a model with entity vectors, and this model has none"):
        use(counting)
