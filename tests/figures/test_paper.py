"""The figures of the paper, from small hand-made data."""

from __future__ import annotations

import pytest

pytest.importorskip("matplotlib")
from dihedral.figures import paper
from dihedral.group import DihedralGroup

ODD_NAMES = [
    "plain",
    "_has_part",
    "$",
    "$x^$",
    r"\$",
    "a" * 200,
    "$" * 60,
    "x$^{" + "b" * 30,
    "/a/b./c/d$e$/" + "f" * 50,
]


def diagonal(ones=3, zeros=2, minus=1):
    return {"-1": minus, "0": zeros, "1": ones}


def inverse_row(first="_hypernym", second="_hyponym"):
    return {"relations": [first, second], "ones": 0.5, "share": 0.25, "diagonal": diagonal()}


def chain_row(*names):
    right, swapped = ({"share": share, "diagonal": diagonal()} for share in (0.8, 0.2))
    return {"relations": list(names) or ["spouse", "parent", "parent_in_law"], "right": right, "swapped": swapped}


def symmetry_row(kind, name="_similar_to"):
    return {"kind": kind, "relation": name, "elements": {name: 1 + i for i, name in enumerate(DihedralGroup(4).names)}}


def curve(*valid):
    return {"epochs": list(range(len(valid))), "valid": list(valid), "train": [2 * value for value in valid]}


def assert_drawn(paths, folder, name):
    from matplotlib.image import imread

    png, svg = paths
    assert [path.parent for path in paths] == [folder, folder] and [png.name, svg.name] == [
        f"{name}.png",
        f"{name}.svg",
    ]
    pixels = imread(png)[..., :3]
    assert (pixels.min(axis=-1) < 0.95).mean() > 0.005  # some ink
    assert "</svg>" in svg.read_text()


def test_the_elements_of_d4_are_drawn(tmp_path):
    assert_drawn(paper.figure1(tmp_path), tmp_path, "figure1")


def test_inverse_pairs_are_drawn(tmp_path):
    sections = {"WN18": [inverse_row()] * 3, "FB15k": [inverse_row()]}  # rows of another length
    assert_drawn(paper.figure2(sections, tmp_path), tmp_path, "figure2")


def test_diagonals_of_a_larger_group_are_drawn(tmp_path):
    row = inverse_row() | {"diagonal": {"-0.707": 4, "0": 2, "0.707": 3, "1": 9}}
    assert_drawn(paper.figure2({"a": [row]}, tmp_path), tmp_path, "figure2")


@pytest.mark.parametrize(("symmetric", "skew"), [(1, 0), (1, 7)])
def test_symmetric_and_skew_relations_are_drawn(tmp_path, symmetric, skew):
    rows = [symmetry_row("symmetric")] * symmetric + [symmetry_row("skew")] * skew
    assert_drawn(paper.figure3(rows, rows, tmp_path), tmp_path, "figure3")


def test_compositions_are_drawn(tmp_path):
    sections = {"FAMILY": [chain_row()] * 2, "FB15k-237": [chain_row()]}
    assert_drawn(paper.figure4(sections, tmp_path), tmp_path, "figure4")


def test_curves_are_drawn(tmp_path):
    panels = {"WN18RR, L2 0.1": {"orthogonal": curve(0.1, 0.2), "dihedral-ste": curve(0.1, 0.3)},
              "FB15k-237, no regulariser": {"dihedral-ste": curve(0.2, 0.1)}}  # fmt: skip
    assert_drawn(paper.discreteness(panels, tmp_path), tmp_path, "discreteness")


def test_odd_and_long_names_are_drawn(tmp_path):
    pairs = [inverse_row(one, other) for one, other in zip(ODD_NAMES, reversed(ODD_NAMES), strict=True)]
    assert_drawn(paper.figure2({"a": pairs}, tmp_path), tmp_path, "figure2")
    chains = [chain_row(*ODD_NAMES[i : i + 3]) for i in (0, 3, 6)]
    assert_drawn(paper.figure4({"a": chains}, tmp_path), tmp_path, "figure4")
    rows = [symmetry_row("symmetric", name) for name in ODD_NAMES[-4:]]
    assert_drawn(paper.figure3(rows, rows, tmp_path), tmp_path, "figure3")


def test_the_same_picture_is_the_same_file(tmp_path):
    content = []
    for folder in ("one", "two"):
        (tmp_path / folder).mkdir()
        content.append([path.read_bytes() for path in paper.figure4({"a": [chain_row()]}, tmp_path / folder)])
    assert content[0] == content[1]


def test_no_figure_stays_open(tmp_path):
    import matplotlib.pyplot as plt

    paper.figure2({"a": [inverse_row()]}, tmp_path)
    assert plt.get_fignums() == []


@pytest.mark.parametrize("name", ODD_NAMES, ids=range(len(ODD_NAMES)))
def test_a_short_name_fits_its_panel_and_is_never_mathematics(name):
    from matplotlib.cbook import is_math_text

    assert len(paper.short(name)) <= 40
    assert not is_math_text(paper.short(name))


def test_a_freebase_path_is_shown_by_its_end():
    name = "/people/person/places_lived./people/place_lived/location"
    assert paper.short(name) == "…/place_lived/location"


def test_elements_are_written_as_mathematics():
    assert paper.element_title("O4^1") == "$O_{4}^{(1)}$"
    assert paper.element_title("F12^10") == "$F_{12}^{(10)}$"
    assert [paper.element_title(name) for name in DihedralGroup(1).names] == ["$O_{1}^{(0)}$", "$F_{1}^{(0)}$"]
