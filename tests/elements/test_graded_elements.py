"""The monoid of graded elements: its laws by random elements, its matrices and names."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dihedral import DihedralError, DihedralGroup
from dihedral.elements.group import MAX_GRADE, GradedMonoid, grade_of, levels_text, parse_levels

ORDERS = st.integers(1, 12)
IDS = st.integers(-1, 200)


@given(ORDERS, IDS, IDS, IDS)
def test_products_are_associative(K, a, b, c):
    m = GradedMonoid(K)
    assert m.product(m.product(a, b), c) == m.product(a, m.product(b, c))


@given(ORDERS, IDS)
def test_the_identity_is_neutral_and_zero_absorbs(K, a):
    m = GradedMonoid(K)
    assert m.product(a, m.identity) == m.product(m.identity, a) == a
    assert m.product(a, m.zero) == m.product(m.zero, a) == m.zero


@given(ORDERS, IDS, IDS)
def test_the_transpose_reverses_products(K, a, b):
    m = GradedMonoid(K)
    assert m.transpose(m.product(a, b)) == m.product(m.transpose(b), m.transpose(a))
    assert m.transpose(m.transpose(a)) == a


@given(ORDERS, IDS, IDS)
def test_grades_of_products_add_without_limit(K, a, b):
    m = GradedMonoid(K)
    assert m.grades(m.product(a, b)) == m.grades(a) + m.grades(b)


def matrix(m: GradedMonoid, element: int) -> np.ndarray:
    """2⁻ᵉ · D_g, written out."""
    if element < 0:
        return np.zeros((2, 2))
    grade, part = divmod(element, 2 * m.K)
    return 2.0**-grade * DihedralGroup(m.K).matrices[part]


@given(ORDERS, IDS, IDS)
def test_products_and_transposes_are_those_of_the_matrices(K, a, b):
    m = GradedMonoid(K)
    np.testing.assert_allclose(matrix(m, int(m.product(a, b))), matrix(m, a) @ matrix(m, b), atol=1e-12)
    np.testing.assert_allclose(matrix(m, int(m.transpose(a))), matrix(m, a).T, atol=1e-12)


@pytest.mark.parametrize("K", [1, 4, 6, 8])
def test_grade_zero_is_the_group(K):
    m, group = GradedMonoid(K), DihedralGroup(K)
    a, b = np.meshgrid(group.elements, group.elements)
    np.testing.assert_array_equal(m.product(a, b), group.product(a, b))
    np.testing.assert_array_equal(m.transpose(group.elements), group.inverse(group.elements))
    np.testing.assert_array_equal(m.matrices(0)[:-1], group.matrices)
    assert m.names(0) == [*group.names, "0"]


def test_tables_are_listed_by_id_and_end_with_zero():
    m = GradedMonoid(4)
    ids = m.elements((0, 1, 2, np.inf))
    assert len(ids) == 25 and ids[-1] == m.zero
    np.testing.assert_array_equal(m.matrices(2)[ids], [matrix(m, a) for a in ids])
    assert np.array(m.names(2))[ids].tolist() == [m.name(a) for a in ids]


@given(ORDERS, IDS)
def test_a_name_gives_its_element(K, a):
    m = GradedMonoid(K)
    if m.grades(a) <= MAX_GRADE or a < 0:
        assert m.element(m.name(a)) == a


def test_names_show_the_size():
    m = GradedMonoid(4)
    assert [m.name(a) for a in (5, 13, 21, 29, 37, -1)] == ["F4^1", "F4^1·½", "F4^1·¼", "F4^1·⅛", "F4^1·1/16", "0"]


@pytest.mark.parametrize(
    ("text", "grades"),
    [
        ("1", (0,)),
        ("1, 1/2, 1/4, 0", (0, 1, 2, np.inf)),
        ("0,½,1", (0, 1, np.inf)),
        ("1, 0.125", (0, 3)),
        ("1,1", (0,)),
    ],
)
def test_levels_are_read_from_text(text, grades):
    assert parse_levels(text) == grades
    assert parse_levels(levels_text(grades)) == grades


@pytest.mark.parametrize("text", ["", "2", "1/3", "-1", "1, x", "1/0", "0.3", "1/65536", "nan"])
def test_other_levels_are_errors(text):
    with pytest.raises(DihedralError, match="is not valid; levels are 1, 1/2, 1/4"):
        parse_levels(text)


def test_zero_alone_is_not_a_choice():
    with pytest.raises(DihedralError, match="it needs a level other than 0"):
        parse_levels("0")


def test_sizes_are_powers_of_two():
    assert [grade_of(level) for level in ("1", "1/2", "1/32768")] == [0, 1, 15]


@pytest.mark.parametrize(("elements", "message"), [([-2], "element -2"), ([0.5], "integers, not float64")])
def test_other_ids_are_errors(elements, message):
    with pytest.raises(DihedralError, match=message):
        GradedMonoid(4).transpose(elements)


@pytest.mark.parametrize("grade", [-1, 0.5, np.nan])
def test_other_grades_are_errors(grade):
    with pytest.raises(DihedralError, match="grades are whole numbers"):
        GradedMonoid(4).make(0, grade)
