"""The scorer of path models: its rows, ranks and best answers agree, and a known fact is asked without itself."""

from __future__ import annotations

import copy
import pickle
from functools import partial

import pytest
import torch

from dihedral.engine import path_kernels
from dihedral.engine.path_engine import ROWS_PER_TASK
from dihedral.graph import Graph, GraphIndex, make_family
from dihedral.graph.steps import SIDES, anchors_and_targets, question_steps
from dihedral.models.dihedral import ArgmaxRelations
from dihedral.models.path_model import PathModel
from dihedral.reference import filtered_rank
from dihedral.runtime.interruption import InterruptedWorkError, Interruption, interruptible
from dihedral.scoring.path_scorer import PathScorer


@pytest.fixture(scope="module")
def graph() -> Graph:
    return make_family(40)


@pytest.fixture(scope="module")
def scorer(graph) -> PathScorer:
    generator = torch.Generator().manual_seed(0)
    relations = ArgmaxRelations(graph.num_relations, 8, 8, generator=generator)
    return PathScorer(PathModel(relations, 3, generator=generator).requires_grad_(False), graph.train_index)


@pytest.mark.parametrize("side", SIDES)
def test_rank_counts_are_those_of_the_rows(graph, scorer, side):
    triples = torch.from_numpy(graph.test).long()
    anchors, relations, targets = anchors_and_targets(triples, side)
    steps = question_steps(relations, side, graph.num_relations)
    rows = scorer.rows()(anchors, steps)
    greater, equal = scorer.rank_counts(triples, side, graph.index.answers, memory_mb=1)
    for number, target in enumerate(targets.tolist()):
        known = graph.index.answers(anchors[number : number + 1], steps[number : number + 1])[1]
        assert filtered_rank(rows[number], target, known) == 1 + int(greater[number]) + int(equal[number]) / 2


def test_best_answers_are_the_highest_of_the_rows(graph, scorer):
    entities, steps = torch.tensor([0, 3, 5]), torch.tensor([0, 1, graph.num_relations])
    ids, values = scorer.top(entities, steps, 4, exclude=graph.index.answers)
    rows = scorer.rows()(entities, steps)
    rows[graph.index.answers(entities, steps)] = float("-inf")
    assert torch.equal(values, rows.sort(1, descending=True).values[:, :4])
    assert torch.equal(rows.gather(1, ids), values)
    among = torch.tensor([2, 7])
    assert torch.equal(scorer.rows(among)(entities, steps), scorer.rows()(entities, steps)[:, among])


def test_a_known_fact_scores_as_in_the_graph_without_it(graph, scorer):
    fact = torch.from_numpy(graph.train[:1]).long()
    without = GraphIndex.build([graph.train[1:]], graph.num_entities, graph.num_relations)
    other = PathScorer(scorer.model, without)
    torch.testing.assert_close(scorer.score(fact), other.score(fact))
    for side in SIDES:
        mine = scorer.rank_counts(fact, side, graph.index.answers)
        assert all(map(torch.equal, mine, other.rank_counts(fact, side, graph.index.answers)))


def test_a_scorer_in_use_can_be_copied_and_pickled(graph, scorer):
    triples = torch.from_numpy(graph.test).long()
    scores = scorer.score(triples)
    for other in (copy.deepcopy(scorer), pickle.loads(pickle.dumps(scorer))):  # noqa: S301
        assert torch.equal(other.score(triples), scores)


def test_questions_that_nobody_waits_for_are_not_answered(scorer, monkeypatch):
    """The kernels are asked for a few questions at a time, and not again once the client has gone."""
    limit, parts, score = Interruption(), [], path_kernels.score_questions

    def counted(start, stop, *arguments):
        parts.append(stop - start)
        score(start, stop, *arguments)
        limit.stop("the client has gone")

    monkeypatch.setattr(path_kernels, "score_questions", counted)
    monkeypatch.setattr("dihedral.engine.compiled._threads", 1)
    entities = torch.arange(40)
    with interruptible(limit):
        for ask in (scorer.rows(), partial(scorer.top, count=10)):
            with pytest.raises(InterruptedWorkError, match="the client has gone"):
                ask(entities, torch.zeros_like(entities))
    assert parts == [ROWS_PER_TASK]
