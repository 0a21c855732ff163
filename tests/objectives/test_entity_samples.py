"""Sampled softmax: the denominator is estimated without bias, and gradients agree with the loss written out."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from dihedral.objectives.softmax import SoftmaxLoss, draw_sample
from tests.objectives.written_out import BATCH, EVERY_KIND, Example, assert_agree, seeded, written_out

SEED = 3


def test_a_sample_holds_each_target_once_and_other_entities_beside_them():
    sample = draw_sample(torch.tensor([7, 3, 7, 9]), 50, 20, seeded(SEED))
    assert sample.ids[sample.targets].tolist() == [7, 3, 7, 9]
    assert len(sample.ids.unique()) == len(sample.ids) == 23
    assert sample.log_weights.exp().tolist() == pytest.approx([1.0] * 3 + [47 / 20] * 20)


def test_a_sample_of_more_entities_than_there_are_holds_all_with_weight_one():
    sample = draw_sample(torch.tensor([1, 2]), 10, 100, seeded(SEED))
    assert sorted(sample.ids.tolist()) == list(range(10))
    assert not sample.log_weights.any()


def test_the_denominator_of_the_softmax_is_estimated_without_bias():
    scores, targets, generator = torch.linspace(-1, 1, 40).exp(), torch.tensor([0, 5, 39]), seeded(SEED)
    samples = (draw_sample(targets, 40, 6, generator) for _ in range(4000))
    estimates = torch.stack([(each.log_weights.exp() * scores[each.ids]).sum() for each in samples])
    error = estimates.std() / len(estimates) ** 0.5
    assert abs(estimates.mean() - scores.sum()) < 4 * error


@pytest.mark.parametrize("name", EVERY_KIND)
def test_the_sampled_loss_is_the_cross_entropy_over_the_weighted_sample(name):
    example, batch = Example(name), BATCH[:2]  # four of six entities are targets
    objective = SoftmaxLoss(example.relations, candidates=1)
    sample = draw_sample(torch.cat([batch[:, 2], batch[:, 0]]), len(example.entities), 1, seeded(0))

    def loss(entities: Tensor, operators: Tensor) -> Tensor:
        total = torch.zeros((), dtype=torch.float64)
        for i, (head, _, tail) in enumerate(batch.tolist()):
            operator, h, t = operators[example.index[i]], entities[head], entities[tail]
            tails = torch.stack([example.score(operator, h, entities[e]) for e in sample.ids]) + sample.log_weights
            heads = torch.stack([example.score(operator, entities[e], t) for e in sample.ids]) + sample.log_weights
            total = total - tails.log_softmax(0)[sample.targets[i]]
            total = total - heads.log_softmax(0)[sample.targets[len(batch) + i]]
        return total / len(batch)

    found = objective(example.entities, example.operators, example.index[:2], batch, seeded(0))
    assert_agree(found, written_out(example, loss))


def test_a_sample_of_all_entities_gives_the_loss_over_all_entities():
    example = Example("dihedral-gumbel")
    complete, sampled = (example.ask(SoftmaxLoss(example.relations, candidates=count)) for count in (0, 1000))
    assert_agree(sampled, (complete.loss.double(), complete.operators.double(), complete.entities.double()))
