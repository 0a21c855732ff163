"""The reference against the paper's own statements and independent libraries, and the trainer against the reference."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import Tensor

from dihedral import Recipe, reference
from dihedral.elements.group import DihedralGroup
from dihedral.graph import make_family
from dihedral.learn.trainer import Trainer
from dihedral.models.dihedral import gumbel_noise
from dihedral.scoring.embedding import EmbeddingScorer
from tests.oracle import matrices


def normal(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


# --- the group and the relations ---------------------------------------------------------------------


@pytest.mark.parametrize("K", [1, 2, 3, 4, 6, 8])
def test_products_of_the_matrices_are_those_of_the_group(K):
    D, group = reference.dihedral_group(K), DihedralGroup(K)
    for a in range(2 * K):
        for b in range(2 * K):
            torch.testing.assert_close(D[a] @ D[b], D[int(group.product(a, b))])
    np.testing.assert_allclose(D, group.matrices, atol=1e-15)


def test_gumbel_relations_without_noise_become_the_likeliest_element():
    logits = normal(3, 5, 8)
    found = reference.gumbel_relations(logits, torch.zeros_like(logits), 1e-5)
    torch.testing.assert_close(found, reference.dihedral_group(4)[logits.argmax(-1)])


def test_gumbel_noise_draws_elements_with_the_probabilities_of_the_softmax():
    logits = normal(1, 1, 4).expand(20_000, 1, 4)
    uniform = torch.rand(logits.shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    found = reference.gumbel_relations(logits, -torch.log(-torch.log(uniform)), 1e-3)  # D_2 has four elements
    drawn = (found[:, 0, None] - reference.dihedral_group(2)).flatten(2).norm(dim=-1).argmin(-1)
    shares = torch.bincount(drawn, minlength=4) / len(drawn)
    torch.testing.assert_close(shares.double(), logits[0, 0].softmax(-1), atol=0.015, rtol=0)


@pytest.mark.parametrize(("K", "count"), [(4, 3), (6, 4)])
def test_signs_give_exactly_the_elements_of_the_group(K, count):
    signs = torch.cartesian_prod(*[torch.tensor([1.0, -1.0], dtype=torch.float64)] * count)
    found = reference.sign_relations(signs[:, None], K)[:, 0]
    distance = (found[:, None] - reference.dihedral_group(K)).flatten(2).norm(dim=-1)
    assert distance.amin(1).max() < 1e-12  # every choice of signs is an element
    assert set(distance.argmin(1).tolist()) == set(range(2 * K))  # every element has a choice of signs


def test_the_sign_of_zero_is_one_and_its_gradient_is_the_identity():
    real = torch.tensor([-2.0, 0.0, 0.5], requires_grad=True)
    found = reference.sign(real)
    assert found.tolist() == [-1.0, 1.0, 1.0]
    assert torch.autograd.grad(found, real, torch.tensor([3.0, 4.0, 5.0]))[0].tolist() == [3.0, 4.0, 5.0]


def test_the_score_is_that_of_the_block_diagonal_matrix():
    h, t, R = normal(6, seed=1), normal(6, seed=2), normal(3, 2, 2, seed=3)
    paired = [v.view(2, 3).T.flatten() for v in (h, t)]  # the coordinates of a component next to each other
    torch.testing.assert_close(reference.score(h, R, t), paired[0] @ torch.block_diag(*R) @ paired[1])


# --- losses, Adagrad and ranks -----------------------------------------------------------------------


def test_equation_2_sums_over_all_triples_and_divides_by_the_positives():
    entities, relations = normal(5, 4), normal(2, 2, 2, 2, seed=1)
    positives, negatives = torch.tensor([[0, 1, 2], [3, 0, 4]]), torch.tensor([[0, 1, 3], [1, 0, 4], [3, 0, 0]])
    total = 0.0
    for y, triples in ((1, positives), (-1, negatives)):
        for triple in triples:
            phi = float(reference.score_triples(entities, relations, triple))
            total -= math.log(1 / (1 + math.exp(-y * phi)))
    squared = sum(float(entities[i].square().sum()) for i in (0, 2, 3, 4))
    expected = total / 2 + 0.3 * squared / 2 / 2
    assert float(reference.equation_2(entities, relations, positives, negatives, 0.3)) == pytest.approx(expected)


def test_cross_entropy_is_that_of_torch():
    scores, answers = normal(7, 11), torch.arange(7)
    torch.testing.assert_close(
        reference.cross_entropy(scores, answers), torch.nn.functional.cross_entropy(scores, answers)
    )


def test_adagrad_is_that_of_torch():
    parameter, total = normal(4, 3), torch.zeros(4, 3, dtype=torch.float64)
    theirs = parameter.clone().requires_grad_()
    optimiser = torch.optim.Adagrad([theirs], lr=0.3)
    for seed in range(1, 5):
        parameter, total = reference.adagrad(parameter, total, normal(4, 3, seed=seed), 0.3)
        theirs.grad = normal(4, 3, seed=seed)
        optimiser.step()
    torch.testing.assert_close(parameter, theirs.detach())


def test_a_filtered_rank_leaves_out_known_answers_and_halves_ties():
    scores = torch.tensor([5.0, 3.0, 3.0, 9.0, 1.0, 3.0])
    assert reference.filtered_rank(scores, 1, torch.tensor([], dtype=torch.long)) == 1 + 2 + 1
    assert reference.filtered_rank(scores, 1, torch.tensor([1, 3, 5])) == 1 + 1 + 0.5


def test_training_learns_a_graph():
    graph = make_family(20)
    triples = torch.from_numpy(graph.train).long()
    entities, codes = reference.train(triples, graph.num_entities, L=8, epochs=15, batch_size=64, lr=0.3)
    relations = reference.dihedral_group(4)[codes]
    found = []
    for h, r, t in triples[:50].tolist():
        known = triples[(triples[:, 0] == h) & (triples[:, 1] == r), 2]
        found.append(1 / reference.filtered_rank(reference.score(entities[h], relations[r], entities), t, known))
    assert np.mean(found) > 0.4  # a random order gives less than 0.2


# --- the trainer takes the steps of the reference ----------------------------------------------------


@pytest.mark.parametrize("model", ["dihedral-gumbel", "dihedral-ste"])
@pytest.mark.parametrize("objective", ["logistic", "softmax"])
def test_the_steps_of_the_trainer_are_those_of_the_reference(model, objective):
    graph = make_family(20)
    recipe = Recipe(
        model=model, objective=objective, dimension=12, regulariser_weight=0.1, entity_lr=0.2, relation_lr=0.7
    )
    trainer = Trainer(graph, recipe)
    generator, loss_history = trainer.generator.manual_seed(1), []
    [(_, latents)] = trainer.model.relations.named_parameters()
    exact = [trainer.model.entities.detach().double(), latents.detach().transpose(1, 2).double()]
    totals = [torch.zeros_like(parameter) for parameter in exact]
    for batch in trainer.triples[:96].split(32):
        replay = torch.Generator()
        replay.set_state(generator.get_state())
        entities, parameters = (parameter.requires_grad_() for parameter in exact)
        which, index = torch.unique(batch[:, 1], return_inverse=True)
        if model == "dihedral-gumbel":
            noise = gumbel_noise(latents[which].detach(), replay).transpose(1, 2).double()
            relations = reference.gumbel_relations(parameters[which], noise, 1.0)
        else:
            relations = reference.sign_relations(parameters[which], 4)
        triples = torch.stack([batch[:, 0], index, batch[:, 2]], dim=1)
        if objective == "logistic":
            negatives = _corrupted(triples, trainer.objective.sample(batch, replay))
            loss = reference.equation_2(entities, relations, triples, negatives, 0.1)
        else:
            loss = reference.softmax_loss(entities, relations, triples)
            loss = loss + 0.1 * reference.l2(entities[batch[:, 0]], entities[batch[:, 2]])
        gradients = torch.autograd.grad(loss, exact)
        steps = zip((p.detach() for p in exact), totals, gradients, (0.2, 0.7), strict=True)
        exact, totals = (list(parts) for parts in zip(*(reference.adagrad(*step) for step in steps), strict=True))
        loss_history.append((float(trainer.train_on(batch)), float(loss.detach())))
    np.testing.assert_allclose(*zip(*loss_history, strict=True), rtol=1e-5)
    torch.testing.assert_close(trainer.model.entities.detach().double(), exact[0], atol=1e-4, rtol=1e-4)
    torch.testing.assert_close(latents.detach().transpose(1, 2).double(), exact[1], atol=1e-4, rtol=1e-4)


def _corrupted(triples: Tensor, drawn: Tensor) -> Tensor:
    """Negatives [B, n, 3]: tails are replaced in the first half of a batch, heads in the second."""
    negatives, half = triples[:, None].repeat(1, drawn.shape[1], 1), (len(triples) + 1) // 2
    negatives[:half, :, 2], negatives[half:, :, 0] = drawn[:half], drawn[half:]
    return negatives


def test_the_matrices_and_scores_of_a_model_are_those_of_the_reference():
    graph = make_family(20)
    model = Trainer(graph, Recipe(model="dihedral-gumbel", dimension=12)).model.requires_grad_(False)
    relations, triples = reference.dihedral_group(4)[model.codes.long()], torch.from_numpy(graph.train).long()
    torch.testing.assert_close(matrices(model.relations.exact()).double(), relations, atol=1e-6, rtol=0)
    expected = reference.score_triples(model.entities.double(), relations, triples)
    torch.testing.assert_close(EmbeddingScorer(model).score(triples).double(), expected, atol=1e-6, rtol=1e-5)
