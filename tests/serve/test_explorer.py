"""The explorer in a real browser: search, facts, predictions, explanations, queries; no request to another host."""

from __future__ import annotations

import json
import re
from urllib.parse import quote, unquote

import pytest
from playwright.sync_api import expect

import dihedral as dh
from tests.serve.conditions import wait_until
from tests.serve.servers import serving


@pytest.mark.parametrize("name", ["constructor", "__proto__", "toString", "hasOwnProperty", "valueOf"])
def test_a_page_that_every_object_has_is_not_found(open_page, name):
    page = open_page(f"#/{name}/a/b/c")
    expect(page.locator("h1")).to_have_text("Not found")
    page.locator("main a").click()
    page.wait_for_selector("main[data-page=home] h1")


def test_rules_are_mined_only_when_asked_for(new_page, family_folder):
    """On a server of its own, whose rules nobody has mined yet."""
    with serving(family_folder) as address:
        page, asked = new_page(), []
        page.on("request", lambda request: asked.append(request.url))
        for route, shown in (("#/", "home"), ("#/relations", "relations"), ("#/relation/spouse", "relation")):
            page.goto(f"{address}/{route}")
            page.wait_for_selector(f"main[data-page={shown}]:not([aria-busy])")
            expect(page.locator("button.mine")).to_be_visible()
        assert all("mine=false" in url for url in asked if "/v1/rules" in url or "/v1/relation?" in url)
        page.locator("button.mine").click()
        expect(page.locator(".rules li .name").first).to_be_visible()
        page.goto(f"{address}/#/")
        page.wait_for_selector("main[data-page=home]:not([aria-busy])")
        expect(page.locator(".rules li .name").first).to_be_visible()
        expect(page.locator("button.mine")).to_have_count(0)


def test_from_a_search_to_an_explanation(open_page):
    page = open_page("")
    page.keyboard.press("/")
    page.keyboard.type("man_000", delay=20)
    expect(page.locator("#found [role=option]")).to_have_count(10)
    name = page.locator("#found [role=option]").nth(1).get_attribute("data-name")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    page.wait_for_selector("main[data-page=entity] h1")
    expect(page.locator("h1")).to_have_text(name)
    expect(page).to_have_url(re.compile(f"#/entity/{name}$"))
    expect(page.locator(".chips a")).not_to_have_count(0)
    page.locator(".guesses a").first.click()
    page.wait_for_selector("main[data-page=why] .graph svg")
    for shown in (".graph .edge", ".graph .node.end", ".similar-facts li", ".contributions svg"):
        expect(page.locator(shown)).not_to_have_count(0)
    expect(page.locator(".badge")).to_have_text("predicted")


def test_the_start_page_says_how_accurate_the_model_is_in_plain_words(open_page, models):
    page = open_page("#/")
    measured = models["family"].predictor.metrics["test"]
    shown = [f"{measured['both'][name]:.0%}".replace("%", " %") for name in ("hits@1", "hits@10")]
    expect(page.locator(".accuracy dd")).to_have_count(3)
    assert page.locator(".accuracy dd").all_inner_texts()[:2] == shown
    expect(page.locator(".accuracy")).to_contain_text(f"{measured['triples']} known facts that it was not trained on")
    expect(page.locator(".uses")).to_contain_text("facts that are missing")
    page.goto(f"{open_page.address}/#/?model=hub")
    expect(page.locator(".accuracy")).to_contain_text("Nothing was measured")


def test_the_start_page_shows_missing_facts_of_each_relation_once_they_are_looked_for(new_page, family_folder, models):
    """On a server of its own, on which nobody has looked for missing facts."""
    with serving(family_folder) as address:
        page, asked = new_page(), []
        page.on("request", lambda request: asked.append(request.url))
        page.goto(f"{address}/#/")
        expect(page.locator(".missing button.find")).to_be_visible()
        assert all("find=false" in url for url in asked if "/v1/review" in url)
        page.locator(".missing button.find").click()
        expect(page.locator(".missing .groups .group").first).to_be_visible()
        if page.locator(".missing .more").is_visible():
            page.locator(".missing .more").click()
        found = dh.missing_facts(models["family"].predictor, top=1000, per_relation=3).to_pylist()
        for relation in {row["relation"] for row in found}:
            group = page.locator(".missing .group", has=page.locator("h3 a", has_text=re.compile(f"^{relation}$")))
            facts = [f"{row['head']} → {row['tail']}" for row in found if row["relation"] == relation]
            expect(group.locator(".name")).to_have_text(facts)
        page.reload()
        expect(page.locator(".missing .groups .group").first).to_be_visible()
        page.locator(".missing .guesses a").first.click()
        page.wait_for_selector("main[data-page=why] .graph svg")


def test_the_text_of_a_search_does_not_stay_on_the_next_page(open_page):
    page = open_page("#/")
    page.fill("#search", "man_000")
    expect(page.locator("#found")).to_be_visible()
    page.click("nav >> text=Model")
    page.wait_for_selector("main[data-page=model]:not([aria-busy])")
    expect(page.locator("#search")).to_have_value("")
    expect(page.locator("#found")).to_be_hidden()


# The boxes of the links of the header.
NAV = "[...document.querySelectorAll('.top nav a')].map((one) => one.getBoundingClientRect().toJSON())"


@pytest.mark.parametrize("width", [360, 390])
def test_the_header_of_a_phone_has_all_pages_on_one_line(open_page, width):
    boxes = open_page("#/relations", width=width).evaluate(NAV)  # the current page is bold
    assert len({round(box["top"]) for box in boxes}) == 1 and max(box["right"] for box in boxes) <= width


def test_a_hub_lists_facts_of_every_relation_and_says_how_many(open_page):
    page = open_page("#/")
    page.route("**/v1/entity?*", lambda route: route.continue_(url=route.request.url.replace("top=500", "top=30")))
    page.goto(f"{open_page.address}/#/entity/entity_000?model=hub")
    expect(page.locator(".title")).to_contain_text("600 known facts of 60 relations; the first 60 are listed")
    expect(page.locator("section:not(.predicted) > .group")).to_have_count(60)


def test_labels_are_shown_with_their_ids_and_found(open_page):
    page = open_page("#/entity/man_0000?model=labelled")
    expect(page.locator("h1")).to_have_text("Jürgen Müllerman_0000")
    expect(page.locator("h1 .id")).to_have_text("man_0000")
    expect(page.get_by_text("the first")).to_be_visible()
    expect(page.locator("h3 a.relation", has_text="married to").first).to_contain_text("spouse")
    page.fill("#search", "muller jurgen")
    expect(page.locator("#found [role=option]")).to_have_count(1)
    expect(page.locator("#found [role=option] .name")).to_contain_text("Jürgen Müller")
    page.fill("#search", "MARRIED")
    expect(page.locator("#found [role=option]")).to_contain_text(["relation"])
    page.keyboard.press("Enter")
    page.wait_for_selector("main[data-page=relation] h1")
    expect(page.locator("h1 .id")).to_have_text("spouse")


def test_labels_of_one_model_are_not_shown_in_another(open_page):
    page = open_page("#/entity/man_0000?model=labelled")
    page.goto(page.url.split("#")[0] + "#/entity/man_0000?model=family")
    page.wait_for_selector("main[data-page=entity] h1")
    expect(page.locator("h1")).to_have_text("man_0000")


# One edge per step of each path, and the explained one; the graph is drawn again when its width changes.
MORE_EDGES_THAN_PATHS = """() => {
  const count = (selector) => document.querySelectorAll(selector).length;
  return count(".ways li") >= 1 && count(".graph .edge") > count(".ways li");
}"""


def test_a_supported_fact_shows_its_paths(open_page, models):
    graph = models["family"].graph
    facts = set(graph.names_of(graph.train))
    head, relation, tail = next(f for f in sorted(facts) if f[1] == "spouse" and (f[2], "spouse", f[0]) in facts)
    page = open_page(f"#/why/{head}/{relation}/{tail}")
    page.wait_for_selector(".graph .edge.fact")
    wait_until(page, MORE_EDGES_THAN_PATHS)
    expect(page.locator(".ways li").first).to_contain_text(
        re.compile("holds for .* % of [0-9,]+ other pairs?: .*match")
    )
    expect(page.locator(".badge")).to_have_text("known fact (train)")
    page.locator(".graph .node.end").last.click()
    page.wait_for_selector("main[data-page=entity]")
    expect(page.locator("h1")).to_have_text(tail)


LABEL_BOXES = "[...document.querySelectorAll('.graph .edge text')].map((one) => one.getBoundingClientRect().toJSON())"


@pytest.mark.parametrize("width", [390, 1280])
def test_labels_of_facts_between_the_same_two_do_not_overlap(open_page, models, width):
    graph = models["family"].graph
    head = next(h for h, r, _ in graph.names_of(graph.train) if r == "spouse")
    facts = [{"fact": [head, "spouse", {"variable": "x"}]}, {"fact": [{"variable": "x"}, "spouse", head]}]
    query = quote(json.dumps({"select": "x", "where": {"and": facts}}), safe="")
    page = open_page(f"#/ask/json/{query}", width=width)
    expect(page.locator(".graph .edge text")).to_have_count(2)
    one, other = page.evaluate(LABEL_BOXES)
    apart = [other["left"] - one["right"], one["left"] - other["right"]]
    apart += [other["top"] - one["bottom"], one["top"] - other["bottom"]]
    assert max(apart) >= 0, (one, other)


CUT_OFF = """() => {
  const {left, right} = document.querySelector(".graph").getBoundingClientRect();
  const boxes = [...document.querySelectorAll(".graph text")].map((one) => one.getBoundingClientRect());
  return boxes.filter((box) => box.left < left || box.right > right).map((box) => [left, right, box.left, box.right]);
}"""


@pytest.mark.parametrize("width", [390, 1280])
def test_long_names_in_an_explanation_are_not_cut_off_at_its_edge(open_page, width):
    route = "/".join(quote(name, safe="") for name in ("n" * 3000, "back", "http://example.org/n1"))
    page = open_page(f"#/why/{route}?model=odd", width=width)
    expect(page.locator(".graph .node.end text")).to_have_count(2)
    page.wait_for_load_state("networkidle")
    assert page.evaluate(CUT_OFF) == []


def test_a_fact_of_a_path_model_shows_what_its_paths_add(open_page, path_predictor):
    triple = next(path_predictor.graph.names_of(path_predictor.graph.test))
    found = dh.explain(path_predictor, *triple)
    longest = max(found.paths, key=lambda path: len(path.relations))
    page = open_page("#/why/{}/{}/{}?model=paths".format(*triple))
    page.wait_for_selector(".graph .edge.fact")
    expect(page.locator(".ways li")).to_have_count(len(found.paths))
    expect(page.locator(".ways li").first).to_contain_text(f"adds {found.paths[0].share:.2f}: ")
    expect(page.locator(".ways li").first).to_contain_text(f"rank {found.paths[0].rank_without_fact:g} without (")
    for name in longest.entities[1:-1]:
        expect(page.locator(".graph .node.between", has_text=name).first).to_be_visible()
    expect(page.get_by_role("heading", name="Similar facts")).to_have_count(0)


def test_an_empty_explanation_says_what_was_looked_for(open_page):
    page = open_page("#/why/entity_001/relation_02/entity_650?model=hub")
    expect(page.locator(".card h2")).to_have_text("No supporting path of known facts")
    expect(page.locator(".card")).to_contain_text("paths of up to 2 known facts from entity_001 to entity_650")
    expect(page.locator(".card")).to_contain_text(re.compile("joins the two|holds for no other pair"))


def test_a_fact_of_the_test_split_is_labelled(open_page, models):
    graph = models["family"].graph
    page = open_page("#/why/{}/{}/{}".format(*next(iter(graph.names_of(graph.test)))))
    expect(page.locator(".badge")).to_have_text("known fact (test)")
    expect(page.locator(".title")).to_contain_text("the model was not trained on it")


def test_tags_of_known_facts_are_explained(open_page, models):
    graph = models["family"].graph
    head = next(iter(graph.names_of(graph.valid)))[0]
    page = open_page(f"#/entity/{head}")
    note = "The model was not trained on facts that are marked valid or test."
    expect(page.locator("main")).to_contain_text(note)
    expect(page.locator(".chips small", has_text="valid").first).to_have_attribute(
        "title", re.compile("not trained on")
    )
    others = {name for split in (graph.valid, graph.test) for h, _, t in graph.names_of(split) for name in (h, t)}
    page.goto(f"{open_page.address}/#/entity/{next(name for name in graph.entities if name not in others)}")
    page.wait_for_selector("main[data-page=entity]:not([aria-busy])")
    expect(page.locator("main")).not_to_contain_text(note)


def test_a_probability_is_shown_with_its_meaning(open_page, models):
    predictor = models["family"].predictor
    answer = predictor.predict(head="man_0007", relation="parent", top=1)[0]
    page = open_page(f"#/why/{answer.head}/{answer.relation}/{answer.tail}")
    shown = page.locator(".numbers div").first
    percent = f"{answer.probability:.0%}".replace("%", " %")
    expect(shown.locator("dd")).to_have_text("< 1 %" if answer.probability < 0.01 else percent)
    expect(shown).to_have_attribute("title", "the share of such proposals that are estimated to hold")


def test_a_model_without_elements_links_to_no_empty_page(open_page):
    page = open_page("#/entity/man_0000?model=plain")
    page.wait_for_selector(".guesses a")
    expect(page.locator("main")).not_to_contain_text("explanation")
    expect(page.locator("nav [data-page=compose]")).to_be_hidden()
    expect(page.locator(".guesses a").first).to_have_attribute("href", re.compile("^#/entity/"))
    page.goto(page.url.replace("entity/man_0000", "relations"))
    page.wait_for_selector("main[data-page=relations]")
    expect(page.locator("thead th")).to_have_count(2)
    expect(page.locator("main")).not_to_contain_text("Read off")


def test_iris_have_prefixes_and_unusual_names_have_pages(open_page):
    page = open_page("#/entity/ex:n1?model=odd")
    expect(page.locator("h1")).to_have_text("ex:n1")
    expect(page.locator("h1")).to_have_attribute("title", "http://example.org/n1")
    link = page.locator(".chips a", has_text="ex:n2").first
    expect(link).to_have_attribute("href", "#/entity/http%3A%2F%2Fexample.org%2Fn2?model=odd")
    page.fill("#search", "ex:n")
    expect(page.locator("#found [role=option] .name").first).to_have_text("ex:n1")
    for route in ("entity/..", "relation/..", "relation/~back"):
        page.goto(page.url.split("#")[0] + f"#/{route}?model=odd")
        page.wait_for_selector(f"main[data-page={route.split('/')[0]}] h1")
        expect(page.locator("h1")).to_have_text(route.split("/")[1])
    page.goto(page.url.split("#")[0] + "#/compose/~back/~~back?model=odd")
    page.wait_for_selector("main[data-page=compose] .chip .turn")
    for number, pressed in enumerate(("false", "true")):
        expect(page.locator(".chip .turn").nth(number)).to_have_attribute("aria-pressed", pressed)


def test_the_calculator_multiplies_inverts_and_removes(open_page):
    page = open_page("#/compose")
    page.select_option("form select", "spouse")
    page.click("text=Add")
    page.wait_for_selector(".chip")
    page.select_option("form select", "parent")
    page.click("text=Add")
    expect(page.locator(".chip")).to_have_count(2)
    expect(page.locator(".elements li")).to_have_count(8)
    counts = [int(text) for text in page.locator(".elements .count").all_inner_texts()]
    assert sum(counts) == 32 and page.locator(".nearest li").count() <= 6
    page.click("[aria-label$='inverse of parent']")
    page.wait_for_url("**/#/compose/spouse/~parent")
    page.wait_for_selector("[aria-label$='inverse of parent'][aria-pressed=true]")
    page.click("[aria-label='remove spouse']")
    expect(page.locator(".chip")).to_have_count(1)
    page.go_back()
    expect(page.locator(".chip")).to_have_count(2)


def test_relations_are_sortable_and_link_to_their_elements(open_page, models):
    page = open_page("#/relations")
    expect(page.locator("main")).not_to_contain_text("…")
    names, cells = sorted(models["family"].graph.relations), page.locator("tbody td:first-child")
    page.click("[data-sort=name]")
    expect(cells).to_have_text(names)
    page.click("[data-sort=name]")
    expect(cells).to_have_text(names[::-1])
    rows = page.evaluate("fetch('/v1/relations').then((answer) => answer.json())")["relations"]
    for row in rows:  # what is not significant, or not in the graph, is blank
        cells = page.locator("tbody tr", has=page.locator(f"td:first-child >> text=/^{row['name']}$/")).locator("td")
        shown = row["symmetry"]["significant"] and row["mutual"]["support"] > 0
        expect(cells.nth(2)).to_have_text(re.compile("%" if shown else "^$"))
    page.click("tbody a >> text=/^spouse$/")
    page.wait_for_selector("main[data-page=relation] .elements .symmetry")
    expect(page.locator(".elements .symmetry")).to_have_count(8)
    expect(page.locator(".elements .axis")).to_have_count(4)


def test_a_relation_shows_which_components_carry_it(open_page):
    page = open_page("#/relation/parent")
    expect(page.locator("main")).to_contain_text("All 32 components have full size. The ")
    expect(page.locator(".components rect")).to_have_count(32)
    expect(page.locator(".components .zero")).to_have_count(0)
    page.goto(f"{open_page.address}/#/relation/relation_00?model=hub")
    expect(page.locator("h1")).to_have_text("relation_00")
    elements = page.evaluate(
        "fetch('/v1/relation?name=relation_00&model=hub&mine=false').then((answer) => answer.json())"
    )["elements"]
    zero, half = elements["0"], sum(count for name, count in elements.items() if "½" in name)
    said = f"Of 8 components: {zero} zero, {half} half size, {8 - zero - half} full size."
    expect(page.locator("main")).to_contain_text(said)
    expect(page.locator(".components .zero")).to_have_count(zero)


def test_the_model_page_has_metrics_and_curves(open_page):
    page = open_page("#/model")
    expect(page.locator("tbody tr")).to_have_count(2)
    expect(page.locator(".curve polyline")).to_have_count(2)


def test_the_selected_model_is_kept_across_links(open_page):
    page = open_page("#/")
    page.select_option("#models", "plain")
    expect(page.locator("h1")).to_have_text("plain")
    page.click("nav >> text=Relations")
    page.wait_for_selector("main[data-page=relations]")
    expect(page).to_have_url(re.compile(r"#/relations\?model=plain$"))
    page.click("tbody a >> text=/^spouse$/")
    expect(page.locator("main")).to_contain_text("no group elements")


def test_the_model_selector_follows_the_address(open_page):
    page = open_page("#/relations?model=plain")
    selector = page.locator("#models")
    expect(selector).to_have_value("plain")
    page.goto(f"{open_page.address}/#/entity/man_0000?model=labelled")
    page.wait_for_selector("main[data-page=entity]:not([aria-busy])")
    expect(selector).to_have_value("labelled")
    page.go_back()
    page.wait_for_selector("main[data-page=relations]:not([aria-busy])")
    expect(selector).to_have_value("plain")
    page.goto(f"{open_page.address}/#/relations")
    expect(selector).to_have_value("family")


def test_an_unknown_name_or_page_shows_an_error(new_page, address):
    page = new_page()
    page.goto(f"{address}/#/entity/man_000")
    expect(page.locator("main")).to_contain_text("not known")
    expect(page.locator("main a").first).to_have_text("man_0000")
    page.goto(f"{address}/#/nowhere")
    page.wait_for_selector("text=This page does not exist.")


def fits(page, width: int) -> None:
    """No part of a page is wider; figures are drawn again once their width is known."""
    wait_until(page, f"() => document.documentElement.scrollWidth <= {width}")


def test_pages_fit_the_width_of_a_phone(open_page):
    routes = (
        "", "#/entity/man_0000", "#/why/man_0000/spouse/woman_0020", "#/relations", "#/relation/parent",
        "#/compose/spouse/~parent/child_in_law", "#/model", "docs",
    )  # fmt: skip
    page = open_page(routes[0], width=360, height=740)
    for route in routes:
        page.goto("about:blank")  # otherwise only the fragment changes, and the old page may still be shown
        page.goto(f"{open_page.address}/{route}")
        page.wait_for_selector("main h1")
        page.wait_for_load_state("networkidle")
        fits(page, 360)


def test_a_long_table_of_relations_is_short_on_a_phone(open_page):
    page = open_page("#/relations?model=hub", width=390, height=844)
    page.wait_for_load_state("networkidle")
    expect(page.locator("tbody tr")).to_have_count(25)
    wait_until(page, "() => document.documentElement.scrollHeight < 4000")
    page.get_by_label("Filter relations by name").fill("relation_5")
    expect(page.locator("tbody tr")).to_have_count(10)
    page.get_by_label("Filter relations by name").fill("")
    page.click("text=Show all 60 relations")
    expect(page.locator("tbody tr")).to_have_count(60)


# The numbers in the text of a page that are broken over two lines.
BROKEN_NUMBERS = """() => {
  const found = [];
  const walk = document.createTreeWalker(document.querySelector("main"), NodeFilter.SHOW_TEXT);
  while (walk.nextNode()) {
    for (const match of walk.currentNode.data.matchAll(/[<>]?\\s?[\\d.,]*\\d[\\d.,]*(\\s%)?/g)) {
      const range = document.createRange();
      range.setStart(walk.currentNode, match.index);
      range.setEnd(walk.currentNode, match.index + match[0].length);
      if (new Set([...range.getClientRects()].map((box) => Math.round(box.top))).size > 1) found.push(match[0]);
    }
  }
  return found;
}"""
# What large graphs have: long names, and larger numbers.
ENLARGE = """() => {
  const longer = "/a_long_name/of_a_relation".repeat(4);
  document.querySelectorAll("td a, .name a, .name").forEach((one) => one.append(longer));
  document.querySelectorAll("td.number, .value, .count").forEach((one) => { one.textContent = "−1,234.56"; });
}"""


@pytest.mark.parametrize("width", [390, 700, 1280])
def test_numbers_are_not_broken_in_their_cells(open_page, width):
    page = open_page("#/", width=width)
    for route in ("relations", "relation/parent", "model", "entity/man_0000?model=plain", "compose/spouse/parent"):
        page.goto("about:blank")  # otherwise only the fragment changes, and the old page may still be shown
        page.goto(f"{open_page.address}/#/{route}")
        page.wait_for_selector(f"main[data-page={route.split('/')[0]}]:not([aria-busy])")
        page.wait_for_load_state("networkidle")
        page.evaluate(ENLARGE)
        wait_until(page, f"() => ({BROKEN_NUMBERS})().length === 0")
        fits(page, width)


def test_the_dark_colour_scheme_is_used_if_preferred(open_page):
    def lightness(scheme: str) -> int:
        colour = open_page("#/", scheme=scheme).evaluate("getComputedStyle(document.documentElement).backgroundColor")
        return sum(map(int, re.findall(r"\d+", colour)[:3]))

    assert lightness("dark") < 120 < 640 < lightness("light")


def test_the_api_reference_lists_the_endpoints(open_page):
    page = open_page("docs")
    expect(page.locator("main")).to_contain_text("/v1/predict")
    expect(page.locator(".endpoint").nth(12)).to_be_attached()


@pytest.mark.parametrize("storage", ["allowed", "forbidden"])
def test_the_explorer_asks_for_the_key_and_uses_it(new_page, family_folder, storage):
    with serving(family_folder, DIHEDRAL_API_KEY="sesame") as address:
        page = new_page()
        if storage == "forbidden":
            page.add_init_script("Object.defineProperty(window, 'sessionStorage', {get() { throw new Error('no'); }})")
        page.goto(address)
        page.fill("form.key input", "sesame")
        page.click("form.key button")
        expect(page.locator("h1")).to_have_text("family")


# --- queries of several facts ---------------------------------------------------------------------


def answers_of(page):
    return page.locator(".answers tbody tr:not(.witness) td:first-child")


def tree_of(page):
    return json.loads(unquote(page.url.split("#/ask/json/")[1].split("?")[0].split("/")[0]))


X, Y = {"variable": "x"}, {"variable": "y"}
PATH = {"select": "y", "where": {"and": [{"fact": ["man_0000", "spouse", X]}, {"fact": [X, "parent", Y]}]}}


def test_a_question_is_built_by_clicking_and_its_address_reopens_it(open_page, models):
    page = open_page("")
    page.click("nav >> text=Ask")
    page.wait_for_selector("main[data-page=ask] form")
    page.get_by_label("Subject of fact 1").fill("man_0000")
    page.get_by_label("Relation of fact 1").select_option("spouse")
    page.click("text=Continue from the answer")
    page.get_by_label("Relation of fact 2").select_option("parent")
    page.get_by_role("button", name="Ask", exact=True).click()
    page.wait_for_selector(".answers .graph svg")
    expected = models["family"].predictor.ask(PATH)
    names = [answer.entity for answer in expected]
    expect(answers_of(page)).to_have_text(names)
    assert tree_of(page) == PATH
    first = expected[0].facts
    expect(page.locator(".witness:visible .edge.known")).to_have_count(sum(fact.known for fact in first))
    expect(page.locator(".witness:visible .edge.guess")).to_have_count(sum(not fact.known for fact in first))
    expect(page.locator("h2[data-focus]")).to_be_focused()
    again = open_page(page.url.split("/", 3)[3])
    expect(answers_of(again)).to_have_text(names)
    expect(again.get_by_label("Object of fact 2")).to_have_value("?y")
    expect(again.get_by_label("Answer variable")).to_have_value("y")


def test_a_question_has_alternatives_and_negations(open_page, models):
    page = open_page("#/ask")
    page.get_by_label("Subject of fact 1").fill("man_0000")
    page.get_by_label("Relation of fact 1").select_option("parent")
    page.click("text=+ either … or")
    page.get_by_label("Object of fact 2").fill("?y")
    page.get_by_label("Object of fact 3").fill("?y")
    page.get_by_label("Relation of fact 2").select_option("spouse")
    page.get_by_label("Relation of fact 3").select_option("sibling")
    page.click("text=+ not")
    page.get_by_label("Relation of fact 4").select_option("child")
    page.get_by_label("Object of fact 4").fill("man_0001")
    page.click("text=+ and >> nth=-1")
    page.get_by_role("button", name="Remove fact 5").click()
    page.get_by_label("only answers that are not known").check()
    page.get_by_role("button", name="Ask", exact=True).click()
    page.wait_for_selector(".answers")
    assert tree_of(page) == {
        "select": "x",
        "where": {
            "and": [
                {"fact": ["man_0000", "parent", X]},
                {"or": [{"fact": [X, "spouse", Y]}, {"fact": [X, "sibling", Y]}]},
                {"not": {"and": [{"fact": [X, "child", "man_0001"]}]}},
            ]
        },
    }
    expected = models["family"].predictor.ask(tree_of(page), known="exclude")
    expect(page).to_have_url(re.compile("/new$"))
    expect(answers_of(page)).to_have_text([answer.entity for answer in expected])
    expect(page.get_by_label("only answers that are not known")).to_be_checked()


def test_sparql_and_the_builder_show_the_same_question(open_page):
    page = open_page("#/ask/sparql")
    page.get_by_label("SPARQL").fill(
        "SELECT ?x { <man_0000> <spouse>/<parent> ?x MINUS { ?x <sibling> <man_0001> } VALUES ?x { <man_0007> } }"
    )
    page.get_by_role("button", name="Ask", exact=True).click()
    page.wait_for_selector(".answers .graph svg")
    expect(answers_of(page)).to_have_text(["man_0007"])
    page.click(".tabs >> text=Build")
    page.wait_for_selector(".ask fieldset")
    expect(page.locator(".ask-group.not")).to_have_count(1)
    expect(page.locator(".ask")).to_contain_text("?x is one of man_0007")
    expect(answers_of(page)).to_have_text(["man_0007"])
    page.click(".tabs >> text=SPARQL")
    expect(page.locator("textarea")).to_have_value(re.compile(re.escape("MINUS { ?x <sibling> <man_0001> . }")))
    expect(answers_of(page)).to_have_text(["man_0007"])


def test_a_refused_question_stays_in_its_form(new_page, address):
    page = new_page()
    text = "SELECT ?x { <man_0000> <spose> ?x }"
    page.goto(f"{address}/#/ask/sparql/{quote(text, safe='')}")
    expect(page.locator(".refusal")).to_contain_text("relation 'spose' is not known")
    expect(page.locator(".refusal")).to_contain_text("Did you mean spouse?")
    expect(page.locator("textarea")).to_have_value(text)
    for broken in ("%7B", "%7B%7D", "null", "%7B%22select%22%3A%22x%22%2C%22where%22%3A5%7D"):
        page.goto(f"{address}/#/")
        page.wait_for_selector("main[data-page=home]")
        page.goto(f"{address}/#/ask/json/{broken}")
        page.wait_for_selector("main[data-page=ask]:not([aria-busy]) form")


def test_only_what_is_fitted_is_called_probability(open_page):
    negated = {"select": "x", "where": {"and": [PATH["where"]["and"][0], {"not": {"fact": [X, "child", "man_0001"]}}]}}
    cases = (PATH, "fitted", "Probability"), (PATH, "family", "Value"), (negated, "fitted", "Value")
    for query, model, header in cases:
        page = open_page(f"#/ask/json/{quote(json.dumps(query), safe='')}?model={model}")
        page.wait_for_selector(".answers .graph svg")
        expect(page.locator(".answers th").nth(1)).to_have_text(header)
        assert ("probability" in page.inner_text("main").lower()) == (header == "Probability")


def test_the_page_for_questions_works_with_the_keyboard_on_a_phone(open_page):
    page = open_page("#/ask/json/" + quote(json.dumps(PATH), safe=""), width=390, height=800)
    page.wait_for_selector(".answers .graph svg")
    lengthen = "one => { one.options[0].textContent = '/a/long/name/of/a/relation'.repeat(3); one.selectedIndex = 0; }"
    page.get_by_label("Relation of fact 1").evaluate(lengthen)
    fits(page, 390)
    nameless = page.locator("main :is(input, select, textarea, button)").evaluate_all(
        "all => all.filter((one) => !(one.ariaLabel || one.labels?.length || one.textContent.trim())).length"
    )
    assert nameless == 0
    second = page.locator(".answers td button").nth(1)
    second.focus()
    page.keyboard.press("Enter")
    expect(page.locator("#witness-1 svg")).to_be_visible()
    expect(second).to_have_attribute("aria-expanded", "true")
    page.keyboard.press("Enter")
    expect(page.locator("#witness-1")).to_be_hidden()
    page.get_by_label("Object of fact 2").focus()
    page.keyboard.press("Enter")  # submits the form
    expect(page.locator("h2[data-focus]")).to_be_visible()


def test_a_label_turns_no_other_text_around(open_page):
    page = open_page("#/relations")
    shown = page.evaluate(
        """import("/static/dom.js").then((dom) => {
            dom.learnLabels({ model: "x", labels: { a: "Ann \\u202e\\u2066 b\\u2028c" } });
            return dom.short("a");
        })"""
    )
    assert shown == "Ann \ufffd\ufffd b c"


def test_the_start_page_says_which_facts_it_counts(open_page):
    page = open_page("")
    expect(page.locator(".lead")).to_contain_text("(those of valid and test included)")


def test_names_that_differ_in_blanks_look_different(open_page):
    page = open_page("#/relations")
    names = page.evaluate(
        "import('/static/dom.js').then(({ short }) => ['lives in', 'lives  in'].map((name) => short(name)))"
    )
    assert names == ["lives in", "lives\u00a0 in"]  # a page shows both blanks if one cannot be merged


def test_the_relations_of_a_path_model_without_significant_values_say_so(open_page):
    page = open_page("#/relations?model=paths")
    expect(page.locator("tbody tr").first).to_be_visible()
    shown = page.locator("tbody td:nth-child(n + 3):nth-child(-n + 5):not(:empty)").count()
    expect(page.get_by_text("these cells are all blank")).to_have_count(1 if shown == 0 else 0)


def test_explanations_in_the_explorer_say_by_what_ranks_are_and_what_subtracts(open_page, path_predictor):
    triple = next(path_predictor.graph.names_of(path_predictor.graph.test))

    def answer(route):
        content = route.fetch().json()
        total = sum(path["share"] for path in content["paths"])
        first = content["paths"][0]
        first["entities"] = [*first["entities"], first["entities"][0]]
        route.fulfill(json=content | {"added": total / 2, "complete": False})

    page = open_page("#/relations?model=paths")
    page.route("**/v1/explain*", answer)
    page.evaluate("hash => { location.hash = hash }", "#/why/{}/{}/{}?model=paths".format(*triple))
    expect(page.locator(".numbers").first).to_contain_text("rank among tails by score")
    expect(page.locator(".card").first).to_contain_text("others subtract")
    expect(page.locator(".card").first).to_contain_text("The search ended early; other paths may add more.")
    expect(page.locator(".ways li").first).to_contain_text("a walk that returns to ")
