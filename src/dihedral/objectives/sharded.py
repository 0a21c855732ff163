"""The logistic loss with entities partitioned over ranks: queries travel to the rows, their gradients travel back.

The rank that holds an anchor computes its query. All ranks receive all queries, score the targets and negatives that
they hold, and send the gradient of each query back to its rank. A step exchanges at most two tensors [B, 2L],
independent of the number of negatives.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from dihedral.engine import compiled
from dihedral.engine.adagrad import RowGradients
from dihedral.engine.blocks import Questions
from dihedral.objectives.base import Gradients, ask_half, queries_of_sides
from dihedral.objectives.logistic import LogisticLoss
from dihedral.runtime.distributed import Shard


@dataclass(frozen=True)
class QuestionPartition:
    """Questions ordered by the rank that holds their anchor; within a rank, those for tails come first."""

    shard: Shard
    order: Tensor  # [questions]: the question at each position
    counts: list[int]  # per rank
    own: slice  # positions of this rank's questions
    half: int  # this rank's questions for tails

    @classmethod
    def of(cls, anchors: Tensor, tails: Tensor, shard: Shard) -> QuestionPartition:
        key = 2 * shard.owners(anchors) + ~tails
        order = torch.argsort(key, stable=True)
        sizes = torch.bincount(key, minlength=2 * shard.world).tolist()
        counts = [sizes[2 * i] + sizes[2 * i + 1] for i in range(shard.world)]
        start = sum(counts[: shard.rank])
        return cls(shard, order, counts, slice(start, start + counts[shard.rank]), sizes[2 * shard.rank])

    @property
    def _own_counts(self) -> list[int]:
        """This rank's number of questions, once per rank."""
        return [self.counts[self.shard.rank]] * self.shard.world

    def spread(self, own: Tensor, everywhere: Tensor) -> Callable[[], Any]:
        """Send this rank's queries to all; call the result to wait until `everywhere` holds all in partition order."""
        return self.shard.all_to_all(everywhere, self.counts, own.repeat(self.shard.world, 1), self._own_counts)

    def collect(self, gradients: Tensor) -> Tensor:
        """The gradient of this rank's queries, summed over the parts that all ranks computed."""
        parts = gradients.new_empty(sum(self._own_counts), gradients.shape[1])
        self.shard.all_to_all(parts, self._own_counts, gradients, self.counts)()
        return parts.view(self.shard.world, -1, gradients.shape[1]).sum(0)


@dataclass(eq=False)
class ShardedLogisticLoss(LogisticLoss):
    """Eq. 2 with the batches and negatives of a single process; loss and gradients are this rank's part."""

    shard: Shard = field(kw_only=True)

    def __call__(
        self, entities: Tensor, operators: Tensor, index: Tensor, batch: Tensor, generator: torch.Generator
    ) -> Gradients:
        negatives = self.sample(batch, generator)
        questions, targets = ask_half(entities, operators, index, batch)
        if self.compiled and not self.skew and batch.device.type == "cpu":
            return self.by_compiled_pairs(questions, targets, negatives)
        reverse = self.skew.draw(batch, generator) if self.skew else None
        return self.by_autograd_pairs(questions, targets, negatives, reverse)

    def pairs(self, targets: Tensor, negatives: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Targets [B] and negatives [B, k] held here: the question, the row, and whether it is the target."""
        ids = torch.cat([targets[:, None], negatives], dim=1)
        places, rows = self.shard.find(ids.flatten())
        return places // ids.shape[1], rows, places % ids.shape[1] == 0

    def by_autograd_pairs(
        self, questions: Questions, targets: Tensor, negatives: Tensor, reverse: Tensor | None
    ) -> Gradients:
        """Eq. 2 over the pairs held here, differentiated by autograd."""
        entities, operators, index, anchors, half = questions
        shard, size = self.shard, len(index)
        tails = torch.arange(size, device=index.device) < half
        if reverse is not None:  # the reversed questions start from the targets
            anchors, tails, index = torch.cat([anchors, targets]), tails.repeat(2), index.repeat(2)
        partition = QuestionPartition.of(anchors, tails, shard)
        mine = partition.order[partition.own]
        anchor_ids, which = shard.local_index(anchors[mine]), index[mine]
        operators, rows = operators.requires_grad_(), entities[anchor_ids].requires_grad_()
        with torch.enable_grad():
            own = queries_of_sides(self.relations, operators, which, rows, partition.half)
        everywhere = own.new_empty(len(anchors), own.shape[1])
        partition.spread(own.detach(), everywhere)()
        queries = torch.empty_like(everywhere).index_copy_(0, partition.order, everywhere).requires_grad_()

        loss, used, ids = self._pair_loss(queries, questions, targets, negatives, reverse)
        query_gradient, row_gradient = torch.autograd.grad(loss, [queries, used])
        own_gradient = partition.collect(query_gradient[partition.order])
        operator_gradient, anchor_gradient = torch.autograd.grad(own, [operators, rows], own_gradient)

        regularised = [anchor_ids[mine < size], shard.find(targets)[1]]  # entities of the positives
        penalty, decay = self.regulariser.penalty_and_gradient(entities[torch.cat(regularised)], size)
        uses = RowGradients(
            torch.cat([anchor_ids, ids, *regularised]), torch.cat([anchor_gradient, row_gradient, decay])
        )
        return Gradients(loss.detach() + penalty, operator_gradient, uses)

    def _pair_loss(
        self, queries: Tensor, questions: Questions, targets: Tensor, negatives: Tensor, reverse: Tensor | None
    ) -> tuple[Tensor, Tensor, Tensor]:
        """The loss of the pairs held here, the rows [n, 2L] it depends on, and their ids [n]."""
        shard, size, share = self.shard, len(targets), self.share_negatives
        question, ids, positive = self.pairs(targets, negatives.new_empty(size, 0) if share else negatives)
        if reverse is not None:
            places, held = shard.find(questions.anchors)
            more = reverse[places]
            question, ids = torch.cat([question, size + places[more]]), torch.cat([ids, held[more]])
            positive = F.pad(positive, (0, len(ids) - len(positive)))
        sizes: list[int] = []  # negatives of each chunk that are held here
        if share:
            places, held = shard.find(negatives.flatten())
            sizes = torch.bincount(places // negatives.shape[1], minlength=len(negatives)).tolist()
            ids = torch.cat([ids, held])
        used = questions.entities[ids].requires_grad_()
        with torch.enable_grad():
            candidates, *chunks = self.relations.candidates(used).split([len(question), *sizes])
            scores = (queries[question] * candidates).sum(-1)
            loss = F.softplus(torch.where(positive, -scores, scores)).sum() / size
            if share:
                for part, chunk in zip(queries[:size].split(share), chunks, strict=True):
                    loss = loss + F.softplus(part @ chunk.T).sum() / size
        return loss, used, ids

    def by_compiled_pairs(self, questions: Questions, targets: Tensor, negatives: Tensor) -> Gradients:
        """The same in compiled passes over the questions in partition order."""
        entities, operators, index, anchors, half = questions
        shard, size, decay = self.shard, len(index), self.regulariser.weight / len(index)
        partition = QuestionPartition.of(anchors, torch.arange(size) < half, shard)
        mine = partition.order[partition.own]
        own = Questions(entities, operators, index[mine], shard.local_index(anchors[mine]), partition.half)
        vectors = torch.empty(len(mine) + size, entities.shape[1])  # gradients of own anchors, then all queries
        queries = vectors[len(mine) :]
        wait = partition.spread(compiled.block_queries(own), queries)
        question, rows, positive = self.pairs(targets[partition.order], negatives[partition.order])
        wait()
        loss, query_gradient, weights = compiled.pair_logistic(entities, queries, question, rows, positive)
        gradient = partition.collect(query_gradient)
        operator_gradient = compiled.block_queries_backward(own, gradient, decay, vectors[: len(mine)])
        source, weights = (
            torch.cat([torch.arange(len(mine)), len(mine) + question]),
            F.pad(weights, (len(mine), 0), value=1),
        )
        uses, loss = RowGradients(torch.cat([own.anchors, rows]), vectors, source, weights), loss / size
        if decay:
            held = entities[rows[positive]]
            loss = loss + 0.5 * decay * (held.square().sum() + entities[own.anchors].square().sum())
            uses = uses.joined(RowGradients(rows[positive], held, weights=torch.full((len(held),), decay)))
        return Gradients(loss, operator_gradient, uses)
