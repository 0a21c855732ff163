"""What an update trains: the rows, the facts and the epochs, from the change of the graph."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dihedral.errors import DihedralError
from dihedral.graph.changes import Change
from dihedral.store.trained import TrainedModel

EPOCHS = 8  # over the facts of fresh rows, at least
AGAIN = 0.5  # the same if known rows start over, relative to the epochs of training
KNOWN_EPOCHS = 8  # over the added facts of known entities
NEW_EPOCHS = 2  # over the facts of new relations, relative to those of training: few rows help to find their codes
FORGOTTEN = 0.005  # the share of what a row was trained on from which it starts over when that is removed
LEARNED = 0.1  # the share of a known entity's facts that are new from which its row learns from those with fresh ones
REACH = 2  # steps from the entities of removed facts to others that learned from them
MIN_OTHERS = 0.5  # share of the rows that stay, from which fresh ones can be placed


@dataclass(frozen=True, eq=False)
class Part:
    """Rows that are trained together."""

    rows: NDArray[np.bool_]  # [N]: the entities
    facts: NDArray[np.int32]  # [n, 3]: what they are trained on
    epochs: int

    def __bool__(self) -> bool:
        return len(self.facts) > 0


@dataclass(frozen=True, eq=False)
class Plan:
    """What an update trains. No row is in two parts, and every added fact is in at least one."""

    fresh: Part  # the entities that are new or start over: trained on all of their facts
    known: Part  # other entities that gain facts: trained on these alone
    linked: Part  # those of them that gain at least half of them in new relations, whose codes are found together
    others: NDArray[np.int32]  # [k, 3]: old facts without fresh entities
    starts_over: bool  # too few rows stay to place the others by: a new model is trained

    @property
    def parts(self) -> tuple[Part, Part, Part]:
        return self.fresh, self.known, self.linked

    @property
    def rows(self) -> NDArray[np.bool_]:
        """The entities to train."""
        return self.fresh.rows | self.known.rows | self.linked.rows


def make_plan(change: Change, trained: TrainedModel, epochs: int | None) -> Plan:
    """The rows and facts to train; `epochs` replaces those of every part."""
    if epochs is not None and (not isinstance(epochs, int) or epochs < 1):
        raise DihedralError(f"epochs is {epochs!r}; it must be a whole number, 1 or more")
    train, added, fresh = change.after.train, change.added, forgetful(change)
    old = train[: len(train) - len(added)]
    is_new = added[:, 1] >= change.before.num_relations
    new, of_new, degrees = (_degrees(part, len(fresh)) for part in (added, added[is_new], old))
    fresh |= (new > 0) & (degrees == 0)  # new, or without facts so far
    starts_over = bool((~fresh).mean() < MIN_OTHERS)
    if starts_over:
        fresh[:] = True
    gains = (new > 0) & (new >= LEARNED * (new + degrees))
    gains[added[~fresh[added[:, [0, 2]]].any(axis=1)][:, [0, 2]]] = True
    gains &= ~fresh
    linked = gains & (2 * of_new >= new) & (of_new > 0)
    known = gains & ~linked
    with_fresh, with_linked = (rows[added[:, [0, 2]]].any(axis=1) for rows in (fresh, linked))
    facts, others = facts_of(fresh, train), old[~fresh[old[:, [0, 2]]].any(axis=1)]
    # fresh rows find codes too if these are a part of what they are placed by; few such facts leave it to linked rows
    finds_codes = (facts[:, 1] >= change.before.num_relations).sum() > LEARNED * len(facts)
    in_linked = with_linked | (is_new & ~(with_fresh & finds_codes))  # also without linked rows, to find the code
    to_place = max(EPOCHS, round(AGAIN * trained_epochs(trained))) if (fresh & (degrees > 0)).any() else EPOCHS
    to_find_codes = max(EPOCHS, NEW_EPOCHS * trained_epochs(trained))
    return Plan(
        Part(fresh, facts, epochs or (to_find_codes if finds_codes else to_place)),
        Part(known, facts_of(known, added[~is_new]), epochs or KNOWN_EPOCHS),
        Part(linked, added[in_linked], epochs or to_find_codes),
        others,
        starts_over,
    )


def _degrees(facts: NDArray[np.int32], count: int) -> NDArray[np.int64]:
    """The number of facts of each entity."""
    return np.bincount(facts[:, [0, 2]].ravel(), minlength=count)


def facts_of(rows: NDArray[np.bool_], facts: NDArray[np.int32]) -> NDArray[np.int32]:
    """The facts [n, 3] of any of the entities in a mask."""
    found: NDArray[np.int32] = facts[rows[facts[:, [0, 2]]].any(axis=1)]
    return found


def trained_epochs(trained: TrainedModel) -> int:
    """The epochs that a model with a recipe was trained for."""
    assert trained.recipe is not None
    return int(trained.metrics.get("epochs", 0) or trained.recipe.epochs)


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
