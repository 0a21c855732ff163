"""Approximate answers for large graphs: a navigable graph over the candidates through faiss (extra `ann`).

Every score is an inner product of a query with a candidate, so nearest-neighbour search answers questions (HNSW,
Malkov & Yashunin 2018). The search width is chosen when the index is built: the smallest that reaches the wanted recall
of the exact best ten on training questions.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from dihedral.errors import DihedralError
from dihedral.graph.steps import inverse_ids
from dihedral.graph.triples import Triples
from dihedral.scoring.scorer import Answers, Scorer

SAMPLE = 512  # questions that the search width is tuned on
BEST = 10
LINKS, BUILD_WIDTH = 32, 80  # of the HNSW graph
MAX_WIDTH = 2048


class NearestAnswers:
    """Answers questions like `Scorer.top`, by a walk through the candidates instead of scoring all of them.

    triples: their questions tune the search, such as `graph.train`.
    recall: the wanted share of the exact best ten; afterwards, the share that was reached.
    """

    def __init__(self, scorer: Scorer, triples: Triples, *, recall: float = 0.99, seed: int = 0) -> None:
        if not 0 < recall <= 1:
            raise DihedralError(f"recall is {recall}; it must be over 0 and at most 1")
        faiss = _faiss()
        self.scorer = scorer
        table = np.ascontiguousarray(scorer.candidates.float().cpu().numpy())
        self.index = faiss.IndexHNSWFlat(table.shape[1], LINKS, faiss.METRIC_INNER_PRODUCT)
        self.index.hnsw.efConstruction = BUILD_WIDTH
        self.index.add(table)
        self.recall = self._tune(triples, recall, seed)

    def _tune(self, triples: Triples, wanted: float, seed: int) -> float:
        """Double the search width until the wanted recall is reached; returns the recall."""
        rows = triples[np.random.default_rng(seed).permutation(len(triples))[:SAMPLE]].astype(np.int64)
        sample = torch.from_numpy(rows).to(self.scorer.device)
        heads, relations, tails = sample.T
        backwards = inverse_ids(relations, self.scorer.num_relations)
        questions = torch.cat([tails, heads]), torch.cat([backwards, relations])
        exact = self.scorer.top(*questions, BEST)[0]
        self.index.hnsw.efSearch = 2 * BEST
        while True:
            found = self.top(*questions)[0]
            recall = float((found[:, :, None] == exact[:, None, :]).any(dim=1).float().mean())
            if recall >= wanted or self.index.hnsw.efSearch >= MAX_WIDTH:
                return recall
            self.index.hnsw.efSearch *= 2

    @torch.no_grad()
    def top(
        self, entities: Tensor, steps: Tensor, count: int = BEST, *, exclude: Answers | None = None
    ) -> tuple[Tensor, Tensor]:
        """Ids and scores, each [questions, count]; where nothing was found the id is -1 and the score -inf."""
        if count < 1:
            raise DihedralError(f"count is {count}; ask for at least 1 answer")
        scorer, more = self.scorer, 0
        rows = np.ascontiguousarray(scorer.queries(entities, steps).float().cpu().numpy())
        if exclude is not None:  # search for so many more that `count` remain
            row, answers = exclude(entities, steps)
            more = int(torch.bincount(row, minlength=1).max()) if len(row) else 0
        found = self.index.search(rows, min(count + more, scorer.num_entities))
        scores, ids = (torch.from_numpy(part) for part in found)
        scores[ids < 0] = float("-inf")
        if more:
            place = torch.arange(len(ids))[:, None] * scorer.num_entities  # one number per (question, entity)
            scores[torch.isin(place + ids, (row * scorer.num_entities + answers).cpu())] = float("-inf")
            scores, order = scores.sort(dim=1, descending=True, stable=True)
            ids = ids.gather(1, order)
        ids, scores = ids[:, :count], scores[:, :count]
        return torch.where(scores == float("-inf"), -1, ids).to(scorer.device), scores.to(scorer.device)


def _faiss() -> Any:
    try:
        import faiss
    except ImportError:
        raise DihedralError("an index needs faiss; install it with: pip install 'dihedral[ann]'") from None
    return faiss
