"""Objectives against the same losses written out triple by triple over the whole table, gradients by autograd."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from dihedral import Recipe
from dihedral.engine import compiled
from dihedral.models import Relations, build_model
from dihedral.objectives.logistic import Gradients, LogisticLoss, SoftmaxLoss, definitely_skew, regulariser

ENTITIES, RELATIONS, DIMENSION = 6, 3, 8
BATCH = torch.tensor([[0, 2, 1], [3, 0, 4], [1, 2, 0], [5, 0, 5], [0, 0, 1]])  # relation 1 is not in use
BLOCK_MODELS = ["dihedral-ste", "dihedral-gumbel", "complex", "simple"]
EVERY_KIND = [*BLOCK_MODELS, "hole", "rescal", "transe"]


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


class Example:
    """A tiny model and the batch above, as the training loop would hand them to an objective."""

    def __init__(self, name: str) -> None:
        model = build_model(name, ENTITIES, RELATIONS, dimension=DIMENSION, entity_init=1.0, seed=1)
        if name == "transe":
            with torch.no_grad():
                model.relations.weights[:, -1] = torch.tensor([4.0, 5.0, 6.0])  # margins
        self.relations: Relations = model.relations
        self.entities = model.entities.detach()
        which, self.index = torch.unique(BATCH[:, 1], return_inverse=True)
        self.operators = self.relations.operators(which, seeded(3)).detach()

    def ask(self, objective: Any, seed: int = 0) -> Gradients:
        return objective(self.entities, self.operators, self.index, BATCH, seeded(seed))

    def score(self, operator: Tensor, h: Tensor, t: Tensor) -> Tensor:
        """φ(h, r, t) from one operator row, with nothing but dense products."""
        kind = self.relations.kind
        if kind == "transe":
            return operator[-1] - 0.5 * (h + operator[:-1] - t).square().sum()
        if kind == "rescal":
            return h @ operator @ t
        if kind == "hole":
            return sum(operator[k] * (h * t.roll(-k)).sum() for k in range(DIMENSION))
        a, b, c, d = (torch.diag(entry) for entry in operator)
        return h @ torch.cat([torch.cat([a, b], 1), torch.cat([c, d], 1)]) @ t

    def components(self, operator: Tensor, h: Tensor, t: Tensor) -> Tensor:
        """φ of each two-dimensional component alone: [L]."""
        L = DIMENSION // 2
        terms = []
        for i in range(L):
            block = operator[:, i].reshape(2, 2)
            terms.append(h[[i, L + i]] @ block @ t[[i, L + i]])
        return torch.stack(terms)


def written_out(example: Example, loss: Callable[[Tensor, Tensor], Tensor]) -> tuple[Tensor, Tensor, Tensor]:
    """loss(entities, operators) in double precision, and its gradients with respect to both."""
    entities = example.entities.double().requires_grad_()
    operators = example.operators.double().requires_grad_()
    value = loss(entities, operators)
    return value.detach(), *torch.autograd.grad(value, [operators, entities])


def assert_agree(found: Gradients, expected: tuple[Tensor, Tensor, Tensor]) -> None:
    entities = found.entities if isinstance(found.entities, Tensor) else found.entities.dense(ENTITIES)
    for name, ours, theirs in zip(
        ("loss", "operators", "entities"), (found.loss, found.operators, entities), expected, strict=True
    ):
        torch.testing.assert_close(ours.double(), theirs, atol=1e-5, rtol=1e-5, msg=lambda m, n=name: f"{n}: {m}")


def log_sigmoid(x: Tensor) -> Tensor:
    return -torch.log(1 + torch.exp(-x))


def penalty(recipe: Recipe, h: Tensor, t: Tensor) -> Tensor:
    """λ · ½(‖h‖² + ‖t‖²), or λ times the cubed lengths of all components."""
    if recipe.regulariser == "l2":
        return recipe.regulariser_weight * 0.5 * (h @ h + t @ t)
    if recipe.regulariser == "n3":
        return recipe.regulariser_weight * sum(e.reshape(2, -1).norm(dim=0).pow(3).sum() for e in (h, t))
    return torch.zeros(())


def equation_2(
    example: Example, recipe: Recipe, negatives: Tensor, skew: Tensor | None = None
) -> tuple[Tensor, Tensor, Tensor]:
    """The logistic loss of the batch; the first half of a batch has its tails corrupted, the rest its heads."""

    def loss(entities: Tensor, operators: Tensor) -> Tensor:
        total = torch.zeros((), dtype=torch.float64)
        for i, (head, relation, tail) in enumerate(BATCH.tolist()):
            operator, h, t = operators[example.index[i]], entities[head], entities[tail]
            corrupt_tail = i < 3
            row = negatives[i // recipe.share_negatives if recipe.share_negatives else i].tolist()
            corrupted = [(h, entities[n]) if corrupt_tail else (entities[n], t) for n in row]
            total = total - log_sigmoid(example.score(operator, h, t))
            scores = torch.stack([example.score(operator, *pair) for pair in corrupted])
            if recipe.adversarial:
                weights = torch.softmax(recipe.adversarial * scores.detach(), 0)
            else:
                weights = torch.ones(len(scores))
            total = total - (weights * log_sigmoid(-scores)).sum()
            if skew is not None and skew[relation]:
                total = total - log_sigmoid(-example.score(operator, t, h))
            if recipe.component_weight:
                positive = example.components(operator, h, t)
                for pair in corrupted:
                    margin = positive - example.components(operator, *pair)
                    total = total - recipe.component_weight * log_sigmoid(margin).sum() / len(corrupted)
            total = total + penalty(recipe, h, t)
        return total / len(BATCH)

    return written_out(example, loss)


def logistic(example: Example, recipe: Recipe, skew: Tensor | None = None) -> tuple[LogisticLoss, Tensor]:
    """The objective, and the negatives that it draws with seed 0."""
    objective = LogisticLoss(recipe, example.relations, ENTITIES, skew)
    return objective, objective.sample(BATCH, seeded())


# --- the logistic loss ---------------------------------------------------------------------------


@pytest.mark.parametrize("regulariser", ["none", "l2", "n3"])
@pytest.mark.parametrize("name", EVERY_KIND)
def test_the_logistic_loss_is_equation_2_written_out(name, regulariser):
    example = Example(name)
    recipe = Recipe(negatives=4, regulariser=regulariser, regulariser_weight=0.3)
    objective, negatives = logistic(example, recipe)
    assert_agree(example.ask(objective), equation_2(example, recipe, negatives))


@pytest.mark.parametrize("name", BLOCK_MODELS)
@pytest.mark.parametrize("way", ["by_autograd", "by_hand", "by_compiled"])
def test_every_way_to_the_gradients_leads_to_equation_2(name, way):
    if way == "by_compiled" and not compiled.available():
        pytest.skip("numba is not installed")
    example = Example(name)
    recipe = Recipe(negatives=4, regulariser="l2", regulariser_weight=0.3)
    objective, negatives = logistic(example, recipe)
    arguments = [example.entities, example.operators, example.index, BATCH, negatives]
    if way == "by_autograd":
        arguments.append(seeded())
    assert_agree(getattr(objective, way)(*arguments), equation_2(example, recipe, negatives))


@pytest.mark.parametrize("name", EVERY_KIND)
def test_skew_relations_get_the_reversed_triple_as_a_negative(name):
    example = Example(name)
    recipe = Recipe(negatives=2, skew_probability=1.0, regulariser="l2", regulariser_weight=0.1)
    skew = torch.tensor([False, True, True])
    objective, negatives = logistic(example, recipe, skew)
    assert_agree(example.ask(objective), equation_2(example, recipe, negatives, skew))


@pytest.mark.parametrize("name", BLOCK_MODELS)
def test_the_component_loss_compares_every_component_alone(name):
    example = Example(name)
    recipe = Recipe(negatives=3, component_weight=0.7, regulariser="l2", regulariser_weight=0.1)
    objective, negatives = logistic(example, recipe)
    assert_agree(example.ask(objective), equation_2(example, recipe, negatives))


def test_all_extra_losses_add_up():
    example = Example("dihedral-gumbel")
    recipe = Recipe(negatives=3, component_weight=1.5, skew_probability=1.0, regulariser="l2", regulariser_weight=0.2)
    skew = torch.tensor([True, True, True])
    objective, negatives = logistic(example, recipe, skew)
    assert_agree(example.ask(objective), equation_2(example, recipe, negatives, skew))


@pytest.mark.parametrize("name", ["dihedral-ste", "hole", "transe"])
@pytest.mark.parametrize("share", [1, 2, 5, 64])
def test_positives_may_share_their_negatives(name, share):
    example = Example(name)
    recipe = Recipe(negatives=4, share_negatives=share, regulariser="l2", regulariser_weight=0.1)
    objective, negatives = logistic(example, recipe)
    assert negatives.shape == (-(-len(BATCH) // share), 4)
    expected = equation_2(example, recipe, negatives)
    assert_agree(example.ask(objective), expected)
    assert objective.written_out == (name != "transe")
    reference = LogisticLoss(recipe, example.relations, ENTITIES, reference=True)
    assert_agree(example.ask(reference), expected)


@pytest.mark.parametrize("name", ["dihedral-ste", "hole", "transe"])
@pytest.mark.parametrize("share", [0, 2])
def test_self_adversarial_weights_are_a_softmax_of_the_negative_scores(name, share):
    example = Example(name)
    recipe = Recipe(negatives=4, adversarial=0.8, share_negatives=share)
    objective, negatives = logistic(example, recipe)
    assert_agree(example.ask(objective), equation_2(example, recipe, negatives))


def test_half_of_the_positives_get_the_reversed_negative_at_a_chance_of_a_half():
    example = Example("dihedral-gumbel")
    batch = torch.tensor([[0, 0, 1]]).repeat(4000, 1)
    index = torch.zeros(len(batch), dtype=torch.long)

    def loss(chance: float) -> float:
        objective = LogisticLoss(  # the one entity 0 as every negative
            Recipe(negatives=1, skew_probability=chance), example.relations, 1, torch.tensor([True] * RELATIONS)
        )
        return float(objective(example.entities, example.operators, index, batch, seeded()).loss)

    never, sometimes, always = loss(0.0), loss(0.5), loss(1.0)
    assert always - never > 0.1
    assert (sometimes - never) / (always - never) == pytest.approx(0.5, abs=0.03)


def test_negatives_are_drawn_evenly_from_all_entities():
    batch = BATCH.repeat(2000, 1)
    objective = LogisticLoss(Recipe(negatives=3), Example("complex").relations, ENTITIES)
    negatives = objective.sample(batch, seeded())
    assert negatives.shape == (len(batch), 3)
    shares = torch.bincount(negatives.flatten(), minlength=ENTITIES) / negatives.numel()
    torch.testing.assert_close(shares, torch.full((ENTITIES,), 1 / ENTITIES), atol=0.01, rtol=0)


def test_a_seed_settles_the_loss():
    example = Example("dihedral-ste")
    objective = LogisticLoss(Recipe(negatives=2), example.relations, ENTITIES)
    first, again, other = (example.ask(objective, seed).loss for seed in (0, 0, 1))
    assert first == again != other


def test_scores_far_from_zero_keep_a_finite_loss():
    example = Example("dihedral-ste")
    example.entities = example.entities * 100
    found = example.ask(LogisticLoss(Recipe(negatives=4), example.relations, ENTITIES))
    assert found.loss.isfinite()
    assert found.operators.isfinite().all()
    assert found.entities.dense(ENTITIES).isfinite().all()


@pytest.mark.parametrize("objective", ["logistic", "softmax"])
def test_an_objective_leaves_the_parameters_as_they_are(objective):
    example = Example("dihedral-gumbel")
    entities, operators = example.entities.clone(), example.operators.clone()
    recipe = Recipe(objective=objective, negatives=2, regulariser="n3", regulariser_weight=0.1)
    if objective == "logistic":
        example.ask(LogisticLoss(recipe, example.relations, ENTITIES))
    else:
        example.ask(SoftmaxLoss(recipe, example.relations))
    assert torch.equal(example.entities, entities)
    assert torch.equal(example.operators, operators)


# --- cross-entropy over all entities ---------------------------------------------------------------


@pytest.mark.parametrize("name", EVERY_KIND)
@pytest.mark.parametrize("regulariser", ["none", "l2", "n3"])
def test_the_softmax_loss_is_the_cross_entropy_of_tails_plus_that_of_heads(name, regulariser):
    example = Example(name)
    recipe = Recipe(objective="softmax", regulariser=regulariser, regulariser_weight=0.3)

    def loss(entities: Tensor, operators: Tensor) -> Tensor:
        total = torch.zeros((), dtype=torch.float64)
        for i, (head, _, tail) in enumerate(BATCH.tolist()):
            operator, h, t = operators[example.index[i]], entities[head], entities[tail]
            tails = torch.stack([example.score(operator, h, e) for e in entities])
            heads = torch.stack([example.score(operator, e, t) for e in entities])
            total = total - tails.log_softmax(0)[tail] - heads.log_softmax(0)[head]
            total = total + penalty(recipe, h, t)
        return total / len(BATCH)

    assert_agree(example.ask(SoftmaxLoss(recipe, example.relations)), written_out(example, loss))


# --- regularisers ----------------------------------------------------------------------------------

HEAD = torch.tensor([[3.0, 1.0, 4.0, 0.0], [0.0, 0.0, 0.0, 0.0]])  # components (3, 4) and (1, 0); then nothing
TAIL = torch.tensor([[0.0, 2.0, 0.0, 0.0], [1.0, 0.0, 0.0, 2.0]])  # (0, 0) and (2, 0); then (1, 0) and (0, 2)


def test_l2_is_half_the_squared_length_of_both_entities_averaged_over_the_batch():
    recipe = Recipe(regulariser="l2", regulariser_weight=0.1)
    assert regulariser(recipe, HEAD, TAIL).item() == pytest.approx(0.1 * 0.5 * (26 + 4 + 0 + 5) / 2)


def test_n3_is_the_cubed_length_of_every_component_averaged_over_the_batch():
    recipe = Recipe(regulariser="n3", regulariser_weight=0.1)
    assert regulariser(recipe, HEAD, TAIL).item() == pytest.approx(0.1 * (125 + 1 + 8 + 0 + 1 + 8) / 2)


def test_n3_has_no_gradient_at_zero_and_three_lengths_elsewhere():
    head = HEAD.clone().requires_grad_()
    regulariser(Recipe(regulariser="n3", regulariser_weight=1.0), head, TAIL).backward()
    # d‖x‖³/dx = 3 ‖x‖ x, halved by the mean over two positives
    np.testing.assert_allclose(head.grad, np.array([[45.0, 3.0, 60.0, 0.0], [0.0] * 4]) / 2, rtol=1e-6)


def test_no_regulariser_is_no_penalty():
    assert regulariser(Recipe(regulariser="none", regulariser_weight=9.0), HEAD, TAIL).item() == 0.0


# --- DURA and dropout -----------------------------------------------------------------------------

DURA = Recipe(objective="softmax", regulariser="dura", regulariser_weight=0.3)


def dense_matrix(example: Example, operator: Tensor) -> Tensor:
    """R of φ = hᵀRt, from one operator row."""
    if example.relations.kind == "rescal":
        return operator
    if example.relations.kind == "hole":  # entry i, j is the weight of h_i t_j
        i, j = torch.meshgrid(torch.arange(DIMENSION), torch.arange(DIMENSION), indexing="ij")
        return operator[(j - i) % DIMENSION]
    a, b, c, d = (torch.diag(entry) for entry in operator)
    return torch.cat([torch.cat([a, b], 1), torch.cat([c, d], 1)])


@pytest.mark.parametrize("name", [*BLOCK_MODELS, "hole", "rescal"])
@pytest.mark.parametrize("reference", [False, True])
def test_dura_is_a_quarter_of_the_squared_lengths_of_entities_and_queries(name, reference):
    example = Example(name)

    def loss(entities: Tensor, operators: Tensor) -> Tensor:
        total = torch.zeros((), dtype=torch.float64)
        for i, (head, _, tail) in enumerate(BATCH.tolist()):
            R, h, t = dense_matrix(example, operators[example.index[i]]), entities[head], entities[tail]
            total = total - (h @ R @ entities.T).log_softmax(0)[tail] - (entities @ R @ t).log_softmax(0)[head]
            size = h @ h + t @ t + (R.T @ h) @ (R.T @ h) + (R @ t) @ (R @ t)
            total = total + DURA.regulariser_weight * size / 4
        return total / len(BATCH)

    objective = SoftmaxLoss(DURA, example.relations, reference=reference)
    assert_agree(example.ask(objective), written_out(example, loss))


@pytest.mark.parametrize("name", ["dihedral-ste", "cyclic-ste", "dihedral-argmax", "orthogonal"])
def test_dura_of_orthogonal_relations_is_l2_for_the_entities(name):
    example = Example(name)
    dura, l2 = (example.ask(SoftmaxLoss(DURA.replace(regulariser=kind), example.relations)) for kind in ("dura", "l2"))
    torch.testing.assert_close(dura.loss, l2.loss)
    torch.testing.assert_close(dura.entities, l2.entities)


def test_dura_does_not_turn_the_angles_of_orthogonal_relations():
    example = Example("orthogonal")
    gradients = []
    for kind in ("dura", "l2"):
        operators = example.relations.operators(torch.unique(BATCH[:, 1]))
        objective = SoftmaxLoss(DURA.replace(regulariser=kind), example.relations)
        found = objective(example.entities, operators, example.index, BATCH, seeded())
        gradients.append(torch.autograd.grad(operators, example.relations.angles, found.operators)[0])
    torch.testing.assert_close(*gradients, atol=1e-6, rtol=1e-5)


@pytest.mark.parametrize("name", ["dihedral-ste", "complex", "hole"])
def test_no_dropout_is_the_loss_as_it_is(name):
    example = Example(name)
    generator = seeded(5)
    before = generator.get_state()
    objective = SoftmaxLoss(DURA.replace(dropout=0.0), example.relations)
    found = objective(example.entities, example.operators, example.index, BATCH, generator)
    expected = example.ask(SoftmaxLoss(DURA, example.relations), seed=9)
    assert torch.equal(found.loss, expected.loss) and torch.equal(found.entities, expected.entities)
    assert torch.equal(found.operators, expected.operators)
    assert torch.equal(generator.get_state(), before)  # and nothing is drawn


def test_dropout_is_drawn_from_the_generator():
    example = Example("complex")
    objective = SoftmaxLoss(DURA.replace(dropout=0.5), example.relations)
    torch.manual_seed(1)
    first = example.ask(objective, 0)
    torch.manual_seed(2)  # nothing comes from torch's global generator
    again, other = (example.ask(objective, seed) for seed in (0, 1))
    assert torch.equal(first.loss, again.loss) and torch.equal(first.entities, again.entities)
    assert torch.equal(first.operators, again.operators)
    assert first.loss != other.loss


@pytest.mark.parametrize("chance", [0.1, 0.5, 0.9])
def test_dropout_leaves_the_expectation_of_queries(chance):
    example = Example("complex")
    objective = SoftmaxLoss(DURA.replace(dropout=chance), example.relations)
    query = torch.randn(7, DIMENSION, generator=seeded(4)).repeat(4000, 1)
    dropped = objective._drop(query, seeded())
    zero = dropped == 0
    assert zero.double().mean().item() == pytest.approx(chance, abs=0.01)
    torch.testing.assert_close(dropped[~zero], query[~zero] / (1 - chance))  # what is kept makes up for the rest
    means, expected = dropped.view(4000, 7, -1).mean(0), query[:7]
    deviation = expected.abs() * (chance / (1 - chance) / 4000) ** 0.5
    assert ((means - expected).abs() < 5 * deviation).all()


@pytest.mark.parametrize("regulariser", ["none", "dura"])
def test_dropout_is_for_the_questions_and_not_for_the_penalty(regulariser):
    example = Example("complex")
    recipe = DURA.replace(regulariser=regulariser, dropout=0.5)
    mask = (torch.rand(2 * len(BATCH), DIMENSION, generator=seeded()) >= 0.5) * 2.0

    def loss(entities: Tensor, operators: Tensor) -> Tensor:
        total = torch.zeros((), dtype=torch.float64)
        for i, (head, _, tail) in enumerate(BATCH.tolist()):
            R, h, t = dense_matrix(example, operators[example.index[i]]), entities[head], entities[tail]
            for query, keep, answer in ((R.T @ h, mask[i], tail), (R @ t, mask[len(BATCH) + i], head)):
                total = total - (entities @ (query * keep)).log_softmax(0)[answer]
                if regulariser == "dura":
                    total = total + recipe.regulariser_weight * query @ query / 4
            if regulariser == "dura":
                total = total + recipe.regulariser_weight * (h @ h + t @ t) / 4
        return total / len(BATCH)

    assert_agree(example.ask(SoftmaxLoss(recipe, example.relations)), written_out(example, loss))


# --- which relations are skew ----------------------------------------------------------------------


def test_a_relation_is_definitely_skew_when_training_holds_none_of_its_pairs_reversed():
    train = [
        *[(0, 0, 1), (1, 0, 0), (2, 0, 3)],  # one pair reversed
        *[(0, 1, 1), (1, 1, 2), (2, 1, 0)],  # a circle, none reversed
        *[(0, 2, 0)],  # loops only say nothing
        *[(0, 3, 0), (0, 3, 1)],  # a loop beside a pair
        *[(1, 4, 0)],  # reversed by another relation only
    ]
    found = definitely_skew(np.array(train, dtype=np.int32), num_entities=4, num_relations=6)
    assert found.tolist() == [False, True, False, True, True, False]
