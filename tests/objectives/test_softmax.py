"""Cross-entropy over all entities against the loss written out, with DURA and dropout."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from dihedral import reference
from dihedral.objectives.regularisers import make_regulariser
from dihedral.objectives.softmax import SoftmaxLoss
from tests.objectives.written_out import (
    BATCH,
    BLOCK_MODELS,
    DIMENSION,
    EVERY_KIND,
    Example,
    assert_agree,
    penalty,
    seeded,
    written_out,
)
from tests.oracle import matrices

WEIGHT = 0.3
DURA = make_regulariser("dura", WEIGHT)


@pytest.mark.parametrize("name", EVERY_KIND)
@pytest.mark.parametrize("regulariser", ["none", "l2", "n3"])
def test_the_softmax_loss_is_the_cross_entropy_of_tails_plus_that_of_heads(name, regulariser):
    example = Example(name)

    def loss(entities: Tensor, operators: Tensor) -> Tensor:
        total = torch.zeros((), dtype=torch.float64)
        for i, (head, _, tail) in enumerate(BATCH.tolist()):
            operator, h, t = operators[example.index[i]], entities[head], entities[tail]
            tails = torch.stack([example.score(operator, h, e) for e in entities])
            heads = torch.stack([example.score(operator, e, t) for e in entities])
            total = total - tails.log_softmax(0)[tail] - heads.log_softmax(0)[head]
            total = total + penalty(regulariser, WEIGHT, h, t)
        return total / len(BATCH)

    objective = SoftmaxLoss(example.relations, regulariser=make_regulariser(regulariser, WEIGHT))
    assert_agree(example.ask(objective), written_out(example, loss))


@pytest.mark.parametrize("name", BLOCK_MODELS)
def test_the_softmax_loss_of_block_models_is_that_of_the_reference(name):
    example = Example(name)
    triples = torch.stack([BATCH[:, 0], example.index, BATCH[:, 2]], dim=1)
    expected = written_out(example, lambda entities, R: reference.softmax_loss(entities, matrices(R), triples))
    assert_agree(example.ask(SoftmaxLoss(example.relations)), expected)


def test_the_softmax_loss_does_not_modify_the_parameters():
    example = Example("dihedral-gumbel")
    entities, operators = example.entities.clone(), example.operators.clone()
    example.ask(SoftmaxLoss(example.relations, regulariser=make_regulariser("n3", 0.1)))
    assert torch.equal(example.entities, entities)
    assert torch.equal(example.operators, operators)


# --- DURA and dropout -----------------------------------------------------------------------------


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
def test_dura_is_a_quarter_of_the_squared_lengths_of_entities_and_queries(name):
    example = Example(name)

    def loss(entities: Tensor, operators: Tensor) -> Tensor:
        total = torch.zeros((), dtype=torch.float64)
        for i, (head, _, tail) in enumerate(BATCH.tolist()):
            R, h, t = dense_matrix(example, operators[example.index[i]]), entities[head], entities[tail]
            total = total - (h @ R @ entities.T).log_softmax(0)[tail] - (entities @ R @ t).log_softmax(0)[head]
            size = h @ h + t @ t + (R.T @ h) @ (R.T @ h) + (R @ t) @ (R @ t)
            total = total + WEIGHT * size / 4
        return total / len(BATCH)

    objective = SoftmaxLoss(example.relations, regulariser=DURA)
    assert_agree(example.ask(objective), written_out(example, loss))


@pytest.mark.parametrize("name", ["dihedral-ste", "cyclic-ste", "dihedral-argmax", "dihedral-projection", "orthogonal"])
def test_dura_of_orthogonal_relations_is_l2_for_the_entities(name):
    example = Example(name)
    dura, l2 = (
        example.ask(SoftmaxLoss(example.relations, regulariser=make_regulariser(kind, WEIGHT)))
        for kind in ("dura", "l2")
    )
    torch.testing.assert_close(dura.loss, l2.loss)
    torch.testing.assert_close(dura.entities, l2.entities)


def test_dura_has_no_gradient_for_the_angles_of_orthogonal_relations():
    example = Example("orthogonal")
    gradients = []
    for kind in ("dura", "l2"):
        operators = example.relations.operators(torch.unique(BATCH[:, 1]))
        objective = SoftmaxLoss(example.relations, regulariser=make_regulariser(kind, WEIGHT))
        found = objective(example.entities, operators, example.index, BATCH, seeded())
        gradients.append(torch.autograd.grad(operators, example.relations.angles, found.operators)[0])
    torch.testing.assert_close(*gradients, atol=1e-6, rtol=1e-5)


@pytest.mark.parametrize("name", ["dihedral-ste", "complex", "hole"])
def test_dropout_0_leaves_the_loss_unchanged(name):
    example = Example(name)
    generator = seeded(5)
    before = generator.get_state()
    objective = SoftmaxLoss(example.relations, regulariser=DURA, dropout=0.0)
    found = objective(example.entities, example.operators, example.index, BATCH, generator)
    expected = example.ask(SoftmaxLoss(example.relations, regulariser=DURA), seed=9)
    assert torch.equal(found.loss, expected.loss) and torch.equal(found.entities, expected.entities)
    assert torch.equal(found.operators, expected.operators)
    assert torch.equal(generator.get_state(), before)  # nothing is drawn


def test_dropout_is_drawn_from_the_generator():
    example = Example("complex")
    objective = SoftmaxLoss(example.relations, regulariser=DURA, dropout=0.5)
    torch.manual_seed(1)
    first = example.ask(objective, 0)
    torch.manual_seed(2)  # nothing comes from torch's global generator
    again, other = (example.ask(objective, seed) for seed in (0, 1))
    assert torch.equal(first.loss, again.loss) and torch.equal(first.entities, again.entities)
    assert torch.equal(first.operators, again.operators)
    assert first.loss != other.loss


@pytest.mark.parametrize("probability", [0.1, 0.5, 0.9])
def test_dropout_preserves_the_expectation_of_queries(probability):
    example = Example("complex")
    objective = SoftmaxLoss(example.relations, dropout=probability)
    query = torch.randn(7, DIMENSION, generator=seeded(4)).repeat(4000, 1)
    dropped = objective._drop(query, seeded())
    zero = dropped == 0
    assert zero.double().mean().item() == pytest.approx(probability, abs=0.01)
    torch.testing.assert_close(dropped[~zero], query[~zero] / (1 - probability))  # the kept entries are scaled up
    means, expected = dropped.view(4000, 7, -1).mean(0), query[:7]
    deviation = expected.abs() * (probability / (1 - probability) / 4000) ** 0.5
    assert ((means - expected).abs() < 5 * deviation).all()


@pytest.mark.parametrize("regulariser", ["none", "dura"])
def test_dropout_applies_to_the_questions_and_not_to_the_penalty(regulariser):
    example = Example("complex")
    objective = SoftmaxLoss(example.relations, regulariser=make_regulariser(regulariser, WEIGHT), dropout=0.5)
    mask = (torch.rand(2 * len(BATCH), DIMENSION, generator=seeded()) >= 0.5) * 2.0

    def loss(entities: Tensor, operators: Tensor) -> Tensor:
        total = torch.zeros((), dtype=torch.float64)
        for i, (head, _, tail) in enumerate(BATCH.tolist()):
            R, h, t = dense_matrix(example, operators[example.index[i]]), entities[head], entities[tail]
            for query, keep, answer in ((R.T @ h, mask[i], tail), (R @ t, mask[len(BATCH) + i], head)):
                total = total - (entities @ (query * keep)).log_softmax(0)[answer]
                if regulariser == "dura":
                    total = total + WEIGHT * query @ query / 4
            if regulariser == "dura":
                total = total + WEIGHT * (h @ h + t @ t) / 4
        return total / len(BATCH)

    assert_agree(example.ask(objective), written_out(example, loss))


# --- baselines: the relation factor of N3, and reciprocal relations --------------------------------


@pytest.mark.parametrize("reciprocal", [False, True])
def test_n3_on_all_three_factors_and_reciprocal_relations(reciprocal):
    example = Example("complex", reciprocal=reciprocal)

    def modulus(operator: Tensor) -> Tensor:
        return operator.square().sum(0).div(2).sqrt()  # |p + iq| of the block [[p, -q], [q, p]]

    def loss(entities: Tensor, operators: Tensor) -> Tensor:
        total = torch.zeros((), dtype=torch.float64)
        for i, (head, _, tail) in enumerate(BATCH.tolist()):
            relation, h, t = operators[example.index[i]], entities[head], entities[tail]
            other = operators[example.index[i] + len(operators) // 2] if reciprocal else relation
            tails = torch.stack([example.score(relation, h, e) for e in entities])
            heads = [example.score(other, t, e) if reciprocal else example.score(relation, e, t) for e in entities]
            total = total - tails.log_softmax(0)[tail] - torch.stack(heads).log_softmax(0)[head]
            total = total + penalty("n3", WEIGHT, h, t) + WEIGHT / 2 * modulus(relation).pow(3).sum()
            if reciprocal:
                total = total + WEIGHT / 2 * modulus(other).pow(3).sum()
        return total / len(BATCH)

    objective = SoftmaxLoss(example.relations, regulariser=make_regulariser("n3", WEIGHT, includes_relations=True))
    assert_agree(example.ask(objective), written_out(example, loss))


def test_reciprocal_relations_are_asked_for_in_both_directions():
    example = Example("complex", reciprocal=True)

    def loss(entities: Tensor, operators: Tensor) -> Tensor:
        total = torch.zeros((), dtype=torch.float64)
        count = len(operators) // 2
        for i, (head, _, tail) in enumerate(BATCH.tolist()):
            r, h, t = example.index[i], entities[head], entities[tail]
            tails = torch.stack([example.score(operators[r], h, e) for e in entities])
            heads = torch.stack([example.score(operators[r + count], t, e) for e in entities])
            forwards = torch.stack([example.score(operator, h, t) for operator in operators])
            backwards = torch.stack([example.score(operator, t, h) for operator in operators])
            total = total - tails.log_softmax(0)[tail] - heads.log_softmax(0)[head]
            total = total - 2.0 * (forwards.log_softmax(0)[r] + backwards.log_softmax(0)[r + count])
        return total / len(BATCH)

    assert_agree(example.ask(SoftmaxLoss(example.relations, relation_weight=2.0)), written_out(example, loss))
