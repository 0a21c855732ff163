"""Rows of group elements, with codes made by hand."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from dihedral import DihedralError, DihedralGroup, Graph, Predictor
from dihedral.elements.shares import chernoff
from dihedral.graph import Vocabulary
from dihedral.interpretation import Algebra, Equation, Match, Row, algebra
from dihedral.models import build_model
from dihedral.store.trained import TrainedModel

D4 = DihedralGroup(4)
O0, O1, O2, O3, F0, F1, F2, F3 = range(8)
LENGTH = 40


def make(codes: dict[str, list[int] | np.ndarray], K: int = 4) -> Algebra:
    return Algebra(np.array(list(codes.values()), dtype=np.uint8), K, Vocabulary(list(codes), "relation"))


@pytest.fixture
def kin() -> Algebra:
    """parent and child are inverse, parent_in_law is spouse · parent, spouse is an involution."""
    rng = np.random.default_rng(0)
    spouse = rng.choice([O0, O2, F0, F1, F2, F3], LENGTH)
    parent = rng.choice(8, LENGTH)
    return make(
        {
            "spouse": spouse,
            "parent": parent,
            "child": D4.inverse(parent),
            "parent_in_law": D4.product(spouse, parent),
            "neighbour": rng.choice(8, LENGTH),
        }
    )


def matrices(codes: np.ndarray) -> np.ndarray:
    return D4.matrices[codes]


# --- products, inverses and powers ---------------------------------------------------------------


def test_a_product_multiplies_the_matrices_in_the_order_written(kin):
    product = kin["spouse"] @ kin["parent"]
    expected = matrices(kin["spouse"].codes) @ matrices(kin["parent"].codes)
    np.testing.assert_array_equal(matrices(product.codes), expected)
    assert (product.codes == kin["parent_in_law"].codes).all()


def test_the_name_of_a_product_lists_its_factors(kin):
    assert (kin["spouse"] @ kin["parent"]).name == "spouse · parent"
    assert (kin["spouse"] @ kin["parent"] @ kin["child"]).name == "spouse · parent · child"


def test_the_tilde_gives_the_inverse(kin):
    assert ((~kin["parent"]).codes == kin["child"].codes).all()
    assert (~kin["parent"]).name == "parent⁻¹"
    assert (kin["parent"] @ ~kin["parent"]).identity() == 1.0


def test_the_inverse_of_a_product_reverses_its_order(kin):
    spouse, parent = kin["spouse"], kin["parent"]
    assert (~(spouse @ parent)).agreement(~parent @ ~spouse) == 1.0
    assert (~(spouse @ parent)).name == "(spouse · parent)⁻¹"


def test_operations_do_not_change_the_relations(kin):
    before = kin.codes.copy()
    ~(kin["spouse"] @ kin["parent"])
    assert (kin.codes == before).all()


# --- shares of one row ----------------------------------------------------------------------------


def test_shares_are_counted_over_components():
    row = make({"r": [O0, O1, O2, O3, F0, F1, O1, O0]})["r"]
    assert row.identity() == 2 / 8
    assert row.symmetry() == 5 / 8  # O0 twice, O2, F0, F1
    assert row.skewness() == 3 / 8  # O1 twice, O3


def test_no_component_of_d6_is_skew():
    row = make({"r": list(range(12))}, K=6)["r"]
    assert row.skewness() == 0.0
    assert row.symmetry() == 8 / 12


def test_elements_are_counted_per_name():
    row = make({"r": [O1, O1, F3, O0]})["r"]
    assert row.elements() == {
        "O4^0": 1, "O4^1": 2, "O4^2": 0, "O4^3": 0, "F4^0": 0, "F4^1": 0, "F4^2": 0, "F4^3": 1,
    }  # fmt: skip


def test_agreement_is_the_share_of_equal_components():
    a = make({"p": [O0, O1, F0, F1], "q": [O0, O1, F1, F0]})
    assert a["p"].agreement(a["q"]) == 0.5
    assert a["p"].agreement(a["p"]) == 1.0


def test_commutation_is_the_share_of_components_whose_order_does_not_matter():
    a = make({"p": [O1, O1, F0, F0, O2], "q": [O3, F0, F1, F2, F3]})
    # O1·O3: yes; O1·F0 = F1, F0·O1 = F3: no; F0·F1 = O3, F1·F0 = O1: no; F0·F2 = O2 both ways; O2 always commutes
    assert a["p"].commutation(a["q"]) == 3 / 5
    assert a["p"].commutation(a["q"]) == a["q"].commutation(a["p"])


def test_nearest_sorts_relations_by_agreement():
    a = make({"far": [F0, F0, F0, F0], "near": [O1, O1, O1, F0], "same": [O1, O1, O1, O1]})
    assert a["same"].nearest(2) == [Match("same", 1.0), Match("near", 0.75)]


def test_nearest_keeps_the_order_of_the_graph_for_equal_shares():
    a = make({"b": [O1, O2], "a": [O1, O3], "c": [O1, F1], "d": [F2, F2]})
    assert [match.relation for match in a["d"].nearest(4)] == ["d", "b", "a", "c"]


def test_nearest_has_at_most_one_answer_per_relation():
    assert len(make({"p": [O1], "q": [O2]})["p"].nearest(10)) == 2


@pytest.mark.parametrize("graded", [False, True])
def test_the_nearest_relations_are_those_of_one_comparison_at_a_time(graded):
    rng = np.random.default_rng(0)
    codes = rng.integers(-1, 24, (300, 30)).astype(np.int16) if graded else rng.integers(0, 8, (300, 30))
    codes[10], codes[5] = codes[20], 0
    a = Algebra(codes, 4, Vocabulary([f"r{i}" for i in range(300)], "relation"), rng.random((300, 30)))
    for row in (a["r3"], a["r10"], ~a["r7"], a["r10"] @ a["r11"], a["r5"], a["r9"] @ a["r9"]):
        shares = [row.agreement(other) for other in a]
        order = sorted(range(300), key=lambda i: (-round(shares[i].kappa, 9), -round(shares[i], 9), i))[:7]
        assert row.nearest(7) == [Match(f"r{i}", shares[i]) for i in order]


def test_a_product_is_compared_with_all_relations_together(monkeypatch):
    a = Algebra(np.zeros((1000, 5), np.uint8), 4, Vocabulary([f"r{i}" for i in range(1000)], "relation"))
    one_by_one, agreement = [], Row.agreement
    monkeypatch.setattr(Row, "agreement", lambda row, other: one_by_one.append(other) or agreement(row, other))
    assert (a["r1"] @ ~a["r1"]).nearest(1)
    assert len(one_by_one) <= 2


def test_nearest_finds_the_relation_that_a_product_equals(kin):
    assert (kin["spouse"] @ kin["parent"]).nearest(1) == [Match("parent_in_law", 1.0)]
    assert (kin["parent"] @ kin["spouse"]).nearest(1)[0].share < 1.0


def test_a_row_shows_its_first_elements():
    a = make({"short": [O1, F2, 0, 0, 0, 0, 0]})
    assert repr(a["short"]) == "Row(short: O4^1 F4^2 O4^0 O4^0 O4^0 O4^0 …)"
    assert repr(make({"r": [O1, F2]})["r"]) == "Row(r: O4^1 F4^2)"


# --- chance ---------------------------------------------------------------------------------------


def shuffled(left, right, weights, holds, times=20_000, seed=0):
    """Shares of components for which holds(g, h), the right row shuffled."""
    rng, total = np.random.default_rng(seed), weights.sum()
    return np.array([(weights * holds(left, rng.permutation(right))).sum() / total for _ in range(times)])


def random_rows(length=100, seed=3):
    """Two rows with unequal frequencies, not related."""
    rng = np.random.default_rng(seed)
    return rng.choice(8, length, p=[0.4, 0.1, 0.1, 0, 0.1, 0.1, 0.1, 0.1]), rng.choice(8, length, p=[0.3] + [0.1] * 7)


@pytest.mark.parametrize("spread", [0, 1, 2])
@pytest.mark.parametrize("statement", ["agreement", "commutation"])
def test_chance_is_that_of_shuffled_components(statement, spread):
    left, right = random_rows()
    weights = np.random.default_rng(5).exponential(size=100) ** spread
    holds = np.equal if statement == "agreement" else lambda g, h: D4.product(g, h) == D4.product(h, g)
    shares = shuffled(left, right, weights, holds)
    a = Algebra(np.stack([left, right]), 4, Vocabulary(["p", "q"], "relation"), np.stack([weights, weights]))
    found = getattr(a["p"], statement)(a["q"])
    assert found.chance == pytest.approx(shares.mean(), abs=4 * shares.std() / len(shares) ** 0.5)
    table = (a.products == a.products.T) if statement == "commutation" else np.eye(8)
    q = np.bincount(right, minlength=8) / len(right)
    for quantile in (0.9, 0.99, 0.999):  # a bound, not far from the frequency
        share = np.quantile(shares, quantile)
        bound = chernoff(weights, (table @ q)[left], share * weights.sum())
        assert 0.7 < bound / (shares >= share - 1e-9).mean() < (100 if spread else 15)


@pytest.mark.parametrize("graded", [False, True])
def test_chance_is_the_mean_over_all_shuffles(graded):
    """Of the elements of the second row or factor; weights, sizes and components that are zero stay in place."""
    rng, length = np.random.default_rng(7), 6
    codes = rng.integers(0, 24 if graded else 8, (2, length)).astype(np.int16)
    if graded:
        codes[0, 0] = codes[1, 1] = -1
    weights, names = rng.exponential(size=(2, length)) ** 2, Vocabulary(["p", "q"], "relation")
    used = np.flatnonzero(codes[1] >= 0)
    found = {name: [] for name in ("agreement", "commutation", "symmetry", "skewness", "identity")}
    for order in itertools.permutations(used):
        shuffled = codes.copy()
        shuffled[1, used] = codes[1, used] // 8 * 8 + codes[1, list(order)] % 8
        a = Algebra(shuffled, 4, names, weights)
        for name, shares in found.items():
            two = name in ("agreement", "commutation")
            shares.append(getattr(a["p"], name)(a["q"]) if two else getattr(a["p"] @ a["q"], name)())
    for name, shares in found.items():
        assert shares[0].chance == pytest.approx(np.mean(shares)), name
    assert a.agreements([a["p"]])[0][0, 1] == pytest.approx(a["p"].agreement(a["q"]).kappa)


@pytest.mark.parametrize("spread", [0, 1, 2])
def test_symmetry_is_significant_no_more_often_than_stated(spread):
    rng, p = np.random.default_rng(0), []
    for _ in range(3000):
        weights = rng.exponential(size=(1, 60)) ** spread
        p.append(Algebra(rng.integers(0, 8, (1, 60)), 4, Vocabulary(["r"], "relation"), weights)["r"].symmetry().p)
    assert (np.array(p) <= 0.01).mean() <= 0.01


def test_unrelated_rows_are_significant_no_more_often_than_stated():
    p = []
    for seed in range(2000):
        left, right = random_rows(60, seed)
        a = make({"p": left, "q": right})
        p.append(a["p"].agreement(a["q"]).p)
    assert (np.array(p) <= 0.01).mean() <= 0.01


@pytest.mark.parametrize("K", [3, 4, 5, 6, 8, 16])
def test_a_random_row_is_symmetric_by_chance(K):
    """The share of the elements of D_K that are symmetric, skew-symmetric, and the identity."""
    row = make({"r": np.random.default_rng(0).choice(2 * K, 4000)}, K)["r"]
    even = K % 2 == 0
    assert row.symmetry().chance == pytest.approx((K + 1 + even) / (2 * K))
    assert row.skewness().chance == pytest.approx(1 / K if K % 4 == 0 else 0)
    assert row.identity().chance == pytest.approx(1 / (2 * K))
    assert not row.symmetry().significant and abs(row.symmetry().kappa) < 0.1


def test_a_statement_about_one_relation_has_the_chance_of_its_elements():
    a = make({"r": np.random.default_rng(0).choice(8, 50), "s": np.random.default_rng(1).choice(8, 50)})
    r = a["r"]
    assert (~r).agreement(r).chance == r.symmetry().chance == 0.75
    assert (r @ r).identity().chance == 0.75  # six of eight elements are their own inverse
    assert (r @ ~r).identity().chance == r.agreement(r).chance == r.commutation(r).chance == 1.0
    assert r.agreement(r).kappa == 0 and not r.agreement(r).significant
    product = r @ a["s"]
    assert product.identity().chance == pytest.approx((~r).agreement(a["s"]).chance)


def test_the_inverse_of_a_relation_is_not_itself_by_chance(kin):
    """parent is symmetric in as many components as any random row; its inverse is child."""
    assert (~kin["parent"]).agreement(kin["parent"]) > 0.5
    assert (~kin["parent"]).nearest(1)[0].relation == "child"
    assert not kin["parent"].symmetry().significant
    assert kin["spouse"].symmetry().significant and kin["spouse"].symmetry().kappa == 1.0
    assert (~kin["neighbour"]).nearest(1)[0].share.significant is False


# --- shares of all rows --------------------------------------------------------------------------


def test_inverse_pairs_come_first_and_involutions_pair_with_themselves(kin):
    best = kin.inverse_pairs(top=3)
    assert set(best[:2]) == {
        Equation(("parent", "child"), "identity", 1.0),
        Equation(("spouse", "spouse"), "identity", 1.0),
    }
    assert best[2].share < 1.0
    assert str(Equation(("parent", "child"), "identity", 1.0)) == "parent · child = identity"


def test_inverse_pairs_equal_brute_force(kin):
    names = list(kin.names)
    expected = {
        (p, q): (D4.product(kin[p].codes, kin[q].codes) == 0).mean()
        for p, q in itertools.combinations_with_replacement(names, 2)
    }
    found = kin.inverse_pairs(top=100)
    assert {rule.body: pytest.approx(rule.share) for rule in found} == expected
    kappas = [rule.share.kappa for rule in found]
    assert kappas == pytest.approx(sorted(kappas, reverse=True), abs=1e-6)


def test_compositions_equal_brute_force(kin):
    names = list(kin.names)
    expected = {
        (p, q, r): (D4.product(kin[p].codes, kin[q].codes) == kin[r].codes).mean()
        for p, q, r in itertools.product(names, repeat=3)
    }
    found = kin.compositions(top=len(expected))
    assert {(*rule.body, rule.head): pytest.approx(rule.share) for rule in found} == expected


def test_the_best_compositions_are_the_exact_ones(kin):
    exact = {str(rule) for rule in kin.compositions(top=4) if rule.share == 1.0}
    # the first by definition, the others because spouse · spouse = 1 and parent · child = 1
    assert exact == {
        "spouse · parent = parent_in_law",
        "spouse · parent_in_law = parent",
        "parent_in_law · child = spouse",
    }


def test_top_limits_the_number_of_rules(kin):
    assert len(kin.compositions(top=2)) == len(kin.inverse_pairs(top=2)) == 2


# --- access ----------------------------------------------------------------------------------------


def test_an_algebra_is_a_collection_of_rows(kin):
    assert len(kin) == 5
    assert [row.name for row in kin] == ["spouse", "parent", "child", "parent_in_law", "neighbour"]
    assert all((row.codes == kin[row.name].codes).all() for row in kin)


def test_the_error_about_an_unknown_relation_suggests_a_close_one(kin):
    with pytest.raises(DihedralError, match=r"relation 'spose'.*did you mean 'spouse'"):
        kin["spose"]


# --- graded rows ------------------------------------------------------------------------------------


@pytest.fixture(params=[False, True], ids=["equal weights", "weights"])
def graded(request):
    rng = np.random.default_rng(0)
    weights = rng.random((3, 60)) + 0.1 if request.param else None
    return Algebra(rng.integers(-1, 24, (3, 60)), 4, Vocabulary(["a", "b", "c"], "relation"), weights)


def agreement(weights, left, right):
    """The definition, component by component."""
    total, one, other = 0.0, 0.0, 0.0
    for w, x, y in zip(weights, left.tolist(), right.tolist(), strict=True):
        sizes = [0.0 if code < 0 else 2.0 ** -(code // 8) for code in (x, y)]
        total += w * sizes[0] * sizes[1] * (x % 8 == y % 8)
        one, other = one + w * sizes[0] ** 2, other + w * sizes[1] ** 2
    return total / (one * other) ** 0.5


def test_agreement_counts_components_by_their_sizes(graded):
    rows = {"a": graded["a"], "a · b": graded["a"] @ graded["b"], "~a": ~graded["a"]}
    for name, row in rows.items():
        for other in graded:
            involved = [*row.relations, *other.relations]
            weights = np.exp(graded.log_weights[involved].mean(axis=0))
            share = row.agreement(other)
            assert share == pytest.approx(agreement(weights, row.codes, other.codes)), name
            assert share.count == pytest.approx(agreement(np.ones(60), row.codes, other.codes)), name


def test_kappas_of_all_inverses_are_those_of_the_rows(graded):
    expected = [[(~row).agreement(other).kappa for other in graded] for row in graded]
    found, _ = graded.agreements([~row for row in graded])
    np.testing.assert_allclose(found, expected, atol=1e-8)


def test_symmetry_is_the_agreement_with_the_transpose(graded):
    for row in graded:
        assert row.symmetry() == pytest.approx(float(row.agreement(~row)))
        assert row.agreement(row) == pytest.approx(1.0)


def test_a_row_that_is_scaled_agrees_with_itself():
    codes = np.random.default_rng(1).integers(0, 8, 30)
    a = Algebra(np.stack([codes, codes + 8, np.full(30, -1)]), 4, Vocabulary(["one", "half", "none"], "relation"))
    assert a["one"].agreement(a["half"]) == pytest.approx(1.0)
    assert a["one"].agreement(a["none"]) == 0.0
    assert a["none"].symmetry() == 0.0


def test_what_components_carry_is_their_weight_and_zero_carries_nothing():
    codes, weights = np.array([[0, 9, -1, 3]], np.int16), np.array([[3.0, 1.0, 5.0, 1.0]])
    row = Algebra(codes, 4, Vocabulary(["r"], "relation"), weights)["r"]
    assert row.carried() == pytest.approx([0.6, 0.2, 0, 0.2])
    nothing = Algebra(np.array([[-1, -1]], np.int16), 4, Vocabulary(["r"], "relation"))["r"]
    assert nothing.carried().tolist() == [0, 0]


def test_rows_name_graded_elements_and_zero():
    a = Algebra(np.array([[-1, 9, 0]]), 4, Vocabulary(["r"], "relation"))
    assert repr(a["r"]) == "Row(r: 0 O4^1·½ O4^0)"
    assert {name: count for name, count in a["r"].elements().items() if count} == {"O4^0": 1, "O4^1·½": 1, "0": 1}
    assert (a["r"] @ a["r"]).codes.tolist() == [-1, 18, 0]


GRAPH = Graph.from_names([("ann", "parent", "bob"), ("bob", "child", "ann")])


@pytest.mark.parametrize(("model", "K"), [("dihedral-gumbel", 5), ("dihedral-ste", 6), ("cyclic-ste", 4)])
def test_the_algebra_of_a_model_holds_its_codes(model, K):
    predictor = Predictor(TrainedModel(build_model(model, 2, 2, dimension=12, K=K), GRAPH))
    a = algebra(predictor)
    assert a.monoid.K == K and not a.is_graded
    np.testing.assert_array_equal(a["child"].codes, predictor.model.codes[1].numpy())


def test_a_model_without_group_elements_has_no_algebra():
    with pytest.raises(DihedralError, match="'complex' model has no group elements"):
        algebra(Predictor(TrainedModel(build_model("complex", 2, 2, dimension=4), GRAPH)))
