"""Splits: every name occurs in train."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dihedral import DihedralError
from dihedral.graph.split import split_triples

triple = st.tuples(st.integers(0, 12), st.integers(0, 4), st.integers(0, 12))
distinct = st.lists(triple, min_size=1, max_size=150, unique=True)
shares = st.floats(0, 0.49)


def array(triples):
    return np.array(triples, dtype=np.int32).reshape(-1, 3)


@given(distinct, shares, shares, st.integers(0, 5))
def test_every_name_of_valid_and_test_occurs_in_train(triples, valid, test, seed):
    train, *others = split_triples(array(triples), valid=valid, test=test, seed=seed)
    for part in others:
        assert set(part[:, [0, 2]].ravel()) <= set(train[:, [0, 2]].ravel())
        assert set(part[:, 1]) <= set(train[:, 1])


@given(distinct, shares, shares, st.integers(0, 5))
def test_the_parts_contain_every_triple_once(triples, valid, test, seed):
    parts = split_triples(array(triples), valid=valid, test=test, seed=seed)
    assert sorted(map(tuple, np.concatenate(parts).tolist())) == sorted(triples)


@given(distinct, shares, shares, st.integers(0, 5))
def test_valid_and_test_are_never_larger_than_requested(triples, valid, test, seed):
    _, valid_part, test_part = split_triples(array(triples), valid=valid, test=test, seed=seed)
    wanted = round(len(triples) * valid), round(len(triples) * test)
    assert len(valid_part) <= wanted[0] and len(test_part) <= wanted[1]


def dense(size=1000):
    rng = np.random.default_rng(0)
    return np.unique(array(np.stack([rng.integers(40, size=size), rng.integers(3, size=size),
                                     rng.integers(40, size=size)], axis=1)), axis=0)  # fmt: skip


def test_a_dense_graph_gives_exactly_the_requested_sizes():
    triples = dense()
    train, valid, test = split_triples(triples, valid=0.2, test=0.05)
    assert len(valid) == round(0.2 * len(triples)) and len(test) == round(0.05 * len(triples))
    assert len(train) == len(triples) - len(valid) - len(test)


def test_a_sparse_graph_keeps_its_triples_for_training():
    chain = array([(i, 0, i + 1) for i in range(0, 20, 2)])  # every entity occurs once
    train, valid, test = split_triples(chain, valid=0.3, test=0.3)
    assert len(train) == 10 and len(valid) == len(test) == 0


def test_scarce_triples_are_divided_in_proportion():
    chain = [(i, 0, i + 1) for i in range(0, 40, 2)]
    spare = [(0, 0, i) for i in range(3, 15, 2)]
    _, valid, test = split_triples(array(chain + spare), valid=0.4, test=0.2)
    assert len(valid) == 2 * len(test) > 0


def test_the_seed_determines_the_split():
    def split(seed):
        return [part.tolist() for part in split_triples(dense(), seed=seed)]

    assert split(3) == split(3)
    assert split(3) != split(4)


def test_the_seed_is_independent_of_numpys_global_state():
    np.random.seed(1)
    first = split_triples(dense(), seed=0)[1]
    np.random.seed(2)
    assert np.array_equal(first, split_triples(dense(), seed=0)[1])


@pytest.mark.parametrize(("valid", "test"), [(-0.1, 0.1), (0.1, -0.1), (1.0, 0.0), (0.5, 0.5), (float("nan"), 0.1)])
def test_impossible_shares_are_refused(valid, test):
    with pytest.raises(DihedralError, match=f"valid={valid} and test={test}.*sum less than 1"):
        split_triples(dense(), valid=valid, test=test)


def test_shares_of_zero_train_on_everything():
    train, valid, test = split_triples(dense(), valid=0, test=0)
    assert len(train) == len(dense()) and len(valid) == len(test) == 0
