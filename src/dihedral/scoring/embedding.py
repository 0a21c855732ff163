"""The scorer of entity vectors: all scores come from one product, tile by tile, so that ties are found as ties."""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import cached_property

import torch
from torch import Tensor

from dihedral.engine.blocks import block_queries
from dihedral.errors import DihedralError
from dihedral.graph.steps import Side, anchors_and_targets, question_steps
from dihedral.models import BlockRelations, Model
from dihedral.runtime.distributed import any_rank
from dihedral.scoring.scorer import MEMORY_MB, AnswerLookup, RowScores, Scorer, count_ranks

CPU_QUESTIONS, CPU_ENTITIES = 512, 2048  # a product of this size runs at full speed on a CPU
ROW_ENTITIES = 1024  # the same for few questions, of which rows are wanted
CHUNK = 1 << 14  # triples scored at a time


class EmbeddingScorer(Scorer):
    """A model with its operators and candidates prepared for scoring."""

    max_questions = math.inf

    def __init__(self, model: Model) -> None:
        self.model, self.device = model, model.entities.device
        self.num_entities, self.num_relations, self.shard = model.num_entities, model.num_relations, model.shard
        self.row_bytes = 4 * self.shard.max_rows
        self.max_rows = 1 << 31 if self.device.type == "cuda" else CPU_QUESTIONS  # on a GPU, memory alone limits them
        self.operators = model.relations.exact().detach()

    @property
    def entities(self) -> Tensor:
        """The entity table [N, 2L], or this process's rows of it."""
        return self.model.entities.detach()

    @cached_property
    def candidates(self) -> Tensor:
        """The table that queries are multiplied with: [N, width], or this process's rows of it."""
        return self.model.relations.candidates(self.entities)

    @torch.no_grad()
    def score(self, triples: Tensor, side: Side = "tail") -> Tensor:
        """φ(h, r, t) = hᵀRt of each triple [n, 3], the same for both sides."""
        found = [torch.zeros(0, device=self.device)]
        for part in triples.long().to(self.device).split(CHUNK) if len(triples) else ():
            heads, relations, tails = part.unbind(-1)
            candidates = self.model.relations.candidates(self.shard.rows(self.entities, tails))
            found.append((self.queries(heads, relations) * candidates).sum(-1))
        return torch.cat(found)

    @cached_property
    def step_operators(self) -> Tensor:
        """The operators [2R, 4, L] of all signed steps, for models of 2x2 blocks."""
        relations = self.model.relations
        if not isinstance(relations, BlockRelations):
            raise DihedralError(f"relations of a {relations.kind!r} model are not 2x2 blocks, which this needs")
        return relations.step_operators(self.operators)

    @torch.no_grad()
    def queries(self, entities: Tensor, steps: Tensor) -> Tensor:
        """The query vectors [n, width] of questions (entities [n], steps [n])."""
        return self.queries_from(self.shard.rows(self.entities, entities), steps)

    def queries_from(self, vectors: Tensor, steps: Tensor) -> Tensor:
        """The query vectors [n, width] of steps [n] from vectors [n, 2L]; differentiable.

        Of bilinear models they are Rᵀx forwards and Rx backwards, from which a further step can be walked.
        """
        backwards = steps >= self.num_relations
        relation = steps - self.num_relations * backwards
        queries = self.model.relations.queries
        if not backwards.any():
            return queries(self.operators, relation, vectors, "tail")
        if backwards.all():
            return queries(self.operators, relation, vectors, "head")
        if isinstance(self.model.relations, BlockRelations):
            return block_queries(self.step_operators, steps, vectors, True)
        forwards = queries(self.operators, relation, vectors, "tail")
        return torch.where(backwards[:, None], queries(self.operators, relation, vectors, "head"), forwards)

    def _scratch(self, questions: int) -> Tensor:
        """Memory for scores on a CPU: page faults in a new large tensor can cost more than the product."""
        return self.candidates.new_empty(0 if self.candidates.is_cuda else max(2, questions) * len(self.candidates))

    @torch.no_grad()
    def tiles(self, entities: Tensor, steps: Tensor, memory_mb: int = MEMORY_MB) -> Iterator[tuple[slice, Tensor]]:
        """As `Scorer.tiles`; the next scores overwrite the last."""
        rows = self.tile_rows(memory_mb)
        scratch = self._scratch(min(rows, len(entities)))
        for start in range(0, len(entities), rows):
            part = slice(start, start + rows)
            yield part, score_all(self.queries(entities[part], steps[part]), self.candidates, scratch)

    def rows(self, among: Tensor | None = None) -> RowScores:
        candidates = self.candidates if among is None else self.candidates[among.to(self.device)]

        @torch.no_grad()
        def score(entities: Tensor, steps: Tensor) -> Tensor:
            queries = self.queries(entities.to(self.device), steps.to(self.device))
            return score_rows(queries, candidates) if among is None else queries @ candidates.T

        return score

    @torch.no_grad()
    def rank_counts(
        self, triples: Tensor, side: Side, known: AnswerLookup, *, memory_mb: int = MEMORY_MB
    ) -> tuple[Tensor, Tensor]:
        is_broken = not bool(torch.isfinite(self.candidates).all() and torch.isfinite(self.operators).all())
        if not self.shard.is_single:  # the ranks decide together; one of them may rank a whole model alone
            is_broken = any_rank(is_broken, self.device)
        if is_broken:
            raise DihedralError("the model holds numbers that are not finite; it cannot be ranked")
        rows = self.tile_rows(memory_mb)
        anchors, relations, targets = anchors_and_targets(triples.long(), side)
        steps = question_steps(relations, side, self.num_relations)
        # equal questions are adjacent, so that each is multiplied once
        num_steps = 2 * self.num_relations
        keys, order = torch.sort(anchors * num_steps + steps, stable=True)
        greater = torch.empty(len(triples), dtype=torch.long, device=triples.device)
        equal = torch.empty_like(greater)
        if not len(triples):
            return greater, equal
        scratch = self._scratch(min(rows, len(triples)))
        for part, key in zip(order.split(rows), keys.split(rows), strict=True):
            question, row = torch.unique_consecutive(key, return_inverse=True)
            asked = question // num_steps, question % num_steps
            scores = score_all(self.queries(*asked), self.candidates, scratch)
            greater[part], equal[part] = count_ranks(scores, targets[part], *known(*asked), self.shard, row)
        return greater, equal


def need_embeddings(scorer: Scorer, purpose: str) -> EmbeddingScorer:
    """The scorer itself; an error that names the purpose if its model has no entity vectors."""
    if not isinstance(scorer, EmbeddingScorer):
        missing = f"{purpose} needs a model with entity vectors, and this model has none"
        raise DihedralError(f"{missing}: train one with --set model=dihedral-gumbel")
    return scorer


def score_all(queries: Tensor, candidates: Tensor, scratch: Tensor) -> Tensor:
    """Scores [batch, N] of queries with all candidates, transposed in memory on a CPU; the next call overwrites it."""
    if queries.is_cuda:
        return queries @ candidates.T
    if len(queries) == 1:  # a product with two vectors is faster than one with a single vector
        return score_all(queries.expand(2, -1).contiguous(), candidates, scratch)[:1]
    scores = scratch[: len(candidates) * len(queries)].view(len(candidates), len(queries))
    for part, block in zip(candidates.split(CPU_ENTITIES), scores.split(CPU_ENTITIES), strict=True):
        torch.mm(part, queries.T, out=block)
    return scores.T


def score_rows(queries: Tensor, candidates: Tensor) -> Tensor:
    """The same with one row per query vector in memory [batch, N], for what is done with rows; the caller owns it."""
    if queries.is_cuda:
        return queries @ candidates.T
    if len(queries) == 1:
        return torch.mv(candidates, queries[0])[None]
    scores = queries.new_empty(len(queries), len(candidates))
    scratch = queries.new_empty(ROW_ENTITIES, len(queries))
    for part, block in zip(candidates.split(ROW_ENTITIES), scores.split(ROW_ENTITIES, 1), strict=True):
        block.copy_(torch.mm(part, queries.T, out=scratch[: len(part)]).T)
    return scores
