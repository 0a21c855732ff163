"""The logistic loss and its gradients are those of Eq. 2 in `dihedral.reference`, triple by triple."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from dihedral import reference
from dihedral.engine import compiled
from dihedral.objectives.base import ask_half
from dihedral.objectives.logistic import LogisticLoss, SkewNegatives
from dihedral.objectives.regularisers import make_regulariser
from tests.objectives.written_out import (
    BATCH,
    BLOCK_MODELS,
    ENTITIES,
    EVERY_KIND,
    RELATIONS,
    Example,
    assert_agree,
    penalty,
    seeded,
    written_out,
)
from tests.oracle import matrices

L2 = ("l2", 0.1)  # a regulariser and its weight


def equation_2(
    example: Example,
    negatives: Tensor,
    *,
    regulariser: tuple[str, float] = ("none", 0.0),
    share_negatives: int = 0,
    component_weight: float = 0.0,
    skew: Tensor | None = None,
    regularise_negatives: bool = False,
) -> tuple[Tensor, Tensor, Tensor]:
    """The logistic loss of the batch; the first half of a batch has its tails corrupted, the rest its heads."""

    def loss(entities: Tensor, operators: Tensor) -> Tensor:
        positive, negative, components, penalties = [], [], [], []
        for i, (head, relation, tail) in enumerate(BATCH.tolist()):
            operator, h, t = operators[example.index[i]], entities[head], entities[tail]
            row = negatives[i // share_negatives if share_negatives else i].tolist()
            corrupted = [(h, entities[n]) if i < 3 else (entities[n], t) for n in row]
            positive.append(example.score(operator, h, t))
            negative += [example.score(operator, *pair) for pair in corrupted]
            if skew is not None and skew[relation] and head != tail:
                negative.append(example.score(operator, t, h))
            if component_weight:
                scores = [reference.component_scores(*pair) for pair in _with_matrix(operator, [(h, t), *corrupted])]
                components.append(reference.component_loss(scores[0][None], torch.stack(scores[1:])[None]))
            penalties += [penalty(*regulariser, *pair) for pair in [(h, t), *(corrupted * regularise_negatives)]]
        total = reference.logistic_loss(torch.stack(positive), torch.stack(negative))
        return total + (sum(penalties) + component_weight * sum(components)) / len(BATCH)

    return written_out(example, loss)


def _with_matrix(operator: Tensor, pairs: list[tuple[Tensor, Tensor]]) -> list[tuple[Tensor, Tensor, Tensor]]:
    R = matrices(operator[None])[0]
    return [(h, R, t) for h, t in pairs]


def logistic(
    example: Example,
    *,
    regulariser: tuple[str, float] = ("none", 0.0),
    skew: Tensor | None = None,
    **options: Any,
) -> tuple[LogisticLoss, Tensor]:
    """The objective, and the negatives that it draws with seed 0."""
    extra = None if skew is None else SkewNegatives(skew, 1.0)
    objective = LogisticLoss(
        example.relations, ENTITIES, regulariser=make_regulariser(*regulariser), skew=extra, **options
    )
    return objective, objective.sample(BATCH, seeded())


@pytest.mark.parametrize("regulariser", ["none", "l2", "n3"])
@pytest.mark.parametrize("name", EVERY_KIND)
def test_the_logistic_loss_is_equation_2(name, regulariser):
    example = Example(name)
    objective, negatives = logistic(example, negatives=4, regulariser=(regulariser, 0.3))
    assert_agree(example.ask(objective), equation_2(example, negatives, regulariser=(regulariser, 0.3)))


@pytest.mark.parametrize("name", BLOCK_MODELS)
@pytest.mark.parametrize("implementation", ["by_autograd", "by_hand", "by_compiled"])
def test_every_implementation_gives_the_gradients_of_equation_2(name, implementation):
    if implementation == "by_compiled" and not compiled.available():
        pytest.skip("numba is not installed")
    example = Example(name)
    objective, negatives = logistic(example, negatives=4, regulariser=("l2", 0.3))
    questions, targets = ask_half(example.entities, example.operators, example.index, BATCH)
    found = getattr(objective, implementation)(questions, targets, negatives)
    assert_agree(found, equation_2(example, negatives, regulariser=("l2", 0.3)))


@pytest.mark.parametrize("name", EVERY_KIND)
def test_l2_may_include_the_negative_triples(name):
    example = Example(name)
    objective, negatives = logistic(example, negatives=3, regulariser=L2, regularise_negatives=True)
    expected = equation_2(example, negatives, regulariser=L2, regularise_negatives=True)
    assert_agree(example.ask(objective), expected)


@pytest.mark.parametrize("name", EVERY_KIND)
def test_skew_relations_get_the_reversed_triple_as_a_negative(name):
    example = Example(name)
    skew = torch.tensor([False, True, True])
    objective, negatives = logistic(example, negatives=2, regulariser=L2, skew=skew)
    assert_agree(example.ask(objective), equation_2(example, negatives, regulariser=L2, skew=skew))


@pytest.mark.parametrize("name", BLOCK_MODELS)
def test_the_component_loss_compares_each_component_separately(name):
    example = Example(name)
    options = {"component_weight": 0.7, "regulariser": L2}
    objective, negatives = logistic(example, negatives=3, **options)
    assert_agree(example.ask(objective), equation_2(example, negatives, **options))


def test_all_extra_losses_add_up():
    example = Example("dihedral-gumbel")
    options = {"component_weight": 1.5, "regulariser": ("l2", 0.2), "skew": torch.tensor([True, True, True])}
    objective, negatives = logistic(example, negatives=3, **options)
    assert_agree(example.ask(objective), equation_2(example, negatives, **options))


@pytest.mark.parametrize("name", ["dihedral-ste", "hole", "transe"])
@pytest.mark.parametrize("share", [1, 2, 5, 64])
def test_positives_may_share_their_negatives(name, share):
    example = Example(name)
    options = {"share_negatives": share, "regulariser": L2}
    objective, negatives = logistic(example, negatives=4, **options)
    assert negatives.shape == (-(-len(BATCH) // share), 4)
    assert_agree(example.ask(objective), equation_2(example, negatives, **options))


def test_half_of_the_positives_get_the_reversed_negative_at_probability_one_half():
    example = Example("dihedral-gumbel")
    batch = torch.tensor([[0, 0, 1]]).repeat(4000, 1)
    index = torch.zeros(len(batch), dtype=torch.long)

    def loss(probability: float) -> float:
        skew = SkewNegatives(torch.tensor([True] * RELATIONS), probability)
        objective = LogisticLoss(example.relations, 1, negatives=1, skew=skew)  # entity 0 is every negative
        return float(objective(example.entities, example.operators, index, batch, seeded()).loss)

    never, sometimes, always = loss(0.0), loss(0.5), loss(1.0)
    assert always - never > 0.1
    assert (sometimes - never) / (always - never) == pytest.approx(0.5, abs=0.03)


def test_a_seed_determines_the_loss():
    example = Example("dihedral-ste")
    objective = LogisticLoss(example.relations, ENTITIES, negatives=2)
    first, again, other = (example.ask(objective, seed).loss for seed in (0, 0, 1))
    assert first == again != other


def test_scores_far_from_zero_keep_a_finite_loss():
    example = Example("dihedral-ste")
    example.entities = example.entities * 100
    found = example.ask(LogisticLoss(example.relations, ENTITIES, negatives=4))
    assert found.loss.isfinite()
    assert found.operators.isfinite().all()
    assert found.entities.dense(ENTITIES).isfinite().all()


def test_the_logistic_loss_does_not_modify_the_parameters():
    example = Example("dihedral-gumbel")
    entities, operators = example.entities.clone(), example.operators.clone()
    example.ask(logistic(example, negatives=2, regulariser=("n3", 0.1))[0])
    assert torch.equal(example.entities, entities)
    assert torch.equal(example.operators, operators)
