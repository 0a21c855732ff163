"""Splitting one set of triples into train, valid and test, so that training sees every name."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dihedral.errors import DihedralError, check_seed
from dihedral.graph.triples import ROWS_AT_ONCE, Triples, take_rows


def split_triples(
    triples: Triples, *, valid: float = 0.1, test: float = 0.1, seed: int = 0, in_place: bool = False
) -> tuple[Triples, Triples, Triples]:
    """Split at random; every entity and relation of valid and test also occurs in train.

    One triple of each entity and relation is kept for training, so a sparse graph may give fewer
    valid and test triples than asked for.

    in_place: the triples given are shuffled themselves, not a copy.
    """
    if not (0 <= valid < 1 and 0 <= test < 1 and valid + test < 1):
        raise DihedralError(
            f"split shares are valid={valid} and test={test}; each must be 0 or more, their sum under 1"
        )
    shuffled = np.ascontiguousarray(triples) if in_place else np.array(triples, order="C")
    rows = shuffled.view(np.dtype((np.void, shuffled.itemsize * 3)))[:, 0]  # a triple is one item: no order is held
    np.random.default_rng(check_seed(seed)).shuffle(rows)
    needed = np.zeros(len(shuffled), dtype=bool)
    for columns in ([2, 0], [1]):  # an entity is kept where it is first a head, else where it is first a tail
        first = np.full(max(int(shuffled[:, column].max(initial=0)) for column in columns) + 1, -1)
        for column in columns:
            _first_use(shuffled[:, column], first)
        needed[first[first >= 0]] = True
    free = np.flatnonzero(~needed)
    num_valid, num_test = round(len(shuffled) * valid), round(len(shuffled) * test)
    if num_valid + num_test > len(free):  # share what there is in proportion
        num_valid = int(len(free) * num_valid / (num_valid + num_test))
        num_test = len(free) - num_valid
    chosen_valid, chosen_test = np.split(free[: num_valid + num_test].copy(), [num_valid])
    del free
    train = np.ones(len(shuffled), dtype=bool)
    train[chosen_valid] = train[chosen_test] = False
    return take_rows(shuffled, train), shuffled[chosen_valid], shuffled[chosen_test]


def _first_use(names: NDArray[np.int32], first: NDArray[np.int64]) -> None:
    """Write the first place of each name into `first`, a block at a time from the end: the last write stays."""
    for start in reversed(range(0, len(names), ROWS_AT_ONCE)):
        block = names[start : start + ROWS_AT_ONCE]
        first[block[::-1]] = np.arange(start, start + len(block))[::-1]
