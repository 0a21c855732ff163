"""Fixtures: small models on disk, and the application that serves them."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient
from playwright.sync_api import Browser, Page, expect, sync_playwright

import dihedral as dh
from dihedral.graph.triples import Graph
from dihedral.graph.vocabulary import Vocabulary
from dihedral.probability.calibration import Calibration
from dihedral.serve.app import create_app
from dihedral.serve.served_model import ServedModel, read_models
from dihedral.store.folder import relabel_model
from tests.serve.servers import serving
from tests.small_graphs import small_probabilities

ARGUMENTS = [
    "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-background-networking",
    "--disable-component-update", "--disable-sync",
]  # fmt: skip
PROGRAMS = ("chromium", "chromium-browser", "google-chrome")
MAX_WAIT = 120_000  # milliseconds, for what never happens; a busy machine may be slow
expect.set_options(timeout=MAX_WAIT)
QUICK = {
    "test_a_question_is_built_by_clicking_and_its_address_reopens_it",
    "test_arrowheads_do_not_depend_on_hidden_graphs",
    "test_from_a_search_to_an_explanation",
    "test_predictions_are_dashed_with_their_probability",
    "test_undo_goes_back_to_the_fact_and_survives_a_reload",
}  # the tests with a browser that `make test` runs; `make test-all` runs the others


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if "browser" in getattr(item, "fixturenames", ()) and item.name not in QUICK:
            item.add_marker("thorough")


@pytest.fixture(scope="session")
def family_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model of 80 people, with its training log, and without probabilities of answers to queries."""
    folder = tmp_path_factory.mktemp("serving") / "family"
    with pytest.MonkeyPatch.context() as patch, small_probabilities():
        patch.setattr("dihedral.learn.finish.fit_answers", lambda *_: None)  # as in a graph that is too small
        dh.train(dh.make_family(80), "demo/family", dimension=64, epochs=20, progress=False, device="cpu", out=folder)
    return folder


@pytest.fixture(scope="session")
def fitted_folder(family_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same model with probabilities of answers to queries."""
    predictor = dh.load(family_folder)
    curves = [{"knots": [-15, 15], "heights": [0, 10]}, {"knots": [-10, 0], "heights": [0, 0]}]
    fit = {"curves": curves, "offsets": [-5, -5, -5], "z": [-10, 10], "probability": [0.001, 0.9]}
    content = predictor.calibration.to_dict() | {"queries": fit}
    predictor.trained.calibration = Calibration.from_dict(content, predictor.graph.relations)
    folder = tmp_path_factory.mktemp("serving") / "fitted"
    predictor.save(folder)
    return folder


@pytest.fixture(scope="session")
def plain_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model without group elements."""
    folder = tmp_path_factory.mktemp("serving") / "plain"
    recipe = dh.Recipe(model="complex", dimension=8, epochs=1)
    dh.train(dh.make_family(40), recipe, progress=False, device="cpu").save(folder)
    return folder


@pytest.fixture(scope="session")
def odd_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """IRIs with a prefix, a name that cannot be part of a path, a long name, and a relation named like an inverse."""
    ex, long = "http://example.org/", "n" * 3000
    entities = Vocabulary([f"{ex}n1", f"{ex}n2", "..", long], prefixes={"ex": ex})
    relations = Vocabulary([f"{ex}knows", "~back", "..", "back"], "relation", {"ex": ex})
    facts = np.array([(i, r, (i + 1) % 4) for i in range(4) for r in range(4)], np.int32)
    graph = Graph(entities, relations, facts, facts[:0], facts[:0])
    folder = tmp_path_factory.mktemp("serving") / "odd"
    dh.train(graph, dh.Recipe(dimension=4, epochs=1), progress=False, device="cpu").save(folder)
    return folder


@pytest.fixture(scope="session")
def hub_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An entity with 600 neighbours, which have 400 facts with each other, and 60 relations; graded elements."""
    rng = np.random.default_rng(0)
    spokes = [(0, i % 60, i) if i % 2 else (i, i % 60, 0) for i in range(1, 601)]
    others = [(int(h), int(r), 1 + int(h + d) % 699) for h, r, d in rng.integers((1, 0, 1), (700, 60, 90), (400, 3))]
    facts = np.unique(np.array(spokes + others, np.int32), axis=0)
    names = [f"entity_{i:03}" for i in range(700)], [f"relation_{i:02}" for i in range(60)]
    graph = Graph(Vocabulary(names[0]), Vocabulary(names[1], "relation"), facts, facts[:0], facts[:0])
    folder = tmp_path_factory.mktemp("serving") / "hub"
    recipe = dh.Recipe(dimension=16, epochs=1, levels="1, 1/2, 0")
    dh.train(graph, recipe, progress=False, device="cpu").save(folder)
    return folder


@pytest.fixture(scope="session")
def labelled_folder(family_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The model of 80 people with labels, two of them the same."""
    folder = tmp_path_factory.mktemp("labelled") / "family"
    shutil.copytree(family_folder, folder)
    content = {"man_0000": {"label": "Jürgen Müller", "description": "the first"}, "spouse": "married to"}
    relabel_model(folder, content | {"man_0001": "José", "man_0002": "José"}, "en")
    return folder


@pytest.fixture(scope="session")
def models(family_folder: Path, plain_folder: Path) -> dict[str, ServedModel]:
    return read_models([str(family_folder), f"other={plain_folder}"])


@pytest.fixture(scope="session")
def app(models: dict[str, ServedModel]) -> FastAPI:
    return create_app(models)


@pytest.fixture(scope="session")
def client(app: FastAPI) -> Iterator[TestClient]:
    with TestClient(app, raise_server_exceptions=False) as client:
        yield client


@pytest.fixture(scope="session")
def wide_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model with 40,000 relations."""
    count = 40_000
    rng = np.random.default_rng(0)
    facts = np.stack([rng.integers(0, 500, count), np.arange(count), rng.integers(0, 500, count)], axis=1)
    relations = Vocabulary([f"relation_of_kind_{i:05}" for i in range(count)], "relation")
    graph = Graph(Vocabulary([f"e{i}" for i in range(500)]), relations, facts.astype(np.int32), facts[:0], facts[:0])
    folder = tmp_path_factory.mktemp("serving") / "wide"
    dh.train(graph, dh.Recipe(dimension=8, epochs=1), progress=False, device="cpu").save(folder)
    return folder


def require_chromium(installed_by_playwright: str) -> str:
    """The path of a Chromium; without one, the test is skipped, or fails if CI=true."""
    for program in (installed_by_playwright, *PROGRAMS):
        if path := shutil.which(program):
            return path
    message = "these tests need Chromium; run `playwright install chromium` or `apt install chromium`"
    if os.environ.get("CI") == "true":
        pytest.fail(message)
    pytest.skip(message)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """A browser for one module, because no other test can use asyncio while Playwright runs."""
    with sync_playwright() as playwright:
        program = require_chromium(playwright.chromium.executable_path)
        browser = playwright.chromium.launch(executable_path=program, args=ARGUMENTS, timeout=MAX_WAIT)
        yield browser
        browser.close()


@pytest.fixture
def new_page(browser: Browser) -> Iterator[Callable[..., Page]]:
    """new_page(color_scheme="dark"): a page in a context of its own with these options."""
    contexts = []

    def create(**options: Any) -> Page:
        context = browser.new_context(**options)
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(MAX_WAIT)
        return page

    yield create
    for context in contexts:
        context.close()


@pytest.fixture(scope="session")
def address(
    family_folder: Path, plain_folder: Path, odd_folder: Path, fitted_folder: Path, labelled_folder: Path,
    hub_folder: Path, path_model_folder: Path,
) -> Iterator[str]:  # fmt: skip
    """The address of a server in another process."""
    named = {"plain": plain_folder, "odd": odd_folder, "fitted": fitted_folder}
    named |= {"labelled": labelled_folder, "hub": hub_folder, "paths": path_model_folder}
    with serving(family_folder, *(f"{name}={folder}" for name, folder in named.items())) as address:
        yield address


@pytest.fixture
def open_page(new_page: Callable[..., Page], address: str) -> Iterator[Any]:
    """open_page("#/relations"): a page. Errors in the console and requests to other hosts fail the test."""
    requests, errors = [], []

    def open_it(route: str, width: int = 1200, height: int = 900, scheme: str = "light") -> Page:
        page = new_page(viewport={"width": width, "height": height}, color_scheme=scheme)
        page.on("request", lambda request: requests.append(request.url))
        page.on("console", lambda message: errors.append(message.text) if message.type == "error" else None)
        page.on("pageerror", lambda error: errors.append(str(error)))
        page.goto(f"{address}/{route}")
        page.wait_for_selector("main h1")
        return page

    open_it.address = address
    yield open_it
    assert [url for url in requests if not url.startswith((address, "about:"))] == []
    assert errors == []
