"""The drawings of the explorer in a real browser: the neighbourhood of an entity, and the map of entities."""

from __future__ import annotations

import itertools
import math
import re
import xml.etree.ElementTree as ET
from pathlib import Path

import numpy as np
import pytest
from playwright.sync_api import expect

from tests.serve.conditions import wait_until

HUB = "#/entity/entity_000/graph"
SVG = "{http://www.w3.org/2000/svg}"


@pytest.fixture
def view(open_page):
    """view(route): a page whose drawing is there."""

    def open_it(route: str, **options):
        page = open_page(route, **options)
        page.wait_for_selector(".drawing[data-drawn]")
        expect(page.locator("main[aria-busy], main [aria-busy]")).to_have_count(0)
        return page

    open_it.address = open_page.address
    return open_it


def save_svg(page, path: Path) -> ET.Element:
    with page.expect_download() as download:
        page.get_by_role("button", name="Save as SVG").click()
    download.value.save_as(path)
    return ET.parse(path).getroot()


def places(svg: ET.Element) -> dict[str, tuple[str, str]]:
    """The position of each entity in an exported drawing."""
    circles = {group[0].text: group.find(f"{SVG}circle") for group in svg if group.tag == f"{SVG}g"}
    return {name: (one.get("cx"), one.get("cy")) for name, one in circles.items() if one is not None}


def dashed(svg: ET.Element) -> list[str]:
    return [group[0].text for group in svg.iter(f"{SVG}g") if group[1].get("stroke-dasharray")]


def test_a_neighbourhood_opens_from_the_entity_and_grows_without_moving(view, open_page, tmp_path):
    page = open_page("#/entity/entity_000?model=hub")
    page.get_by_role("link", name="Neighbourhood").click()
    page.wait_for_selector(".drawing[data-drawn]")
    expect(page).to_have_url(re.compile(rf"{HUB}\?model=hub$"))
    expect(page.get_by_role("status")).to_contain_text("25 of 600 neighbours of entity_000, those with the most facts")
    before = places(save_svg(page, tmp_path / "before.svg"))
    assert len(before) == 26
    entities = page.get_by_label("Entities in the drawing")
    entities.select_option(index=1)
    entities.press("Enter")
    expect(entities.locator("option")).not_to_have_count(26)
    expect(page.locator("main [aria-busy]")).to_have_count(0)
    after = places(save_svg(page, tmp_path / "after.svg"))
    assert len(after) > 26 and {name: after[name] for name in before} == before
    assert len(set(after.values())) == len(after)


def test_a_click_in_the_drawing_expands_an_entity(view):
    page = view(f"{HUB}?model=hub")
    frame = page.locator(".drawing").bounding_box()
    entities = page.get_by_label("Entities in the drawing").locator("option")
    expect(entities).to_have_count(26)
    at = page.evaluate("document.querySelector('.drawing')._cyreg.cy.nodes()[5].renderedPosition()")
    page.mouse.click(frame["x"] + at["x"], frame["y"] + at["y"])
    expect(entities).not_to_have_count(26)


def test_a_later_answer_does_not_hide_that_facts_are_missing(view, open_page):
    page = open_page("#/model?model=hub")
    url = "/v1/neighbourhood?name=entity_000&top=25&model=hub"
    first = page.evaluate(f"fetch('{url}').then((answer) => answer.json())") | {"complete": False}
    page.route("**/v1/neighbourhood?name=*", lambda route: route.fulfill(json=first))
    page.goto(f"{open_page.address}/{HUB}?model=hub")
    page.wait_for_selector(".drawing[data-drawn]")
    page.get_by_role("button", name="Expand").click()
    expect(page.get_by_label("Entities in the drawing").locator("option")).to_have_count(41)
    expect(page.get_by_role("status")).to_contain_text("There are more facts between neighbours than are shown.")


def test_predictions_are_dashed_with_their_probability(view, tmp_path):
    page = view("#/entity/man_0000/graph?model=family")
    assert dashed(save_svg(page, tmp_path / "known.svg")) == []
    page.get_by_role("button", name="Predict").click()
    expect(page.locator(".drawn-facts .guess .value").first).to_contain_text("%")
    expect(page.locator("main [aria-busy]")).to_have_count(0)
    found = dashed(save_svg(page, tmp_path / "predicted.svg"))
    assert 1 <= len(found) <= 10 and all(label.endswith(" %") for label in found)
    page.locator(".drawn-facts .guess a").first.click()
    page.wait_for_selector("main[data-page=why] .badge.guess")


def outline(text: ET.Element) -> list[tuple[float, float]]:
    """Points along a text of an exported drawing, of which some may be turned."""
    turned = re.match(r"rotate\(([-\d.]+)", text.get("transform", ""))
    angle, size = math.radians(float(turned[1])) if turned else 0.0, float(text.get("font-size"))
    half, steps = len(text.text) * size / 4, range(-4, 5)
    x, y = float(text.get("x")), float(text.get("y"))
    return [(x + i / 4 * half * math.cos(angle), y + i / 4 * half * math.sin(angle)) for i in steps]


def test_labels_of_edges_do_not_overlap(view, models, tmp_path):
    """Of a person and then of one of the neighbours, who also know each other."""
    graph = models["family"].graph
    counts = np.bincount(graph.known[:, [0, 2]].ravel())
    page = view(f"#/entity/{graph.entities[int(counts.argmax())]}/graph")
    page.get_by_role("button", name="Predict").click()
    expect(page.locator(".drawn-facts .guess").first).to_be_visible()
    page.get_by_label("Entities in the drawing").select_option(index=1)
    svg = save_svg(page, tmp_path / "labels.svg")
    edges = [group for group in svg if group.tag == f"{SVG}g" and group.find(f"{SVG}circle") is None]
    labels = [outline(text) for group in edges for text in group.findall(f"{SVG}text")]
    assert len(labels) > 5
    for one, other in itertools.combinations(labels, 2):
        assert min(math.dist(a, b) for a in one for b in other) > 7, (one[4], other[4])


def test_a_model_without_probabilities_shows_ranks(view, tmp_path):
    page = view("#/entity/entity_000/graph?model=hub")
    page.get_by_role("button", name="Predict").click()
    expect(page.locator(".drawn-facts .guess .value").first).to_contain_text("rank")
    expect(page.locator("main [aria-busy]")).to_have_count(0)
    expect(page.locator("main")).not_to_contain_text("probability")


def test_the_filter_draws_one_relation_and_adds_its_neighbours(view, tmp_path):
    page = view(f"{HUB}?model=hub")
    page.get_by_label("Relation", exact=True).select_option("relation_07")
    expect(page.get_by_label("Entities in the drawing").locator("option")).not_to_have_count(26)
    expect(page.locator("main [aria-busy]")).to_have_count(0)
    drawn = save_svg(page, tmp_path / "filtered.svg")
    labels = {group[0].text for group in drawn.iter(f"{SVG}g") if group.find(f"{SVG}circle") is None}
    assert labels == {"relation_07"} and len(places(drawn)) == 11


def test_a_filter_that_is_taken_back_leaves_all_neighbours_within_reach(view):
    page = view(f"{HUB}?model=hub")
    status, relations = page.get_by_role("status"), page.get_by_label("Relation", exact=True)
    entities = page.get_by_label("Entities in the drawing")
    relations.select_option("relation_07")
    expect(status).to_contain_text("All 10 neighbours of entity_000 through relation_07.")
    expect(page.get_by_role("button", name="Expand")).to_be_disabled()
    other = entities.locator("option").nth(1).get_attribute("value")
    entities.select_option(other)
    entities.press("Enter")  # its neighbours through the relation alone
    expect(page.get_by_role("button", name="Expand")).to_be_disabled()
    relations.select_option("")
    expect(status).to_contain_text(re.compile(r"\b(2[5-9]|3\d) of 600 neighbours of entity_000"))
    expect(page.get_by_role("button", name="Expand")).to_be_enabled()
    expect(page.locator("main [aria-busy]")).to_have_count(0)
    count = entities.locator("option").count()
    page.get_by_role("button", name="Expand").click()
    expect(entities.locator("option")).to_have_count(count + 15)
    entities.select_option(other)
    expect(page.get_by_role("button", name="Expand")).to_be_enabled()


def test_an_exported_drawing_holds_full_names_and_shows_short_ones(view, tmp_path):
    page = view("#/entity/ex:n2/graph?model=odd")
    svg = save_svg(page, tmp_path / "odd.svg")
    assert set(places(svg)) == {"http://example.org/n1", "http://example.org/n2", ".."}
    assert {"ex:n1", "ex:n2", ".."} <= {text.text for text in svg.iter(f"{SVG}text")}


def test_five_hundred_neighbours_are_drawn(view):
    page = view(f"{HUB}/500?model=hub")
    expect(page.get_by_label("Entities in the drawing").locator("option")).to_have_count(501)
    expect(page.get_by_role("status")).to_contain_text("500 of 600 neighbours")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_drawings_fit_a_phone_and_their_controls_have_names(view, scheme):
    for route in (f"{HUB}?model=hub", "#/map?model=hub"):
        page = view(route, width=390, height=844, scheme=scheme)
        wait_until(page, "() => document.documentElement.scrollWidth <= 390")
        nameless = page.locator("main :is(input, select, button)").evaluate_all(
            "all => all.filter((one) => !(one.ariaLabel || one.labels?.length || one.textContent.trim())).length"
        )
        assert nameless == 0


def test_the_library_is_loaded_only_for_a_drawing(open_page):
    page = open_page("#/entity/man_0000")
    page.wait_for_load_state("networkidle")
    loaded = "performance.getEntriesByType('resource').some((one) => one.name.includes('/vendor/'))"
    assert not page.evaluate(loaded)
    page.get_by_role("link", name="Neighbourhood").click()
    page.wait_for_selector(".drawing[data-drawn]")
    assert page.evaluate(loaded)


# --- map ------------------------------------------------------------------------------------------


def test_the_map_says_what_its_axes_hold_and_opens_entities(view):
    page = view("#/map")
    found = page.evaluate("fetch('/v1/map').then((answer) => answer.json())")
    first, second = (f"{share:.0%}".replace("%", " %") for share in found["variance"])
    expect(page.locator(".title")).to_contain_text(f"The two axes hold {first} and {second} of the variance")
    expect(page.locator(".map-legend .count")).not_to_have_count(0)
    frame = page.locator(".map canvas").bounding_box()
    alone = max(
        range(len(found["x"])),
        key=lambda i: min(
            abs(found["x"][i] - x) + abs(found["y"][i] - y)
            for j, (x, y) in enumerate(zip(found["x"], found["y"], strict=True))
            if j != i
        ),
    )
    unit = 0.47 * min(frame["width"], frame["height"])
    x = frame["x"] + frame["width"] / 2 + found["x"][alone] * unit
    y = frame["y"] + frame["height"] / 2 - found["y"][alone] * unit
    page.mouse.move(x, y)
    expect(page.locator(".map .tip")).to_contain_text(found["names"][alone])
    page.mouse.wheel(0, -600)  # what is under the pointer stays there
    page.mouse.move(x + 1, y)
    expect(page.locator(".map .tip")).to_contain_text(found["names"][alone])
    page.mouse.click(x, y)
    page.wait_for_selector("main[data-page=entity]")
    expect(page.locator("h1")).to_have_text(found["names"][alone])


def test_the_shares_on_the_map_add_up(open_page):
    page = open_page("#/model")
    answer = page.evaluate("fetch('/v1/map').then((answer) => answer.json())") | {"variance": [0.046, 0.036]}
    page.route("**/v1/map?*", lambda route: route.fulfill(json=answer))
    page.goto(f"{open_page.address}/#/map")
    expect(page.locator(".title")).to_contain_text(
        "hold 5 % and 4 % of the variance between entities (PCA). The other 91 %"
    )


def picture(canvas) -> str:
    """What is drawn on a canvas."""
    return canvas.evaluate("one => one.toDataURL()")


def changes(canvas, before: str) -> None:
    """Wait until something else is drawn on a canvas."""
    wait_until(canvas.page, "([one, before]) => one.toDataURL() !== before", [canvas.element_handle(), before])


def test_the_map_is_searched(view, models):
    page = view("#/map")
    before = picture(page.locator(".map canvas"))
    count = sum("man_00" in name for name in models["family"].graph.entities)
    page.get_by_label("Find entities on the map").fill("man_00")
    expect(page.get_by_role("status")).to_have_text(f"{count} entities found, the first 12 are listed.")
    expect(page.locator(".found li")).to_have_count(12)
    changes(page.locator(".map canvas"), before)
    page.locator(".found a").first.click()
    page.wait_for_selector("main[data-page=entity]")


def test_the_map_moves_with_the_keyboard_and_by_dragging(view):
    page = view("#/map")
    canvas = page.locator(".map canvas")
    canvas.focus()
    for key in ("ArrowLeft", "+", "0"):
        before = picture(canvas)
        page.keyboard.press(key)
        changes(canvas, before)
    before, box = picture(canvas), canvas.bounding_box()
    page.mouse.move(box["x"] + 100, box["y"] + 100)
    page.mouse.down()
    page.mouse.move(box["x"] + 160, box["y"] + 140)
    page.mouse.up()
    changes(canvas, before)
    expect(page).to_have_url(re.compile("#/map$"))  # dragging opens no entity


def test_the_map_shows_labels(view):
    page = view("#/map?model=labelled")
    page.get_by_label("Find entities on the map").fill("jürgen")
    expect(page.locator(".found a")).to_contain_text(["Jürgen Müller"])
