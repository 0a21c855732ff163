"""How far a model believes in a rule r₁ · … · rₙ ⇒ r₃.

From a head h of r₁ the product R₁…Rₙ leads to an entity t with the probability softmax(hᵀR₁…Rₙt) over the tails that
rₙ has. The model holds (h, r₃, t) as true as its score comes up to that of the facts of r₃: min(1, exp(hᵀR₃t - level)),
where the level is the mean score of those facts; so not even all facts of r₃ itself count in full. The mean belief
over where the body leads, by those probabilities, is the rule's confidence as the model sees it: from up to 64 heads
drawn at random, each to the 4 likeliest tails. The same is asked from the tails of rₙ backwards, and the score is the
geometric mean of the two. It ranks the rules of one model; it is no probability, and models differ in its level.

Only single facts of training are looked at: which entities a relation joins and how high it scores them.
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from dihedral.errors import DihedralError
from dihedral.graph.triples import Triples, members_of
from dihedral.inference.predictor import Predictor
from dihedral.models.model import BlockRelations

STARTS = 64  # entities that a body is followed from, drawn at random
ENDS = 4  # the likeliest entities that it leads to


class Beliefs:
    """Beliefs of one model; of its R relations, step R + r walks r backwards."""

    def __init__(self, predictor: Predictor, *, starts: int = STARTS, ends: int = ENDS, seed: int = 0) -> None:
        relations = predictor.model.relations
        if not isinstance(relations, BlockRelations):
            raise DihedralError(f"relations of a {relations.kind!r} model are no 2x2 blocks; beliefs need those")
        self.relations, self.operators, self.ends = relations, predictor.operators, ends
        self.entities = predictor.model.entities.detach()
        self.num_relations = predictor.graph.num_relations
        train = predictor.graph.train
        self.level = self._levels(train)
        rng = np.random.default_rng(seed)
        heads, tails = (self._members(train, column) for column in (0, 2))
        self.starts = [self._rows(rng.permutation(each)[:starts]) for each in heads + tails]
        self.ranges = [self._rows(each) for each in tails + heads]

    def _members(self, train: Triples, column: int) -> list[NDArray[np.int64]]:
        members, starts = members_of(train, column, self.num_relations)
        return np.split(members, starts[1:-1])

    def _rows(self, ids: NDArray[np.int64]) -> Tensor:
        return self.entities[torch.from_numpy(ids).to(self.entities.device)]

    def _levels(self, train: Triples) -> Tensor:
        """The mean score of each relation's facts."""
        sums = torch.zeros(self.num_relations, device=self.entities.device)
        with torch.no_grad():
            for part in torch.from_numpy(train.astype(np.int64)).to(sums.device).split(1 << 14):
                asked = self.relations.queries(self.operators, part[:, 1], self.entities[part[:, 0]], "tail")
                sums.index_add_(0, part[:, 1], (asked * self.entities[part[:, 2]]).sum(dim=1))
        facts = torch.from_numpy(np.bincount(train[:, 1], minlength=self.num_relations)).to(sums)
        return torch.where(facts > 0, sums / facts, float("inf"))  # nothing is believed of a relation without facts

    def score(self, bodies: NDArray[np.int64]) -> NDArray[np.float32]:
        """How far each body [n, steps] implies each relation: [n, R], between 0 and 1."""
        count = self.num_relations
        turned = (bodies[:, ::-1] + count) % (2 * count)  # r₁ · r₂ ⇒ r₃ from its other end: ~r₂ · ~r₁ ⇒ ~r₃
        return np.sqrt(self._follow(bodies) * self._follow(turned, backwards=True))

    @torch.no_grad()
    def _follow(self, bodies: NDArray[np.int64], *, backwards: bool = False) -> NDArray[np.float32]:
        """The mean belief in each relation, or in its inverse, where a body leads."""
        scores = np.zeros((len(bodies), self.num_relations), np.float32)
        after: dict[int, Tensor] = {}  # the starts of a relation after their first step
        for number, body in enumerate(bodies.tolist()):
            start, candidates = self.starts[body[0]], self.ranges[body[-1]]  # [m, 2L], [n, 2L]
            if not len(start) or not len(candidates):
                continue
            if body[0] not in after:
                after[body[0]] = self._take(body[0], start)
            there = after[body[0]]
            for taken in body[1:]:
                there = self._take(taken, there)
            chance, best = torch.softmax(there @ candidates.T, dim=1).topk(min(self.ends, len(candidates)))  # [m, ends]
            ends = candidates[best.flatten()]
            begins = start.repeat_interleave(chance.shape[1], dim=0)
            head, tail = (ends, begins) if backwards else (begins, ends)
            above = self.relations.relation_scores(self.operators, head, tail) - self.level  # [m * ends, R]
            belief = chance.flatten() @ above.clamp_(max=0).exp_() / chance.sum()
            scores[number] = belief.float().cpu().numpy()
        return scores

    def _take(self, step: int, vectors: Tensor) -> Tensor:
        """One step from each row."""
        relation = torch.full((len(vectors),), step % self.num_relations, device=vectors.device)
        return self.relations.queries(
            self.operators, relation, vectors, "tail" if step < self.num_relations else "head"
        )
