"""The picture of what a model learned."""

from __future__ import annotations

import struct

import numpy as np
import pytest

import dihedral as dh
from dihedral import DihedralError
from dihedral.graph import Vocabulary
from dihedral.interpretation.rows import Algebra

pytest.importorskip("matplotlib")
from dihedral.figures.relations import draw_relations


def algebra_of(relations, K=4, L=20):
    rng = np.random.default_rng(0)
    codes = rng.integers(2 * K, size=(len(relations), L)).astype(np.uint8)
    return Algebra(codes, K, Vocabulary(relations, "relation"))


def size_of(path):
    content = path.read_bytes()
    assert content.startswith(b"\x89PNG\r\n\x1a\n")
    return struct.unpack(">II", content[16:24])


def ink_of(path):
    """Share of pixels that are not white."""
    from matplotlib.image import imread

    return float((imread(path)[..., :3].min(axis=-1) < 0.95).mean())


def test_a_trained_model_is_drawn(predictor, tmp_path):
    draw_relations(dh.algebra(predictor), tmp_path / "a.png", title="FAMILY")
    width, height = size_of(tmp_path / "a.png")
    assert width > 1000 and height > 400
    assert ink_of(tmp_path / "a.png") > 0.05


def test_more_relations_make_a_larger_picture(tmp_path):
    sizes = []
    for count in (1, 3, 16, 40):  # of forty, the first sixteen
        draw_relations(algebra_of([f"r{i}" for i in range(count)]), tmp_path / f"{count}.png")
        sizes.append(size_of(tmp_path / f"{count}.png"))
    assert sizes[0] < sizes[1] < sizes[2] == sizes[3]


@pytest.mark.parametrize("K", [1, 2, 3, 6, 12])
def test_every_group_is_drawn(tmp_path, K):
    draw_relations(algebra_of(["a", "b"], K), tmp_path / "a.png")
    assert ink_of(tmp_path / "a.png") > 0.02


def test_the_picture_depends_on_the_codes(tmp_path):
    one, other = algebra_of(["a", "b", "c"]), algebra_of(["a", "b", "c"])
    other.codes[:] = 0
    draw_relations(one, tmp_path / "1.png")
    draw_relations(other, tmp_path / "2.png")
    draw_relations(one, tmp_path / "3.png")
    assert (tmp_path / "1.png").read_bytes() != (tmp_path / "2.png").read_bytes()
    assert (tmp_path / "1.png").read_bytes() == (tmp_path / "3.png").read_bytes()


def test_relations_are_chosen_by_name(tmp_path):
    algebra = algebra_of(["a", "b", "c"])
    draw_relations(algebra, tmp_path / "two.png", relations=["c", "a"])
    draw_relations(algebra, tmp_path / "three.png")
    assert size_of(tmp_path / "two.png") < size_of(tmp_path / "three.png")
    with pytest.raises(DihedralError, match="relation 'd' is not among the 3"):
        draw_relations(algebra, tmp_path / "d.png", relations=["d"])
    assert not (tmp_path / "d.png").exists()


def test_no_figure_stays_open(tmp_path):
    import matplotlib.pyplot as plt

    draw_relations(algebra_of(["a", "b"]), tmp_path / "a.png")
    assert plt.get_fignums() == []


def test_pdf_by_its_ending(tmp_path):
    draw_relations(algebra_of(["a", "b"]), tmp_path / "a.pdf")
    assert (tmp_path / "a.pdf").read_bytes().startswith(b"%PDF")


@pytest.mark.parametrize("name", ["a_b", "50%", "a\\b", "$5", "日本"])
@pytest.mark.filterwarnings("ignore:Glyph")
def test_odd_names_are_drawn(tmp_path, name):
    draw_relations(algebra_of([name, "b"]), tmp_path / "a.png")
    assert size_of(tmp_path / "a.png")[0] > 0


def test_a_name_between_dollar_signs_is_drawn(tmp_path):
    draw_relations(algebra_of(["$^$", "b"]), tmp_path / "a.png")


def test_no_relations_are_refused(tmp_path):
    with pytest.raises(DihedralError, match="no relations to draw"):
        draw_relations(algebra_of(["a", "b"]), tmp_path / "a.png", relations=[])


def test_a_model_without_group_elements_has_no_such_picture(family):
    from dihedral.models import build_model

    with pytest.raises(DihedralError, match="a 'complex' model has no group elements"):
        dh.algebra(dh.Predictor(build_model("complex", 40, 6, dimension=4), family))
