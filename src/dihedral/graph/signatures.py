"""Signatures: which entities can stand on which side of which relation, inferred from the facts alone.

An entity has a role for every signed step that leaves it: step r for the heads of r, step R + r for its tails. How well
an entity fits a role is predicted from its other roles and from frequent partners, such as the tails of an `is_a`
relation, by ridge regression (as in EASE; Steck, 2019). The facts of the relation itself have no say, nor do those
of relations between the same entities, such as its inverse. The fit of an entity that has the role therefore says how
expected that role is, and entities without the role can be compared with those that have it.

In a graph with more than MAX_ROLES roles nothing is predicted: an entity fits the roles that it has.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dihedral.graph.index import GraphIndex

MAX_PARTNERS = 500  # (step, entity) pairs that describe an entity besides its roles: the most frequent ones
MIN_PARTNER_FACTS = 10
RIDGE = 20.0
TWIN = 0.5  # share of the pairs of a relation that a twin also joins
MAX_ROLES = 6000  # the regression takes memory for every pair of roles
ALL = 200  # entities; in a graph with fewer, all are candidates
TAIL = 0.005  # share of the members of a role that may fit it less well than its other candidates


class Signatures:
    """The fit of every entity to every role of a graph; roles are computed on demand."""

    def __init__(self, facts: GraphIndex) -> None:
        self.facts = facts
        self._candidates: dict[int, NDArray[np.int64]] = {}
        self._fit: dict[int, NDArray[np.float32]] = {}

    @property
    def _too_many(self) -> bool:
        return 2 * self.facts.num_relations > MAX_ROLES

    def fit(self, step: int) -> NDArray[np.float32]:
        """How well each entity fits a role [N]: near 1 where its other facts imply the role, near 0 where not."""
        if self._too_many:
            fit = np.zeros(self.facts.num_entities, np.float32)
            fit[self.facts.members(step).cpu().numpy()] = 1.0
            return fit
        if step not in self._fit:
            properties, weights, _ = self._regression
            self._fit[step] = (properties @ weights[:, step]).astype(np.float32)
        return self._fit[step]

    def candidates(self, step: int) -> NDArray[np.int64]:
        """The entities that can have a role, in order: its members, those that fit it, and those without other facts.

        An entity fits if it does so at least as well as all but a few of the members of which other facts are known.
        """
        if self._too_many:
            return self.facts.members(step).cpu().numpy()
        if step not in self._candidates:
            members = self.facts.members(step).cpu().numpy()
            properties, _, relation = self._regression
            foreign = np.flatnonzero(~self._twins[step % self.facts.num_relations][relation])
            fit, others = self.fit(step), np.diff(properties[:, foreign].indptr)
            described = members[others[members] > 0]
            allowed = (others == 0) | (self.facts.num_entities < ALL)
            if len(described):
                allowed |= fit >= np.quantile(fit[described], TAIL)
            allowed[members] = True
            self._candidates[step] = np.flatnonzero(allowed)
        return self._candidates[step]

    @cached_property
    def _regression(self) -> tuple[Any, NDArray[np.float64], NDArray[np.int64]]:
        """The properties of entities [N, C], the weights of each role [C, 2R], the relation of each property [C]."""
        from scipy import sparse  # on first use: its import takes longer than that of this package

        index, steps = self.facts, 2 * self.facts.num_relations
        entity, role = np.divmod(index.keys.cpu().numpy(), steps)
        sources, taken, ends = (each.cpu().numpy() for each in (index.sources, index.steps, index.ends))
        partners, which, counts = np.unique(
            taken.astype(np.int64) * index.num_entities + ends, return_inverse=True, return_counts=True
        )
        frequent = np.argsort(-counts, kind="stable")[:MAX_PARTNERS]
        frequent = frequent[counts[frequent] >= MIN_PARTNER_FACTS]
        column = np.full(len(partners), -1)
        column[frequent] = steps + np.arange(len(frequent))
        described = column[which] >= 0
        rows = np.concatenate([entity, sources[described]])
        columns = np.concatenate([role, column[which][described]])
        shape = index.num_entities, steps + len(frequent)
        properties = sparse.csr_array((np.ones(len(rows), np.float32), (rows, columns)), shape=shape)
        relation = np.concatenate([np.arange(steps), partners[frequent] // index.num_entities]) % index.num_relations
        gram = (properties.T @ properties).toarray().astype(np.float64)
        inverse = np.linalg.inv(gram + RIDGE * np.eye(len(gram)))
        weights = inverse @ gram[:, :steps]
        for step in range(steps):  # constrained to zero for properties that come from the relation and its twins
            mine = np.flatnonzero(self._twins[step % index.num_relations][relation])
            weights[:, step] -= inverse[:, mine] @ np.linalg.solve(inverse[np.ix_(mine, mine)], weights[mine, step])
            weights[mine, step] = 0.0
        return properties, weights, relation

    @cached_property
    def _twins(self) -> NDArray[np.bool_]:
        """[R, R]: relations that join many of the pairs of a relation, in either direction; each is its own twin."""
        from scipy import sparse

        head, relation, tail = self.facts.facts()
        pairs = np.minimum(head, tail) * self.facts.num_entities + np.maximum(head, tail)
        _, column = np.unique(pairs, return_inverse=True)
        held = sparse.csr_array((np.ones(len(pairs), np.int32), (relation, column)))
        held.resize(self.facts.num_relations, held.shape[1])
        held.data[:] = 1
        shared = (held @ held.T).toarray()
        return (shared >= TWIN * shared.diagonal()[:, None]) | np.eye(len(shared), dtype=bool)
