"""Split triples into train, valid and test so that every name occurs in train."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dihedral.errors import DihedralError, check_seed
from dihedral.graph.triples import ROWS_PER_CHUNK, Triples, take_rows


def split_triples(
    triples: Triples, *, valid: float = 0.1, test: float = 0.1, seed: int = 0, in_place: bool = False
) -> tuple[Triples, Triples, Triples]:
    """Split at random; every name of valid and test also occurs in train, so a sparse graph may give fewer of these.

    in_place: shuffle the given array instead of a copy.
    """
    if not (0 <= valid < 1 and 0 <= test < 1 and valid + test < 1):
        raise DihedralError(
            f"split shares are valid={valid} and test={test}; each must be 0 or more and their sum less than 1"
        )
    shuffled = np.ascontiguousarray(triples) if in_place else np.array(triples, order="C")
    rows = shuffled.view(np.dtype((np.void, shuffled.itemsize * 3)))[:, 0]  # one item per triple
    np.random.default_rng(check_seed(seed)).shuffle(rows)
    needed = np.zeros(len(shuffled), dtype=bool)
    for columns in ([2, 0], [1]):  # reserve the first triple with an entity as head, else as tail
        first = np.full(max(int(shuffled[:, column].max(initial=0)) for column in columns) + 1, -1)
        for column in columns:
            _first_use(shuffled[:, column], first)
        needed[first[first >= 0]] = True
    free = np.flatnonzero(~needed)
    num_valid, num_test = round(len(shuffled) * valid), round(len(shuffled) * test)
    if num_valid + num_test > len(free):  # divide what there is in proportion
        num_valid = int(len(free) * num_valid / (num_valid + num_test))
        num_test = len(free) - num_valid
    chosen_valid, chosen_test = np.split(free[: num_valid + num_test].copy(), [num_valid])
    del free
    train = np.ones(len(shuffled), dtype=bool)
    train[chosen_valid] = train[chosen_test] = False
    return take_rows(shuffled, train), shuffled[chosen_valid], shuffled[chosen_test]


def _first_use(ids: NDArray[np.int32], first: NDArray[np.int64]) -> None:
    """Write the first row of each id into `first`, in chunks from the end: the last write wins."""
    for start in reversed(range(0, len(ids), ROWS_PER_CHUNK)):
        block = ids[start : start + ROWS_PER_CHUNK]
        first[block[::-1]] = np.arange(start, start + len(block))[::-1]
