"""The belief score of path models: what a model answers in a graph that holds one path along the body and nothing else.

The path leads from x to y. With the score s of y, as an answer to the question (x, r₃, ?), the belief score of the body
and r₃ is the share that y gets of a softmax over as many entities as the model's graph has. No path reaches the others,
which score 0:

    exp(s) / (exp(s) + N - 1)

So it holds all that the model does with a body: the products of gates and of elements, and how the question reads them.
It does not know to how many entities a step leads in the graph.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from dihedral.graph import Graph
from dihedral.graph.index import GraphIndex
from dihedral.runtime import interruption
from dihedral.scoring.path_scorer import PathScorer

TOGETHER = 64  # paths in one graph: each question is answered with scores for the entities of all


class PathBeliefs:
    """Belief scores of one path model, as `beliefs.Beliefs` has them of embeddings."""

    def __init__(self, scorer: PathScorer, graph: Graph) -> None:
        self.scorer, self.num_relations = scorer, graph.num_relations
        self.others = float(np.log(max(1, graph.num_entities - 1)))

    def score(
        self,
        bodies: NDArray[np.int64],
        heads: Any = None,
        starts: int | None = None,
        *,
        min_score: float = 0.0,
        on_progress: Callable[[int], None] | None = None,
    ) -> NDArray[np.float32]:
        """How strongly each body [n, steps] implies each relation: [n, R], between 0 and 1.

        heads: a sparse matrix [n, R] of the heads that are wanted; the scores of all others are 0. The other options of
        `Beliefs.score` change nothing.
        """
        found = np.zeros((len(bodies), self.num_relations), np.float32)
        for first in range(0, len(bodies), TOGETHER):
            part = slice(first, first + TOGETHER)
            found[part] = self._score(bodies[part])
            if on_progress:
                on_progress(min(first + TOGETHER, len(bodies)))
        return found if heads is None else found * (heads.toarray() > 0)

    def _score(self, bodies: NDArray[np.int64]) -> NDArray[np.float32]:
        count, length = bodies.shape
        entities = np.arange(count * (length + 1)).reshape(count, length + 1)  # those of one path in a row
        edges = np.stack([entities[:, :-1], bodies % self.num_relations, entities[:, 1:]], axis=-1)
        backwards = bodies >= self.num_relations
        edges[backwards] = edges[backwards][:, ::-1]
        index = GraphIndex.build([edges.reshape(-1, 3)], entities.size, self.num_relations)
        answer = PathScorer(self.scorer.model, index).rows()
        first, last = torch.from_numpy(entities[:, 0]), torch.from_numpy(entities[:, -1:])
        found = np.empty((count, self.num_relations), np.float32)
        for relation in range(self.num_relations):
            interruption.check()
            scores = answer(first, torch.full_like(first, relation)).cpu().gather(1, last)
            found[:, relation] = torch.sigmoid(scores[:, 0] - self.others)
        return found
