"""Which rules say nothing new: the same rule through a symmetric or inverse relation, and longer ones that add nothing.

A symmetric relation walked backwards is the same step, and so is the inverse of a relation. If the head is symmetric, a
body read from its end is the same body too. Of rules that are the same in this way, the best is kept.

A longer rule adds nothing if nearly all pairs that it joins are joined by one with a shorter body, the same head and at
least its confidence.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dihedral.graph.index import GraphIndex
from dihedral.graph.joins import Body
from dihedral.graph.patterns import Reversals, draw_paths
from dihedral.graph.steps import inverse_ids

SAME = 0.8  # two steps are the same if they share at least this part of their pairs
COVERED = 0.95  # a longer body adds nothing if shorter ones join this part of its pairs
SAMPLES = 2000  # paths of a longer body that are looked at
Steps = tuple[int, ...]


class Pruning:
    """The rules kept so far, and whether a further one says something new."""

    def __init__(self, index: GraphIndex, reversals: Reversals, min_support: int) -> None:
        self.index, relations = index, index.num_relations
        self.step = np.arange(2 * relations)  # a step that joins the same pairs
        for first, second in reversals.inverse_pairs(SAME, min_support):
            self.step[[second, second + relations]] = first + relations, first
        self.symmetric = set(reversals.symmetric(SAME, min_support))
        backwards = np.flatnonzero(np.isin(self.step % relations, list(self.symmetric)))
        self.step[backwards] %= relations
        self._seen: set[tuple[Steps, int]] = set()
        self._kept: dict[int, list[tuple[Steps, float]]] = {}
        self._bodies: dict[Steps, Body] = {}

    def is_new(self, body: Steps, head: int) -> bool:
        """Whether this is not the same as an earlier rule; it counts as one from now on."""
        key = tuple(self.step[list(body)].tolist())
        if head in self.symmetric:
            turned = inverse_ids(np.array(body[::-1]), self.index.num_relations)
            key = min(key, tuple(self.step[turned].tolist()))
        new = (key, head) not in self._seen
        self._seen.add((key, head))
        return new

    def keep(self, body: Steps, head: int, confidence: float) -> None:
        """Compare longer rules with this one."""
        self._kept.setdefault(head, []).append((body, confidence))

    def adds(self, body: Steps, head: int, confidence: float) -> bool:
        """Whether a body joins pairs that shorter ones with at least its confidence do not."""
        shorter = [steps for steps, share in self._kept.get(head, ()) if len(steps) < len(body) and share >= confidence]
        if not shorter:
            return True
        heads, tails = self._some_pairs(body)
        left = np.ones(len(heads), bool)
        for steps in shorter:
            if steps not in self._bodies:
                self._bodies[steps] = Body(self.index, steps)
            left[left] = self._bodies[steps].count_paths(heads[left], tails[left]) == 0
        return float(left.mean()) > 1 - COVERED if len(left) else False

    def _some_pairs(self, body: Steps) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        heads, tails, again = draw_paths(Body(self.index, body), SAMPLES, np.random.default_rng(0))
        kept = ~again & (heads != tails)
        first, last = np.divmod(np.unique((heads * self.index.num_entities + tails)[kept]), self.index.num_entities)
        return first, last
