"""The contract of every scorer: ids in, ids and scores out, on the model's device; and selection by scores.

A question is an entity and a signed step: forwards along r it asks for tails of r, backwards for heads.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from dihedral.engine import compiled
from dihedral.errors import DihedralError
from dihedral.graph.steps import Side
from dihedral.runtime.distributed import Shard

MEMORY_MB = 256  # for scores, at a time
BLOCK = 64  # entities that are represented by their maximum in the search for the best

AnswerLookup = Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]
"""Answers of questions (entities [n], steps [n]), flat: (row in the batch, answer), such as `GraphIndex.answers`."""

RowScores = Callable[[Tensor, Tensor], Tensor]
"""Scores of questions (entities [n], steps [n]): one row per question."""


class Scorer(ABC):
    """Scores of triples and of the answers to questions, of some questions at a time with all candidates."""

    device: torch.device
    num_entities: int
    num_relations: int
    max_questions: float  # that a fit of probabilities may ask; infinite where they take no time of their own
    shard: Shard  # the candidates of this process
    row_bytes: int  # memory for one question
    max_rows: int  # questions of a tile

    @abstractmethod
    def score(self, triples: Tensor, side: Side = "tail") -> Tensor:
        """The scores [n] of triples [n, 3], each as an answer to the question for this side, and as if not known."""

    @abstractmethod
    def rows(self, among: Tensor | None = None) -> RowScores:
        """A function that scores questions with all candidates [n, N], or with some [n, len(among)].

        What the questions share is prepared once. The caller owns each result.
        """

    @abstractmethod
    def tiles(self, entities: Tensor, steps: Tensor, memory_mb: int = MEMORY_MB) -> Iterator[tuple[slice, Tensor]]:
        """Scores of all candidates, tile by tile: the questions, and their scores [n, N], which may be overwritten."""

    @abstractmethod
    def rank_counts(
        self, triples: Tensor, side: Side, known: AnswerLookup, *, memory_mb: int = MEMORY_MB
    ) -> tuple[Tensor, Tensor]:
        """How many other candidates score higher than the answers of triples [n, 3], and how many the same.

        Known answers do not count; `known` must give those of the triples themselves too.
        """

    def tile_rows(self, memory_mb: int = MEMORY_MB) -> int:
        """How many questions to score at a time; the same on all ranks."""
        if memory_mb < 1:
            raise DihedralError(f"memory_mb is {memory_mb}; scores need at least 1 MiB")
        return max(1, min(self.max_rows, memory_mb * 2**20 // self.row_bytes))

    @torch.no_grad()
    def top(
        self, entities: Tensor, steps: Tensor, count: int, *, exclude: AnswerLookup | None = None,
        allowed: Tensor | None = None, memory_mb: int = MEMORY_MB,
    ) -> tuple[Tensor, Tensor]:  # fmt: skip
        """The best answers of questions (entities [n], steps [n]): ids and scores, each [n, count].

        Answers that `exclude` gives and entities outside the mask `allowed` [N] have the score -inf and come last.
        """
        if count < 1:
            raise DihedralError(f"count is {count}; ask for at least 1 answer")
        count, found, shard = min(count, self.shard.num_rows), [], self.shard
        for part, scores in self.tiles(entities, steps, memory_mb):
            if exclude is not None:
                row, answer = exclude(entities[part], steps[part])
                place, answer = shard.find(answer)
                scores[row[place], answer] = float("-inf")
            if allowed is not None:
                scores[:, ~allowed[shard.ids(allowed.device)]] = float("-inf")
            found.append(shard.best(*best_answers(scores, min(count, scores.shape[1])), count))
        if not found:
            return steps.long().new_empty(0, count), steps.new_empty(0, count, dtype=torch.float32)
        ids, values = zip(*found, strict=True)
        return torch.cat(ids), torch.cat(values)


# --- selection from rows of scores ---------------------------------------------------------------


def best_answers(scores: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """Ids, scores of the `count` highest of [batch, N], best first: all are in the blocks with the highest maxima."""
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


def count_ranks(
    scores: Tensor, targets: Tensor, rows: Tensor, known: Tensor, shard: Shard | None = None,
    row_of: Tensor | None = None,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """Counts of greater and equal other candidates, known answers left out; their scores are overwritten.

    scores [batch, N]; targets [n]; known answers as flat pairs (rows, known), targets among them.
    shard: the scores are those of this rank's entities; the counts are those of all ranks.
    row_of: the row of scores of each target, ascending [n]; by default each has its own.
    """
    shard = shard or Shard(scores.shape[1])
    row_of = torch.arange(len(targets), device=targets.device) if row_of is None else row_of
    place, column = shard.find(targets)
    true = scores.new_zeros(len(targets))
    true[place] = scores[row_of[place], column]
    true = shard.sum(true)
    if not torch.isfinite(true).all():  # nothing compares with NaN, so it would rank first
        raise DihedralError("the model gives scores that are not finite; it cannot be ranked")
    place, known = shard.find(known)
    scores[rows[place], known] = float("-inf")
    greater, equal = torch.empty_like(targets), torch.empty_like(targets)
    first = torch.diff(row_of, prepend=row_of.new_full((1,), -1)) > 0  # one target per row, then the others
    greater[first], equal[first] = _compare(scores, true[first])
    if not first.all():
        greater[~first], equal[~first] = _compare(scores.T.index_select(1, row_of[~first]).T, true[~first])
    return shard.sum(greater), shard.sum(equal)


def _compare(scores: Tensor, true: Tensor) -> tuple[Tensor, Tensor]:
    """How many of scores [n, N] are greater than true [n], and how many equal."""
    if compiled.available() and scores.device.type == "cpu" and scores.T.is_contiguous():
        return compiled.count_ranks(scores.T, true)
    return (scores > true[:, None]).sum(1), (scores == true[:, None]).sum(1)
