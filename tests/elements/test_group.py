"""D_K against the group axioms, the matrices of Eq. 1 and the dihedral groups of sympy."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sympy.combinatorics.named_groups import DihedralGroup as SympyDihedralGroup

from dihedral import DihedralError, DihedralGroup

groups = st.integers(1, 16).map(DihedralGroup)


@st.composite
def elements(draw: st.DrawFn, count: int) -> tuple:
    """A group and `count` of its elements."""
    group = draw(groups)
    return group, *(draw(st.integers(0, len(group) - 1)) for _ in range(count))


def equation_1(K: int, element: int) -> np.ndarray:
    """O_K^(m) and F_K^(m) as the paper prints them."""
    angle = 2 * np.pi * (element % K) / K
    cos, sin = np.cos(angle), np.sin(angle)
    return np.array([[cos, -sin], [sin, cos]]) if element < K else np.array([[cos, sin], [sin, -cos]])


# --- axioms ------------------------------------------------------------------------------------


@given(elements(2))
def test_the_product_of_two_elements_is_an_element(drawn):
    group, a, b = drawn
    assert group.product(a, b) in group.elements


@given(elements(3))
def test_products_are_associative(drawn):
    group, a, b, c = drawn
    assert group.product(group.product(a, b), c) == group.product(a, group.product(b, c))


@given(elements(1))
def test_the_identity_changes_nothing(drawn):
    group, a = drawn
    assert group.product(group.identity, a) == a == group.product(a, group.identity)


@given(elements(1))
def test_an_element_times_its_inverse_is_the_identity_on_either_side(drawn):
    group, a = drawn
    assert group.product(a, group.inverse(a)) == group.identity == group.product(group.inverse(a), a)


@given(elements(2))
def test_the_inverse_of_a_product_is_the_product_of_inverses_in_reverse(drawn):
    group, a, b = drawn
    assert group.inverse(group.product(a, b)) == group.product(group.inverse(b), group.inverse(a))


@given(groups)
def test_a_group_has_twice_k_elements_half_of_them_rotations(group):
    assert len(group) == len(group.elements) == len(set(group.names)) == 2 * group.K
    assert group.is_rotation(group.elements).tolist() == [True] * group.K + [False] * group.K


@given(groups)
def test_reflections_are_their_own_inverse(group):
    reflections = group.elements[group.K :]
    assert (group.inverse(reflections) == reflections).all()
    assert (group.product(reflections, reflections) == group.identity).all()


@given(groups)
def test_two_reflections_make_a_rotation_and_one_of_each_a_reflection(group):
    rotations, reflections = group.elements[: group.K], group.elements[group.K :]
    assert group.is_rotation(group.product(reflections[:, None], reflections)).all()
    assert not group.is_rotation(group.product(rotations[:, None], reflections)).any()
    assert not group.is_rotation(group.product(reflections[:, None], rotations)).any()


@given(groups)
def test_rotations_commute(group):
    rotations = group.elements[: group.K]
    table = group.product(rotations[:, None], rotations)
    assert (table == table.T).all()


@pytest.mark.parametrize("K", [3, 4, 5, 6, 8])
def test_a_turn_and_a_reflection_do_not_commute(K):
    group = DihedralGroup(K)
    assert group.product(1, K) != group.product(K, 1)


# --- oracles -----------------------------------------------------------------------------------


@pytest.mark.parametrize("K", [1, 2, 3, 4, 5, 6, 8, 12, 16])
def test_matrices_are_those_of_equation_1(K):
    expected = [equation_1(K, element) for element in range(2 * K)]
    np.testing.assert_allclose(DihedralGroup(K).matrices, expected, atol=1e-15)


@pytest.mark.parametrize("K", [1, 2, 3, 4, 5, 6, 8, 12])
def test_products_are_products_of_the_matrices_of_equation_1_in_the_same_order(K):
    group = DihedralGroup(K)
    for a in range(2 * K):
        for b in range(2 * K):
            expected = equation_1(K, a) @ equation_1(K, b)
            np.testing.assert_allclose(equation_1(K, int(group.product(a, b))), expected, atol=1e-12)


@pytest.mark.parametrize("K", [3, 4, 5, 6, 8])
def test_the_multiplication_table_matches_sympy(K):
    group, oracle = DihedralGroup(K), SympyDihedralGroup(K)
    turn, flip = oracle.generators
    images = [turn**m for m in range(K)] + [turn**m * flip for m in range(K)]
    assert set(images) == set(oracle.elements), "the map of the generators reaches every element once"
    table = group.product(group.elements[:, None], group.elements)
    for a in range(2 * K):
        for b in range(2 * K):
            assert images[table[a, b]] == images[a] * images[b]


@pytest.mark.parametrize(("K", "values"), [(4, {-1, 0, 1}), (2, {-1, 0, 1}), (1, {-1, 0, 1})])
def test_the_entries_of_small_groups_are_exact(K, values):
    matrices = DihedralGroup(K).matrices
    assert set(matrices.flat) <= values
    assert not np.signbit(matrices[matrices == 0]).any()


def test_the_cosines_of_d6_are_exactly_halves_and_ones():
    assert set(DihedralGroup(6).matrices[:, 0, 0]) == {-1.0, -0.5, 0.5, 1.0}


# --- symmetry (Table 1) ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("K", "symmetric_rotations", "skew"),
    [
        (1, {"O1^0"}, set()),
        (2, {"O2^0", "O2^1"}, set()),
        (3, {"O3^0"}, set()),
        (4, {"O4^0", "O4^2"}, {"O4^1", "O4^3"}),
        (5, {"O5^0"}, set()),
        (6, {"O6^0", "O6^3"}, set()),
        (8, {"O8^0", "O8^4"}, {"O8^2", "O8^6"}),
    ],
)
def test_symmetric_and_skew_elements_are_those_of_table_1(K, symmetric_rotations, skew):
    group = DihedralGroup(K)
    names = np.array(group.names)
    reflections = {f"F{K}^{m}" for m in range(K)}
    assert set(names[group.is_symmetric(group.elements)]) == symmetric_rotations | reflections
    assert set(names[group.is_skew(group.elements)]) == skew


@given(elements(1))
def test_symmetry_and_skewness_are_those_of_the_matrix(drawn):
    group, a = drawn
    matrix = equation_1(group.K, a)
    assert group.is_symmetric(a) == np.allclose(matrix, matrix.T)
    assert group.is_skew(a) == np.allclose(matrix, -matrix.T)


# --- arrays ------------------------------------------------------------------------------------


def test_products_of_arrays_broadcast():
    group = DihedralGroup(4)
    row, table = np.array([1, 4, 7]), np.array([[0, 1, 2], [5, 6, 3]])
    found = group.product(row, table)
    assert found.shape == (2, 3)
    assert all(found[i, j] == group.product(row[j], table[i, j]) for i in range(2) for j in range(3))


def test_results_have_the_smallest_integer_type():
    assert DihedralGroup(4).product([1, 2], [3, 4]).dtype == np.uint8
    assert DihedralGroup(128).elements.dtype == np.uint8
    assert DihedralGroup(129).inverse([1]).dtype == np.uint16


def test_bytes_do_not_overflow_in_products():
    group = DihedralGroup(128)
    ids = np.array([127], dtype=np.uint8)
    assert group.product(ids, ids).tolist() == [126]


# --- names -------------------------------------------------------------------------------------


def test_rotations_are_named_o_and_reflections_f():
    assert DihedralGroup(4).names == ["O4^0", "O4^1", "O4^2", "O4^3", "F4^0", "F4^1", "F4^2", "F4^3"]
    assert DihedralGroup(6).name(11) == "F6^5"


@given(elements(1))
def test_a_name_maps_back_to_its_element(drawn):
    group, a = drawn
    assert group.element(group.name(a)) == a


# --- errors ------------------------------------------------------------------------------------


@pytest.mark.parametrize("K", [0, -3, 2.5, True, "4", None])
def test_k_must_be_a_whole_number_of_one_or_more(K):
    with pytest.raises(DihedralError, match=f"K is {K!r}"):
        DihedralGroup(K)


@pytest.mark.parametrize("element", [8, -1, 300])
@pytest.mark.parametrize("operation", ["inverse", "is_rotation", "is_symmetric", "is_skew", "name"])
def test_an_id_outside_the_group_is_named(operation, element):
    ids = element if operation == "name" else [0, element]
    with pytest.raises(DihedralError, match=rf"element {element} is not in D_4.*0 to 7"):
        getattr(DihedralGroup(4), operation)(ids)


def test_an_id_outside_the_group_is_refused_on_either_side_of_a_product():
    for pair in ((9, 0), (0, 9)):
        with pytest.raises(DihedralError, match="element 9"):
            DihedralGroup(4).product(*pair)


def test_fractional_elements_are_refused():
    with pytest.raises(DihedralError, match="float64"):
        DihedralGroup(4).inverse([1.0])


def test_the_error_for_an_unknown_name_lists_the_names():
    with pytest.raises(DihedralError, match=r"'O4\^4' is not in D_4.*O4\^0.*F4\^3"):
        DihedralGroup(4).element("O4^4")
