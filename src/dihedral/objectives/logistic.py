"""The paper's objective: logistic loss over positives and sampled negatives.

    Eq. 2:  L = 1/|B| Σ_{(h, r, t) ∈ B} [ -log σ(φ(h, r, t)) - Σ_{n} log σ(-φ(n)) + λ Ω(h, t) ]

n runs over the sampled negatives of the positive, φ is the model's score, and λ is the weight of the regulariser Ω,
which is per positive and averaged over the batch. -log σ(x) = softplus(-x). The paper does not say which entities Ω is
about; with `regularise_negatives` it is the sum over all triples of the bracket, the negatives included.

With entities partitioned over ranks, queries travel and rows stay: the rank that holds an anchor computes its query,
all ranks score the targets and negatives that they hold, and the gradients of the queries are summed.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from dihedral.engine import compiled
from dihedral.engine.adagrad import RowGradients
from dihedral.engine.blocks import Questions
from dihedral.graph import GraphIndex
from dihedral.graph.patterns import skew_relations
from dihedral.models import Relations
from dihedral.objectives.base import Gradients, ask_half, queries_of_sides
from dihedral.objectives.regularisers import L2, NONE, Regulariser
from dihedral.runtime.distributed import Shard


@dataclass(frozen=True)
class SkewNegatives:
    """The extra negative (t, r, h), with a probability, of positives h ≠ t of definitely skew-symmetric relations."""

    relations: Tensor  # bool [R]: definitely skew-symmetric (`graph.patterns.skew_relations`)
    probability: float

    @classmethod
    def build(cls, index: GraphIndex, probability: float, device: torch.device | str = "cpu") -> SkewNegatives:
        return cls(torch.from_numpy(skew_relations(index)).to(device), probability)

    def draw(self, batch: Tensor, generator: torch.Generator) -> Tensor:
        """Which positives [B, 3] get the extra negative: bool [B]."""
        head, relation, tail = batch.unbind(1)
        coin = torch.rand(len(batch), generator=generator, device=batch.device) < self.probability
        return coin & self.relations[relation] & (head != tail)


@dataclass(eq=False)
class LogisticLoss:
    """Eq. 2 with its gradients: compiled on a CPU, else written out; by autograd for the component loss and TransE.

    shard: this process's entities, if several share them; loss and gradients are then this process's part.
    """

    relations: Relations
    num_entities: int
    negatives: int = 10  # sampled per positive
    share_negatives: int = 0  # positives that share one set of negatives; 0 draws a set for each
    component_weight: float = 0.0  # weight of the per-component loss (`component_loss`)
    skew: SkewNegatives | None = None
    regulariser: Regulariser = NONE
    regularise_negatives: bool = False  # the regulariser, L2, is on the negative triples too
    shard: Shard | None = None

    def __post_init__(self) -> None:
        self.is_partitioned = self.shard is not None and not self.shard.is_single
        rows_are_candidates = type(self.relations).candidates is Relations.candidates
        self.written_out = rows_are_candidates and not self.component_weight
        self.compilable = (
            self.written_out
            and self.relations.is_block
            and not self.relations.is_reciprocal
            and (self.regulariser is NONE or isinstance(self.regulariser, L2))
            and not self.share_negatives
            and not self.regularise_negatives
            and not self.is_partitioned
        )

    def __call__(
        self, entities: Tensor, operators: Tensor, index: Tensor, batch: Tensor, generator: torch.Generator
    ) -> Gradients:
        negatives = self.sample(batch, generator)
        reverse = self.skew.draw(batch, generator) if self.skew else None
        questions, targets = ask_half(entities, operators, index, batch)
        if self.is_partitioned:
            return self.by_pairs(questions, targets, negatives, reverse)
        if not self.written_out:
            return self.by_autograd(questions, targets, negatives, reverse)
        fast = self.by_compiled if self.compiled and batch.device.type == "cpu" else self.by_hand
        found = fast(questions, targets, negatives)
        return found if reverse is None else found.joined(self.reversed(questions, targets, reverse))

    @property
    def compiled(self) -> bool:
        return self.compilable and compiled.available()

    def sample(self, batch: Tensor, generator: torch.Generator) -> Tensor:
        """Negatives [B, k], uniform; if positives share them, one row per chunk of positives."""
        size = -(-len(batch) // (self.share_negatives or 1)), self.negatives
        return torch.randint(self.num_entities, size, generator=generator, device=batch.device)

    def by_autograd(
        self, questions: Questions, targets: Tensor, negatives: Tensor, reverse: Tensor | None = None
    ) -> Gradients:
        """Eq. 2 as written; `reverse` [B] marks positives with the negative (t, r, h)."""
        entities, operators, index, anchors, half = questions
        operators, size = operators.requires_grad_(), len(anchors)
        ids = torch.cat([anchors, targets, negatives.flatten()])
        used = entities[ids].requires_grad_()
        with torch.enable_grad():
            anchor, target, negative = used.split([size, size, negatives.numel()])
            negative_rows = negative.view(*negatives.shape, -1)
            query = queries_of_sides(self.relations, operators, index, anchor, half)
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
                swapped = queries_of_sides(self.relations, operators, index, target, half)
                losses = losses + F.softplus((swapped * self.relations.candidates(anchor)).sum(-1)) * reverse
            if self.component_weight:
                losses = losses + self.component_weight * component_loss(query, positive, negative)
            loss = losses.mean()
            if self.regularise_negatives:  # the anchor is in every negative triple
                more = self.negatives * anchor.square().sum(-1) + negative_rows.square().sum((-1, -2))
                loss = loss + self.regulariser.weight * 0.5 * more.mean()
        operator_gradient, row_gradient = torch.autograd.grad(loss, [operators, used])
        penalty, slopes = self.regulariser.penalty_and_gradient(used[: 2 * size].detach(), size)
        row_gradient[: 2 * size] += slopes
        return Gradients(loss.detach() + penalty, operator_gradient, RowGradients(ids, row_gradient))

    def by_hand(self, questions: Questions, targets: Tensor, negatives: Tensor) -> Gradients:
        """Eq. 2 with the derivatives of softplus(±φ) written out; autograd differentiates only the queries."""
        entities, operators, index, anchors, half = questions
        operators, size = operators.requires_grad_(), len(anchors)
        anchor = entities.index_select(0, anchors).requires_grad_()
        with torch.enable_grad():
            queries = queries_of_sides(self.relations, operators, index, anchor, half)
        query, target = queries.detach(), entities.index_select(0, targets)
        negative = entities[negatives]  # [chunks, k, 2L]; a chunk is one question unless they share
        chunks = self._chunks(query, len(negatives))
        positive_score = (query * target).sum(-1)
        scores = torch.bmm(chunks, negative.mT).flatten(0, 1)[:size]  # [B, k]
        loss = (F.softplus(-positive_score) + F.softplus(scores).sum(-1)).mean()
        positive_weight = -torch.sigmoid(-positive_score)[:, None] / size
        weights = torch.sigmoid_(scores).div_(size)
        chunk_weights = self._chunks(weights, len(negatives))
        query_gradient = torch.bmm(chunk_weights, negative).flatten(0, 1)[:size].addcmul_(positive_weight, target)
        operator_gradient, anchor_gradient = torch.autograd.grad(queries, [operators, anchor], query_gradient)
        penalty, decay = self.regulariser.penalty_and_gradient(torch.cat([anchor.detach(), target]), size)
        if self.regularise_negatives:
            more, anchor_decay = self.regulariser.penalty_and_gradient(anchor.detach(), size)
            others, negative_decay = self.regulariser.penalty_and_gradient(negative.flatten(0, 1), size)
            penalty = penalty + self.negatives * more + others
            decay[:size] += self.negatives * anchor_decay
        own = [anchor_gradient + decay[:size], torch.addcmul(decay[size:], positive_weight, query)]
        ids = torch.cat([anchors, targets, negatives.flatten()])
        if self.share_negatives:  # each negative has a gradient from all questions of its chunk
            shared = torch.bmm(chunk_weights.mT, chunks).flatten(0, 1)
            uses = RowGradients(ids, torch.cat([*own, shared]))
        else:
            uses = weighted_uses(ids, torch.cat([*own, query]), weights)
        if self.regularise_negatives:
            uses = uses.joined(RowGradients(negatives.flatten(), negative_decay))
        return Gradients(loss + penalty, operator_gradient, uses)

    def by_compiled(self, questions: Questions, targets: Tensor, negatives: Tensor) -> Gradients:
        """One compiled pass over the batch."""
        decay = self.regulariser.weight
        losses, operator_gradient, vectors, weights = compiled.block_logistic(questions, targets, negatives, decay)
        loss, ids = losses.mean(), torch.cat([questions.anchors, targets, negatives.flatten()])
        if decay:
            rows = questions.entities[ids[: 2 * len(targets)]]
            loss = loss + decay * 0.5 * rows.square().sum() / len(targets)
        return Gradients(loss, operator_gradient, weighted_uses(ids, vectors, weights))

    def reversed(self, questions: Questions, targets: Tensor, reverse: Tensor) -> Gradients:
        """The terms softplus(φ(t, r, h)) of the positives in the mask `reverse` [B]."""
        entities, operators, index, anchors, half = questions
        operators, size = operators.detach().requires_grad_(), len(anchors)
        anchor, target = entities[anchors], entities[targets].requires_grad_()
        with torch.enable_grad():
            swapped = queries_of_sides(self.relations, operators, index, target, half)
        score = (swapped.detach() * anchor).sum(-1)
        weight = (torch.sigmoid(score) * reverse / size)[:, None]
        operator_gradient, target_gradient = torch.autograd.grad(swapped, [operators, target], weight * anchor)
        rows = RowGradients(torch.cat([anchors, targets]), torch.cat([weight * swapped.detach(), target_gradient]))
        return Gradients((F.softplus(score) * reverse).sum() / size, operator_gradient, rows)

    def by_pairs(self, questions: Questions, targets: Tensor, negatives: Tensor, reverse: Tensor | None) -> Gradients:
        """This rank's part of Eq. 2: pairs of a query and one of the targets and negatives that it holds."""
        assert self.shard is not None
        ids = targets[:, None] if self.share_negatives else torch.cat([targets[:, None], negatives], dim=1)
        places, held = self.shard.find(ids.flatten())
        signs = torch.where(places % ids.shape[1] == 0, -1.0, 1.0)
        shared = negatives if self.share_negatives else None
        found = self._pair_gradients(questions, places // ids.shape[1], held, signs, shared)
        if reverse is not None:  # the anchors are negatives of the questions with the targets as anchors
            places, held = self.shard.find(questions.anchors)
            more = reverse[places]
            ones = torch.ones(int(more.sum()), device=more.device)
            swapped = questions._replace(anchors=targets)
            found = found.joined(self._pair_gradients(swapped, places[more], held[more], ones, None))
        positives = self.shard.find(torch.cat([questions.anchors, targets]))[1]
        penalty, decay = self.regulariser.penalty_and_gradient(questions.entities[positives], len(targets))
        return found.joined(Gradients(penalty, torch.zeros_like(found.operators), RowGradients(positives, decay)))

    def _pair_gradients(
        self, questions: Questions, question: Tensor, ids: Tensor, signs: Tensor, shared: Tensor | None
    ) -> Gradients:
        """Σ softplus(sign · φ) / B over pairs of a question and an own row, and over own rows of `shared` negatives."""
        assert self.shard is not None
        entities, operators, index, anchors, half = questions
        places, held = self.shard.find(anchors)
        operators, rows, size = operators.detach().requires_grad_(), entities[held].requires_grad_(), len(anchors)
        with torch.enable_grad():
            own = queries_of_sides(self.relations, operators, index[places], rows, int((places < half).sum()))
        queries = self.shard.sum(own.new_zeros(size, own.shape[1]).index_copy_(0, places, own.detach()))
        sizes: list[int] = []  # shared negatives of each chunk that this rank holds
        if shared is not None:
            places_of_shared, more = self.shard.find(shared.flatten())
            sizes = torch.bincount(places_of_shared // shared.shape[1], minlength=len(shared)).tolist()
            ids = torch.cat([ids, more])
        used = entities[ids].requires_grad_()
        queries.requires_grad_()
        with torch.enable_grad():
            candidates, *chunks = self.relations.candidates(used).split([len(question), *sizes])
            loss = F.softplus(signs * (queries[question] * candidates).sum(-1)).sum() / size
            for number, chunk in enumerate(chunks):
                part = queries[number * self.share_negatives :][: self.share_negatives]
                loss = loss + F.softplus(part @ chunk.T).sum() / size
        query_gradient, row_gradient = torch.autograd.grad(loss, [queries, used])
        own_gradient = self.shard.sum(query_gradient)[places]
        operator_gradient, anchor_gradient = torch.autograd.grad(own, [operators, rows], own_gradient)
        uses = RowGradients(torch.cat([held, ids]), torch.cat([anchor_gradient, row_gradient]))
        return Gradients(loss.detach(), operator_gradient, uses)

    def _chunks(self, rows: Tensor, count: int) -> Tensor:
        """Rows [B, d] of questions as [count, those that share negatives, d]; the last chunk is padded with zeros."""
        share = self.share_negatives or 1
        missing = count * share - len(rows)
        return (F.pad(rows, (0, 0, 0, missing)) if missing else rows).view(count, share, -1)


def weighted_uses(ids: Tensor, vectors: Tensor, weights: Tensor) -> RowGradients:
    """Vectors [3B, 2L] are the gradients of anchors and targets, then the queries, weighted for negatives [B, k]."""
    (size, k), device = weights.shape, vectors.device
    own = torch.arange(2 * size, device=device)
    queries = torch.arange(2 * size, 3 * size, device=device).repeat_interleave(k, output_size=size * k)
    ones = torch.ones(2 * size, device=device)
    return RowGradients(ids, vectors, torch.cat([own, queries]), torch.cat([ones, weights.flatten()]))


def component_loss(query: Tensor, positive: Tensor, negative: Tensor) -> Tensor:
    """The per-component loss of the Case Studies [B]: 1/k Σ_n Σ_l -log σ(φ⁽ˡ⁾(h, r, t) - φ⁽ˡ⁾(n)).

    φ⁽ˡ⁾ is the part of the score from the l-th two-dimensional component; negative [B, k, 2L].
    """
    products = (query * positive)[:, None], query[:, None] * negative
    own, others = (each.unflatten(-1, (2, -1)).sum(-2) for each in products)
    return F.softplus(others - own).sum(-1).mean(-1)
