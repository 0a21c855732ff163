"""The belief score: how strongly a model believes in a rule r₁ · … · rₙ ⇒ r₃.

From a head h of r₁, the product R₁…Rₙ leads to an entity t with probability softmax(hᵀR₁…Rₙt) over the tails of rₙ.
The model's belief in (h, r₃, t) is min(1, exp(hᵀR₃t - level)), where the level is the mean score of the facts of r₃, so
facts that score below their mean count less than 1. The mean belief where the body leads, weighted by those
probabilities, is the rule's confidence according to the model. It is computed from up to 64 random heads, each with its
4 most probable tails other than itself, and in the same way backwards from the tails of rₙ. The score is the geometric
mean of the two. It ranks the rules of one model; it is not a probability, and its level differs between models.

Only single training facts are used: which entities a relation joins, and their scores.

A path model is asked in a graph that holds one path along the body, from x to y, and nothing else. With the score s of
y as an answer to the question (x, r₃, ?), the belief score is the share that y gets of a softmax over as many entities
as the model's graph has, the others of which score 0: exp(s) / (exp(s) + N - 1). So it holds all that the model does
with a body, but not to how many entities a step leads in the graph.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from dihedral.engine.blocks import block_product, block_queries
from dihedral.graph import Graph
from dihedral.graph.index import GraphIndex
from dihedral.graph.joins import tiles
from dihedral.graph.steps import inverse_ids
from dihedral.models import BlockRelations
from dihedral.runtime import interruption
from dihedral.runtime.threads import for_each
from dihedral.scoring.embedding import CHUNK, EmbeddingScorer
from dihedral.scoring.path_scorer import PathScorer
from dihedral.scoring.scorer import Scorer

NUM_STARTS = 64  # random entities that a body is followed from
NUM_ENDS = 4  # the most probable entities that it leads to
MAX_ROWS = 1024  # starts followed together: larger tables do not fit into a CPU's cache
TOGETHER = 64  # paths of a path model in one graph: each question is answered with scores for the entities of all


class Beliefs:
    """Belief scores of one model with entity vectors."""

    def __init__(
        self, scorer: EmbeddingScorer, graph: Graph, *, starts: int = NUM_STARTS, ends: int = NUM_ENDS, seed: int = 0
    ) -> None:
        self.scorer, self.num_ends, self.num_relations = scorer, ends, graph.num_relations
        self.level = self.levels(scorer, graph)
        rng = np.random.default_rng(seed)
        members = [graph.train_index.members(step) for step in range(2 * graph.num_relations)]
        self.starts = [torch.from_numpy(rng.permutation(each.numpy())[:starts]).to(scorer.device) for each in members]
        inverses = inverse_ids(np.arange(len(members)), graph.num_relations)
        self.ranges = [members[step].to(scorer.device) for step in inverses]

    @staticmethod
    def levels(scorer: Scorer, graph: Graph) -> Tensor:
        """The mean score of each relation's facts between two entities."""
        sums = torch.zeros(graph.num_relations, device=scorer.device)
        two = graph.train[graph.train[:, 0] != graph.train[:, 2]]
        for part in torch.from_numpy(two.astype(np.int64)).to(sums.device).split(CHUNK):
            sums.index_add_(0, part[:, 1], scorer.score(part))
        facts = torch.from_numpy(np.bincount(two[:, 1], minlength=graph.num_relations)).to(sums)
        return torch.where(facts > 0, sums / facts, float("inf"))  # no belief in a relation without facts

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

        heads: a sparse matrix [n, R] of the heads that are wanted; the scores of all others are 0.
        starts: follow bodies from fewer entities, for a faster and rougher score.
        min_score: lower scores may be 0, which takes less time.
        on_progress: called with the number of bodies scored so far.
        """
        from scipy import sparse  # on first use: its import takes longer than that of this package

        followed = 0

        def advance(group: NDArray[np.int64]) -> None:
            nonlocal followed
            followed += len(group)
            if on_progress:
                on_progress(followed // 2)

        scores = self._follow(bodies, heads, starts, advance)
        followed = len(bodies)
        wanted = sparse.csr_array(scores * (scores >= min_score**2))  # the other direction is 1 at most
        turned = inverse_ids(bodies[:, ::-1], self.num_relations)  # r₁ · r₂ ⇒ r₃ from its other end: ~r₂ · ~r₁ ⇒ ~r₃
        return np.sqrt(scores * self._follow(turned, wanted, starts, advance, backwards=True))

    def _follow(
        self,
        bodies: NDArray[np.int64],
        heads: Any,
        starts: int | None,
        on_done: Callable[[NDArray[np.int64]], None],
        *,
        backwards: bool = False,
    ) -> NDArray[np.float32]:
        """The mean belief in each relation, or in its inverse, where a body leads."""
        scores, every = np.zeros((len(bodies), self.num_relations), np.float32), slice(self.num_relations)
        sizes = np.array([len(self.starts[step][:starts]) for step in bodies[:, 0]], np.int64)

        @torch.no_grad()
        def follow(same: NDArray[np.int64]) -> None:
            candidates = self.ranges[bodies[same[0], -1]]  # where the last step leads
            for part in tiles(sizes[same], MAX_ROWS):
                interruption.check()
                here = same[part]
                leads = self._lead(bodies[here], candidates, starts)
                for body, begin, ends, probability in zip(here, *leads, strict=True):
                    wanted = every if heads is None else heads.indices[heads.indptr[body] : heads.indptr[body + 1]]
                    scores[body, wanted] = self._believe(begin, ends, probability, wanted, backwards)

        possible = (sizes > 0) & [len(self.ranges[step]) > 0 for step in bodies[:, -1]]
        order = np.flatnonzero(possible if heads is None else possible & (np.diff(heads.indptr) > 0))
        order = order[np.argsort(bodies[order, -1], kind="stable")]
        groups = np.split(order, np.flatnonzero(np.diff(bodies[order, -1])) + 1) if len(order) else []
        max_threads = None if self.scorer.device.type == "cpu" else 1
        for_each(follow, sorted(groups, key=len, reverse=True), on_done, max_threads=max_threads)
        return scores

    def _lead(self, bodies: NDArray[np.int64], candidates: Tensor, starts: int | None) -> list[Sequence[Tensor]]:
        """Where each body leads from m starts; all end with the same step.

        For each body: vectors of the starts [m, 2L], those of the most probable ends [m, ends, 2L], probabilities.
        """
        from_each = [self.starts[step][:starts] for step in bodies[:, 0].tolist()]
        own, sizes = torch.cat(from_each), [len(each) for each in from_each]
        begin = self.scorer.entities[own]
        steps = self.scorer.step_operators[torch.from_numpy(bodies).to(own.device)]
        products = reduce(block_product, steps.unbind(1))  # [n, 4, L]
        number = torch.repeat_interleave(torch.tensor(sizes)).to(own.device)
        probability, best = self._ends(block_queries(products, number, begin, True), own, candidates)
        return [each.split(sizes) for each in (begin, self.scorer.entities[best], probability)]

    def _believe(
        self, begins: Tensor, ends: Tensor, probability: Tensor, relations: Any, backwards: bool
    ) -> NDArray[np.float32]:
        """The mean belief in relations where one body leads."""
        begins, ends = begins[:, None].expand_as(ends).flatten(0, 1), ends.flatten(0, 1)
        head, tail = (ends, begins) if backwards else (begins, ends)
        scores = BlockRelations.relation_scores(self.scorer.operators[relations], head, tail)  # [m * ends, n]
        belief = (scores - self.level[relations]).clamp_(max=0).exp_()
        weights = probability.flatten()
        return (weights @ belief / weights.sum().clamp(min=1e-30)).float().cpu().numpy()

    def _ends(self, vectors: Tensor, own: Tensor, candidates: Tensor) -> tuple[Tensor, Tensor]:
        """The most probable candidates other than the vector's own entity: probabilities and ids, each [m, ends]."""
        scores, ids = vectors.new_zeros(len(vectors), 0), own.new_zeros(len(vectors), 0)
        total = vectors.new_full((len(vectors),), -torch.inf)  # logarithm of the softmax's denominator
        for part in candidates.split(CHUNK):
            here = vectors @ self.scorer.entities[part].T  # [m, part]
            total = torch.logaddexp(total, here.logsumexp(dim=1))
            here.masked_fill_(own[:, None] == part, -torch.inf)  # rules are about two different entities
            best, place = here.topk(min(self.num_ends, len(part)))
            scores, ids = torch.cat([scores, best], dim=1), torch.cat([ids, part[place]], dim=1)
            scores, place = scores.topk(min(self.num_ends, scores.shape[1]))
            ids = ids.gather(1, place)
        return (scores - total[:, None]).exp(), ids


class PathBeliefs:
    """Belief scores of one path model."""

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
