"""The logistic loss when several processes share the entities: queries go to the rows, gradients come back.

The process that holds an anchor makes its query; all get all queries, score the targets and negatives that they
hold, and send what these ask of a query back to its maker. Two swaps of up to [B, 2L] a step are all that travels,
however many negatives there are.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from dihedral.engine import compiled
from dihedral.engine.adagrad import RowGradients
from dihedral.objectives.logistic import Gradients, LogisticLoss, Questions, regulariser_gradient
from dihedral.runtime.distributed import Shard


@dataclass(frozen=True)
class Dealt:
    """Questions in the order of the processes that hold their anchors; those of a process ask for tails first."""

    order: Tensor  # [questions]: which question stands where
    counts: list[int]  # a process
    own: slice  # this process's, among all
    half: int  # of its own ask for tails

    @classmethod
    def of(cls, anchors: Tensor, tails: Tensor, shard: Shard) -> Dealt:
        key = 2 * shard.owners(anchors) + ~tails
        order = torch.argsort(key, stable=True)
        sizes = torch.bincount(key, minlength=2 * shard.world).tolist()
        counts = [sizes[2 * i] + sizes[2 * i + 1] for i in range(shard.world)]
        start = sum(counts[: shard.rank])
        return cls(order, counts, slice(start, start + counts[shard.rank]), sizes[2 * shard.rank])


class Exchange:
    """Queries to all processes, and their gradients back to those that made them."""

    def __init__(self, shard: Shard, dealt: Dealt) -> None:
        self.shard, self.counts = shard, dealt.counts
        self.own = [dealt.counts[shard.rank]] * shard.world

    def spread(self, own: Tensor, everywhere: Tensor) -> Callable[[], Any]:
        """Own queries to all; after waiting, everywhere [questions, width] holds those of all as they are dealt out."""
        return self.shard.all_to_all(everywhere, self.counts, own.repeat(self.shard.world, 1), self.own)

    def collect(self, gradients: Tensor) -> Tensor:
        """The gradient of own queries, from this process's part of the gradients of all."""
        parts = gradients.new_empty(sum(self.own), gradients.shape[1])
        self.shard.all_to_all(parts, self.own, gradients, self.counts)()
        return parts.view(self.shard.world, -1, gradients.shape[1]).sum(0)


class ShardedLogisticLoss(LogisticLoss):
    """Eq. 2 with the same batches and negatives as one process draws; all figures are this process's part."""

    def __init__(self, *arguments: Any, shard: Shard, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.shard = shard

    def __call__(
        self, entities: Tensor, operators: Tensor, index: Tensor, batch: Tensor, generator: torch.Generator
    ) -> Gradients:
        negatives = self.sample(batch, generator)
        asked = Questions.of(batch)
        if self.compiled and batch.device.type == "cpu":
            return self.by_compiled_pairs(entities, operators, index, asked, negatives)
        return self.by_autograd_pairs(entities, operators, index, asked, negatives, self._extra(batch, generator))

    def _extra(self, batch: Tensor, generator: torch.Generator) -> Tensor | None:
        """Which positives get the extra negative (t, r, h): [B]."""
        if not self.recipe.skew_probability:
            return None
        assert self.skew is not None
        coin = torch.rand(len(batch), generator=generator, device=batch.device) < self.recipe.skew_probability
        return coin & self.skew[batch[:, 1]]

    def pairs(self, targets: Tensor, negatives: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Targets [B] and negatives [B, k] that are here: the question, the row, and whether it is the target."""
        ids = torch.cat([targets[:, None], negatives], dim=1)
        places, rows = self.shard.find(ids.flatten())
        return places // ids.shape[1], rows, places % ids.shape[1] == 0

    def by_autograd_pairs(
        self,
        entities: Tensor,
        operators: Tensor,
        index: Tensor,
        asked: Questions,
        negatives: Tensor,
        extra: Tensor | None,
    ) -> Gradients:
        """The loss as the paper writes it, of the pairs that are here; torch finds the gradients."""
        shard, size, share = self.shard, len(index), self.recipe.share_negatives
        anchors, tails = asked.anchors, torch.arange(size, device=index.device) < asked.half
        if extra is not None:  # the extra questions start from the targets
            anchors, tails, index = (
                torch.cat(both) for both in ((anchors, asked.targets), (tails, tails), (index, index))
            )
        dealt = Dealt.of(anchors, tails, shard)
        mine, half = dealt.order[dealt.own], dealt.half
        anchor_ids, which = shard.local_index(anchors[mine]), index[mine]
        operators, rows = operators.detach().requires_grad_(), entities[anchor_ids].requires_grad_()
        with torch.enable_grad():
            own = Questions(anchor_ids, anchor_ids, half).queries(self.relations, operators, which, rows)
        everywhere = own.new_empty(len(anchors), own.shape[1])
        exchange = Exchange(shard, dealt)
        exchange.spread(own.detach(), everywhere)()
        queries = torch.empty_like(everywhere).index_copy_(0, dealt.order, everywhere).requires_grad_()

        question, ids, positive = self.pairs(asked.targets, negatives.new_empty(size, 0) if share else negatives)
        if extra is not None:
            places, held = shard.find(asked.anchors)
            more = extra[places]
            question, ids = torch.cat([question, size + places[more]]), torch.cat([ids, held[more]])
            positive = F.pad(positive, (0, len(ids) - len(positive)))
        sizes: list[int] = []  # of the negatives of each chunk that are here
        if share:
            places, held = shard.find(negatives.flatten())
            sizes = torch.bincount(places // negatives.shape[1], minlength=len(negatives)).tolist()
            ids = torch.cat([ids, held])
        used = entities[ids].requires_grad_()
        with torch.enable_grad():
            candidates, *chunks = self.relations.candidates(used).split([len(question), *sizes])
            scores = (queries[question] * candidates).sum(-1)
            loss = F.softplus(torch.where(positive, -scores, scores)).sum() / size
            if share:
                for part, chunk in zip(queries[:size].split(share), chunks, strict=True):
                    loss = loss + F.softplus(part @ chunk.T).sum() / size
        query_gradient, row_gradient = torch.autograd.grad(loss, [queries, used])
        own_gradient = exchange.collect(query_gradient[dealt.order])
        operator_gradient, anchor_gradient = torch.autograd.grad(own, [operators, rows], own_gradient)

        regularised = [anchor_ids[mine < size], shard.find(asked.targets)[1]]  # of the positives
        penalty, decay = regulariser_gradient(self.recipe, entities[torch.cat(regularised)], size)
        uses = RowGradients(
            torch.cat([anchor_ids, ids, *regularised]), torch.cat([anchor_gradient, row_gradient, decay])
        )
        return Gradients(loss.detach() + penalty, operator_gradient, uses)

    def by_compiled_pairs(
        self, entities: Tensor, operators: Tensor, index: Tensor, asked: Questions, negatives: Tensor
    ) -> Gradients:
        """The same in compiled passes, over questions in the order in which they are dealt out."""
        shard, size, decay = self.shard, len(index), self.decay / len(index)
        dealt = Dealt.of(asked.anchors, torch.arange(size) < asked.half, shard)
        targets = asked.targets[dealt.order]
        mine = dealt.order[dealt.own]
        questions = index[mine], shard.local_index(asked.anchors[mine]), dealt.half
        vectors = torch.empty(len(mine) + size, entities.shape[1])  # gradients of own anchors, then all queries
        queries = vectors[len(mine) :]
        exchange = Exchange(shard, dealt)
        wait = exchange.spread(compiled.block_queries(entities, operators, *questions), queries)
        question, rows, positive = self.pairs(targets, negatives[dealt.order])
        wait()
        loss, query_gradient, weights = compiled.pair_logistic(entities, queries, question, rows, positive)
        gradient = exchange.collect(query_gradient)
        operator_gradient = compiled.block_queries_backward(
            entities, operators, *questions, gradient, decay, vectors[: len(mine)]
        )
        ids, source, loss = [questions[1], rows], [torch.arange(len(mine)), len(mine) + question], loss / size
        weights = torch.cat([torch.ones(len(mine)), weights])
        if decay:
            target_rows = rows[positive]
            held = entities[target_rows]
            loss = loss + 0.5 * decay * (held.square().sum() + entities[questions[1]].square().sum())
            ids, source = [*ids, target_rows], [*source, torch.arange(len(vectors), len(vectors) + len(held))]
            vectors, weights = torch.cat([vectors, held]), F.pad(weights, (0, len(held)), value=decay)
        return Gradients(loss, operator_gradient, RowGradients(torch.cat(ids), vectors, torch.cat(source), weights))
