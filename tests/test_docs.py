"""Every example of the documentation runs, shows its real output, and links to something that exists."""

from __future__ import annotations

import os
import re
import shlex
import shutil
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch

import dihedral as dh
from benchmarks.pages import pages, rewritten
from tests.pages import ROOT, PageRun, read_blocks, read_console, refreshed, same_line, same_output

GENERATED = {"docs/reference/cli.md"}  # its commands have no output
PAGES = ["README.md", *sorted(path.relative_to(ROOT).as_posix() for path in (ROOT / "docs").rglob("*.md"))]
RUN = [page for page in PAGES if page not in GENERATED]


def read(page: str) -> str:
    return (ROOT / page).read_text(encoding="utf-8")


@pytest.mark.thorough
@pytest.mark.parametrize("page", [page for page in RUN if re.search(r"^```(python|console)", read(page), re.M)])
def test_examples_run_as_shown(page, tmp_path, monkeypatch):
    if "$ curl" in read(page) and shutil.which("curl") is None:
        pytest.skip("curl is not installed")
    folder = tmp_path / "page"
    folder.mkdir()
    monkeypatch.chdir(folder)
    monkeypatch.setenv("COLUMNS", "120")
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")  # output is that of a CPU, here and in other processes
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: False)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(ROOT / "src"), os.environ.get("PYTHONPATH", "")]))
    PageRun(page, folder).run()


def test_examples_are_left_out_sparingly():
    left_out = [(page, block.line) for page in RUN for block in read_blocks(read(page)) if not block.run]
    assert len(left_out) <= 8, left_out


def commands(page: str) -> list[list[str]]:
    """The `dihedral` commands of a page's console blocks."""
    lines = [c for b in read_blocks(read(page)) if b.language == "console" for c, _ in read_console(b.text)]
    return [shlex.split(line, comments=True)[1:] for line in lines if line.startswith("dihedral ")]


@cache
def command_tree() -> dict[str, Any]:
    from dihedral.cli.main import all_commands

    return all_commands()


@pytest.mark.parametrize("page", [page for page in PAGES if commands(page)])
def test_commands_name_options_that_exist(page):
    for words in commands(page):
        found, command, rest = command_tree(), None, words
        while found and rest:
            assert rest[0] in found, f"{page}: dihedral {' '.join(words)}"
            command, rest = found[rest[0]], rest[1:]
            found = getattr(command, "commands", {})
        options = {name for parameter in command.params for name in (*parameter.opts, *parameter.secondary_opts)}
        for word in rest:
            if word.startswith("--"):
                assert word.partition("=")[0] in {*options, "--help"}, f"{page}: {word} of dihedral {' '.join(words)}"


def test_recipes_that_pages_name_exist():
    known = set(dh.learn.recipe_names())
    for page in PAGES:
        for name in re.findall(r"\b((?:best|paper|demo|algebra|case)/[\w.-]*\w)", read(page)):
            if not name.endswith((".toml", ".json", ".md")) and name.count("-"):
                assert name in known, f"{page} names {name}"


# --- structure --------------------------------------------------------------------------------------


def headings(page: str) -> set[str]:
    """The anchors of a page, as MkDocs and GitHub make them."""
    titles = re.findall(r"^#+ (.+)$", re.sub(r"^```.*?^```$", "", read(page), flags=re.M | re.S), re.M)
    return {re.sub(r"[^\w\- ]", "", title).strip().lower().replace(" ", "-") for title in titles}


def test_every_test_that_backs_a_promise_exists():
    """SECURITY.md names each with its file, which is in tests/serve/ unless it names another folder."""
    named = re.findall(r"`((?:[\w/]+/)?test_\w+\.py)::(\w+)`", (ROOT / "SECURITY.md").read_text("utf-8"))
    for file, test in named:
        path = ROOT / (file if "/" in file else f"tests/serve/{file}")
        assert f"def {test}(" in path.read_text("utf-8"), (file, test)
    assert len(named) > 50


def test_links_between_pages_lead_somewhere():
    for page in PAGES:
        for target, anchor in re.findall(r"\]\(([^)#\s]*)(?:#([^)\s]+))?\)", read(page)):
            if re.match(r"\w+:", target):
                continue
            path = (ROOT / page).parent / target if target else ROOT / page
            assert path.exists(), f"{page} links to {target}"
            if anchor and path.suffix == ".md":
                linked = Path(os.path.relpath(path.resolve(), ROOT)).as_posix()
                assert anchor in headings(linked), f"{page} links to {target}#{anchor}"


def test_the_site_has_every_page():
    nav = re.findall(r": ([\w./-]+\.md)$", read("mkdocs.yml"), re.M)
    assert sorted(nav) == sorted(page.removeprefix("docs/") for page in PAGES if page.startswith("docs/"))


def test_the_architecture_names_files_that_exist():
    for path in re.findall(r"`((?:\w+/)*\w+\.(?:py|js))`", read("docs/architecture.md")):
        exists = (ROOT / path).exists() or (ROOT / "src/dihedral" / path).exists()
        assert exists, f"docs/architecture.md names {path}"


def test_the_security_policy_names_tests_that_exist():
    named = re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", read("SECURITY.md"))
    assert len(named) > 15
    missing = [f"{file}::{name}" for file, name in named if f"def {name}(" not in read(file)]
    assert missing == []


def test_readme_is_short_and_names_both_commands():
    text = read("README.md")
    assert len(text.splitlines()) < 150
    console = "".join(block.text for block in read_blocks(text) if block.language == "console")
    for target in ("demo", "test"):
        assert re.search(rf"^make {target}\b", console, re.M)
        assert re.search(rf"^{target}:", read("Makefile"), re.M)


@pytest.mark.parametrize("page", pages(), ids=lambda page: page.stem)
def test_tables_are_generated_from_the_records(page):
    text = page.read_text(encoding="utf-8")
    assert rewritten(text) == text, "run `python -m benchmarks.pages`"


def test_http_reference_lists_every_endpoint():
    pytest.importorskip("fastapi")
    from dihedral.serve.app import create_app

    schema = create_app({}).openapi()
    rows = re.findall(r"^\| `(/[^`]*)` \| ([A-Z, ]+) \|([^|]*)\|", read("docs/reference/http.md"), re.M)
    listed = {path: (sorted(methods.split(", ")), set(re.findall(r"`(\w+)`", cells))) for path, methods, cells in rows}
    assert listed == {path: described(methods, schema) for path, methods in schema["paths"].items()}


def described(methods: dict, schema: dict) -> tuple[list[str], set[str]]:
    """The methods of an endpoint and what it is asked, apart from the model and names in its path."""
    names = {
        each["name"] for method in methods.values() for each in method.get("parameters", ()) if each["in"] == "query"
    }
    for reference in re.findall(r"#/components/schemas/(\w+)", str([m.get("requestBody") for m in methods.values()])):
        names |= set(schema["components"]["schemas"][reference]["properties"])
    return sorted(method.upper() for method in methods), names - {"model"}


# --- the comparison itself --------------------------------------------------------------------------


def test_shown_output_may_leave_out_lines_and_differ_in_rounding():
    assert same_output(["a", "...", "c"], ["a", "b", "b", "c"])
    assert not same_output(["a", "c"], ["a", "b", "c"])
    assert same_line("score  0.501, about ... on one core", "score 0.501, about 4 s on one core")
    assert same_line("man_0892  0.512", "man_0892 0.513")
    assert not same_line("man_0892  0.512", "man_0892 0.514")
    assert not same_line("man_0892  0.99", "man_0892 0.87")
    assert same_line("1.25e-05 at 3.00", "1.26e-05 at 3.01") and not same_line("1.25e-05", "1.27e-05")
    assert same_line('"p":0.8162305032740379', '"p":0.8162305032740383')
    assert not same_line('"p":0.8162305032740379', '"p":0.8162305132740379')
    assert not same_line("1,024 facts", "1,025 facts")
    assert not same_line("man_0892  0.512", "man_0893 0.512")
    assert not same_line("rank 1", "rank 2")
    assert same_line("K=4  0.857  complete  ...  0", "K=4 0.858 complete 1.5 0")
    assert not same_line("K=4  0.857  complete  ...  0", "K=4 0.657 complete 1.5 0")


def test_refreshed_output_leaves_out_what_the_page_leaves_out():
    assert refreshed(["a 1", "...", "z"], ["b 2", "c", "d", "y"]) == ["b 2", "...", "y"]
    assert refreshed(["K=4  0.9  well  ...  0"], ["K=4  0.8  complete  1.5  0"]) == ["K=4  0.8  complete  ...  0"]


def test_console_blocks_are_read_with_prompts_and_without():
    assert list(read_console("$ ls\na\nb\n$ pwd\n")) == [("ls", ["a", "b"]), ("pwd", [])]
    assert list(read_console("ls\npwd\n")) == [("ls", None), ("pwd", None)]
    assert list(read_console("$ curl -d '{\n}'\nok\n")) == [("curl -d '{\n}'", ["ok"])]
