"""axe-core finds nothing serious on any page of the explorer, and no text is fainter than 4.5:1."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import pytest
from playwright.sync_api import expect

from tests.serve.servers import serving

QUERY = {"select": "x", "where": {"and": [{"fact": ["man_0000", "spouse", {"variable": "x"}]}]}}
ROUTES = [
    "#/", "#/entity/man_0000", "#/why/man_0000/spouse/woman_0020", "#/relations", "#/relation/parent", "#/compose",
    "#/compose/spouse/~parent", "#/ask", f"#/ask/json/{quote(json.dumps(QUERY), safe='')}", "#/ask/sparql/SELECT",
    "#/model", "#/review", "#/nowhere", "#/entity/man_0000?model=plain", "docs",
]  # fmt: skip
FAINT = """() => {
  const rgb = (text) => (text.match(/[\\d.]+/g) ?? []).map(Number);
  const linear = (v) => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4;
  const light = ([r, g, b]) => 0.2126 * linear(r / 255) + 0.7152 * linear(g / 255) + 0.0722 * linear(b / 255);
  const behind = (node) => {
    for (let at = node; at; at = at.parentElement) {
      const colour = rgb(getComputedStyle(at).backgroundColor);
      if (colour.length === 3 || colour[3] === 1) return colour;
    }
    return [255, 255, 255];
  };
  const ratio = (a, b) => (Math.max(light(a), light(b)) + 0.05) / (Math.min(light(a), light(b)) + 0.05);
  const all = (selector) => [...document.querySelectorAll(selector)].filter((node) => node.getClientRects().length);
  const texts = all("svg text").map((node) => [node, getComputedStyle(node).fill]);
  const hints = all("[placeholder]").map((node) => [node, getComputedStyle(node, "::placeholder").color]);
  return [...texts, ...hints].map(([node, colour]) => [node.outerHTML, ratio(rgb(colour), behind(node))])
    .filter(([, value]) => value < 4.5);
}"""  # axe does not look at text in pictures, nor at placeholders


@pytest.fixture(scope="module")
def address(family_folder: Path, plain_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = shutil.copytree(family_folder, tmp_path_factory.mktemp("axe") / "family")
    with serving(folder, f"plain={plain_folder}") as address:
        yield address


def use_review(page) -> None:
    """Bring up everything that the review page can show."""
    if page.locator("button.find").count():
        page.click("button.find")
    page.wait_for_selector(".review tbody tr")
    page.fill("#review-name", "Eve")
    page.keyboard.press("Enter")
    page.wait_for_selector("tr[aria-current]:focus")
    for key in "ars":
        page.keyboard.press(key)
    expect(page.locator(".verdict")).to_have_count(3)
    page.keyboard.press("e")
    page.wait_for_selector("tr.witness:not([hidden]) .graph svg")


@pytest.mark.parametrize("route", ROUTES)
@pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), (390, "dark")], ids=["wide-light", "narrow-dark"])
def test_axe_finds_nothing_serious(new_page, address, fixtures, route, width, scheme):
    page = new_page(viewport={"width": width, "height": 900}, color_scheme=scheme)
    page.goto(f"{address}/{route}")
    page.wait_for_selector("main h1")
    page.wait_for_load_state("networkidle")
    if route == "#/review":
        use_review(page)
    page.evaluate((fixtures / "axe" / "axe.min.js").read_text(encoding="utf-8"))
    found = page.evaluate("axe.run(document, {resultTypes: ['violations']})")["violations"]
    serious = [(each["id"], [node["html"][:200] for node in each["nodes"]]) for each in found
               if each["impact"] in ("serious", "critical")]  # fmt: skip
    assert serious == []
    assert page.evaluate(FAINT) == []
