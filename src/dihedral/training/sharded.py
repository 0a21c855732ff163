"""The logistic loss when several processes share the entities: queries go to the rows, gradients come back.

The process that holds an anchor makes its query; all get all queries, score the targets and negatives that they
hold, and sum what these ask of the queries. Two sums of [B, 2L] a step are all that travels, however many
negatives there are.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from dihedral.distributed import Shard
from dihedral.engine import compiled
from dihedral.engine.adagrad import RowGradients
from dihedral.training.objectives import Gradients, LogisticLoss, Questions, regulariser_gradient


@dataclass(frozen=True)
class Scored:
    """What scoring this process's entities gives: its part of the loss and of the gradients."""

    loss: Tensor  # scalar, summed over questions
    queries: Tensor  # [questions, width]
    uses: RowGradients  # of entity rows here


class ShardedLogisticLoss(LogisticLoss):
    """Eq. 2 with the same batches and negatives as one process draws; all figures are this process's part."""

    def __init__(self, *arguments: Any, shard: Shard, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.shard = shard

    def __call__(
        self, entities: Tensor, operators: Tensor, index: Tensor, batch: Tensor, generator: torch.Generator
    ) -> Gradients:
        negatives = self.sample(batch, generator)
        asked, size, shard = Questions.of(batch), len(batch), self.shard
        both = [asked]
        if self.recipe.skew_chance:
            both.append(Questions(asked.targets, asked.anchors, asked.half))  # (t, r, h)
        operators = operators.detach().requires_grad_()
        anchors = torch.cat([questions.anchors for questions in both])
        rows, here = shard.own_rows(entities, anchors)
        rows.requires_grad_()
        with torch.enable_grad():
            parts = zip(both, rows.split(size), strict=True)
            own = torch.cat([asks.queries(self.relations, operators, index, part) for asks, part in parts])
            own = own if here is None else own * here
        queries = shard.sum(own.detach().clone())
        if self.compiled and batch.device.type == "cpu":
            found = self.by_compiled_pairs(entities, queries, asked, negatives)
        else:
            found = self.by_autograd_pairs(entities, queries, asked, negatives, self._extra(batch, generator))
        gradient = shard.sum(found.queries)
        operator_gradient, row_gradient = torch.autograd.grad(own, [operators, rows], gradient)
        anchor_places, anchor_ids = shard.find(anchors)
        _, target_ids = shard.find(asked.targets)
        regularised = torch.cat([rows.detach()[:size], entities[target_ids]])
        penalty, decay = regulariser_gradient(self.recipe, regularised, size)
        row_gradient[:size] += decay[:size]
        uses = _joined(
            RowGradients(anchor_ids, row_gradient, anchor_places), RowGradients(target_ids, decay[size:]), found.uses
        )
        return Gradients(found.loss / size + penalty, operator_gradient, uses)

    def _extra(self, batch: Tensor, generator: torch.Generator) -> Tensor | None:
        """Which positives get the extra negative (t, r, h): [B]."""
        if not self.recipe.skew_chance:
            return None
        assert self.skew is not None
        coin = torch.rand(len(batch), generator=generator, device=batch.device) < self.recipe.skew_chance
        return coin & self.skew[batch[:, 1]]

    def pairs(self, asked: Questions, negatives: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Targets [B] and negatives [B, k] that are here: the question, the row, and whether it is the target."""
        ids = torch.cat([asked.targets[:, None], negatives], dim=1)
        places, rows = self.shard.find(ids.flatten())
        return places // ids.shape[1], rows, places % ids.shape[1] == 0

    def by_autograd_pairs(
        self, entities: Tensor, queries: Tensor, asked: Questions, negatives: Tensor, extra: Tensor | None
    ) -> Scored:
        """The loss as the paper writes it, of the pairs that are here; torch finds the gradients."""
        size, share = len(asked.anchors), self.recipe.share_negatives
        question, rows, positive = self.pairs(asked, negatives.new_empty(size, 0) if share else negatives)
        if extra is not None:
            places, held = self.shard.find(asked.anchors)
            more = extra[places]
            question, rows = torch.cat([question, size + places[more]]), torch.cat([rows, held[more]])
            positive = F.pad(positive, (0, len(rows) - len(positive)))
        shared = [self.shard.find(chunk)[1] for chunk in negatives] if share else []
        ids = torch.cat([rows, *shared])
        queries, used = queries.requires_grad_(), entities[ids].requires_grad_()
        with torch.enable_grad():
            candidates, *chunks = self.relations.candidates(used).split([len(rows), *map(len, shared)])
            scores = (queries[question] * candidates).sum(-1)
            loss = F.softplus(torch.where(positive, -scores, scores)).sum()
            if share:
                for part, chunk in zip(queries[:size].split(share), chunks, strict=True):
                    loss = loss + F.softplus(part @ chunk.T).sum()
        query_gradient, row_gradient = torch.autograd.grad(loss / size, [queries, used])
        return Scored(loss.detach(), query_gradient, RowGradients(ids, row_gradient))

    def by_compiled_pairs(self, entities: Tensor, queries: Tensor, asked: Questions, negatives: Tensor) -> Scored:
        """The same in one compiled pass over the pairs."""
        question, rows, positive = self.pairs(asked, negatives)
        loss, query_gradient, weights = compiled.pair_logistic(entities, queries, question, rows, positive)
        return Scored(loss, query_gradient, RowGradients(rows, queries, question, weights))


def _joined(*parts: RowGradients) -> RowGradients:
    """Several lists of uses as one."""
    sources, weights, before = [], [], 0
    for part in parts:
        own = torch.arange(len(part.ids), device=part.ids.device) if part.source is None else part.source
        sources.append(own + before)
        weights.append(torch.ones(len(part.ids), device=part.ids.device) if part.weights is None else part.weights)
        before += len(part.vectors)
    vectors = torch.cat([part.vectors for part in parts])
    return RowGradients(torch.cat([part.ids for part in parts]), vectors, torch.cat(sources), torch.cat(weights))
