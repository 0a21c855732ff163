"""What an update trains: the rows, the facts and the epochs, from the change of the graph."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dihedral.errors import DihedralError
from dihedral.graph.changes import Change
from dihedral.graph.triples import Triples
from dihedral.store.trained import TrainedModel

MIN_EPOCHS = 8
FRESH_EPOCHS = 0.5  # if rows are new or start over, relative to the epochs of training
CODE_EPOCHS = 2.0  # if relations are new: few facts help to find their codes
MIN_REMOVED_SHARE = 0.005  # a row starts over if at least this share of what it was trained on is removed
NUM_STEPS = 2  # from the entities of removed facts to others whose rows were trained on theirs
MIN_KEPT_SHARE = 0.5  # of the rows; otherwise a new model is trained


@dataclass(frozen=True, eq=False)
class Schedule:
    """What an update trains."""

    fresh: NDArray[np.bool_]  # [N]: entities that are new or start over, which are trained on all of their facts
    known: NDArray[np.bool_]  # [N]: others that gain facts, which are trained on these alone
    facts: Triples  # to train on
    others: Triples  # old facts without fresh entities
    epochs: int
    starts_over: bool  # too few rows stay: a new model is trained

    @property
    def rows(self) -> NDArray[np.bool_]:
        return self.fresh | self.known


def make_schedule(change: Change, trained: TrainedModel, epochs: int | None = None) -> Schedule:
    """The rows and facts to train; epochs: instead of the number chosen by default."""
    if epochs is not None and (not isinstance(epochs, int) or epochs < 1):
        raise DihedralError(f"epochs is {epochs!r}; it must be a whole number, 1 or more")
    train, added, fresh = change.after.train, change.added, rows_that_start_over(change)
    old = train[: len(train) - len(added)]
    fresh |= in_facts(added, len(fresh)) & ~in_facts(old, len(fresh))  # new, or without facts so far
    starts_over = bool((~fresh).mean() < MIN_KEPT_SHARE)
    if starts_over:
        fresh[:] = True
    share = CODE_EPOCHS if change.num_new_relations else FRESH_EPOCHS if fresh.any() else 0
    return Schedule(
        fresh=fresh,
        known=in_facts(added, len(fresh)) & ~fresh,
        facts=np.concatenate([old[has_any(fresh, old)], added]),
        others=old[~has_any(fresh, old)],
        epochs=epochs or max(MIN_EPOCHS, round(share * trained_epochs(trained))),
        starts_over=starts_over,
    )


def in_facts(facts: Triples, count: int) -> NDArray[np.bool_]:
    """Which of `count` entities facts have."""
    found = np.zeros(count, bool)
    found[facts[:, [0, 2]]] = True
    return found


def has_any(rows: NDArray[np.bool_], facts: Triples) -> NDArray[np.bool_]:
    """Which facts [n, 3] have an entity in a mask [N]."""
    return rows[facts[:, 0]] | rows[facts[:, 2]]


def trained_epochs(trained: TrainedModel) -> int:
    """The epochs that a model with a recipe was trained for."""
    assert trained.recipe is not None
    return int(trained.metrics.get("epochs", 0) or trained.recipe.epochs)


def rows_that_start_over(change: Change) -> NDArray[np.bool_]:
    """The entities of which enough of what their rows were trained on comes from removed facts.

    The share of an entity is that of its facts which are removed, or the mean share of the entities that its facts join
    it with, over `NUM_STEPS` steps: those rows were trained on removed facts too, and hand on what they learned. Of
    each removed fact, the entity with fewer facts starts over in any case.
    """
    count = change.after.num_entities
    heads, tails = change.before.train[:, 0], change.before.train[:, 2]
    pairs = change.removed[:, [0, 2]]
    degrees = np.bincount(heads, minlength=count) + np.bincount(tails, minlength=count)
    shares = np.bincount(pairs.ravel(), minlength=count) / np.maximum(degrees, 1)
    for _ in range(NUM_STEPS):
        around = np.bincount(heads, shares[tails], count) + np.bincount(tails, shares[heads], count)
        shares = np.maximum(shares, around / np.maximum(degrees, 1))
    start_over = shares >= MIN_REMOVED_SHARE
    start_over[np.take_along_axis(pairs, degrees[pairs].argmin(axis=1)[:, None], 1).ravel()] = True
    return start_over
