"""Objectives: the paper's logistic loss over sampled negatives, and cross-entropy over all entities.

An objective takes a batch of triples and leaves gradients: those of the relation operators (one row
a relation) and those of the entity rows it touched. The optimiser does the rest.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from dihedral.graph.triples import Triples
from dihedral.models import Relations
from dihedral.training.recipe import Recipe

TILE_MB = 256  # of logits at a time


@dataclass(frozen=True)
class Gradients:
    """What one batch asks of the parameters."""

    loss: Tensor  # scalar
    operators: Tensor  # like the operators
    rows: Tensor | None  # distinct entity ids, or None for the whole table
    entities: Tensor  # [len(rows) or N, 2L]


def regulariser(recipe: Recipe, head: Tensor, tail: Tensor) -> Tensor:
    """The penalty on the entities of the positives [batch, 2L], averaged over the batch."""
    if recipe.regulariser == "l2":  # ½(‖h‖² + ‖t‖²)
        size = 0.5 * (head.square().sum(-1) + tail.square().sum(-1))
    elif recipe.regulariser == "n3":  # Σ_l ‖h⁽ˡ⁾‖³ + ‖t⁽ˡ⁾‖³
        size = _cubed_norms(head) + _cubed_norms(tail)
    else:
        return head.new_zeros(())
    return recipe.regulariser_weight * size.mean()


def _cubed_norms(rows: Tensor) -> Tensor:
    x, y = rows.chunk(2, dim=-1)
    return (x.square() + y.square()).pow(1.5).sum(-1)


class LogisticLoss:
    """Eq. 2: -log σ(y φ) over each positive and its sampled negatives, averaged over positives.

    The first half of a (shuffled) batch asks for tails, the second for heads, so that either side
    is corrupted with equal chance.
    """

    def __init__(self, recipe: Recipe, relations: Relations, num_entities: int, skew: Tensor | None = None) -> None:
        self.recipe, self.relations, self.num_entities = recipe, relations, num_entities
        self.skew = skew  # bool [R]: relations that get the extra negative (t, r, h)

    def __call__(
        self, entities: Tensor, operators: Tensor, index: Tensor, batch: Tensor, generator: torch.Generator
    ) -> Gradients:
        """batch [B, 3]; the operator of batch row i is operators[index[i]]."""
        size, k = len(batch), self.recipe.negatives
        negatives = torch.randint(
            self.num_entities, (size, k), generator=generator, device=batch.device, dtype=batch.dtype
        )
        ids = torch.cat([batch[:, 0], batch[:, 2], negatives.flatten()])
        rows, place = torch.unique(ids, return_inverse=True)
        table = entities[rows].requires_grad_()
        operators = operators.detach().requires_grad_()
        used = table[place]
        head, tail, negative = used[:size], used[size : 2 * size], used[2 * size :].view(size, k, -1)
        with torch.enable_grad():
            loss = self.loss(operators, index, head, tail, negative, batch[:, 1], generator)
        loss.backward()
        assert operators.grad is not None and table.grad is not None
        return Gradients(loss.detach(), operators.grad, rows, table.grad)

    def loss(
        self,
        operators: Tensor,
        index: Tensor,
        head: Tensor,
        tail: Tensor,
        negative: Tensor,
        relation: Tensor,
        generator: torch.Generator,
    ) -> Tensor:
        half = (len(head) + 1) // 2
        apply, candidates = self.relations.queries, self.relations.candidates
        query = torch.cat(
            [
                apply(operators, index[:half], head[:half], "tail"),
                apply(operators, index[half:], tail[half:], "head"),
            ]
        )
        positive = candidates(torch.cat([tail[:half], head[half:]]))
        negative = candidates(negative)
        loss = F.softplus(-(query * positive).sum(-1))
        loss = loss + F.softplus(torch.einsum("bd,bkd->bk", query, negative)).sum(-1)
        if self.recipe.skew_chance:
            assert self.skew is not None
            reversed_score = (apply(operators, index, tail, "tail") * head).sum(-1)
            coin = torch.rand(len(head), generator=generator, device=head.device) < self.recipe.skew_chance
            loss = loss + F.softplus(reversed_score) * (coin & self.skew[relation])
        if self.recipe.component_weight:
            margin = _components(query * positive)[:, None] - _components(query[:, None] * negative)
            loss = loss + self.recipe.component_weight * F.softplus(-margin).sum(-1).mean(-1)
        return loss.mean() + regulariser(self.recipe, head, tail)


def _components(products: Tensor) -> Tensor:
    """Element-wise products [..., 2L] summed within each two-dimensional component: [..., L]."""
    x, y = products.chunk(2, dim=-1)
    return x + y


class SoftmaxLoss:
    """Mean cross-entropy of tails among all entities, plus that of heads, plus the regulariser."""

    def __init__(self, recipe: Recipe, relations: Relations) -> None:
        self.recipe, self.relations = recipe, relations

    def __call__(
        self, entities: Tensor, operators: Tensor, index: Tensor, batch: Tensor, generator: torch.Generator
    ) -> Gradients:
        operators = operators.detach().requires_grad_()
        head_ids, tail_ids = batch[:, 0], batch[:, 2]
        head, tail = entities[head_ids].requires_grad_(), entities[tail_ids].requires_grad_()
        with torch.enable_grad():
            query = torch.cat(
                [
                    self.relations.queries(operators, index, head, "tail"),
                    self.relations.queries(operators, index, tail, "head"),
                ]
            )
            penalty = regulariser(self.recipe, head, tail)
            table = entities.detach().requires_grad_()
            candidates = self.relations.candidates(table)
        targets = torch.cat([tail_ids, head_ids])
        loss, query_gradient, candidate_gradient = softmax_cross_entropy(query.detach(), candidates.detach(), targets)
        scale = 1 / len(batch)  # the mean of each side
        outputs, gradients = [query], [query_gradient.mul_(scale)]
        if penalty.requires_grad:
            outputs, gradients = [*outputs, penalty], [*gradients, torch.ones_like(penalty)]
        torch.autograd.backward(outputs, gradients)
        if candidates is table:
            entity_gradient = candidate_gradient.mul_(scale)
        else:
            (entity_gradient,) = torch.autograd.grad(candidates, table, candidate_gradient.mul_(scale))
        assert operators.grad is not None and head.grad is not None and tail.grad is not None
        entity_gradient.index_add_(0, head_ids, head.grad).index_add_(0, tail_ids, tail.grad)
        return Gradients(loss * scale + penalty.detach(), operators.grad, None, entity_gradient)


@torch.no_grad()
def softmax_cross_entropy(
    queries: Tensor, candidates: Tensor, targets: Tensor, tile_mb: int = TILE_MB
) -> tuple[Tensor, Tensor, Tensor]:
    """Summed cross-entropy of each query's target among all candidates, with both gradients.

    queries [B, d], candidates [N, d], targets [B]. The logits exist one tile of rows at a time:
    softmax and both gradients are formed while a tile is there.
    """
    rows_at_once = max(1, tile_mb * 2**20 // (4 * len(candidates)))
    loss = queries.new_zeros(())
    query_gradient = torch.empty_like(queries)
    candidate_gradient = torch.zeros_like(candidates)
    for start in range(0, len(queries), rows_at_once):
        part = slice(start, start + rows_at_once)
        logits = queries[part] @ candidates.T
        target = targets[part, None]
        norm = logits.logsumexp(1, keepdim=True)
        loss += (norm - logits.gather(1, target)).sum()
        residual = logits.sub_(norm).exp_()  # softmax
        residual.scatter_add_(1, target, torch.full_like(norm, -1.0))
        torch.mm(residual, candidates, out=query_gradient[part])
        candidate_gradient.addmm_(residual.T, queries[part])
    return loss, query_gradient, candidate_gradient


def definitely_skew(train: Triples, num_entities: int, num_relations: int) -> Tensor:
    """Relations of which the training graph holds no reversed pair at all, head = tail left out."""
    head, relation, tail = train[train[:, 0] != train[:, 2]].astype(np.int64).T
    forward = (relation * num_entities + head) * num_entities + tail
    backward = (relation * num_entities + tail) * num_entities + head
    reversed_too = relation[np.isin(forward, backward)]
    skew = np.zeros(num_relations, dtype=bool)
    skew[relation] = True
    skew[reversed_too] = False
    return torch.from_numpy(skew)
