"""Cross-entropy over all entities, with optional questions about relations and paths.

    L = 1/|B| Σ_{(h, r, t) ∈ B} [ -log p(t | h, r) - log p(h | r, t) + λ Ω(h, r, t) ] + w · mean -log p(r | h, t)

λ is the weight of the regulariser and w is `relation_weight`. Sampled paths add the terms of their end and their start.
With `candidates`, p is estimated from a sample of the entities.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor

from dihedral.engine.adagrad import RowGradients
from dihedral.engine.blocks import block_queries, with_transposes
from dihedral.engine.cross_entropy import tiled_cross_entropy
from dihedral.models import BlockRelations, Relations
from dihedral.objectives.base import Asked, Gradients, both_sides, queries_of_sides
from dihedral.objectives.regularisers import NONE, Regulariser
from dihedral.objectives.walks import Compositions, SampledPaths, Walks, sample_paths
from dihedral.runtime.distributed import Shard


@dataclass(eq=False)
class SoftmaxLoss:
    """Mean cross-entropy of tails and of heads among all entities, plus the regulariser; in this process's `shard`."""

    compiled: ClassVar[bool] = False
    relations: Relations
    relation_weight: float = 0.0  # weight of the question (head, ?, tail) among all relations
    walks: Walks | None = None
    paths: float = 0.0  # sample paths · B paths per batch
    path_length: int = 2  # steps of the longest paths
    compositions: Compositions | None = None
    composition_weight: float = 0.0  # weight of the composition loss of the paths of two steps
    candidates: int = 0  # entities of a step's softmax besides the targets of its batch; 0: all entities
    dropout: float = 0.0  # probability that an entry of a query is set to 0
    regulariser: Regulariser = NONE
    precision: str = "half"  # precision of the products over all entities on CUDA
    shard: Shard | None = None

    def __call__(
        self, entities: Tensor, operators: Tensor, index: Tensor, batch: Tensor | Asked, generator: torch.Generator
    ) -> Gradients:
        shard = self.shard or Shard(len(entities))
        operators = operators.detach().requires_grad_()
        asked = batch if isinstance(batch, Asked) else both_sides(batch)
        batch, size, count = asked.facts, asked.size, len(asked.anchors)
        paths = self.sample(batch, generator)
        ids = torch.cat([asked.anchors, *(path.ends for path in paths)])
        rows, here = shard.own_rows(entities, ids)
        rows.requires_grad_()
        edge_rows = rows[:count].detach()
        with torch.enable_grad():
            which = index.repeat(count // len(index))  # both questions of a fact, or one
            query = queries_of_sides(self.relations, operators, which, rows[:count], asked.half)
            if here is not None:  # rows of other processes make no queries here
                query = query * here[:count]
            queries = torch.cat([query, *_path_queries(paths, operators, rows, count // 2)])
            queries = self._drop(queries, generator)
            extra = self._extra_losses(operators, index, rows, here, paths, batch, shard)
        ends_and_starts = [ids for path in paths for ids in (path.ends, batch[: len(path.ends), 0])]
        targets = torch.cat([asked.answers, *ends_and_starts])
        sample = draw_sample(targets, len(entities), self.candidates, generator) if self.candidates else None
        loss, query_gradient, entity_gradient = self._cross_entropy(queries, entities, targets, sample, asked)
        outputs, gradients = [queries, *extra], [shard.sum(query_gradient), *map(torch.ones_like, extra)]
        for term in extra:
            loss = loss + term.detach() * size
        penalty, penalty_gradient = self.regulariser.repeated(edge_rows, asked.counts, size)
        if self.regulariser.includes_queries:  # ‖Rᵀh‖² and ‖Rt‖²
            more, more_gradient = self.regulariser.repeated(query.detach(), asked.counts, size)
            outputs, gradients, penalty = [*outputs, query], [*gradients, more_gradient], penalty + more
        if self.regulariser.includes_relations:
            used = torch.cat([index, index + len(operators) // 2]) if self.relations.is_reciprocal else index
            with torch.enable_grad():
                more = self.regulariser.relation_penalty(operators, used, size) / shard.world
            outputs, gradients = [*outputs, more], [*gradients, torch.ones_like(more)]
            penalty = penalty + more.detach()
        operator_gradient, row_gradient = torch.autograd.grad(outputs, [operators, rows], gradients)
        if here is not None:  # rows of other processes are 0 here, so that only their own gradient needs a mask
            row_gradient = row_gradient * here
        row_gradient[:count] += penalty_gradient
        total = loss / size + penalty
        if sample is not None:
            rows_in_use = RowGradients(torch.cat([sample.ids, ids]), torch.cat([entity_gradient, row_gradient]))
            return Gradients(total, operator_gradient, rows_in_use)
        local = shard.local_index(ids).clamp(0, len(entities) - 1)  # rows of other processes have gradient 0
        entity_gradient.index_add_(0, local, row_gradient)
        return Gradients(total, operator_gradient, entity_gradient)

    def sample(self, batch: Tensor, generator: torch.Generator) -> list[SampledPaths]:
        if self.walks is None:
            return []
        return sample_paths(self.walks, batch, self.paths, self.path_length, generator)

    def _extra_losses(
        self, operators: Tensor, index: Tensor, rows: Tensor, here: Tensor | None, paths: list[SampledPaths],
        batch: Tensor, shard: Shard,
    ) -> list[Tensor]:  # fmt: skip
        """This process's part of the losses of relation questions and of compositions."""
        terms, both = [], rows[: 2 * len(batch)]
        if self.relation_weight:
            if here is not None:
                both = _from_all_ranks(both, here[: 2 * len(batch)], shard)
            terms.append(self._relation_question(operators, index, both, shard))
        if self.compositions is not None:
            walked = paths[0]
            loss = self.compositions.loss(operators, batch[: len(walked.ends), 0], walked.steps, walked.ends)
            terms.append(self.composition_weight * loss / shard.world)
        return terms

    def _cross_entropy(
        self, queries: Tensor, entities: Tensor, targets: Tensor, sample: Sample | None, questions: Asked
    ) -> tuple[Tensor, Tensor, Tensor]:
        """The summed loss, and its gradients per fact for queries and entities (or the sampled ones)."""
        shard = self.shard or Shard(len(entities))
        table = (entities if sample is None else entities[sample.ids]).detach().requires_grad_()
        with torch.enable_grad():
            candidates = self.relations.candidates(table)
        asked, answers, width = queries.detach(), candidates.detach(), queries.shape[1]
        if sample is not None:
            targets, asked = sample.targets, F.pad(asked, (0, 1), value=1.0)  # products are logits plus log weights
            answers = torch.cat([answers, sample.log_weights[:, None]], dim=1)
        loss, *gradients = tiled_cross_entropy(
            asked if shard.is_single else shard.sum(asked.clone()), answers, shard.local_index(targets),
            scale=1 / questions.size, precision=self.precision, combine=None if shard.is_single else shard.logsumexp,
            owners=questions.owners,
        )  # fmt: skip
        query_gradient, entity_gradient = (gradient[:, :width] for gradient in gradients)
        if candidates is not table:
            (entity_gradient,) = torch.autograd.grad(candidates, table, entity_gradient)
        return loss, query_gradient, entity_gradient

    def _relation_question(self, operators: Tensor, index: Tensor, rows: Tensor, shard: Shard) -> Tensor:
        """Weighted cross-entropy of (head, ?, tail) from the rows [2B, 2L]; each process counts its part."""
        assert isinstance(self.relations, BlockRelations)
        head, tail = rows.chunk(2)
        loss = F.cross_entropy(self.relations.relation_scores(operators, head, tail), index)
        if self.relations.is_reciprocal:  # asked both ways, among the relations and the reciprocal ones
            backwards = self.relations.relation_scores(operators, tail, head)
            loss = loss + F.cross_entropy(backwards, index + len(operators) // 2)
        return self.relation_weight * loss / shard.world

    def _drop(self, query: Tensor, generator: torch.Generator) -> Tensor:
        if not self.dropout:
            return query
        kept = torch.rand(query.shape, generator=generator, device=query.device) >= self.dropout
        return query * (kept / (1 - self.dropout))


def _path_queries(paths: list[SampledPaths], operators: Tensor, rows: Tensor, size: int) -> list[Tensor]:
    """R_nᵀ … R_1ᵀ h asks for the end of a path and R_1 … R_n t for its start; an inverse is the transposed operator."""
    if not paths:
        return []
    both_ways = with_transposes(operators)
    queries, start = [], 2 * size
    for path in paths:
        count, length = path.steps.shape
        forwards, backwards = rows[:count], rows[start : start + count]
        for step in range(length):
            forwards = block_queries(both_ways, path.steps[:, step], forwards, True)
            backwards = block_queries(both_ways, path.steps[:, length - 1 - step], backwards, False)
        queries += [forwards, backwards]
        start += count
    return queries


def _from_all_ranks(rows: Tensor, here: Tensor, shard: Shard) -> Tensor:
    """The rows of all ranks; each rank has a part of the loss, so the gradient of its own rows is scaled up."""
    everywhere = shard.sum(rows.detach().clone())
    return torch.where(here, everywhere + shard.world * (rows - rows.detach()), everywhere)


@dataclass(frozen=True)
class Sample:
    """Entities for one softmax."""

    ids: Tensor  # int64 [C]: the distinct targets, then entities drawn from the others
    targets: Tensor  # int64 [Q]: for each query, the place of its target in `ids`
    log_weights: Tensor  # [C]


def draw_sample(targets: Tensor, num_entities: int, count: int, generator: torch.Generator) -> Sample:
    """The distinct targets, which are frequent and so the hardest negatives, and up to `count` of the other entities.

    Each of those stands for several: with T targets among N entities, its weight is (N - T) / count. Σ w exp(s) over
    the sample is then an unbiased estimate of the softmax's denominator.

    >>> sample = draw_sample(torch.tensor([5, 2, 5]), 100, 10, torch.Generator().manual_seed(0))
    >>> sample.ids[sample.targets].tolist(), len(sample.ids)
    ([5, 2, 5], 12)
    """
    distinct, places = torch.unique(targets, return_inverse=True)
    is_other = torch.ones(num_entities, dtype=torch.bool, device=targets.device)
    is_other[distinct] = False
    others = is_other.nonzero().flatten()
    kept = others[torch.randperm(len(others), generator=generator, device=targets.device)[:count]]
    log_weights = torch.zeros(len(distinct) + len(kept), device=targets.device)
    if len(kept):
        log_weights[len(distinct) :] = math.log(len(others) / len(kept))
    return Sample(torch.cat([distinct, kept]), places, log_weights)
