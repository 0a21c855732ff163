"""Random walks, and the softmax loss with paths."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import dihedral as dh
from dihedral import DihedralError
from dihedral.learn import Recipe, Trainer
from dihedral.objectives.softmax import SoftmaxLoss
from dihedral.objectives.walks import Walks

SOFTMAX = Recipe(model="dihedral-ste", objective="softmax", dimension=12, epochs=1, batch_size=64, paths=1.0)


@pytest.fixture(scope="module")
def graph():
    return dh.make_family(80, seed=3)


def edges_both_ways(graph) -> set[tuple[int, int, int]]:
    forwards = {tuple(row) for row in graph.train.tolist()}
    return forwards | {(t, r + graph.num_relations, h) for h, r, t in forwards}


def test_every_step_of_a_walk_is_an_edge_in_either_direction(graph):
    walks = Walks.build(graph)
    first = torch.from_numpy(graph.train[:, 2]).long()
    one, middle = walks.sample(first, 1, torch.Generator().manual_seed(0))
    edges = edges_both_ways(graph)
    assert all(step in edges for step in zip(first.tolist(), one[:, 0].tolist(), middle.tolist(), strict=True))
    both, _ = walks.sample(first, 2, torch.Generator().manual_seed(0))
    assert both.shape == (len(first), 2)


def test_all_edges_of_an_entity_are_equally_likely(graph):
    walks = Walks.build(graph)
    here = int(np.bincount(graph.train[:, 0]).argmax())
    count = int(graph.train_index.degrees[here])
    relations, ends = walks.sample(torch.full((400 * count,), here), 1, torch.Generator().manual_seed(0))
    drawn = torch.bincount(relations[:, 0] * graph.num_entities + ends)
    drawn = drawn[drawn > 0]
    assert len(drawn) == count and drawn.min() > 300 and drawn.max() < 500


@pytest.mark.parametrize("length", [2, 3])
def test_the_loss_with_paths_is_that_of_the_products_written_out(graph, length):
    recipe = SOFTMAX.replace(path_length=length, regulariser="none")
    trainer = Trainer(graph, recipe)
    loss = trainer.objective
    assert isinstance(loss, SoftmaxLoss)
    batch = trainer.triples[:16]
    operators = trainer.model.relations.operators()
    entities = trainer.model.entities.detach()
    found = loss(entities, operators, batch[:, 1], batch, torch.Generator().manual_seed(5))
    paths = loss.sample(batch, torch.Generator().manual_seed(5))
    a, b, c, d = operators.detach().unbind(1)
    dense = torch.cat([torch.cat([torch.diag_embed(a), torch.diag_embed(b)], 2),
                       torch.cat([torch.diag_embed(c), torch.diag_embed(d)], 2)], 1)  # fmt: skip
    both_ways = torch.cat([dense, dense.transpose(1, 2)])
    total = torch.zeros(())
    for head, relation, tail in batch.tolist():
        total += cross_entropy(dense[relation].T @ entities[head], entities, tail)
        total += cross_entropy(dense[relation] @ entities[tail], entities, head)
    assert [path.steps.shape[1] for path in paths] == list(range(2, length + 1))
    for path in paths:
        for i, (steps, end) in enumerate(zip(path.steps.tolist(), path.ends.tolist(), strict=True)):
            product = torch.linalg.multi_dot([both_ways[step] for step in steps])
            start = int(batch[i, 0])
            total += cross_entropy(product.T @ entities[start], entities, end)
            total += cross_entropy(product @ entities[end], entities, start)
    torch.testing.assert_close(found.loss, total / len(batch), rtol=1e-4, atol=1e-5)


def cross_entropy(query: torch.Tensor, entities: torch.Tensor, target: int) -> torch.Tensor:
    return -torch.log_softmax(entities @ query, 0)[target]


def test_training_with_paths_is_repeatable(graph):
    first, second = (dh.train(graph, SOFTMAX, progress=False, device="cpu") for _ in range(2))
    assert torch.equal(first.model.entities, second.model.entities)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"paths": 1.5}, "paths is 1.5; it must be at most 1"),
        ({"path_length": 4}, "path_length is 4; it must be 2 or 3"),
        ({"objective": "logistic", "paths": 1.0}, "paths is 1.0 with objective 'logistic'"),
        (
            {"model": "rescal", "paths": 1.0},
            "paths is 1.0 with model 'rescal'; it applies only to models of 2x2 blocks",
        ),
    ],
)
def test_invalid_settings_of_paths_are_refused(changes, message):
    with pytest.raises(DihedralError, match=message.replace(".", r"\.")):
        SOFTMAX.replace(**changes)


def test_a_repeated_triple_is_one_edge_of_a_walk(graph):
    repeated = graph.replace(train=np.concatenate([graph.train, graph.train[:50]]))
    once, twice = Walks.build(graph), Walks.build(repeated)
    assert torch.equal(once.order, twice.order)
