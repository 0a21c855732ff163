"""Filtered ranks: where the true answer stands among all entities that are not known answers.

Ranks are counted in whole row tiles of the score matrix, so memory stays under a limit and the true
score is compared with numbers from the very same product: exact ties are found as ties.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from dihedral.engine import compiled
from dihedral.engine.scratch import Scratch
from dihedral.errors import DihedralError
from dihedral.graph.known import KnownAnswers, anchors_and_targets
from dihedral.graph.steps import Side
from dihedral.models import Model
from dihedral.runtime.distributed import Shard, any_rank

MEMORY_MB = 256  # of scores at a time
BLOCK = 64  # entities whose maximum stands for them in a search for the best
CPU_QUESTIONS, CPU_ENTITIES = 512, 2048  # a product of this size runs at full speed on a CPU


@dataclass(frozen=True)
class Ranks:
    """For each triple, how many other candidates score higher and how many the same."""

    greater: NDArray[np.int64]
    equal: NDArray[np.int64]

    @property
    def optimistic(self) -> NDArray[np.floating[Any]]:
        return 1.0 + self.greater

    @property
    def pessimistic(self) -> NDArray[np.floating[Any]]:
        return 1.0 + self.greater + self.equal

    @property
    def realistic(self) -> NDArray[np.floating[Any]]:
        return 1.0 + self.greater + self.equal / 2

    def __getitem__(self, which: NDArray[np.bool_]) -> Ranks:
        return Ranks(self.greater[which], self.equal[which])

    @staticmethod
    def join(parts: list[Ranks]) -> Ranks:
        return Ranks(np.concatenate([p.greater for p in parts]), np.concatenate([p.equal for p in parts]))


def ranks_from_scores(
    scores: Tensor, targets: Tensor, rows: Tensor, known: Tensor, shard: Shard | None = None
) -> tuple[Tensor, Tensor]:
    """Counts of greater and equal other candidates, known answers left out.

    scores [batch, N]; targets [batch]; known answers as flat pairs (rows, known), targets among them.
    shard: where the scores are those of this process's entities; the counts are those of all.
    """
    shard = shard or Shard(scores.shape[1])
    if shard.is_single:
        true = scores.gather(1, targets[:, None])  # [batch, 1]
    else:
        place, column = shard.find(targets)
        true = scores.new_zeros(len(scores), 1)
        true[place, 0] = scores[place, column]
        true = shard.sum(true)
        place, known = shard.find(known)
        rows = rows[place]
    if not torch.isfinite(true).all():  # nothing compares with NaN, so it would rank first
        raise DihedralError("the model gives scores that are not finite; it cannot be ranked")
    known_scores, known_true = scores[rows, known], true[rows, 0]
    if compiled.available() and scores.device.type == "cpu" and scores.T.is_contiguous():
        greater, equal = compiled.count_ranks(scores.T, true[:, 0])
    else:
        greater, equal = (scores > true).sum(1), (scores == true).sum(1)
    greater.index_add_(0, rows, (known_scores > known_true).long(), alpha=-1)
    equal.index_add_(0, rows, (known_scores == known_true).long(), alpha=-1)
    return shard.sum(greater), shard.sum(equal)


def score_all(queries: Tensor, candidates: Tensor, scratch: Scratch) -> Tensor:
    """Scores [batch, N] of all candidates; on a CPU in blocks, and transposed in memory, which is fastest there.

    They lie in scratch memory: the next call overwrites them.
    """
    if queries.is_cuda:
        return queries @ candidates.T
    if len(queries) == 1:  # two at once are faster than a product with one vector
        return score_all(queries.expand(2, -1).contiguous(), candidates, scratch)[:1]
    scores = scratch.take("scores", (len(candidates), len(queries)), candidates.device)
    for part, block in zip(candidates.split(CPU_ENTITIES), scores.split(CPU_ENTITIES), strict=True):
        torch.mm(part, queries.T, out=block)
    return scores.T


def best_answers(scores: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """The `count` highest of scores [batch, N]: ids and scores, best first.

    The best lie in the blocks with the highest maxima, so only `count` blocks of each row are sorted.
    """
    batch, size = scores.shape
    whole = size // BLOCK * BLOCK
    if scores.is_cuda or whole // BLOCK < 4 * count:
        best = scores.topk(count)
        return best.indices, best.values
    maxima = scores.T[:whole].view(-1, BLOCK, batch).amax(1)  # [blocks, batch]
    blocks = maxima.T.topk(count).indices  # [batch, count]
    ids = (blocks[:, :, None] * BLOCK + torch.arange(BLOCK)).flatten(1)
    rest = torch.arange(whole, size).expand(batch, -1)
    ids = torch.cat([ids, rest], dim=1)
    best = scores.gather(1, ids).topk(count)
    return ids.gather(1, best.indices), best.values


def tile_rows(model: Model, memory_mb: int) -> int:
    """How many rows of scores to hold at a time; all processes say the same."""
    if memory_mb < 1:
        raise DihedralError(f"memory_mb is {memory_mb}; scores need at least 1 MiB")
    rows = max(1, memory_mb * 2**20 // (4 * model.shard.max_rows))
    return rows if model.entities.is_cuda else min(rows, CPU_QUESTIONS)


@torch.no_grad()
def rank_triples(
    model: Model, triples: Tensor, side: Side, known: KnownAnswers, *, memory_mb: int = MEMORY_MB
) -> Ranks:
    """Filtered ranks of the answers on one side of triples [n, 3]; `known` must hold those triples."""
    operators, candidates = model.relations.exact(), model.candidates().detach()
    finite = bool(torch.isfinite(candidates).all() and torch.isfinite(operators).all())
    if any_rank(not finite, candidates.device):
        raise DihedralError("the model holds numbers that are not finite; it cannot be ranked")
    rows_at_once = tile_rows(model, memory_mb)
    anchors, relations, targets = anchors_and_targets(triples.long(), side)
    # equal questions stand together, so that each is multiplied once
    keys, order = torch.sort(anchors * model.num_relations + relations, stable=True)
    greater = torch.empty(len(triples), dtype=torch.long, device=triples.device)
    equal = torch.empty_like(greater)
    scratch = Scratch()
    for part, key in zip(order.split(rows_at_once), keys.split(rows_at_once), strict=True):
        anchor, relation = anchors[part], relations[part]
        question, row = torch.unique_consecutive(key, return_inverse=True)
        query = model.queries(question // model.num_relations, question % model.num_relations, side, operators)
        scores = score_all(query, candidates, scratch)
        first = torch.diff(row, prepend=row.new_full((1,), -1)) > 0  # one triple a question, then the others
        for chosen, its_scores in ((first, scores), (~first, scores.T.index_select(1, row[~first]).T)):
            which = part[chosen]
            answers = known.of(anchor[chosen], relation[chosen])
            found = ranks_from_scores(its_scores, targets[which], *answers, model.shard)
            greater[which], equal[which] = found
    return Ranks(greater.cpu().numpy(), equal.cpu().numpy())
