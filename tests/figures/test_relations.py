"""The figure of what a model learned."""

from __future__ import annotations

import matplotlib.pyplot as plt
import numpy as np
import pytest

import dihedral as dh
from dihedral.figures import draw_relations
from dihedral.graph import Vocabulary
from dihedral.interpretation.element_rows import Algebra


def algebra_of(relations, K=4, L=20):
    rng = np.random.default_rng(0)
    codes = rng.integers(2 * K, size=(len(relations), L)).astype(np.uint8)
    return Algebra(codes, K, Vocabulary(relations, "relation"))


def ticks(axis):
    return [label.get_text() for label in axis.get_ticklabels()]


def cells(axes):
    """The text of every cell by (row, column)."""
    return {tuple(map(int, text.get_position()[::-1])): text.get_text() for text in axes.texts}


def test_left_panel_shows_the_share_of_each_element(tmp_path, saved):
    algebra = algebra_of(["a", "b", "c"])
    draw_relations(algebra, tmp_path / "a.png", title="FAMILY")
    (figure,) = saved
    left, right = figure.axes
    assert figure.get_suptitle() == "FAMILY" and left.get_title() == "share of each element"
    shares = np.stack([np.bincount(row, minlength=8) for row in algebra.codes]) / 20
    np.testing.assert_allclose(left.images[0].get_array(), shares)
    assert cells(left) == {(i, j): f"{share:.2f}".lstrip("0") for (i, j), share in np.ndenumerate(shares)}
    assert ticks(left.yaxis) == ticks(right.yaxis) == ticks(right.xaxis) == ["a", "b", "c"]
    assert ticks(left.xaxis) == [f"${kind}_{{4}}^{{{power}}}$" for kind in "OF" for power in range(4)]


def test_right_panel_shows_the_relation_nearest_to_each_product(tmp_path, saved):
    group, rng = dh.DihedralGroup(4), np.random.default_rng(0)
    turn, mirror = rng.integers(8, size=60), rng.integers(4, 8, size=60)  # a mirror is its own inverse
    other = group.product(turn, mirror)
    other[:10] = rng.integers(8, size=10)
    codes = np.stack([turn, mirror, other, rng.integers(8, size=60)]).astype(np.uint8)
    algebra = Algebra(codes, 4, Vocabulary(["turn", "mirror", "other", "noise"], "relation"))
    draw_relations(algebra, tmp_path / "a.png")
    right = saved[0].axes[1]
    assert right.get_title() == "row · column: nearest relation, kappa (0: chance, blank: not significant)"
    assert right.images[0].get_clim() == (0, 1)
    shown, kappa = cells(right), (algebra["turn"] @ algebra["mirror"]).agreement(algebra["other"]).kappa
    assert shown[1, 1] == "identity\n1.00" and shown[0, 1] == f"other\n{kappa:.2f}"
    assert shown[2, 1].startswith("turn\n")  # other · mirror = turn · mirror · mirror
    assert not any(3 in place for place in shown)  # noise
    assert right.images[0].get_array()[0, 1] == pytest.approx(kappa) and right.images[0].get_array()[3, 3] == 0
    colours = {text.get_text(): text.get_color() for text in right.texts}
    assert colours["identity\n1.00"] == "white" and colours[shown[1, 0]] == "#333333"


def test_trained_model_is_drawn(predictor, tmp_path, saved):
    algebra = dh.algebra(predictor)
    draw_relations(algebra, tmp_path / "a.png")
    left, right = saved[0].axes
    count = len(algebra.names)
    assert left.images[0].get_array().shape == (count, 8) and right.images[0].get_array().shape == (count, count)


@pytest.mark.parametrize(("count", "drawn"), [(1, 1), (3, 3), (20, 16)])
def test_at_most_16_relations_are_drawn(tmp_path, saved, count, drawn):
    names = [f"r{i}" for i in range(count)]
    draw_relations(algebra_of(names), tmp_path / "a.png")
    left, right = saved[0].axes
    assert ticks(left.yaxis) == ticks(right.yaxis) == names[:drawn]
    assert saved[0].get_figheight() == pytest.approx(0.55 * drawn + 2)


@pytest.mark.parametrize("K", [1, 2, 3, 6, 12])
def test_every_group_has_one_column_per_element(tmp_path, saved, K):
    draw_relations(algebra_of(["a", "b"], K), tmp_path / "a.png")
    assert saved[0].axes[0].images[0].get_array().shape == (2, 2 * K)


def test_same_codes_give_the_same_file(tmp_path):
    for name in ("1.png", "2.png"):
        draw_relations(algebra_of(["a", "b", "c"]), tmp_path / name)
    assert (tmp_path / "1.png").read_bytes() == (tmp_path / "2.png").read_bytes()


def test_no_figure_stays_open(tmp_path):
    draw_relations(algebra_of(["a", "b"]), tmp_path / "a.png")
    assert plt.get_fignums() == []


@pytest.mark.parametrize(("name", "start"), [("a.png", b"\x89PNG\r\n\x1a\n"), ("a.pdf", b"%PDF")])
def test_format_follows_the_file_ending(tmp_path, name, start):
    draw_relations(algebra_of(["a", "b"]), tmp_path / name)
    assert (tmp_path / name).read_bytes().startswith(start)


@pytest.mark.parametrize("name", ["a_b", "50%", "a\\b", "$5", "$^$", "日本"])
@pytest.mark.filterwarnings("ignore:Glyph")
def test_odd_names_are_drawn_literally(tmp_path, saved, name):
    draw_relations(algebra_of([name, "b"]), tmp_path / "a.png")
    assert ticks(saved[0].axes[0].yaxis) == [name.replace("$", r"\$"), "b"]
