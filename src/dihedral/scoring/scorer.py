"""The scorer: ids in, ids and scores out, in tiles, on the model's device. It knows no names.

A question is an entity and a signed step (`graph.steps`): the step forwards along r asks for tails of r, the step
backwards asks for heads. All entities are scored by one product of queries and candidates, tile by tile. The score of
the true answer comes from the same product as those it is compared with, so exact ties are found as ties.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cached_property

import torch
from torch import Tensor

from dihedral.engine import compiled
from dihedral.engine.blocks import block_queries
from dihedral.engine.scratch import Scratch
from dihedral.errors import DihedralError
from dihedral.graph.steps import Side, anchors_and_targets, question_steps
from dihedral.models import BlockRelations, Model
from dihedral.runtime.distributed import Shard, any_rank

MEMORY_MB = 256  # of scores at a time
BLOCK = 64  # entities that are represented by their maximum in the search for the best
CPU_QUESTIONS, CPU_ENTITIES = 512, 2048  # a product of this size runs at full speed on a CPU
ROW_ENTITIES = 1024  # the same for few questions, of which rows are wanted
CHUNK = 1 << 14  # triples scored at a time

Answers = Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]
"""Answers of questions (entities [n], steps [n]), flat: (row in the batch, answer), such as `GraphIndex.answers`."""


class Scorer:
    """A model with its operators and candidates prepared for evaluation."""

    def __init__(self, model: Model) -> None:
        self.model = model
        self.operators = model.relations.exact().detach()

    @property
    def device(self) -> torch.device:
        return self.model.entities.device

    @property
    def num_entities(self) -> int:
        return self.model.num_entities

    @property
    def num_relations(self) -> int:
        return self.model.num_relations

    @property
    def entities(self) -> Tensor:
        """The entity table [N, 2L], or this process's rows of it."""
        return self.model.entities.detach()

    @cached_property
    def candidates(self) -> Tensor:
        """The table that queries are multiplied with: [N, width], or this process's rows of it."""
        return self.model.relations.candidates(self.entities)

    # --- scores --------------------------------------------------------------------------------

    @torch.no_grad()
    def score(self, triples: Tensor) -> Tensor:
        """φ(h, r, t) = hᵀRt of each triple [n, 3]."""
        if not len(triples):
            return torch.zeros(0, device=self.device)
        return torch.cat([self._score(part) for part in triples.long().to(self.device).split(CHUNK)])

    def _score(self, triples: Tensor) -> Tensor:
        heads, relations, tails = triples.unbind(-1)
        found = self.model.relations.candidates(self.model.shard.rows(self.entities, tails))
        return (self.queries(heads, relations) * found).sum(-1)

    @cached_property
    def blocks(self) -> BlockRelations:
        """The relations of a model of 2x2 blocks."""
        relations = self.model.relations
        if not isinstance(relations, BlockRelations):
            raise DihedralError(f"relations of a {relations.kind!r} model are not 2x2 blocks, which this needs")
        return relations

    @torch.no_grad()
    def relation_scores(self, heads: Tensor, tails: Tensor) -> Tensor:
        """φ(h, r, t) of every relation between entity vectors [n, 2L]: [n, R]; for models of 2x2 blocks."""
        return self.blocks.relation_scores(self.operators[: self.num_relations], heads, tails)

    @cached_property
    def step_operators(self) -> Tensor:
        """The operators [2R, 4, L] of all signed steps, for models of 2x2 blocks."""
        return self.blocks.step_operators(self.operators)

    @torch.no_grad()
    def queries(self, entities: Tensor, steps: Tensor) -> Tensor:
        """The queries [n, width] of questions (entities [n], steps [n])."""
        return self.queries_from(self.model.shard.rows(self.entities, entities), steps)

    @torch.no_grad()
    def walk(self, vectors: Tensor, steps: Tensor) -> Tensor:
        """Vectors [n, 2L] after one step each [n]: Rᵀx forwards, Rx backwards. Steps compose by walking again."""
        walked = self.queries_from(vectors, steps)
        if walked.shape != vectors.shape:
            raise DihedralError(f"relations of a {self.model.relations.kind!r} model do not compose by products")
        return walked

    def queries_from(self, vectors: Tensor, steps: Tensor) -> Tensor:
        """The queries [n, width] of steps [n] from vectors [n, 2L]; differentiable."""
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

    def tile_rows(self, memory_mb: int = MEMORY_MB) -> int:
        """How many rows of scores to hold at a time; the same on all ranks."""
        if memory_mb < 1:
            raise DihedralError(f"memory_mb is {memory_mb}; scores need at least 1 MiB")
        rows = max(1, memory_mb * 2**20 // (4 * self.model.shard.max_rows))
        return rows if self.device.type == "cuda" else min(rows, CPU_QUESTIONS)

    @torch.no_grad()
    def tiles(self, entities: Tensor, steps: Tensor, memory_mb: int = MEMORY_MB) -> Iterator[tuple[slice, Tensor]]:
        """Scores of all candidates, tile by tile: the questions, and their scores [n, N].

        A tile lies in scratch memory: the next one overwrites it.
        """
        rows, scratch = self.tile_rows(memory_mb), Scratch()
        for start in range(0, len(entities), rows):
            part = slice(start, start + rows)
            yield part, score_all(self.queries(entities[part], steps[part]), self.candidates, scratch)

    # --- the best answers ----------------------------------------------------------------------

    @torch.no_grad()
    def top(
        self,
        entities: Tensor,
        steps: Tensor,
        count: int = 10,
        *,
        exclude: Answers | None = None,
        allowed: Tensor | None = None,
        memory_mb: int = MEMORY_MB,
    ) -> tuple[Tensor, Tensor]:
        """The best answers of questions (entities [n], steps [n]): ids and scores, each [n, count].

        Answers that `exclude` gives and entities outside the mask `allowed` [N] have the score -inf and come last.
        """
        if count < 1:
            raise DihedralError(f"count is {count}; ask for at least 1 answer")
        shard = self.model.shard
        count = min(count, shard.num_rows)
        found = []
        for part, scores in self.tiles(entities, steps, memory_mb):
            if exclude is not None:
                row, answer = exclude(entities[part], steps[part])
                place, answer = shard.find(answer)
                scores[row[place], answer] = float("-inf")
            if allowed is not None:
                scores[:, ~allowed[shard.ids(allowed.device)]] = float("-inf")
            found.append(shard.best(*best_answers(scores, min(count, scores.shape[1])), count))
        if not found:
            return steps.long().new_empty(0, count), self.candidates.new_empty(0, count)
        ids, values = zip(*found, strict=True)
        return torch.cat(ids), torch.cat(values)

    # --- ranks ---------------------------------------------------------------------------------

    @torch.no_grad()
    def rank_counts(
        self, triples: Tensor, side: Side, known: Answers, *, memory_mb: int = MEMORY_MB
    ) -> tuple[Tensor, Tensor]:
        """How many other candidates score higher than the answers of triples [n, 3], and how many the same.

        Known answers do not count; `known` must give those of the triples themselves too.
        """
        is_broken = not bool(torch.isfinite(self.candidates).all() and torch.isfinite(self.operators).all())
        if not self.model.shard.is_single:  # the ranks decide together; one of them may rank a whole model alone
            is_broken = any_rank(is_broken, self.device)
        if is_broken:
            raise DihedralError("the model holds numbers that are not finite; it cannot be ranked")
        rows = self.tile_rows(memory_mb)
        anchors, relations, targets = anchors_and_targets(triples.long(), side)
        steps = question_steps(relations, side, self.num_relations)
        # equal questions are adjacent, so that each is multiplied once
        keys, order = torch.sort(anchors * (2 * self.num_relations) + steps, stable=True)
        greater = torch.empty(len(triples), dtype=torch.long, device=triples.device)
        equal = torch.empty_like(greater)
        if not len(triples):
            return greater, equal
        scratch = Scratch()
        for part, key in zip(order.split(rows), keys.split(rows), strict=True):
            question, row = torch.unique_consecutive(key, return_inverse=True)
            query = self.queries(question // (2 * self.num_relations), question % (2 * self.num_relations))
            scores = score_all(query, self.candidates, scratch)
            answers = known(question // (2 * self.num_relations), question % (2 * self.num_relations))
            greater[part], equal[part] = count_ranks(scores, targets[part], *answers, self.model.shard, row)
        return greater, equal


def count_ranks(
    scores: Tensor,
    targets: Tensor,
    rows: Tensor,
    known: Tensor,
    shard: Shard | None = None,
    row_of: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Counts of greater and equal other candidates, known answers left out.

    scores [batch, N]; targets [n]; known answers as flat pairs (rows, known), targets among them.
    shard: the scores are those of this rank's entities; the counts are those of all ranks.
    row_of: the row of scores of each target, ascending [n]; by default each has its own.
    """
    shard = shard or Shard(scores.shape[1])
    row_of = torch.arange(len(targets), device=targets.device) if row_of is None else row_of
    if shard.is_single:
        true = scores[row_of, targets]  # [n]
    else:
        place, column = shard.find(targets)
        true = scores.new_zeros(len(targets))
        true[place] = scores[row_of[place], column]
        true = shard.sum(true)
        place, known = shard.find(known)
        rows = rows[place]
    if not torch.isfinite(true).all():  # nothing compares with NaN, so it would rank first
        raise DihedralError("the model gives scores that are not finite; it cannot be ranked")
    greater, equal = torch.empty_like(targets), torch.empty_like(targets)
    first = torch.diff(row_of, prepend=row_of.new_full((1,), -1)) > 0  # one target per row, then the others
    greater[first], equal[first] = _compare(scores, true[first])
    if not first.all():
        greater[~first], equal[~first] = _compare(scores.T.index_select(1, row_of[~first]).T, true[~first])
    known_greater, known_equal = _compare_known(scores[rows, known], rows, true, row_of)
    return shard.sum(greater - known_greater), shard.sum(equal - known_equal)


def _compare(scores: Tensor, true: Tensor) -> tuple[Tensor, Tensor]:
    """How many of scores [n, N] are greater than true [n], and how many equal."""
    if compiled.available() and scores.device.type == "cpu" and scores.T.is_contiguous():
        return compiled.count_ranks(scores.T, true)
    return (scores > true[:, None]).sum(1), (scores == true[:, None]).sum(1)


def _compare_known(values: Tensor, rows: Tensor, true: Tensor, row_of: Tensor) -> tuple[Tensor, Tensor]:
    """How many of the values of a row are greater than true [n], and how many equal; row_of [n] is the row of each.

    The values are sorted once, because many questions may ask for the same million known answers.
    """
    order = values.argsort()
    order = order[rows[order].argsort(stable=True)]
    values, rows = values[order], rows[order]
    start, end = (torch.searchsorted(rows, row_of, right=right) for right in (False, True))
    bounds = []
    for right in (False, True):
        low, high = start.clone(), end.clone()
        while bool((low < high).any()):  # bisection in each row
            middle = (low + high) // 2
            value = values[middle.clamp(max=max(len(values) - 1, 0))]
            after = ((value <= true) if right else (value < true)) & (low < high)
            low, high = torch.where(after, middle + 1, low), torch.where(after | (low >= high), high, middle)
        bounds.append(low)
    return end - bounds[1], bounds[1] - bounds[0]


def score_all(queries: Tensor, candidates: Tensor, scratch: Scratch) -> Tensor:
    """Scores [batch, N] of all candidates; on a CPU in blocks, and transposed in memory, which is fastest there.

    They lie in scratch memory: the next call overwrites them.
    """
    if queries.is_cuda:
        return queries @ candidates.T
    if len(queries) == 1:  # a product with two vectors is faster than one with a single vector
        return score_all(queries.expand(2, -1).contiguous(), candidates, scratch)[:1]
    scores = scratch.take("scores", (len(candidates), len(queries)), candidates.device)
    for part, block in zip(candidates.split(CPU_ENTITIES), scores.split(CPU_ENTITIES), strict=True):
        torch.mm(part, queries.T, out=block)
    return scores.T


def score_rows(queries: Tensor, candidates: Tensor) -> Tensor:
    """The same with one row per query in memory [batch, N], for what is done with rows; the caller owns it."""
    if queries.is_cuda:
        return queries @ candidates.T
    if len(queries) == 1:
        return torch.mv(candidates, queries[0])[None]
    scores = queries.new_empty(len(queries), len(candidates))
    scratch = queries.new_empty(ROW_ENTITIES, len(queries))
    for part, block in zip(candidates.split(ROW_ENTITIES), scores.split(ROW_ENTITIES, 1), strict=True):
        block.copy_(torch.mm(part, queries.T, out=scratch[: len(part)]).T)
    return scores


def best_answers(scores: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """The `count` highest of scores [batch, N]: ids and scores, best first.

    The best lie in the blocks with the highest maxima, so only `count` blocks per row are sorted.
    """
    batch, size = scores.shape
    in_blocks = size // BLOCK * BLOCK
    if scores.is_cuda or in_blocks // BLOCK < 4 * count:
        best = scores.topk(count)
        return best.indices, best.values
    maxima = scores.T[:in_blocks].view(-1, BLOCK, batch).amax(1)  # [blocks, batch]
    blocks = maxima.T.topk(count).indices  # [batch, count]
    ids = (blocks[:, :, None] * BLOCK + torch.arange(BLOCK, device=scores.device)).flatten(1)
    rest = torch.arange(in_blocks, size, device=scores.device).expand(batch, -1)
    ids = torch.cat([ids, rest], dim=1)
    best = scores.gather(1, ids).topk(count)
    return ids.gather(1, best.indices), best.values
