"""Sampled negatives, and the relations that get reversed ones."""

from __future__ import annotations

import numpy as np
import torch

from dihedral.graph import GraphIndex
from dihedral.models.dihedral import SignRelations
from dihedral.objectives.logistic import LogisticLoss, SkewNegatives
from tests.objectives.written_out import BATCH, ENTITIES, seeded


def test_negatives_are_uniform_over_all_entities():
    batch = BATCH.repeat(2000, 1)
    negatives = LogisticLoss(SignRelations(2, 4, 4), ENTITIES, negatives=3).sample(batch, seeded())
    assert negatives.shape == (len(batch), 3)
    shares = torch.bincount(negatives.flatten(), minlength=ENTITIES) / negatives.numel()
    torch.testing.assert_close(shares, torch.full((ENTITIES,), 1 / ENTITIES), atol=0.01, rtol=0)


def test_only_positives_of_skew_relations_are_drawn():
    batch = torch.tensor([[0, 0, 1], [0, 1, 1]]).repeat(2000, 1)
    drawn = SkewNegatives(torch.tensor([False, True]), 0.3).draw(batch, seeded())
    assert not drawn[batch[:, 1] == 0].any()
    assert abs(drawn[batch[:, 1] == 1].double().mean().item() - 0.3) < 0.04


def test_a_positive_with_equal_head_and_tail_is_not_its_own_negative():
    batch = torch.tensor([[2, 0, 2], [2, 0, 3]])
    assert SkewNegatives(torch.tensor([True]), 1.0).draw(batch, seeded()).tolist() == [False, True]


def test_a_relation_is_definitely_skew_if_training_has_none_of_its_pairs_reversed():
    train = [
        *[(0, 0, 1), (1, 0, 0), (2, 0, 3)],  # one pair reversed
        *[(0, 1, 1), (1, 1, 2), (2, 1, 0)],  # a cycle, none reversed
        *[(0, 2, 0)],  # loops do not count
        *[(0, 3, 0), (0, 3, 1)],  # a loop and a pair
        *[(1, 4, 0)],  # reversed by another relation only
    ]
    index = GraphIndex.build([np.array(train, dtype=np.int32)], num_entities=4, num_relations=6)
    assert SkewNegatives.build(index, 0.5).relations.tolist() == [False, True, False, True, True, False]
