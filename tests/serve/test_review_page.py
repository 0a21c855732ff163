"""The review page in a real browser: facts are decided by keyboard alone, and nothing is shown as kept that is not."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import expect

from dihedral.store.folder import relabel_model
from dihedral.store.reviews import Decision, Reviews
from tests.serve.conditions import wait_until
from tests.serve.servers import serving


@pytest.fixture(scope="module")
def served(family_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Path]]:
    """The address of a server, and the folder of its model, which has types; tests remove their decisions."""
    folder = Path(shutil.copytree(family_folder, tmp_path_factory.mktemp("review") / "family"))
    hostile = {"label": "<img src=x onerror=alert(1)>", "type": "Person"}
    relabel_model(folder, {"man_0000": hostile, "man_0001": {"label": "Abe", "type": "Person"}}, "en")
    with serving(folder) as address:
        yield address, folder


@pytest.fixture
def reviews(served) -> Iterator[Reviews]:
    yield Reviews(served[1])
    (served[1] / "reviews.jsonl").unlink(missing_ok=True)


@pytest.fixture
def open_page(new_page, served):
    """open_page(390): the review page at this width. Errors on the page fail the test."""
    errors = []

    def open_it(width: int = 1280, name: str = ""):
        page = new_page(viewport={"width": width, "height": 800})
        page.on("pageerror", lambda error: errors.append(str(error)))
        if name:
            page.add_init_script(f"localStorage.setItem('reviewer', {name!r})")
        page.goto(f"{served[0]}/#/review")
        page.wait_for_selector("main[data-page=review]:not([aria-busy])")
        return page

    yield open_it
    assert errors == []


def find(page) -> None:
    """Look for facts with the keyboard, unless that has been done."""
    if page.locator("button.find").count():
        for _ in range(40):
            if page.evaluate("document.activeElement.className") == "find":
                break
            page.keyboard.press("Tab")
        page.keyboard.press("Enter")
    page.wait_for_selector(".review tbody tr[aria-current]")


def current(page) -> str:
    return page.inner_text("tr[aria-current] .fact")


def is_current(page, fact: str) -> None:
    expect(page.locator("tr[aria-current] .fact")).to_have_text(fact, use_inner_text=True)


@pytest.mark.parametrize("width", [1280, 390])
def test_a_hundred_facts_are_reviewed_by_keyboard_alone(open_page, reviews, width):
    page = open_page(width)
    find(page)
    expect(page.locator(".review-progress")).to_contain_text("0 of 100 decided")
    fact = current(page)
    page.keyboard.press("a")
    expect(page.locator("dialog.ask-name input")).to_be_focused()
    page.keyboard.type("Eve")
    page.keyboard.press("Enter")
    expect(page.locator(".review-status")).to_contain_text("accepted")
    expect(page.locator("tr[data-state=accept] .fact")).to_have_text(fact, use_inner_text=True)
    expect(page.locator("tr[aria-current]")).to_be_focused()
    expect(page.locator("#review-name")).to_have_value("Eve")
    pressed = Counter("a")
    for number in range(1, 100):
        key = "aaars"[number % 5]
        if number % 25 == 3:
            page.keyboard.press("e")
            expect(page.locator("tr.witness:visible .numbers").first).to_be_visible()
        if number % 25 == 4:
            page.keyboard.press("n")
            page.keyboard.type("note a r s")
            page.keyboard.press("Enter")
        pressed[key] += 1
        page.keyboard.press(key)
    expect(page.locator(".review-progress")).to_contain_text("100 of 100 decided")
    expect(page.locator(".review tbody")).not_to_contain_text("saving")
    kept = {name: len(reviews.facts(name)) for name in ("accept", "reject", "skip")}
    assert kept == {"accept": pressed["a"], "reject": pressed["r"], "skip": pressed["s"]} and sum(kept.values()) == 100
    assert sum(each.note == "note a r s" for each in reviews.opinions("Eve").values()) == 4
    wait_until(page, f"() => document.documentElement.scrollWidth <= {width}")
    expect(page.locator("button.next")).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.locator(".review-progress")).to_contain_text("0 of 100 decided")


# Two graphs with two markers each, and the visible one uses its own. A graph is drawn again whenever its width changes.
OWN_ARROWHEAD = """() => {
  const ids = [...document.querySelectorAll(".graph marker")].map((one) => one.id);
  const shown = document.querySelectorAll("tr.witness:not([hidden])");
  const used = shown[0]?.querySelector(".edge.guess path")?.getAttribute("marker-end").slice("url(".length, -1);
  return ids.length === 4 && new Set(ids).size === 4 && shown.length === 1 && used && shown[0].querySelector(used);
}"""


def test_arrowheads_do_not_depend_on_hidden_graphs(open_page, reviews):
    page = open_page(name="Eve")
    find(page)
    for number in (1, 2):
        page.keyboard.press("e")
        expect(page.locator("tr.witness .graph svg")).to_have_count(number)
        page.keyboard.press("j")
    page.keyboard.press("k")
    page.keyboard.press("e")
    wait_until(page, OWN_ARROWHEAD)


def test_undo_goes_back_to_the_fact_and_survives_a_reload(open_page, reviews):
    page = open_page(name="Eve")
    find(page)
    first = current(page)
    page.keyboard.press("a")
    second = current(page)
    page.keyboard.press("r")
    expect(page.locator(".verdict-reject")).to_have_count(1)
    page.keyboard.press("u")
    expect(page.locator(".verdict-reject")).to_have_count(0)
    is_current(page, second)
    page.reload()
    is_current(page, second)  # the first is decided
    page.keyboard.press("u")
    expect(page.locator(".review-status")).to_contain_text("undone: accept")
    page.keyboard.press("u")
    expect(page.locator(".review-error[role=alert]")).to_contain_text("no decision that can be undone")
    assert reviews.standing() == {}
    page.reload()
    is_current(page, first)


def test_arrows_and_letters_move_and_typing_decides_nothing(open_page, reviews):
    page = open_page(name="Eve")
    find(page)
    page.locator("tr[aria-current]").focus()
    first = current(page)
    for key, other in (("j", "k"), ("ArrowDown", "ArrowUp")):
        page.keyboard.press(key)
        expect(page.locator("tr[aria-current] .fact")).not_to_have_text(first, use_inner_text=True)
        page.keyboard.press(other)
        is_current(page, first)
    page.keyboard.press("?")
    expect(page.locator("dialog.keys")).to_be_visible()
    page.keyboard.press("a")
    page.keyboard.press("Escape")
    expect(page.locator("dialog.keys")).to_be_hidden()
    page.keyboard.press("/")
    page.keyboard.type("ars")
    page.keyboard.press("Escape")
    page.keyboard.press("Control+a")
    expect(page.locator(".review-progress")).to_contain_text("0 of 100")
    assert not reviews.path.exists()


def test_a_decision_that_was_not_kept_is_not_shown_as_kept(open_page, reviews):
    page = open_page(name="Eve")
    find(page)
    page.route("**/v1/review?*", lambda route: route.abort() if route.request.method == "POST" else route.fallback())
    fact = current(page)
    page.keyboard.press("a")
    expect(page.locator(".review-error[role=alert]")).to_contain_text("Not saved")
    row = page.locator(".review tbody tr", has_text="not saved")
    expect(row).to_have_count(1)
    expect(row.locator(".fact")).to_have_text(fact, use_inner_text=True)
    expect(page.locator(".review-progress")).to_contain_text("0 of 100 decided")
    assert reviews.standing() == {}
    page.unroute("**/v1/review?*")
    page.keyboard.press("k")
    page.keyboard.press("a")
    expect(page.locator(".verdict-accept")).to_have_count(1)
    assert len(reviews.facts("accept")) == 1


def test_filters_limit_the_facts_and_decided_ones_can_be_listed(open_page, reviews, served):
    page = open_page(name="Eve")
    page.select_option("#review-relation", "spouse")
    page.wait_for_selector(".review:not([aria-busy]) button.find")
    find(page)
    assert set(page.locator(".review .fact .relation").all_inner_texts()) == {"spouse"}
    page.fill("#review-min_probability", "1")
    page.keyboard.press("Tab")
    expect(page.locator(".review")).to_contain_text("No fact that is left has this probability.")
    page.fill("#review-min_probability", "")
    page.keyboard.press("Tab")
    page.select_option("#review-relation", "")
    page.select_option("#review-type", "Person")
    page.click("button.find")
    page.wait_for_selector(".review:not([aria-busy]) tbody tr[aria-current]")
    people = ("<img src=x onerror=alert(1)>", "Abe")
    assert all(any(name in text for name in people) for text in page.locator(".review .fact").all_inner_texts())
    reviews.add(Decision(("man_0003", "spouse", "man_0004"), "reject", "Kim", "", "same person"))
    page.select_option("#review-type", "")
    page.select_option("#review-state", "reject")
    expect(page.locator(".review tbody")).to_contain_text("rejected by Kim same person")
    page.click("nav >> text=Model")
    page.wait_for_selector("main[data-page=model]")
    page.click("nav >> text=Review")
    page.wait_for_selector("main[data-page=review]:not([aria-busy])")
    expect(page.locator(".review tbody")).to_contain_text("rejected by Kim")
    with page.expect_download() as download:
        page.get_by_role("button", name="TSV").click()
    assert "man_0003\tspouse\tman_0004\treject" in Path(download.value.path()).read_text()


def test_two_reviewers_at_once_keep_their_decisions(open_page, reviews):
    eve, kim = open_page(name="Eve"), open_page(name="Kim")
    for page in (eve, kim):
        find(page)
    for _ in range(5):
        eve.keyboard.press("a")
        kim.keyboard.press("r")
    for page in (eve, kim):
        expect(page.locator(".review-progress")).to_contain_text("5 of 100 decided")
        expect(page.locator(".review tbody")).not_to_contain_text("saving")
    assert [len(reviews.opinions(name)) for name in ("Eve", "Kim")] == [5, 5] and len(reviews.disputed()) == 5


def test_a_key_that_is_held_decides_one_fact(open_page, reviews):
    page = open_page(name="Eve")
    find(page)
    page.locator("tr[aria-current]").focus()
    for _ in range(5):
        page.keyboard.down("a")  # again without up: as the keyboard repeats it
    page.keyboard.up("a")
    page.keyboard.press("r")
    expect(page.locator(".verdict-reject")).to_have_count(1)
    assert len(reviews.facts("accept")) == 1
    for _ in range(3):
        page.keyboard.down("u")
    page.keyboard.up("u")
    expect(page.locator(".verdict")).to_have_count(1)
    expect(page.locator(".review-status")).to_contain_text("undone: reject")
    assert len(reviews.standing()) == 1


def test_the_status_says_whose_decision_stands(open_page, reviews):
    page = open_page(name="Eve")
    find(page)
    fact = page.evaluate("fetch('/v1/review').then((answer) => answer.json())")["facts"][0]
    reviews.add(Decision((fact["head"], fact["relation"], fact["tail"]), "accept", "Kim", ""))
    page.keyboard.press("s")
    expect(page.locator(".review-status")).to_contain_text("accepted by Kim: ")
    expect(page.locator(".review-status")).to_contain_text("; you skipped it")
    expect(page.locator(".verdict")).to_have_text(["accepted by Kim"])
    page.keyboard.press("r")
    expect(page.locator(".review-status")).to_contain_text("rejected: ")


def test_a_note_that_was_not_saved_stays_with_its_fact(open_page, reviews):
    page = open_page(name="Eve")
    find(page)
    page.route("**/v1/review?*", lambda route: route.abort() if route.request.method == "POST" else route.fallback())
    page.keyboard.press("n")
    page.keyboard.type("seen in the archive")
    page.keyboard.press("Enter")
    page.keyboard.press("a")
    expect(page.locator(".review tbody tr", has_text="not saved")).to_contain_text("seen in the archive")
    page.unroute("**/v1/review?*")
    page.keyboard.press("r")  # another fact, which the note is not about
    expect(page.locator(".verdict-reject")).to_have_count(1)
    page.keyboard.press("k")
    page.keyboard.press("k")
    page.keyboard.press("a")
    expect(page.locator(".verdict-accept")).to_have_count(1)
    assert {each.decision: each.note for each in reviews.opinions("Eve").values()} == {
        "accept": "seen in the archive", "reject": "",
    }  # fmt: skip


def test_a_download_that_fails_says_so(open_page, reviews):
    page = open_page(name="Eve")
    page.route("**/v1/review/export?*", lambda route: route.abort())
    message = page.locator(".review-exports [role=alert]")
    page.get_by_role("button", name="RDF").click()
    expect(message).to_contain_text("Not downloaded")
    page.unroute("**/v1/review/export?*")
    with page.expect_download():
        page.get_by_role("button", name="RDF").click()
    expect(message).to_be_empty()


def test_a_reviewer_without_storage_can_decide(new_page, served, reviews):
    page = new_page()
    page.add_init_script("Object.defineProperty(window, 'localStorage', {get() { throw new Error('forbidden'); }})")
    page.goto(f"{served[0]}/#/review")
    page.wait_for_selector("main[data-page=review]:not([aria-busy])")
    find(page)
    page.fill("#review-name", "Eve")
    page.keyboard.press("Enter")
    expect(page.locator("tr[aria-current]")).to_be_focused()
    page.keyboard.press("a")
    expect(page.locator(".verdict-accept")).to_have_text(["accepted"])
    assert len(reviews.opinions("Eve")) == 1


def test_facts_are_listed_after_the_decisions_that_are_being_sent(open_page, reviews):
    page = open_page(name="Eve")
    find(page)
    sent = []

    def hold(route) -> None:
        sent.append(route)
        if route.request.method != "POST":
            route.fallback()

    page.route("**/v1/review?*", hold)
    fact = current(page)
    page.keyboard.press("a")
    expect(page.locator(".review tbody")).to_contain_text("saving")
    page.fill("#review-min_probability", "0.01")
    page.keyboard.press("Tab")
    expect(page.locator(".review")).to_have_attribute("aria-busy", "true")
    page.evaluate("fetch('/healthz').then((answer) => answer.text())")  # what was asked for earlier was sent earlier
    assert [route.request.method for route in sent] == ["POST"]
    sent[0].continue_()
    expect(page.locator(".review")).not_to_have_attribute("aria-busy", "true")
    expect(page.locator(".review-progress")).to_contain_text("0 of")
    assert fact not in page.locator(".review .fact").all_inner_texts() and len(reviews.facts("accept")) == 1


def test_without_a_name_nothing_is_decided(open_page, reviews):
    page = open_page()
    find(page)
    page.keyboard.press("a")
    page.keyboard.type("ar")  # into the dialog: these are no decisions
    page.keyboard.press("Escape")
    expect(page.locator("dialog.ask-name")).to_have_count(0)
    expect(page.locator("tr[aria-current]")).to_be_focused()
    expect(page.locator(".review-progress")).to_contain_text("0 of 100")
    assert not reviews.path.exists()


def test_a_list_of_some_facts_of_each_relation_is_in_groups(open_page, reviews):
    page = open_page(name="Eve")
    page.select_option("#review-per_relation", "5")
    expect(page.locator(".review")).not_to_have_attribute("aria-busy", "true")
    find(page)
    rows = page.locator(".review tbody tr:not(.witness)")
    groups, names = Counter(), []
    for row in rows.all():
        if "heading" in (row.get_attribute("class") or ""):
            names.append(row.inner_text())
        else:
            expect(row.locator(".relation")).to_have_text(names[-1])
            groups[names[-1]] += 1
    assert len(names) == len(set(names)) > 3 and set(groups.values()) <= set(range(1, 6))
    page.keyboard.press("a")
    expect(page.locator(".verdict-accept")).to_have_count(1)


def test_an_empty_list_says_that_filters_are_the_reason(open_page, reviews):
    page = open_page(name="Eve")
    page.select_option("#review-state", "skip")
    expect(page.locator(".review")).to_contain_text("No facts are skipped.")
    page.fill("#review-min_probability", "0.9")
    page.keyboard.press("Tab")
    expect(page.locator(".review")).to_contain_text("No skipped facts match the filters.")


ABOVE_THE_TOOLS = """() => {
  const box = (selector) => document.querySelector(selector).getBoundingClientRect();
  return box("tr[aria-current]").bottom <= box(".review-tools").top;
}"""


def test_a_phone_shows_facts_without_scrolling_and_folds_the_filters(open_page, reviews):
    page = open_page(390, name="Eve")
    find(page)
    page.evaluate("scrollTo(0, 0)")
    wait_until(page, ABOVE_THE_TOOLS)
    expect(page.locator("#review-state")).to_be_hidden()
    page.locator(".filters summary").click()
    page.select_option("#review-state", "reject")
    expect(page.locator(".review")).to_contain_text("No facts are rejected.")
