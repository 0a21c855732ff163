"""What an update trains: the rows, the facts and the epochs, from the change of the graph."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dihedral.errors import DihedralError
from dihedral.graph.changes import Change
from dihedral.inference.predictor import Predictor

EPOCHS = 8  # over the facts of fresh rows
REPLAY = 20_000  # facts of known entities, up to which these are trained on all of them
KNOWN_EPOCHS = 4  # over the added facts of known entities if there are more
FORGOTTEN = 0.005  # the share of what a row was trained on from which it starts over when that is removed
LEARNED = 0.1  # the share of a known entity's facts that are new from which its row learns from those with fresh ones
REACH = 2  # steps from the entities of removed facts to others that learned from them
MIN_OTHERS = 0.5  # share of the rows that stay, from which fresh ones can be placed


@dataclass(frozen=True, eq=False)
class Plan:
    """What an update trains."""

    fresh: NDArray[np.bool_]  # the entities that are new or start over: trained on all of their facts
    known: NDArray[np.bool_]  # other entities that gain facts
    facts: NDArray[np.int32]  # [n, 3]: those of fresh entities
    known_facts: NDArray[np.int32]  # [m, 3]: those that known entities are trained on
    anchored: bool  # whether these are only the added ones
    others: NDArray[np.int32]  # [k, 3]: old facts without fresh entities
    epochs: int  # over `facts`
    known_epochs: int  # over `known_facts`

    @property
    def rows(self) -> NDArray[np.bool_]:
        """The entities to train."""
        return self.fresh | self.known


def make_plan(change: Change, predictor: Predictor, epochs: int | None) -> Plan:
    """The rows and facts to train."""
    if epochs is not None and epochs < 1:
        raise DihedralError(f"epochs is {epochs}; it must be 1 or more")
    train, fresh = change.after.train, forgetful(change)
    old = train[: len(train) - len(change.added)]
    new, degrees = (np.bincount(part[:, [0, 2]].ravel(), minlength=len(fresh)) for part in (change.added, old))
    fresh |= (new > 0) & (degrees == 0)  # new, or without facts so far
    known = (new > 0) & (new >= LEARNED * (new + degrees))
    known[change.added[~fresh[change.added[:, [0, 2]]].any(axis=1)][:, [0, 2]]] = True
    known &= ~fresh
    facts, known_facts = (facts_of(rows, train) for rows in (fresh, known))
    anchored = len(known_facts) > REPLAY or change.num_new_relations > 0
    if anchored:
        known_facts = facts_of(known, change.added)
    others = old[~fresh[old[:, [0, 2]]].any(axis=1)]
    as_trained = trained_epochs(predictor)
    few, few_known = (EPOCHS if can_place(fresh) else as_trained), KNOWN_EPOCHS if anchored else 1
    if change.num_new_relations:  # codes are found as in training
        few, few_known = max(few, as_trained), max(few_known, as_trained)
    return Plan(fresh, known, facts, known_facts, anchored, others, epochs or few, epochs or few_known)


def facts_of(rows: NDArray[np.bool_], facts: NDArray[np.int32]) -> NDArray[np.int32]:
    """The facts [n, 3] of any of the entities in a mask."""
    found: NDArray[np.int32] = facts[rows[facts[:, [0, 2]]].any(axis=1)]
    return found


def can_place(fresh: NDArray[np.bool_]) -> bool:
    """Whether enough rows stay to place the fresh ones by."""
    return bool((~fresh).mean() >= MIN_OTHERS)


def trained_epochs(predictor: Predictor) -> int:
    return int(predictor.metrics.get("epochs", 0) or predictor.recipe["epochs"])


def forgetful(change: Change) -> NDArray[np.bool_]:
    """The entities whose rows start over, because enough of what they were trained on comes from removed facts.

    The share of an entity is that of its facts which are removed, or the mean share of the entities that its facts join
    it with, over `REACH` steps: those rows were trained on removed facts too, and hand on what they learned. Of each
    removed fact, the entity with fewer facts starts over in any case.
    """
    count = change.after.num_entities
    heads, tails = change.before.train[:, 0], change.before.train[:, 2]
    pairs = change.removed[:, [0, 2]]
    degrees = np.bincount(heads, minlength=count) + np.bincount(tails, minlength=count)
    shares = np.bincount(pairs.ravel(), minlength=count) / np.maximum(degrees, 1)
    for _ in range(REACH):
        around = np.bincount(heads, shares[tails], count) + np.bincount(tails, shares[heads], count)
        shares = np.maximum(shares, around / np.maximum(degrees, 1))
    forgets = shares >= FORGOTTEN
    forgets[np.take_along_axis(pairs, degrees[pairs].argmin(axis=1)[:, None], 1).ravel()] = True
    return forgets
