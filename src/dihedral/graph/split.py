"""Splitting one set of triples into train, valid and test, so that training sees every name."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dihedral.errors import DihedralError, check_seed
from dihedral.graph.triples import Triples


def split_triples(
    triples: Triples, *, valid: float = 0.1, test: float = 0.1, seed: int = 0
) -> tuple[Triples, Triples, Triples]:
    """Split at random; every entity and relation of valid and test also occurs in train.

    One triple of each entity and relation is kept for training, so a sparse graph may give fewer
    valid and test triples than asked for.
    """
    if not (0 <= valid < 1 and 0 <= test < 1 and valid + test < 1):
        raise DihedralError(
            f"split shares are valid={valid} and test={test}; each must be 0 or more, their sum under 1"
        )
    shuffled = triples[np.random.default_rng(check_seed(seed)).permutation(len(triples))]
    must_train = _first_use(np.concatenate([shuffled[:, 0], shuffled[:, 2]])) % len(shuffled)
    needed = np.zeros(len(shuffled), dtype=bool)
    needed[must_train] = True
    needed[_first_use(shuffled[:, 1])] = True
    free = np.flatnonzero(~needed)
    num_valid, num_test = round(len(shuffled) * valid), round(len(shuffled) * test)
    if num_valid + num_test > len(free):  # share what there is in proportion
        num_valid = int(len(free) * num_valid / (num_valid + num_test))
        num_test = len(free) - num_valid
    chosen_valid, chosen_test = free[:num_valid], free[num_valid : num_valid + num_test]
    train = np.ones(len(shuffled), dtype=bool)
    train[chosen_valid] = train[chosen_test] = False
    return shuffled[train], shuffled[chosen_valid], shuffled[chosen_test]


def _first_use(names: NDArray[np.int32]) -> NDArray[np.int64]:
    return np.unique(names, return_index=True)[1]
