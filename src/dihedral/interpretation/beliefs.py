"""The belief score: how strongly a model believes in a rule r₁ · … · rₙ ⇒ r₃.

From a head h of r₁, the product R₁…Rₙ leads to an entity t with probability softmax(hᵀR₁…Rₙt) over the tails of rₙ.
The model's belief in (h, r₃, t) is min(1, exp(hᵀR₃t - level)), where the level is the mean score of the facts of r₃, so
facts that score below their mean count less than 1. The mean belief where the body leads, weighted by those
probabilities, is the rule's confidence according to the model. It is computed from up to 64 random heads, each with its
4 most probable tails other than itself, and in the same way backwards from the tails of rₙ. The score is the geometric
mean of the two. It ranks the rules of one model; it is not a probability, and its level differs between models.

Only single training facts are used: which entities a relation joins, and their scores.
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from dihedral.graph import Graph
from dihedral.graph.steps import inverse_ids
from dihedral.graph.ways import tiles
from dihedral.inference.scorer import CHUNK, Scorer
from dihedral.runtime import interruption

NUM_STARTS = 64  # random entities that a body is followed from
NUM_ENDS = 4  # the most probable entities that it leads to
MAX_ROWS = 1024  # starts followed together: larger tables do not fit into a CPU's cache


class Beliefs:
    """Belief scores of one model."""

    def __init__(
        self, scorer: Scorer, graph: Graph, *, starts: int = NUM_STARTS, ends: int = NUM_ENDS, seed: int = 0
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

    def score(self, bodies: NDArray[np.int64], starts: int | None = None) -> NDArray[np.float32]:
        """How strongly each body [n, steps] implies each relation: [n, R], between 0 and 1.

        starts: follow bodies from fewer entities, for a faster and rougher score.
        """
        turned = inverse_ids(bodies[:, ::-1], self.num_relations)  # r₁ · r₂ ⇒ r₃ from its other end: ~r₂ · ~r₁ ⇒ ~r₃
        return np.sqrt(self._follow(bodies, starts) * self._follow(turned, starts, backwards=True))

    def _follow(self, bodies: NDArray[np.int64], starts: int | None, *, backwards: bool = False) -> NDArray[np.float32]:
        """The mean belief in each relation, or in its inverse, where a body leads."""
        scores = np.zeros((len(bodies), self.num_relations), np.float32)
        sizes = np.array([len(self.starts[step][:starts]) for step in bodies[:, 0]], np.int64)
        order = np.flatnonzero(sizes)
        order = order[np.argsort(bodies[order, -1], kind="stable")]
        for same in np.split(order, np.flatnonzero(np.diff(bodies[order, -1])) + 1):
            for part in tiles(sizes[same], MAX_ROWS):
                interruption.check()
                here = same[part]
                scores[here] = self._follow_some(torch.from_numpy(bodies[here]), starts, backwards)
        return scores

    @torch.no_grad()
    def _follow_some(self, bodies: Tensor, starts: int | None, backwards: bool) -> NDArray[np.float32]:
        """The same for bodies that end with one step."""
        candidates = self.ranges[int(bodies[0, -1])]
        if not len(candidates):
            return np.zeros((len(bodies), self.num_relations), np.float32)
        from_each = [self.starts[step][:starts] for step in bodies[:, 0].tolist()]
        own, device = torch.cat(from_each), candidates.device
        number = torch.repeat_interleave(torch.tensor([len(each) for each in from_each])).to(device)
        begin = there = self.scorer.entities[own]  # [m, 2L]
        for steps in bodies.to(device).T:
            there = self.scorer.walk(there, steps[number])
        probability, best = self._ends(there, own, candidates)  # [m, ends]
        ends = self.scorer.entities[best.flatten()]
        begins = begin.repeat_interleave(probability.shape[1], dim=0)
        head, tail = (ends, begins) if backwards else (begins, ends)
        belief = (self.scorer.relation_scores(head, tail) - self.level).clamp_(max=0).exp_()  # [m * ends, R]
        weights, number = probability.flatten(), number.repeat_interleave(probability.shape[1])
        total = weights.new_zeros(len(bodies)).index_add_(0, number, weights)
        belief = belief.new_zeros(len(bodies), self.num_relations).index_add_(0, number, belief * weights[:, None])
        result: NDArray[np.float32] = (belief / total.clamp(min=1e-30)[:, None]).float().cpu().numpy()
        return result

    def _ends(self, vectors: Tensor, own: Tensor, candidates: Tensor) -> tuple[Tensor, Tensor]:
        """The most probable candidates other than the vector's own entity: probabilities and ids, each [m, ends]."""
        scores, ids = vectors.new_zeros(len(vectors), 0), own.new_zeros(len(vectors), 0)
        total = vectors.new_full((len(vectors),), -torch.inf)  # logarithm of the softmax's denominator
        for part in candidates.split(CHUNK):
            here = vectors @ self.scorer.entities[part].T  # [m, part]
            total = torch.logaddexp(total, here.logsumexp(dim=1))
            here.masked_fill_(own[:, None] == part, -torch.inf)  # rules are about two different entities
            scores, ids = torch.cat([scores, here], dim=1), torch.cat([ids, part.expand(len(vectors), -1)], dim=1)
            scores, place = scores.topk(min(self.num_ends, scores.shape[1]))
            ids = ids.gather(1, place)
        return (scores - total[:, None]).exp(), ids
