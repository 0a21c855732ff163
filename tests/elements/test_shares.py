"""Shares of components: Chernoff's bound on chance, and significance among several comparisons."""

from __future__ import annotations

import copy
import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dihedral.elements.shares import ComponentShare, chernoff


def test_the_bound_is_exact_if_every_component_holds():
    assert chernoff(np.array([3.0, 1.0, 0.0]), np.array([0.5, 0.2, 0.1]), 4.0) == pytest.approx(0.1)


@given(
    st.lists(st.tuples(st.floats(0.01, 1), st.floats(0, 1)), min_size=1, max_size=10), st.floats(0, 1),
)  # fmt: skip
def test_no_probability_exceeds_the_bound(components, share):
    used, probability = np.array(components).T
    total = share * used.sum()
    exact = 0.0
    for drawn in itertools.product([0, 1], repeat=len(used)):
        if used @ drawn >= total + 1e-9:
            exact += np.where(drawn, probability, 1 - probability).prod()
    bound = chernoff(used, probability, total)
    assert exact - 1e-9 <= bound <= 1


def test_more_comparisons_need_a_smaller_p():
    share = ComponentShare(0.5, 0.5, chance=0.1, p=1e-4)
    assert share.significant and share.among(100).significant and not share.among(101).significant
    assert share.kappa == pytest.approx(0.4 / 0.9) and share.among(5).p == share.p
    assert copy.deepcopy(share.among(7)).comparisons == 7
