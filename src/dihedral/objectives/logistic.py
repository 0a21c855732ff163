"""The paper's objective: logistic loss over positives and sampled negatives.

    Eq. 2:  L = 1/|B| Σ_{(h, r, t) ∈ B} [ -log σ(φ(h, r, t)) - Σ_{n} log σ(-φ(n)) + λ Ω(h, t) ]

n runs over the sampled negatives of the positive, φ is the model's score, and λ is the weight of the regulariser Ω,
which is per positive and averaged over the batch. -log σ(x) = softplus(-x). The paper does not say which entities Ω is
about; with `regularise_negatives` it is the sum over all triples of the bracket, the negatives included.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from dihedral.engine import compiled
from dihedral.engine.adagrad import RowGradients
from dihedral.engine.scratch import Scratch
from dihedral.errors import DihedralError
from dihedral.models import Relations
from dihedral.objectives.base import Gradients, Questions, queries_of_sides
from dihedral.objectives.negatives import SkewNegatives, uniform_negatives
from dihedral.objectives.regularisers import L2, NONE, Regulariser


@dataclass(eq=False)
class LogisticLoss:
    """Eq. 2, in three implementations: autograd (the reference), gradients by hand, and compiled kernels."""

    relations: Relations
    num_entities: int
    negatives: int = 10  # sampled per positive
    share_negatives: int = 0  # positives that share one set of negatives; 0 draws a set for each
    component_weight: float = 0.0  # of the per-component loss (`component_loss`)
    skew: SkewNegatives | None = None
    regulariser: Regulariser = NONE
    regularise_negatives: bool = False  # the regulariser, L2, is on the negative triples too

    def __post_init__(self) -> None:
        if self.regulariser.includes_queries:
            raise DihedralError("DURA is not available for the logistic loss; use the L2 or N3 regulariser")
        self.scratch = Scratch()
        rows_are_candidates = type(self.relations).candidates is Relations.candidates
        self.written_out = rows_are_candidates and not self.component_weight
        has_kernel = (
            self.relations.is_block
            and not self.relations.is_reciprocal
            and (self.regulariser is NONE or isinstance(self.regulariser, L2))
        )
        self.compilable = has_kernel and not self.share_negatives and not self.regularise_negatives

    def __call__(
        self, entities: Tensor, operators: Tensor, index: Tensor, batch: Tensor, generator: torch.Generator
    ) -> Gradients:
        negatives = self.sample(batch, generator)
        reverse = self.skew.draw(batch, generator) if self.skew else None
        if not self.written_out:
            return self.by_autograd(entities, operators, index, batch, negatives, reverse)
        fast = self.by_compiled if self.compiled and batch.device.type == "cpu" else self.by_hand
        found = fast(entities, operators, index, batch, negatives)
        return found if reverse is None else self.with_reversed(found, entities, operators, index, batch, reverse)

    @property
    def compiled(self) -> bool:
        return self.written_out and self.compilable and compiled.available()

    def sample(self, batch: Tensor, generator: torch.Generator) -> Tensor:
        return uniform_negatives(batch, self.num_entities, self.negatives, self.share_negatives, generator)

    # --- the reference: autograd ---------------------------------------------------------------

    def by_autograd(
        self,
        entities: Tensor,
        operators: Tensor,
        index: Tensor,
        batch: Tensor,
        negatives: Tensor,
        reverse: Tensor | None = None,
    ) -> Gradients:
        """Eq. 2 as written, differentiated by autograd; `reverse` [B] marks positives with the negative (t, r, h)."""
        questions = Questions.of(batch)
        ids = torch.cat([questions.anchors, questions.targets, negatives.flatten()])
        used = entities[ids].requires_grad_()
        operators = operators.detach().requires_grad_()
        with torch.enable_grad():
            anchor, target, negative = used.split([len(batch), len(batch), negatives.numel()])
            negative_rows = negative.view(*negatives.shape, -1)
            query = queries_of_sides(self.relations, operators, index, anchor, questions.half)
            positive, negative = self.relations.candidates(target), self.relations.candidates(negative)
            losses = F.softplus(-(query * positive).sum(-1))
            if self.share_negatives:  # one product per chunk
                chunks = zip(query.split(self.share_negatives), negative.split(self.negatives), strict=True)
                scores = torch.cat([part @ shared.T for part, shared in chunks])
            else:
                negative = negative.view(len(query), self.negatives, -1)
                scores = torch.einsum("bd,bkd->bk", query, negative)
            losses = losses + F.softplus(scores).sum(-1)
            if reverse is not None:
                swapped = queries_of_sides(self.relations, operators, index, target, questions.half)
                score = (swapped * self.relations.candidates(anchor)).sum(-1)
                losses = losses + F.softplus(score) * reverse
            if self.component_weight:
                losses = losses + self.component_weight * component_loss(query, positive, negative)
            loss = losses.mean() + self.regulariser.penalty(anchor, target)
            if self.regularise_negatives:  # the anchor is in every negative triple
                more = self.negatives * anchor.square().sum(-1) + negative_rows.square().sum((-1, -2))
                loss = loss + self.regulariser.weight * 0.5 * more.mean()
        operator_gradient, row_gradient = torch.autograd.grad(loss, [operators, used])
        return Gradients(loss.detach(), operator_gradient, RowGradients(ids, row_gradient))

    # --- the same with gradients by hand -------------------------------------------------------

    def by_hand(
        self, entities: Tensor, operators: Tensor, index: Tensor, batch: Tensor, negatives: Tensor
    ) -> Gradients:
        """Eq. 2 with the derivatives of softplus(±φ) written out; autograd differentiates only the queries."""
        questions = Questions.of(batch)
        size = len(batch)
        operators = operators.detach().requires_grad_()
        anchor = entities.index_select(0, questions.anchors).requires_grad_()
        with torch.enable_grad():
            queries = queries_of_sides(self.relations, operators, index, anchor, questions.half)
        query, target = queries.detach(), entities.index_select(0, questions.targets)
        negative = self._gather(entities, negatives)  # [chunks, k, 2L]; a chunk is one question unless they share
        share = self.share_negatives or 1
        chunks = self._chunks(query, len(negatives), share)
        positive_score = (query * target).sum(-1)
        scores = torch.bmm(chunks, negative.mT).flatten(0, 1)[:size]  # [B, k]
        loss = (F.softplus(-positive_score) + F.softplus(scores).sum(-1)).mean()
        positive_weight = -torch.sigmoid(-positive_score)[:, None] / size
        weights = torch.sigmoid_(scores).div_(size)
        chunk_weights = self._chunks(weights, len(negatives), share)
        query_gradient = torch.bmm(chunk_weights, negative).flatten(0, 1)[:size].addcmul_(positive_weight, target)
        operator_gradient, anchor_gradient = torch.autograd.grad(queries, [operators, anchor], query_gradient)
        penalty, decay = self.regulariser.penalty_and_gradient(torch.cat([anchor.detach(), target]), size)
        if self.regularise_negatives:
            anchors, anchor_decay = self.regulariser.penalty_and_gradient(anchor.detach(), size)
            others, negative_decay = self.regulariser.penalty_and_gradient(negative.flatten(0, 1), size)
            penalty = penalty + self.negatives * anchors + others
            decay[:size] += self.negatives * anchor_decay
        own = [anchor_gradient + decay[:size], torch.addcmul(decay[size:], positive_weight, query)]
        if self.share_negatives:  # each negative has a gradient from all questions of its chunk
            shared = torch.bmm(chunk_weights.mT, chunks).flatten(0, 1)
            ids = torch.cat([questions.anchors, questions.targets, negatives.flatten()])
            uses = RowGradients(ids, torch.cat([*own, shared]))
        else:
            uses = self.row_gradients(questions, negatives, torch.cat([*own, query]), weights)
        if self.regularise_negatives:
            uses = uses.joined(RowGradients(negatives.flatten(), negative_decay))
        return Gradients(loss + penalty, operator_gradient, uses)

    def with_reversed(
        self, found: Gradients, entities: Tensor, operators: Tensor, index: Tensor, batch: Tensor, reverse: Tensor
    ) -> Gradients:
        """Add the terms softplus(φ(t, r, h)) of the positives in the mask `reverse` [B]."""
        questions, size = Questions.of(batch), len(batch)
        operators = operators.detach().requires_grad_()
        anchor, target = entities[questions.anchors], entities[questions.targets].requires_grad_()
        with torch.enable_grad():
            swapped = queries_of_sides(self.relations, operators, index, target, questions.half)
        score = (swapped.detach() * anchor).sum(-1)
        weight = (torch.sigmoid(score) * reverse / size)[:, None]
        operator_gradient, target_gradient = torch.autograd.grad(swapped, [operators, target], weight * anchor)
        rows = RowGradients(
            torch.cat([questions.anchors, questions.targets]), torch.cat([weight * swapped.detach(), target_gradient])
        )
        loss = found.loss + (F.softplus(score) * reverse).sum() / size
        assert isinstance(found.entities, RowGradients)
        return Gradients(loss, found.operators + operator_gradient, found.entities.joined(rows))

    @staticmethod
    def _chunks(rows: Tensor, chunks: int, share: int) -> Tensor:
        """Rows [B, d] as [chunks, share, d]; the last chunk is padded with zeros."""
        missing = chunks * share - len(rows)
        return (F.pad(rows, (0, 0, 0, missing)) if missing else rows).view(chunks, share, -1)

    def _gather(self, entities: Tensor, ids: Tensor) -> Tensor:
        if entities.is_cuda:
            return entities[ids]
        rows = self.scratch.take("negatives", (ids.numel(), entities.shape[1]), entities.device)
        return torch.index_select(entities, 0, ids.flatten(), out=rows).view(*ids.shape, -1)

    def by_compiled(
        self, entities: Tensor, operators: Tensor, index: Tensor, batch: Tensor, negatives: Tensor
    ) -> Gradients:
        """One compiled pass over the batch."""
        questions, decay = Questions.of(batch), self.regulariser.weight
        losses, operator_gradient, vectors, weights = compiled.block_logistic(
            entities, operators, index, questions.anchors, questions.targets, negatives, questions.half, decay
        )
        loss = losses.mean()
        if decay:
            rows = entities[torch.cat([questions.anchors, questions.targets])]
            loss = loss + decay * 0.5 * rows.square().sum() / len(batch)
        return Gradients(loss, operator_gradient, self.row_gradients(questions, negatives, vectors, weights))

    @staticmethod
    def row_gradients(questions: Questions, negatives: Tensor, vectors: Tensor, weights: Tensor) -> RowGradients:
        """Vectors [3B, 2L]: gradients of anchors and of targets, then the queries weighted by the negatives."""
        size, k = negatives.shape
        own = torch.arange(2 * size, device=vectors.device)
        queries = torch.arange(2 * size, 3 * size, device=vectors.device).repeat_interleave(k, output_size=size * k)
        return RowGradients(
            ids=torch.cat([questions.anchors, questions.targets, negatives.flatten()]),
            vectors=vectors,
            source=torch.cat([own, queries]),
            weights=torch.cat([torch.ones(2 * size, device=vectors.device), weights.flatten()]),
        )


def component_loss(query: Tensor, positive: Tensor, negative: Tensor) -> Tensor:
    """The per-component loss of the Case Studies [B]: 1/k Σ_n Σ_l -log σ(φ⁽ˡ⁾(h, r, t) - φ⁽ˡ⁾(n)).

    φ⁽ˡ⁾ is the part of the score from the l-th two-dimensional component; negative [B, k, 2L].
    """
    margin = _components(query * positive)[:, None] - _components(query[:, None] * negative)
    return F.softplus(-margin).sum(-1).mean(-1)


def _components(products: Tensor) -> Tensor:
    """Element-wise products [..., 2L] summed within each two-dimensional component: [..., L]."""
    x, y = products.chunk(2, dim=-1)
    return x + y
