"""Figures of the paper, drawn from small hand-made data."""

from __future__ import annotations

import pytest
from matplotlib.cbook import is_math_text
from matplotlib.colors import to_hex
from matplotlib.pyplot import get_fignums

from dihedral.elements.group import DihedralGroup
from paper import figures

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
pytestmark = pytest.mark.thorough
COUNTS = {"-1": 1, "0": 2, "1": 3}
SWAPPED = {"-1": 3, "0": 3, "1": 0}


def inverse_row(first="_hypernym", second="_hyponym", diagonal=COUNTS):
    return {"relations": [first, second], "ones": 0.5, "share": 0.25, "diagonal": diagonal}


def chain_row(*names):
    right, swapped = {"share": 0.8, "diagonal": COUNTS}, {"share": 0.2, "diagonal": SWAPPED}
    return {"relations": list(names) or ["spouse", "parent", "parent_in_law"], "right": right, "swapped": swapped}


def symmetry_row(kind, name="_similar_to", first=1):
    elements = {element: first + i for i, element in enumerate(DihedralGroup(4).names)}
    return {"kind": kind, "relation": name, "elements": elements}


def curve(*valid):
    return {"epochs": list(range(len(valid))), "valid": list(valid), "train": [2 * value for value in valid]}


def visible(figure):
    """The panels that are not switched off."""
    return [axes for axes in figure.axes if axes.axison]


def bars_of(axes):
    """Centre, height and colour of every bar, from left to right."""
    found = [(bar.get_x() + bar.get_width() / 2, bar.get_height(), to_hex(bar.get_facecolor())) for bar in axes.patches]
    return sorted((round(x, 6), pytest.approx(height), colour) for x, height, colour in found)


def legend_of(axes):
    return [text.get_text() for text in axes.get_legend().get_texts()]


@pytest.mark.parametrize(
    ("name", "draw"),
    [
        ("figure1", figures.figure1),
        ("figure2", lambda folder: figures.figure2({"a": [inverse_row()]}, folder)),
        ("figure3", lambda folder: figures.figure3([symmetry_row("skew")], [symmetry_row("skew")], folder)),
        ("figure4", lambda folder: figures.figure4({"a": [chain_row()]}, folder)),
        ("discreteness", lambda folder: figures.discreteness({"a": {"orthogonal": curve(0.3)}}, folder)),
    ],
)
def test_figures_are_saved_as_png_and_svg(tmp_path, name, draw):
    png, svg = draw(tmp_path)
    assert (png, svg) == (tmp_path / f"{name}.png", tmp_path / f"{name}.svg")
    assert png.read_bytes().startswith(b"\x89PNG") and svg.read_text().rstrip().endswith("</svg>")
    assert get_fignums() == []  # no figure stays open


def test_figure_1_shows_every_element_acting_on_the_labelled_corners(tmp_path, saved):
    figures.figure1(tmp_path)
    (figure,) = saved
    group = DihedralGroup(4)
    corners = {"1": (1, 1), "2": (-1, 1), "3": (-1, -1), "4": (1, -1)}
    assert len(figure.axes) == 8
    for element, axes in enumerate(figure.axes):
        assert axes.get_title().startswith(figures.element_title(group.name(element)))
        drawn = {text.get_text(): text.get_position() for text in axes.texts}
        assert drawn == {label: pytest.approx(group.matrices[element] @ corner) for label, corner in corners.items()}
        mirrors = [line for line in axes.lines if line.get_linestyle() == "--"]
        assert len(mirrors) == (element >= group.K)  # only reflections have a mirror line
        for line in mirrors:
            for point in line.get_xydata():
                assert group.matrices[element] @ point == pytest.approx(point)  # the line stays in place


def test_figure_2_has_one_panel_per_inverse_pair(tmp_path, saved):
    sections = {"WN18": [inverse_row(), inverse_row(), inverse_row("_a", "_b", SWAPPED)], "FB15k": [inverse_row()]}
    figures.figure2(sections, tmp_path)
    (figure,) = saved
    panels = visible(figure)
    assert len(figure.axes) == 6 and len(panels) == 4
    assert [panel.get_ylabel() for panel in panels] == ["WN18", "", "", "FB15k"]
    assert panels[0].get_title() == "_hypernym\n_hyponym\nones 50%, identity blocks 25%"
    assert bars_of(panels[0]) == [(x, y / 6, figures.BLUE) for x, y in ((-1, 1), (0, 2), (1, 3))]
    assert panels[2].get_title().startswith("_a\n_b\n")
    assert bars_of(panels[2]) == [(x, y / 6, figures.BLUE) for x, y in ((-1, 3), (0, 3), (1, 0))]
    assert all((panel.get_xlim(), panel.get_ylim()) == ((-1.5, 1.5), (0, 1.02)) for panel in panels)
    assert figure.get_suptitle() == "Inverse pairs: diagonal entries of the product of the two relations"


def test_bars_of_a_larger_group_do_not_overlap(tmp_path, saved):
    figures.figure2({"a": [inverse_row(diagonal={"-0.707": 4, "0": 2, "0.707": 3, "1": 9})]}, tmp_path)
    (panel,) = saved[0].axes
    assert bars_of(panel) == [(x, y / 18, figures.BLUE) for x, y in ((-0.707, 4), (0, 2), (0.707, 3), (1, 9))]
    assert max(bar.get_width() for bar in panel.patches) < 1 - 0.707


@pytest.mark.parametrize(("symmetric", "skew", "lines"), [(1, 0, 1), (1, 7, 3), (6, 6, 2)])
def test_figure_3_has_one_panel_per_relation_and_separate_lines_per_kind(tmp_path, saved, symmetric, skew, lines):
    names = [("symmetric", f"s{i}") for i in range(symmetric)] + [("skew", f"k{i}") for i in range(skew)]
    plain = [symmetry_row(kind, name) for kind, name in names]
    negatives = [symmetry_row(kind, name, first=11) for kind, name in names]
    figures.figure3(plain, negatives, tmp_path)
    (figure,) = saved
    assert len(figure.axes) == 6 * lines
    assert [panel.get_title() for panel in visible(figure)] == [f"{name}\n{kind}" for kind, name in names]
    assert legend_of(figure.axes[0]) == ["no skew negatives", "skew negatives"]
    for panel in visible(figure):
        expected = [(i - 0.2, (1 + i) / 36, figures.GREY) for i in range(8)]
        expected += [(i + 0.2, (11 + i) / 116, figures.BLUE) for i in range(8)]
        assert bars_of(panel) == sorted(expected)
        ticks = [tick.get_text() for tick in panel.get_xticklabels()]
        assert ticks == [figures.element_title(name) for name in DihedralGroup(4).names]
        assert panel.get_ylim() == (0, 0.5)


def test_figure_4_compares_the_right_order_with_the_swapped_one(tmp_path, saved):
    figures.figure4({"FAMILY": [chain_row()] * 2, "FB15k-237": [chain_row("a", "b", "c")]}, tmp_path)
    (figure,) = saved
    panels = visible(figure)
    assert [panel.get_ylabel() for panel in panels] == ["FAMILY", "", "FB15k-237"]
    assert panels[0].get_title() == "spouse\n· parent\n= parent_in_law\nidentity blocks 80%, swapped 20%"
    assert panels[2].get_title().startswith("a\n· b\n= c\n")
    assert legend_of(panels[0]) == ["right order", "swapped order"]
    for panel in panels:
        right = [(x - 0.2, y / 6, figures.BLUE) for x, y in ((-1, 1), (0, 2), (1, 3))]
        swapped = [(x + 0.2, y / 6, figures.ORANGE) for x, y in ((-1, 3), (0, 3), (1, 0))]
        assert bars_of(panel) == sorted(right + swapped)


def test_discreteness_has_one_column_per_setting_and_one_colour_per_model(tmp_path, saved):
    settings = {"WN18RR, L2 0.1": {"orthogonal": curve(0.31, 0.42), "dihedral-ste": curve(0.32, 0.43)},
                "FB15k-237, no regulariser": {"dihedral-ste": curve(0.34, 0.33)}}  # fmt: skip
    figures.discreteness(settings, tmp_path)
    (figure,) = saved
    titles = [f"{setting}: {split}" for split in ("train", "valid") for setting in settings]
    assert [panel.get_title() for panel in figure.axes] == titles
    assert [panel.get_ylim() for panel in figure.axes] == [(0.6, 1.01)] * 2 + [(0.25, 0.46)] * 2
    colours = {"dihedral-ste": figures.BLUE, "orthogonal": figures.ORANGE}
    for panel in figure.axes:
        setting, split = panel.get_title().rsplit(": ", 1)
        lines = {line.get_label(): line for line in panel.lines}
        assert set(lines) == set(settings[setting])
        for model, line in lines.items():
            assert line.get_color() == colours[model]
            assert list(line.get_xdata()) == [0, 1] and list(line.get_ydata()) == settings[setting][model][split]
    assert legend_of(figure.axes[-1]) == ["dihedral-ste"]


def test_odd_and_long_names_are_drawn(tmp_path, saved):
    pairs = [inverse_row(one, other) for one, other in zip(ODD_NAMES, reversed(ODD_NAMES), strict=True)]
    figures.figure2({"a": pairs}, tmp_path)
    figures.figure4({"a": [chain_row(*ODD_NAMES[i : i + 3]) for i in (0, 3, 6)]}, tmp_path)
    rows = [symmetry_row("symmetric", name) for name in ODD_NAMES]
    figures.figure3(rows, rows, tmp_path)
    inverse, chains, symmetric = ([axes.get_title() for axes in visible(figure)] for figure in saved)
    for i, name in enumerate(ODD_NAMES):
        shown = figures.short(name)
        assert inverse[i].startswith(f"{shown}\n") and symmetric[i] == f"{shown}\nsymmetric"
        assert shown in chains[i // 3]


def test_same_figure_is_the_same_file(tmp_path):
    content = []
    for folder in ("one", "two"):
        (tmp_path / folder).mkdir()
        content.append([path.read_bytes() for path in figures.figure4({"a": [chain_row()]}, tmp_path / folder)])
    assert content[0] == content[1]


@pytest.mark.parametrize("name", ODD_NAMES, ids=range(len(ODD_NAMES)))
def test_short_name_fits_its_panel_and_is_never_mathematics(name):
    assert len(figures.short(name)) <= 40
    assert not is_math_text(figures.short(name))


def test_freebase_path_is_shortened_to_its_end():
    name = "/people/person/places_lived./people/place_lived/location"
    assert figures.short(name) == "…/place_lived/location"
    assert figures.short(f"~{name}") == "~…/place_lived/location"


def test_elements_are_written_as_mathematics():
    assert figures.element_title("O4^1") == "$O_{4}^{(1)}$"
    assert figures.element_title("F12^10") == "$F_{12}^{(10)}$"
    assert [figures.element_title(name) for name in DihedralGroup(1).names] == ["$O_{1}^{(0)}$", "$F_{1}^{(0)}$"]
