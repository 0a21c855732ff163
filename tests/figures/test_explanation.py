"""The figure of an explanation."""

from __future__ import annotations

from types import SimpleNamespace

import matplotlib.pyplot as plt
import pytest
from matplotlib.text import Annotation

import dihedral as dh
from dihedral.figures import draw_explanation
from paper.figures import BLUE, GREY, ORANGE


def path_of(confidence, *steps, share=None):
    """A path a, r, b or a, r, b, s, c with the share of pairs that it holds for, or with what it adds to the score."""
    return SimpleNamespace(confidence=confidence, entities=steps[::2], relations=steps[1::2], share=share)


def explanation_of(*paths, triple=("ann", "aunt", "bob"), added=None):
    return SimpleNamespace(triple=triple, paths=list(paths), added=added)


def texts(axes):
    """Place and colour by text; the arrows have none."""
    found = [text for text in axes.texts if not isinstance(text, Annotation)]
    assert len({text.get_text() for text in found}) == len(found)
    return {text.get_text(): (text.get_position(), text.get_color()) for text in found}


def boxes(axes):
    return {text.get_text(): text.get_bbox_patch().get_facecolor() for text in axes.texts if text.get_bbox_patch()}


def test_every_path_has_a_lane_with_its_relations_and_share(tmp_path, saved):
    two_steps, one_step = path_of(0.75, "ann", "sister", "eve", "child", "bob"), path_of(0.5, "ann", "~niece", "bob")
    draw_explanation(explanation_of(two_steps, one_step), tmp_path / "a.png")
    (figure,) = saved
    (axes,) = figure.axes
    shown = texts(axes)
    assert set(shown) == {"ann", "bob", "aunt", "sister", "eve", "child", "~niece", "75%", "50%", "holds for"}
    assert shown["ann"] == ((0, -1), "white") and shown["bob"] == ((3, -1), "white")
    assert shown["aunt"] == ((1.5, 0.08), ORANGE) and shown["~niece"] == ((1.5, -1.92), BLUE)
    assert shown["sister"][0][1] == shown["child"][0][1] == -0.92 and shown["eve"][0] == (1.5, -1)
    assert shown["75%"] == ((3.55, -1), BLUE) and shown["50%"] == ((3.55, -2), BLUE)
    assert shown["holds for"] == ((3.55, 0), GREY)
    assert set(boxes(axes)) == {"ann", "bob", "eve"}
    assert axes.get_ylim() == (-2.6, 0.6) and figure.get_figheight() == pytest.approx(0.9 + 0.8 * 3)


def test_lines_show_the_triple_dashed_and_stronger_paths_thicker(tmp_path, saved):
    draw_explanation(
        explanation_of(path_of(1.0, "ann", "r", "bob"), path_of(0.0, "ann", "s", "bob")), tmp_path / "a.png"
    )
    (axes,) = saved[0].axes
    lanes = {line.get_ydata()[1]: line for line in axes.lines if line.get_xdata()[0] == 0.45}
    assert {y: line.get_linestyle() for y, line in lanes.items()} == {0: "--", -1: "-", -2: "-"}
    assert {y: line.get_color() for y, line in lanes.items()} == {0: ORANGE, -1: BLUE, -2: BLUE}
    assert {y: line.get_linewidth() for y, line in lanes.items()} == pytest.approx({0: 1.7, -1: 2.8, -2: 0.6})
    arrows = [text for text in axes.texts if isinstance(text, Annotation)]
    assert [arrow.xy for arrow in arrows] == [(3, -1)] * 3  # all lanes end at the tail


def test_paths_of_path_models_have_all_their_entities_and_what_they_add(tmp_path, saved):
    path = path_of(0.5, "ann", "r", "b", "s", "c", "~u", "bob", share=1.5)
    draw_explanation(explanation_of(path, added=3.0), tmp_path / "a.png")
    (axes,) = saved[0].axes
    assert set(texts(axes)) == {"ann", "bob", "aunt", "r", "b", "s", "c", "~u", "1.50", "adds to score"}
    ordered = sorted(["r", "b", "s", "c", "~u"], key=lambda name: texts(axes)[name][0][0])
    assert ordered == ["r", "b", "s", "c", "~u"]
    assert [line.get_linewidth() for line in axes.lines][-1] == pytest.approx(0.6 + 2.2 * 0.5)


def test_triple_without_paths_says_so(tmp_path, saved):
    draw_explanation(explanation_of(), tmp_path / "a.svg")
    assert set(texts(saved[0].axes[0])) == {
        "ann", "bob", "aunt", "holds for", "no path of known facts supports this triple"
    }  # fmt: skip
    assert "</svg>" in (tmp_path / "a.svg").read_text()


def test_long_names_are_shortened(tmp_path, saved):
    long = "x" * 100
    draw_explanation(explanation_of(triple=(long, long, "t")), tmp_path / "a.png")
    assert {len(name) for name in texts(saved[0].axes[0]) if name.endswith("xx")} == {22, 60}


def test_explanation_of_a_trained_model_is_drawn(predictor, tmp_path, saved):
    found = dh.explain(predictor, *next(predictor.graph.names_of(predictor.graph.train[:1])), top=3)
    draw_explanation(found, tmp_path / "a.png")
    shares = [text.get_text() for text in saved[0].axes[0].texts if text.get_position()[0] == 3.55]
    assert found.paths and shares == [*(f"{path.confidence:.0%}" for path in found.paths), "holds for"]
    assert plt.get_fignums() == []
