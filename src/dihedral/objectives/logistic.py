"""Objectives: the paper's logistic loss over sampled negatives, and cross-entropy over all entities.

An objective takes a batch of triples and gives the loss with two gradients: of the relation
operators (one row a relation) and of the entities. The optimiser does the rest.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from dihedral.engine import compiled
from dihedral.engine.adagrad import RowGradients
from dihedral.engine.blocks import block_queries
from dihedral.engine.scratch import Scratch
from dihedral.engine.softmax import cross_entropy, tiled_cross_entropy
from dihedral.errors import DihedralError
from dihedral.graph.triples import Triples, keys_fit
from dihedral.models import Relations
from dihedral.models.model import BlockRelations
from dihedral.objectives.walks import Walks
from dihedral.runtime.distributed import Shard

if TYPE_CHECKING:
    from dihedral.training.recipe import Recipe


@dataclass(frozen=True)
class Gradients:
    """What one batch asks of the parameters."""

    loss: Tensor  # scalar
    operators: Tensor  # like the operators
    entities: RowGradients | Tensor  # of the rows in use, or of the whole table [N, 2L]


def regulariser(recipe: Recipe, head: Tensor, tail: Tensor) -> Tensor:
    """The penalty on the entities of the positives [batch, 2L], averaged over the batch."""
    if recipe.regulariser == "l2":  # ½(‖h‖² + ‖t‖²)
        size = 0.5 * (head.square().sum(-1) + tail.square().sum(-1))
    elif recipe.regulariser == "n3":  # Σ_l ‖h⁽ˡ⁾‖³ + ‖t⁽ˡ⁾‖³
        size = _cubed_norms(head) + _cubed_norms(tail)
    else:
        return head.new_zeros(())
    return recipe.regulariser_weight * size.mean()


def regulariser_gradient(recipe: Recipe, rows: Tensor, batch_size: int) -> tuple[Tensor, Tensor]:
    """The same penalty and its gradient, written out, for the rows [2B, 2L] of heads and tails together."""
    weight = recipe.regulariser_weight / batch_size
    if recipe.regulariser == "none" or not weight:
        return rows.new_zeros(()), torch.zeros_like(rows)
    if recipe.regulariser == "dura":  # this is one half of it: the other is the same for the queries
        weight = weight / 2
    if recipe.regulariser in ("l2", "dura"):
        return 0.5 * weight * rows.square().sum(), weight * rows
    x, y = rows.chunk(2, dim=-1)
    norms = torch.hypot(x, y)
    return weight * norms.pow(3).sum(), (3 * weight) * rows * norms.repeat(1, 2)


def _cubed_norms(rows: Tensor) -> Tensor:
    x, y = rows.chunk(2, dim=-1)
    return (x.square() + y.square()).pow(1.5).sum(-1)


@dataclass(frozen=True)
class Questions:
    """A batch as questions: the first half asks for tails, the second for heads.

    Batches come in random order, so either side of a triple is corrupted with equal chance.
    """

    anchors: Tensor  # [B]
    targets: Tensor  # [B]
    half: int

    @classmethod
    def of(cls, batch: Tensor) -> Questions:
        half = (len(batch) + 1) // 2
        head, tail = batch[:, 0], batch[:, 2]
        return cls(torch.cat([head[:half], tail[half:]]), torch.cat([tail[:half], head[half:]]), half)

    def queries(self, relations: Relations, operators: Tensor, index: Tensor, anchors: Tensor) -> Tensor:
        """Queries [B, width] from the anchors' rows [B, 2L]."""
        half = self.half
        return torch.cat(
            [
                relations.queries(operators, index[:half], anchors[:half], "tail"),
                relations.queries(operators, index[half:], anchors[half:], "head"),
            ]
        )


class LogisticLoss:
    """Eq. 2: -log σ(y φ) over each positive and its sampled negatives, averaged over positives."""

    def __init__(
        self,
        recipe: Recipe,
        relations: Relations,
        num_entities: int,
        skew: Tensor | None = None,
        *,
        reference: bool = False,
    ) -> None:
        self.recipe, self.relations, self.num_entities = recipe, relations, num_entities
        self.scratch = Scratch()
        self.skew = skew  # bool [R]: relations that get the extra negative (t, r, h)
        same = type(relations).candidates is Relations.candidates
        plain = not (recipe.skew_probability or recipe.component_weight or recipe.adversarial)
        self.written_out = same and plain and not reference
        blocks = isinstance(relations, BlockRelations) and recipe.regulariser in ("none", "l2")
        self.compilable = blocks and not recipe.share_negatives

    def __call__(
        self, entities: Tensor, operators: Tensor, index: Tensor, batch: Tensor, generator: torch.Generator
    ) -> Gradients:
        """batch [B, 3]; the operator of batch row i is operators[index[i]]."""
        negatives = self.sample(batch, generator)
        if not self.written_out:
            return self.by_autograd(entities, operators, index, batch, negatives, generator)
        if self.compiled and batch.device.type == "cpu":
            return self.by_compiled(entities, operators, index, batch, negatives)
        return self.by_hand(entities, operators, index, batch, negatives)

    @property
    def compiled(self) -> bool:
        """Whether the compiled path serves this objective (on a CPU)."""
        return self.written_out and self.compilable and compiled.available()

    def sample(self, batch: Tensor, generator: torch.Generator) -> Tensor:
        """Uniform negatives [B, k]; shared ones are [chunks, k], one row for `share_negatives` positives."""
        share = self.recipe.share_negatives
        rows = -(-len(batch) // share) if share else len(batch)
        shape = rows, self.recipe.negatives
        return torch.randint(self.num_entities, shape, generator=generator, device=batch.device)

    # --- the reference: autograd ---------------------------------------------------------------

    def by_autograd(
        self,
        entities: Tensor,
        operators: Tensor,
        index: Tensor,
        batch: Tensor,
        negatives: Tensor,
        generator: torch.Generator,
    ) -> Gradients:
        """The loss as the paper writes it; torch finds the gradients."""
        asked = Questions.of(batch)
        ids = torch.cat([asked.anchors, asked.targets, negatives.flatten()])
        used = entities[ids].requires_grad_()
        operators = operators.detach().requires_grad_()
        with torch.enable_grad():
            anchor, target, negative = used.split([len(batch), len(batch), negatives.numel()])
            loss = self.loss(asked, operators, index, anchor, target, negative, batch[:, 1], generator)
        operator_gradient, row_gradient = torch.autograd.grad(loss, [operators, used])
        return Gradients(loss.detach(), operator_gradient, RowGradients(ids, row_gradient))

    def loss(
        self,
        asked: Questions,
        operators: Tensor,
        index: Tensor,
        anchor: Tensor,
        target: Tensor,
        negative: Tensor,
        relation: Tensor,
        generator: torch.Generator,
    ) -> Tensor:
        recipe = self.recipe
        query = asked.queries(self.relations, operators, index, anchor)
        positive, negative = self.relations.candidates(target), self.relations.candidates(negative)
        loss = F.softplus(-(query * positive).sum(-1))
        if recipe.share_negatives:  # one product a chunk
            chunks = zip(query.split(recipe.share_negatives), negative.split(recipe.negatives), strict=True)
            scores = torch.cat([part @ shared.T for part, shared in chunks])
        else:
            negative = negative.view(len(query), recipe.negatives, -1)
            scores = torch.einsum("bd,bkd->bk", query, negative)
        if recipe.adversarial:  # harder negatives weigh more (Sun et al., 2019)
            weights = torch.softmax(recipe.adversarial * scores.detach(), dim=-1)
            loss = loss + (weights * F.softplus(scores)).sum(-1)
        else:
            loss = loss + F.softplus(scores).sum(-1)
        if recipe.skew_probability:
            assert self.skew is not None
            swapped = Questions(asked.targets, asked.anchors, asked.half)  # (t, r, h)
            score = (swapped.queries(self.relations, operators, index, target) * self.relations.candidates(anchor)).sum(
                -1
            )
            coin = torch.rand(len(score), generator=generator, device=score.device) < recipe.skew_probability
            loss = loss + F.softplus(score) * (coin & self.skew[relation])
        if recipe.component_weight:
            margin = _components(query * positive)[:, None] - _components(query[:, None] * negative)
            loss = loss + recipe.component_weight * F.softplus(-margin).sum(-1).mean(-1)
        return loss.mean() + regulariser(recipe, anchor, target)

    # --- the same with its gradients written out -----------------------------------------------

    @property
    def decay(self) -> float:
        return self.recipe.regulariser_weight if self.recipe.regulariser == "l2" else 0.0

    def by_hand(
        self, entities: Tensor, operators: Tensor, index: Tensor, batch: Tensor, negatives: Tensor
    ) -> Gradients:
        """d/dφ of softplus(-φ) and softplus(φ) are known; only the queries are left to autograd."""
        asked = Questions.of(batch)
        size = len(batch)
        operators = operators.detach().requires_grad_()
        anchor = entities.index_select(0, asked.anchors).requires_grad_()
        with torch.enable_grad():
            asked_queries = asked.queries(self.relations, operators, index, anchor)
        query, target = asked_queries.detach(), entities.index_select(0, asked.targets)
        negative = self._gather(entities, negatives)  # [chunks, k, 2L]; a chunk is one question unless they share
        share = self.recipe.share_negatives or 1
        chunks = self._chunks(query, len(negatives), share)
        positive_score = (query * target).sum(-1)
        scores = torch.bmm(chunks, negative.mT).flatten(0, 1)[:size]  # [B, k]
        loss = (F.softplus(-positive_score) + F.softplus(scores).sum(-1)).mean()
        positive_weight = -torch.sigmoid(-positive_score)[:, None] / size
        weights = torch.sigmoid_(scores).div_(size)
        chunk_weights = self._chunks(weights, len(negatives), share)
        query_gradient = torch.bmm(chunk_weights, negative).flatten(0, 1)[:size].addcmul_(positive_weight, target)
        operator_gradient, anchor_gradient = torch.autograd.grad(asked_queries, [operators, anchor], query_gradient)
        penalty, decay = regulariser_gradient(self.recipe, torch.cat([anchor.detach(), target]), size)
        own = [anchor_gradient + decay[:size], torch.addcmul(decay[size:], positive_weight, query)]
        if self.recipe.share_negatives:  # each negative has a gradient from all questions of its chunk
            shared = torch.bmm(chunk_weights.mT, chunks).flatten(0, 1)
            ids = torch.cat([asked.anchors, asked.targets, negatives.flatten()])
            uses = RowGradients(ids, torch.cat([*own, shared]))
        else:
            uses = self.row_gradients(asked, negatives, torch.cat([*own, query]), weights)
        return Gradients(loss + penalty, operator_gradient, uses)

    @staticmethod
    def _chunks(rows: Tensor, chunks: int, share: int) -> Tensor:
        """Rows [B, d] as [chunks, share, d]; the last chunk is filled up with zeros."""
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
        asked = Questions.of(batch)
        losses, operator_gradient, vectors, weights = compiled.block_logistic(
            entities, operators, index, asked.anchors, asked.targets, negatives, asked.half, self.decay
        )
        loss = losses.mean()
        if self.decay:
            rows = entities[torch.cat([asked.anchors, asked.targets])]
            loss = loss + self.decay * 0.5 * rows.square().sum() / len(batch)
        return Gradients(loss, operator_gradient, self.row_gradients(asked, negatives, vectors, weights))

    @staticmethod
    def row_gradients(asked: Questions, negatives: Tensor, vectors: Tensor, weights: Tensor) -> RowGradients:
        """vectors [3B, 2L]: gradients of anchors and of targets, then the queries that negatives weigh."""
        size, k = negatives.shape
        own = torch.arange(2 * size, device=vectors.device)
        queries = torch.arange(2 * size, 3 * size, device=vectors.device).repeat_interleave(k, output_size=size * k)
        return RowGradients(
            ids=torch.cat([asked.anchors, asked.targets, negatives.flatten()]),
            vectors=vectors,
            source=torch.cat([own, queries]),
            weights=torch.cat([torch.ones(2 * size, device=vectors.device), weights.flatten()]),
        )


def _components(products: Tensor) -> Tensor:
    """Element-wise products [..., 2L] summed within each two-dimensional component: [..., L]."""
    x, y = products.chunk(2, dim=-1)
    return x + y


@dataclass(frozen=True)
class SampledPaths:
    """Walks that begin with the first edges of a batch."""

    relations: Tensor  # [n, length]; R + r is r walked backwards
    ends: Tensor  # [n]


class SoftmaxLoss:
    """Mean cross-entropy of tails among all entities, plus that of heads, plus the regulariser."""

    compiled = False

    def __init__(
        self,
        recipe: Recipe,
        relations: Relations,
        walks: Walks | None = None,
        *,
        shard: Shard | None = None,
        reference: bool = False,
    ) -> None:
        """shard: this process's entities, where several share them; all figures are then this process's part."""
        self.recipe, self.relations, self.walks, self.reference = recipe, relations, walks, reference
        self.shard = shard

    def __call__(
        self, entities: Tensor, operators: Tensor, index: Tensor, batch: Tensor, generator: torch.Generator
    ) -> Gradients:
        size, shard = len(batch), self.shard or Shard(len(entities))
        operators = operators.detach().requires_grad_()
        paths = self._walk(batch, generator)
        ids = torch.cat([batch[:, 0], batch[:, 2], *(path.ends for path in paths)])
        rows, here = shard.own_rows(entities, ids)
        rows.requires_grad_()
        of_edges = rows[: 2 * size].detach()
        with torch.enable_grad():
            query = torch.cat(
                [
                    self.relations.queries(operators, index, rows[:size], "tail"),
                    self.relations.queries(operators, index, rows[size : 2 * size], "head"),
                ]
            )
            if here is not None:  # rows that are elsewhere make no queries here
                query = query * here[: 2 * size]
            table = entities.detach().requires_grad_()
            candidates = self.relations.candidates(table)
            asked = torch.cat([query, *self._path_queries(paths, operators, rows, size)])
            asked = self._drop(asked, generator)
            if here is not None:
                asked = asked * torch.cat([here[: 2 * size], *self._path_anchors(paths, here, size)])
        targets, mean = torch.cat([batch[:, 2], batch[:, 0], *self._path_targets(paths, batch)]), 1 / size
        if self.reference:
            loss, query_gradient, entity_gradient = cross_entropy(asked, candidates, targets, scale=mean)
        else:
            loss, query_gradient, entity_gradient = tiled_cross_entropy(
                shard.sum(asked.detach().clone()) if here is not None else asked.detach(),
                candidates.detach(),
                shard.local_index(targets),
                scale=mean,
                precision=self.recipe.precision,
                combine=None if shard.is_single else shard.logsumexp,
            )
        outputs, gradients = [asked], [shard.sum(query_gradient)]
        if self.recipe.relation_weight:
            assert isinstance(self.relations, BlockRelations)
            with torch.enable_grad():  # head and tail may lie in two processes; each asks a part of the whole
                both = rows[: 2 * size] if here is None else _with_others(rows[: 2 * size], here[: 2 * size], shard)
                scores = self.relations.relation_scores(operators, both[:size], both[size:])
                third = self.recipe.relation_weight * F.cross_entropy(scores, index) / shard.world
            outputs, gradients = [*outputs, third], [*gradients, torch.ones_like(third)]
            loss = loss + third.detach() * size
        penalty, penalty_gradient = regulariser_gradient(self.recipe, of_edges, size)
        if self.recipe.regulariser == "dura":  # the other half: ‖Rᵀh‖² and ‖Rt‖², which are the queries
            more, more_gradient = regulariser_gradient(self.recipe, query.detach(), size)
            outputs, gradients, penalty = [*outputs, query], [*gradients, more_gradient], penalty + more
        operator_gradient, row_gradient = torch.autograd.grad(outputs, [operators, rows], gradients)
        if candidates is not table:
            (entity_gradient,) = torch.autograd.grad(candidates, table, entity_gradient)
        row_gradient[: 2 * size] += penalty_gradient
        entity_gradient.index_add_(
            0, shard.local_index(ids).clamp(0, len(entities) - 1), row_gradient
        )  # 0 if elsewhere
        return Gradients(loss / size + penalty, operator_gradient, entity_gradient)

    # --- paths beside the edges ----------------------------------------------------------------

    def _walk(self, batch: Tensor, generator: torch.Generator) -> list[SampledPaths]:
        """Edges of the batch continued by random steps: as many as the recipe asks for, of each length alike."""
        if self.walks is None:
            return []
        lengths = range(2, self.recipe.path_length + 1)
        share = int(self.recipe.paths * len(batch)) // len(lengths)
        paths = []
        for length in lengths:
            more, ends = self.walks.sample(batch[:share, 2], length - 1, generator)
            paths.append(SampledPaths(torch.cat([batch[:share, 1:2], more], dim=1), ends))
        return paths

    def _path_queries(self, paths: list[SampledPaths], operators: Tensor, rows: Tensor, size: int) -> list[Tensor]:
        """R_nᵀ … R_1ᵀ h asks for a path's end, R_1 … R_n t for its start; a step back is the transposed operator."""
        if not paths:
            return []
        a, b, c, d = operators.unbind(1)
        both_ways = torch.cat([operators, torch.stack([a, c, b, d], dim=1)])
        queries, start = [], 2 * size
        for path in paths:
            count, length = path.relations.shape
            forwards, backwards = rows[:count], rows[start : start + count]
            for step in range(length):
                forwards = block_queries(both_ways, path.relations[:, step], forwards, True)
                backwards = block_queries(both_ways, path.relations[:, length - 1 - step], backwards, False)
            queries += [forwards, backwards]
            start += count
        return queries

    @staticmethod
    def _path_anchors(paths: list[SampledPaths], here: Tensor, size: int) -> list[Tensor]:
        """Which path queries have their anchor here, in their order."""
        masks, start = [], 2 * size
        for path in paths:
            masks += [here[: len(path.ends)], here[start : start + len(path.ends)]]
            start += len(path.ends)
        return masks

    @staticmethod
    def _path_targets(paths: list[SampledPaths], batch: Tensor) -> list[Tensor]:
        return [ids for path in paths for ids in (path.ends, batch[: len(path.ends), 0])]

    def _drop(self, query: Tensor, generator: torch.Generator) -> Tensor:
        chance = self.recipe.dropout
        if not chance:
            return query
        kept = torch.rand(query.shape, generator=generator, device=query.device) >= chance
        return query * (kept / (1 - chance))


def _with_others(rows: Tensor, here: Tensor, shard: Shard) -> Tensor:
    """Rows of all processes; the gradient of those that are here is the whole one, though each has but a part."""
    everywhere = shard.sum(rows.detach().clone())
    return torch.where(here, everywhere + shard.world * (rows - rows.detach()), everywhere)


def definitely_skew(train: Triples, num_entities: int, num_relations: int) -> Tensor:
    """Relations of which the training graph holds no reversed pair at all, head = tail left out."""
    if not keys_fit(num_entities, num_relations):
        raise DihedralError(f"skew_probability is for graphs of fewer than 2^63 possible triples; {num_entities} entities "
                            f"and {num_relations} relations make more")  # fmt: skip
    head, relation, tail = train[train[:, 0] != train[:, 2]].astype(np.int64).T
    forward = (relation * num_entities + head) * num_entities + tail
    backward = (relation * num_entities + tail) * num_entities + head
    reversed_too = relation[np.isin(forward, backward)]
    skew = np.zeros(num_relations, dtype=bool)
    skew[relation] = True
    skew[reversed_too] = False
    return torch.from_numpy(skew)
