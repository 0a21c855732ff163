"""Which paths carry the score of a path model: against all paths of a small graph, walked one by one."""

from __future__ import annotations

import itertools
from collections import defaultdict

import numpy as np
import pytest
import torch
from torch import Tensor

from dihedral import reference
from dihedral.graph import GraphIndex
from dihedral.interpretation import path_reasons
from dihedral.interpretation.path_reasons import mean_slope, path_shares, rank_without
from dihedral.models.dihedral import ArgmaxRelations
from dihedral.models.path_model import PathModel
from dihedral.scoring.path_scorer import PathScorer

ENTITIES, RELATIONS, COMPONENTS, STEPS = 9, 2, 3, 3
TRIPLE = (0, 0, 1)  # a fact of the graph


@pytest.fixture(scope="module", params=[False, True], ids=["linear", "gate"])
def scorer(request) -> PathScorer:
    rng, generator = np.random.default_rng(0), torch.Generator().manual_seed(1)
    special = np.array([TRIPLE, [1, 0, 0], [0, 1, 1], [2, 1, 2]])
    facts = np.concatenate([rng.integers(0, [ENTITIES, RELATIONS, ENTITIES], (18, 3)), special])
    relations = ArgmaxRelations(RELATIONS, 2 * COMPONENTS, 8, generator=generator)
    model = PathModel(relations, STEPS, gated=request.param, generator=generator)
    for each in (model.mixing, model.rescaling):
        if each is not None:
            each.data.normal_(generator=generator)
    model.shared.data = torch.rand(4, STEPS, COMPONENTS, generator=generator) - 0.2
    model.bias.data.normal_(generator=generator)
    index = GraphIndex.build([facts.astype(np.int32)], ENTITIES, RELATIONS)
    return PathScorer(model.requires_grad_(False), index)


def all_shares(scorer: PathScorer, triple: tuple[int, int, int]) -> dict[tuple[int, ...], list[tuple[float, tuple]]]:
    """By their steps, what each path adds to the score of a triple and the entities that it visits."""
    entity, asked, answer = triple
    index = scorer.index.without(torch.tensor([triple]))
    edges = torch.stack([index.sources, index.steps.long(), index.ends.long()], 1)
    fans, degrees = index.starts.diff()[index.rows].double(), index.degrees
    weights = type(scorer.model.weights(torch.tensor([0]), torch.tensor([0]))[1])(
        *(each.double() for each in scorer.model.weights(torch.tensor([entity]), torch.tensor([asked]))[1])
    )
    blocks = weights.blocks.view(-1, 2, 2, COMPONENTS).permute(0, 3, 1, 2)
    vector = weights.vectors[0].view(2, -1)

    def states(steps: int, last_factor: bool = True) -> Tensor:
        mixing = rescaling = None
        if len(weights.mixing):
            mixing, rescaling = weights.mixing[:steps].clone(), weights.rescaling[0, :steps].clone()
            if not last_factor:
                mixing[-1], rescaling[-1] = 0.0, 0.0
        gates, shared = weights.gates[0, :steps], weights.shared[:, :steps]
        return reference.path_states(edges, fans, degrees, entity, vector, gates, blocks, shared, mixing, rescaling)

    def length(state: Tensor) -> Tensor:
        return state.square().sum(1).add(1e-30).sqrt()

    factors = [length(states(t + 1)) / length(states(t + 1, last_factor=False)) for t in range(STEPS)]
    keep, restart, degree, fan = weights.shared
    slope = mean_slope(states(STEPS)[answer], weights.reading[0])
    found = defaultdict(list)
    walks = [[number] for number in range(len(edges)) if edges[number, 0] == entity]
    for _ in range(STEPS):
        for walk in walks:
            if edges[walk[-1], 2] != answer:
                continue
            total = torch.zeros(2, COMPONENTS, dtype=torch.float64)
            for start, *moves in itertools.combinations(range(-1, STEPS), len(walk) + 1):
                x, here, moved = vector * (1.0 if start < 0 else restart[start] * factors[start][entity]), entity, 0
                for t in range(start + 1, STEPS):
                    if t in moves:
                        _, step, here = edges[walk[moved]].tolist()
                        x = torch.einsum("lij,il->jl", blocks[step], x) * weights.gates[0, t, step]
                        x = x * fans[walk[moved]] ** -fan[t] * (1.0 + degrees[here]) ** -degree[t] * factors[t][here]
                        moved += 1
                    else:
                        x = x * keep[t] * factors[t][here]
                total = total + x
            steps = tuple(edges[walk, 1].tolist())
            found[steps].append((float((slope * total).sum()), (entity, *edges[walk, 2].tolist())))
        walks = [[*walk, n] for walk in walks for n in range(len(edges)) if edges[n, 0] == edges[walk[-1], 2]]
    return found


@pytest.mark.parametrize("triple", [TRIPLE, (0, 1, 3), (2, 0, 4)])
def test_the_kinds_that_add_most_are_found_with_what_their_paths_add(scorer, triple):
    every = all_shares(scorer, triple)
    totals = {steps: sum(share for share, _ in paths) for steps, paths in every.items()}
    best = sorted((steps for steps in totals if totals[steps] > 1e-6), key=lambda steps: -totals[steps])
    assert len(best) > 3
    for top in (1, 3, 1000):
        found = path_shares(scorer, triple, top)
        assert found.complete
        assert [kind.share for kind in found.kinds if kind.share > 1e-6] == pytest.approx(
            [totals[steps] for steps in best[:top]], rel=1e-3, abs=1e-6
        )
        for kind in found.kinds:
            assert kind.share == pytest.approx(totals[kind.steps], rel=1e-3, abs=1e-6)
            assert kind.num_paths == len(every[kind.steps])
            assert kind.entities in [entities for _, entities in every[kind.steps]]
            walked = {
                (end, step - RELATIONS, start) if step >= RELATIONS else (start, step, end)
                for _, entities in every[kind.steps]
                for start, step, end in zip(entities, kind.steps, entities[1:], strict=False)
            }
            assert set(map(tuple, kind.facts.tolist())) == walked
            if kind.num_paths == 2:
                assert kind.entities == max(every[kind.steps])[1]


@pytest.mark.parametrize("triple", [TRIPLE, (0, 1, 3)])
def test_the_shares_of_all_paths_and_the_bias_are_the_score(scorer, triple):
    found = path_shares(scorer, triple, 1)
    score = float(scorer.score(torch.tensor([triple]))[0])
    assert score == pytest.approx(float(scorer.model.bias[triple[1]]) + found.total, rel=1e-4)
    added = sum(share for paths in all_shares(scorer, triple).values() for share, _ in paths)
    assert added == pytest.approx(found.total, rel=1e-4)


def test_a_known_fact_is_no_path_for_itself(scorer):
    backwards = (TRIPLE[2], TRIPLE[1] + RELATIONS, TRIPLE[0])
    for kind in path_shares(scorer, TRIPLE, 1000).kinds:
        walked = set(zip(kind.entities, kind.steps, kind.entities[1:], strict=False))
        assert not walked & {TRIPLE, backwards}


def test_a_search_that_ends_at_its_limit_says_so(scorer, monkeypatch):
    monkeypatch.setattr(path_reasons, "MAX_NUMBERS", 1)
    assert not path_shares(scorer, TRIPLE, 5).complete


def test_an_entity_that_no_path_reaches_has_no_shares(scorer):
    index = GraphIndex.build([np.array([[0, 0, 1], [2, 0, 3]], np.int32)], 5, RELATIONS)
    found = path_shares(PathScorer(scorer.model, index), (0, 1, 2), 5)
    assert not found.kinds and found.complete and found.total == 0


def test_ranks_without_facts_are_those_in_the_graph_without_them(scorer):
    facts = [(0, 1, 1), (1, 0, 0)]
    score, rank = rank_without(scorer, TRIPLE, torch.tensor(facts), scorer.index.answers)
    rows = torch.stack(tuple(map(torch.from_numpy, scorer.index.facts())), 1).tolist()
    kept = np.array([row for row in rows if tuple(row) not in {TRIPLE, *facts}], np.int32)
    scores = PathScorer(scorer.model, GraphIndex.build([kept], ENTITIES, RELATIONS)).rows()(
        torch.tensor([0]), torch.tensor([0])
    )[0]
    known = scorer.index.answers(torch.tensor([0]), torch.tensor([0]))[1]
    assert score == pytest.approx(float(scores[1])) and rank == reference.filtered_rank(scores, 1, known)
    unknown = (0, 1, 3)
    _, rank = rank_without(scorer, unknown, torch.empty(0, 3, dtype=torch.int64), scorer.index.answers)
    scores = scorer.rows()(torch.tensor([0]), torch.tensor([1]))[0]
    known = scorer.index.answers(torch.tensor([0]), torch.tensor([1]))[1]
    assert rank == reference.filtered_rank(scores, 3, known)


def test_the_mean_slope_is_that_of_the_score_between_zero_and_the_state():
    generator = torch.Generator().manual_seed(0)
    state = torch.randn(2, 4, generator=generator, dtype=torch.float64)
    reading = torch.randn(3, 4, generator=generator, dtype=torch.float64)
    slopes = []
    for tau in (torch.arange(2000, dtype=torch.float64) + 0.5) / 2000:
        x = (tau * state).requires_grad_()
        reference.path_scores(x[None], reading, torch.zeros(()), torch.ones(1, dtype=torch.bool)).sum().backward()
        slopes.append(x.grad)
    torch.testing.assert_close(mean_slope(state, reading), torch.stack(slopes).mean(0), atol=1e-4, rtol=1e-4)
