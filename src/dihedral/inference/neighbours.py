"""Approximate answers for large graphs: a navigable graph over the entity table through faiss (extra `ann`).

Every score is an inner product of a query with a candidate, so nearest-neighbour search answers questions (HNSW,
Malkov & Yashunin 2018). How wide a search goes is chosen when the index is built: as little as gives the wanted share
of the exact best ten on questions of training.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from dihedral.errors import DihedralError
from dihedral.graph.known import anchors_and_targets
from dihedral.graph.steps import SIDES, Side
from dihedral.inference.predictor import Known, Predictor

SAMPLE = 512  # questions that the search is tuned on
BEST = 10
LINKS, BUILD_WIDTH = 32, 80  # of the graph over the table
MAX_WIDTH = 2048


class NearestAnswers:
    """Answers questions like `Predictor.top`, by a walk through the table instead of all of it.

    recall: the share of the exact best ten that is to be found; what was reached is kept in `recall`.
    """

    def __init__(self, predictor: Predictor, *, recall: float = 0.99, seed: int = 0) -> None:
        if not 0 < recall <= 1:
            raise DihedralError(f"recall is {recall}; it must be over 0 and at most 1")
        faiss = _faiss()
        self.predictor = predictor
        table = np.ascontiguousarray(predictor.candidates.float().cpu().numpy())
        self.index = faiss.IndexHNSWFlat(table.shape[1], LINKS, faiss.METRIC_INNER_PRODUCT)
        self.index.hnsw.efConstruction = BUILD_WIDTH
        self.index.add(table)
        self.recall = self._tune(recall, seed)

    def _tune(self, wanted: float, seed: int) -> float:
        """Search twice as wide until the wanted share of the exact best is found; the share that was."""
        train = self.predictor.graph.train
        rows = train[np.random.default_rng(seed).permutation(len(train))[:SAMPLE]].astype(np.int64)
        sample = torch.from_numpy(rows).to(self.predictor.device)
        share, self.index.hnsw.efSearch = 0.0, 2 * BEST
        exact = {side: self.predictor.top(*anchors_and_targets(sample, side)[:2], side, BEST)[0] for side in SIDES}
        while True:
            found = {side: self.top(*anchors_and_targets(sample, side)[:2], side)[0] for side in SIDES}
            share = float(np.mean([_overlap(found[side], exact[side]) for side in SIDES]))
            if share >= wanted or self.index.hnsw.efSearch >= MAX_WIDTH:
                return share
            self.index.hnsw.efSearch *= 2

    @torch.no_grad()
    def top(
        self, anchors: Tensor, relations: Tensor, side: Side, count: int = BEST, *, known: Known = "include"
    ) -> tuple[Tensor, Tensor]:
        """Ids and scores, each [questions, count]; a place that nothing was found for has id -1 and score -inf."""
        if known not in ("include", "exclude"):
            raise DihedralError(f"known is {known!r}; choose include or exclude")
        if count < 1:
            raise DihedralError(f"count is {count}; ask for at least 1 answer")
        predictor = self.predictor
        queries = predictor.model.queries(anchors, relations, side, predictor.operators)
        rows = np.ascontiguousarray(queries.float().cpu().numpy())
        more = 0
        if known == "exclude":  # so many more that `count` are left without them
            row, answers = predictor.known[side].of(anchors, relations)
            more = int(torch.bincount(row, minlength=1).max()) if len(row) else 0
        scores, ids = (
            torch.from_numpy(part) for part in self.index.search(rows, min(count + more, len(predictor.candidates)))
        )
        scores[ids < 0] = float("-inf")
        if more:
            entities = predictor.graph.num_entities  # a number for each (question, entity)
            place = torch.arange(len(ids))[:, None] * entities
            scores[torch.isin(place + ids, (row * entities + answers).cpu())] = float("-inf")
            scores, order = scores.sort(dim=1, descending=True, stable=True)
            ids = ids.gather(1, order)
        ids, scores = ids[:, :count], scores[:, :count]
        return torch.where(scores == float("-inf"), -1, ids).to(predictor.device), scores.to(predictor.device)


def _overlap(found: Tensor, exact: Tensor) -> float:
    return float((found[:, :, None] == exact[:, None, :]).any(dim=1).float().mean())


def _faiss() -> Any:
    try:
        import faiss
    except ImportError:
        raise DihedralError("an index needs faiss; install it with: pip install 'dihedral[ann]'") from None
    return faiss
