"""Every code block of the documentation runs: Python as it stands, commands of ours in this process."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

import dihedral as dh

ROOT = Path(__file__).parent.parent
PAGES = ["README.md", *sorted(f"docs/{page.name}" for page in (ROOT / "docs").glob("*.md"))]
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def blocks(page: str, language: str) -> list[str]:
    return [text for found, text in BLOCK.findall((ROOT / page).read_text(encoding="utf-8")) if found == language]


@pytest.fixture
def workplace(tmp_path, monkeypatch, benchmark_path):
    """An empty folder, with the files that examples speak of."""
    monkeypatch.chdir(tmp_path)
    benchmark_path("umls")
    return tmp_path


@pytest.mark.parametrize("page", [page for page in PAGES if blocks(page, "python")])
def test_python_runs(page, workplace):
    names: dict[str, object] = {}
    for number, text in enumerate(blocks(page, "python"), start=1):
        exec(compile(text, f"{page}, block {number}", "exec"), names)


def commands(page: str) -> list[list[str]]:
    """Lines of console blocks that begin with `dihedral`, with or without a prompt."""
    lines = [line.removeprefix("$ ") for text in blocks(page, "console") for line in text.splitlines()]
    return [shlex.split(line, comments=True)[1:] for line in lines if line.startswith("dihedral ")]


@pytest.mark.parametrize("page", [page for page in PAGES if commands(page)])
def test_commands_can_be_parsed(page):
    """Each names a command and options that exist; running them all would take hours."""
    import typer

    from dihedral.cli.main import app

    group = typer.main.get_command(app)
    for words in commands(page):
        command, rest = group, words
        while hasattr(command, "commands") and rest:
            assert rest[0] in command.commands, f"{page}: dihedral {' '.join(words)}"
            command, rest = command.commands[rest[0]], rest[1:]
        options = {name for parameter in command.params for name in (*parameter.opts, *parameter.secondary_opts)}
        for word in rest:
            if word.startswith("--"):
                assert word.partition("=")[0] in {*options, "--help"}, f"{page}: {word} of dihedral {' '.join(words)}"


def test_recipes_that_pages_name_exist():
    known = set(dh.training.recipe_names())
    for page in PAGES:
        for name in re.findall(r"--recipe ((?:best|paper|demo|algebra|case)/[\w.-]+)", (ROOT / page).read_text()):
            assert name in known, f"{page} names {name}"


def test_links_between_pages_lead_somewhere():
    for page in PAGES:
        text = (ROOT / page).read_text(encoding="utf-8")
        for target in re.findall(r"\]\(([^)#\s]+)\)", text):
            if not re.match(r"\w+:", target):
                assert ((ROOT / page).parent / target).exists(), f"{page} links to {target}"
