"""The engine of path models against the reference in double precision, and against sums over paths."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch
from torch import Tensor

from dihedral import DihedralError, reference
from dihedral.engine import path_engine
from dihedral.engine.path_engine import PathEdges, PathQuestions, PathWeights, path_loss, path_scores
from dihedral.graph import GraphIndex
from dihedral.models.dihedral import ArgmaxRelations
from dihedral.models.path_model import PathModel

ENTITIES, RELATIONS, COMPONENTS, STEPS = 30, 3, 4, 3


def example_index() -> GraphIndex:
    """A sparse graph with pairs in both directions, a loop, parallel facts and an entity without facts."""
    rng = np.random.default_rng(0)
    drawn = rng.integers(0, [ENTITIES - 1, RELATIONS, ENTITIES - 1], (45, 3))
    special = np.array([[0, 0, 1], [1, 0, 0], [0, 1, 1], [2, 1, 2], [1, 2, 3]])
    return GraphIndex.build([np.concatenate([drawn, special]).astype(np.int32)], ENTITIES, RELATIONS)


def path_edges(index: GraphIndex) -> PathEdges:
    return PathEdges(index)


def example_model(gated: bool = False) -> PathModel:
    generator = torch.Generator().manual_seed(1)
    relations = ArgmaxRelations(RELATIONS, 2 * COMPONENTS, 8, generator=generator)
    model = PathModel(relations, STEPS, gated=gated, generator=generator)
    for each in (model.mixing, model.rescaling):
        if each is not None:
            each.data.normal_(generator=generator)
    model.shared.data = torch.rand(4, STEPS, COMPONENTS, generator=generator)
    model.bias.data.normal_(generator=generator)
    return model.requires_grad_(False)


@pytest.fixture(scope="module")
def index() -> GraphIndex:
    return example_index()


@pytest.fixture(scope="module")
def edges(index) -> PathEdges:
    return path_edges(index)


@pytest.fixture(params=[False, True], ids=["linear", "gate"])
def model(request) -> PathModel:
    return example_model(request.param)


def all_edges(index: GraphIndex) -> Tensor:
    return torch.stack([index.sources, index.steps.long(), index.ends.long()], 1)


def without_fact(edges: Tensor, entity: int, step: int, answer: int, pair: bool) -> Tensor:
    """The edges without those of a fact, or without all between its entities."""
    source, taken, end = edges.T
    inverse = (step + RELATIONS) % (2 * RELATIONS)
    there = (source == entity) & (end == answer) & (pair | (taken == step))
    back = (source == answer) & (end == entity) & (pair | (taken == inverse))
    return edges[~(there | back)]


def fan_out(edges: Tensor) -> Tensor:
    """The number of entities to which the step of each edge leads from its source."""
    _, which, counts = torch.unique(edges[:, :2], dim=0, return_inverse=True, return_counts=True)
    return counts[which].double()


def reference_scores(edges: Tensor, entity: int, number: int, questions: PathQuestions, weights: PathWeights) -> Tensor:
    """Scores [N] of one question by the reference."""
    blocks = weights.blocks.view(-1, 2, 2, COMPONENTS).permute(0, 3, 1, 2)
    degrees = torch.bincount(edges[:, 0], minlength=ENTITIES)
    states = reference.path_states(
        edges, fan_out(edges), degrees, entity, weights.vectors[number].view(2, -1),
        weights.gates[questions.which[number]], blocks, weights.shared,
        *((weights.mixing, weights.rescaling[questions.which[number]]) if len(weights.mixing) else ()),
    )  # fmt: skip
    reached = torch.zeros(ENTITIES, dtype=torch.bool)
    reached[entity] = True
    for _ in range(STEPS):
        reached[edges[reached[edges[:, 0]], 2]] = True
    return reference.path_scores(states, weights.reading[number], weights.bias[number], reached)


def exact_loss(
    index: GraphIndex, questions: PathQuestions, answers: Tensor, weights: PathWeights, pair: bool
) -> tuple[Tensor, PathWeights]:
    """The mean loss in double precision, and the weights that it can be differentiated by."""
    exact, losses = PathWeights(*(each.double().requires_grad_() for each in weights)), []
    row, known = index.answers(questions.entities, questions.steps)
    columns = questions.entities.tolist(), questions.steps.tolist(), answers.tolist()
    for number, (entity, step, answer) in enumerate(zip(*columns, strict=True)):
        kept = without_fact(all_edges(index), entity, step, answer, pair)
        scores = reference_scores(kept, entity, number, questions, exact)
        others = torch.zeros(ENTITIES, dtype=torch.bool)
        others[known[row == number]] = True
        others[answer] = False
        losses.append(-scores[~others].log_softmax(0)[(~others)[:answer].sum()])
    return torch.stack(losses).mean(), exact


def facts_as_questions(index: GraphIndex) -> tuple[Tensor, Tensor, Tensor]:
    return index.sources, index.steps.long(), index.ends.long()


def test_scores_are_those_of_the_reference(index, edges, model):
    entities, steps = torch.cartesian_prod(torch.arange(ENTITIES), torch.arange(2 * RELATIONS)).T
    questions, weights = model.weights(entities, steps)
    exact = PathWeights(*(each.double() for each in weights))
    found = path_scores(edges, questions, weights)
    for number in range(0, len(entities), 7):
        wanted = reference_scores(all_edges(index), int(entities[number]), number, questions, exact)
        torch.testing.assert_close(found[number].double(), wanted, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("pair", [False, True])
def test_losses_and_gradients_are_those_of_the_reference(index, edges, model, pair):
    entities, steps, answers = (each[::5] for each in facts_as_questions(index))
    known = index.answers(entities, steps)
    questions, weights = model.weights(entities, steps)
    fast = PathWeights(*(each.clone().requires_grad_() for each in weights))
    path_loss(edges, questions, answers, known, fast, without_pair=pair).backward()
    loss, exact = exact_loss(index, questions, answers, weights, pair)
    loss.backward()
    for name, mine, wanted in zip(PathWeights._fields, fast, exact, strict=True):
        if not mine.numel():
            continue
        assert mine.grad is not None and wanted.grad is not None
        torch.testing.assert_close(mine.grad.double(), wanted.grad, atol=1e-6, rtol=1e-4, msg=name)


def test_a_state_is_the_sum_over_paths_of_products_of_elements(index, model):
    """With α = β = c = f = 0, only paths of exactly T steps count; here they are walked one by one."""
    edges, entity, step = all_edges(index), 1, 0
    _, weights = model.weights(torch.tensor([entity]), torch.tensor([step]))
    exact = PathWeights(*(each.double() for each in weights))
    blocks = exact.blocks.view(-1, 2, 2, COMPONENTS).permute(0, 3, 1, 2)  # [2R, L, 2, 2]
    ways = [(edge,) for edge in edges.tolist() if edge[0] == entity]
    for _ in range(STEPS - 1):
        ways = [(*way, edge) for way, edge in itertools.product(ways, edges.tolist()) if way[-1][2] == edge[0]]
    wanted = torch.zeros(ENTITIES, 2, COMPONENTS, dtype=torch.float64)
    for way in ways:
        product = torch.eye(2, dtype=torch.float64).expand(COMPONENTS, 2, 2)
        gate = torch.ones(COMPONENTS, dtype=torch.float64)
        for t, (_, taken, _) in enumerate(way):
            product = product @ blocks[taken]  # R₁R₂ … as the paper composes relations
            gate = gate * exact.gates[0, t, taken]
        wanted[way[-1][2]] += gate * torch.einsum("lij,il->jl", product, exact.vectors[0].view(2, -1))
    degrees = torch.zeros(ENTITIES)
    none = torch.zeros(4, STEPS, dtype=torch.float64)
    found = reference.path_states(
        edges, fan_out(edges), degrees, entity, exact.vectors[0].view(2, -1), exact.gates[0], blocks, none
    )  # fmt: skip
    torch.testing.assert_close(found, wanted)


def test_results_do_not_depend_on_the_number_of_threads(index, edges, model):
    entities, steps, answers = facts_as_questions(index)
    found = []
    for threads in (1, 3):
        before = torch.get_num_threads()
        torch.set_num_threads(threads)
        try:
            questions, weights = model.weights(entities, steps)
            mine = PathWeights(*(each.clone().requires_grad_() for each in weights))
            loss = path_loss(edges, questions, answers, index.answers(entities, steps), mine)
            loss.backward()
            found.append([loss.detach(), *(each.grad for each in mine), path_scores(edges, questions, weights)])
        finally:
            torch.set_num_threads(before)
    for one, three in zip(*found, strict=True):
        assert torch.equal(one, three)


def test_an_entity_without_facts_reaches_only_itself(edges, model):
    questions, weights = model.weights(torch.tensor([ENTITIES - 1]), torch.tensor([0]))
    scores = path_scores(edges, questions, weights)
    assert scores.count_nonzero() == 1 and scores[0, -1] != 0


def test_path_models_need_numba(edges, model, monkeypatch):
    asked = model.weights(torch.tensor([0]), torch.tensor([0]))
    monkeypatch.setenv("DIHEDRAL_COMPILED", "0")
    with pytest.raises(DihedralError, match="path models need kernels compiled by numba"):
        path_scores(edges, *asked)


def one_question(model: PathModel) -> tuple[PathEdges, tuple, PathQuestions, PathWeights]:
    """A question about two entities joined by two facts, of which one is asked; all entities are reached."""
    index = GraphIndex.build([np.array([[0, 0, 1], [0, 1, 1]], np.int32)], 2, RELATIONS)
    edges = PathEdges(index)
    entity, step = torch.tensor([0]), torch.tensor([0])
    return edges, index.answers(entity, step), *model.weights(entity, step)


def test_low_scores_of_all_entities_have_a_finite_loss(model):
    edges, known, questions, weights = one_question(model)
    mine = weights._replace(bias=weights.bias - 1000)._asdict()
    fast = PathWeights(**{name: each.clone().requires_grad_() for name, each in mine.items()})
    loss = path_loss(edges, questions, torch.tensor([1]), known, fast)
    loss.backward()
    assert loss.isfinite() and all(each.grad.isfinite().all() for each in fast if each.grad is not None)


def test_components_that_are_scaled_to_zero_have_finite_gradients():
    edges, known, questions, weights = one_question(example_model(gated=True))
    mine = weights._replace(rescaling=weights.rescaling - 1e12)._asdict()
    fast = PathWeights(**{name: each.clone().requires_grad_() for name, each in mine.items()})
    path_loss(edges, questions, torch.tensor([1]), known, fast).backward()
    assert all(each.grad.isfinite().all() for each in fast)


@pytest.mark.thorough
def test_kernels_that_are_not_in_the_cache_are_not_compiled(python, tmp_path):
    script = "from dihedral.engine.path_engine import is_compiled; print(is_compiled())"
    assert python("-c", script, NUMBA_CACHE_DIR=str(tmp_path)).stdout == "False\n"
    edges, known, questions, weights = one_question(example_model())
    fast = PathWeights(*(each.clone().requires_grad_() for each in weights))
    path_loss(edges, questions, torch.tensor([1]), known, fast).backward()
    assert path_engine.is_compiled()
