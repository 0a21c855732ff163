"""What an update trains: the rows, the facts and the epochs, from the change of the graph."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dihedral.errors import DihedralError
from dihedral.graph.changes import Change
from dihedral.graph.triples import Triples
from dihedral.learn.trainer import Phase
from dihedral.store.trained import TrainedModel

FRESH_EPOCHS = 8  # over the facts of fresh rows, at least
RESTART_SHARE = 0.5  # the same if known rows start over, as a share of the epochs of training
KNOWN_EPOCHS = 8  # over the added facts of known entities
NEW_RELATION_FACTOR = 2  # over the facts of new relations, times the epochs of training: few rows help to find codes
MIN_REMOVED_SHARE = 0.005  # a row starts over if at least this share of what it was trained on is removed
MIN_ADDED_SHARE = 0.1  # a known row is trained on facts with fresh rows if these are at least this share of its facts
NUM_STEPS = 2  # from the entities of removed facts to others whose rows were trained on theirs
MIN_KEPT_SHARE = 0.5  # of the rows, to place fresh ones by; otherwise a new model is trained


@dataclass(frozen=True, eq=False)
class Schedule:
    """What an update trains. No row is in two phases, and every added fact is in at least one."""

    fresh: Phase  # the entities that are new or start over: trained on all of their facts
    known: Phase  # other entities that gain facts: trained on these alone
    linked: Phase  # those of them that gain at least half of them in new relations, whose codes are found together
    others: Triples  # old facts without fresh entities
    starts_over: bool  # too few rows stay to place the others by: a new model is trained

    @property
    def phases(self) -> tuple[Phase, Phase, Phase]:
        return self.fresh, self.known, self.linked


def make_schedule(change: Change, trained: TrainedModel, epochs: int | None = None) -> Schedule:
    """The rows and facts to train; `epochs` replaces those of every phase."""
    if epochs is not None and (not isinstance(epochs, int) or epochs < 1):
        raise DihedralError(f"epochs is {epochs!r}; it must be a whole number, 1 or more")
    train, added, fresh = change.after.train, change.added, rows_that_start_over(change)
    old = train[: len(train) - len(added)]
    is_new = added[:, 1] >= change.before.num_relations
    new, of_new, degrees = (_degrees(part, len(fresh)) for part in (added, added[is_new], old))
    fresh |= (new > 0) & (degrees == 0)  # new, or without facts so far
    starts_over = bool((~fresh).mean() < MIN_KEPT_SHARE)
    if starts_over:
        fresh[:] = True
    gains = (new > 0) & (new >= MIN_ADDED_SHARE * (new + degrees))
    gains[added[~has_any(fresh, added)][:, [0, 2]]] = True
    gains &= ~fresh
    linked = gains & (2 * of_new >= new) & (of_new > 0)
    known = gains & ~linked
    facts = train[has_any(fresh, train)]
    # fresh rows find codes too if these are a part of what they are placed by; few such facts leave it to linked rows
    finds_codes = (facts[:, 1] >= change.before.num_relations).sum() > MIN_ADDED_SHARE * len(facts)
    # facts of new relations without linked rows are in that phase as well, to find the code
    in_linked = has_any(linked, added) | (is_new & ~(has_any(fresh, added) & finds_codes))
    known_facts = added[~is_new]
    restart_epochs = round(RESTART_SHARE * trained_epochs(trained)) if (fresh & (degrees > 0)).any() else 0
    code_epochs = NEW_RELATION_FACTOR * trained_epochs(trained)
    fresh_epochs = max(FRESH_EPOCHS, code_epochs if finds_codes else restart_epochs)
    return Schedule(
        Phase(facts, epochs or fresh_epochs, fresh),
        Phase(known_facts[has_any(known, known_facts)], epochs or KNOWN_EPOCHS, known),
        Phase(added[in_linked], epochs or max(FRESH_EPOCHS, code_epochs), linked),
        old[~has_any(fresh, old)],
        starts_over,
    )


def _degrees(facts: Triples, count: int) -> NDArray[np.int64]:
    """The number of facts of each entity."""
    return np.bincount(facts[:, [0, 2]].ravel(), minlength=count)


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
