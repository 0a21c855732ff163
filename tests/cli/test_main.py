"""The command line as a whole: help, exit codes, one line for an error."""

from __future__ import annotations

import shlex

import pytest
import typer

from dihedral.cli.main import app


def commands(group=None, path=()):
    """Every command with the words that call it."""
    group = group or typer.main.get_command(app)
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from commands(command, (*path, name))
        else:
            yield (*path, name), command


ALL = dict(commands())
every_command = pytest.mark.parametrize("path", ALL, ids=" ".join)


def test_these_commands_exist():
    assert {"train", "evaluate", "predict", "info", "recipes", "demo"} <= {path[0] for path in ALL}
    assert {("data", "list"), ("data", "info"), ("data", "fetch"), ("data", "make-family")} <= set(ALL)


@every_command
def test_help_shows_an_example(cli, path):
    done = cli(*path, "--help")
    assert done.code == 0
    assert f"Example: dihedral {' '.join(path)}" in done.out


@every_command
def test_the_example_is_a_valid_call(path):
    text = next(line for line in ALL[path].help.splitlines() if "Example: " in line)
    words = shlex.split(text.split("Example: dihedral ")[1])
    assert tuple(words[: len(path)]) == path
    ALL[path].make_context("dihedral", words[len(path) :])  # parses, does not run


@every_command
def test_help_explains_every_option(cli, path):
    shown = cli(*path, "--help").out
    for parameter in ALL[path].params:
        if parameter.param_type_name == "option":
            assert parameter.opts[-1] in shown


@pytest.mark.parametrize("arguments", [(), ("data",)])
def test_no_command_shows_the_help(cli, arguments):
    done = cli(*arguments)
    assert "Usage: " in done.out + done.err and "Commands" in done.out + done.err


@pytest.mark.parametrize(
    "arguments",
    [
        ("fly",),
        ("train",),
        ("train", "family"),
        ("predict", "model", "--wings"),
        ("evaluate", "model", "--memory-mb", "much"),
        ("info",),
    ],
    ids=" ".join,
)
def test_a_call_that_cannot_be_parsed_exits_with_2(cli, arguments):
    done = cli(*arguments)
    assert done.code == 2
    assert done.out == "" and "Error" in done.err and "Traceback" not in done.err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("info", "nowhere"), "error: 'nowhere' is not a model folder: it has no model.json\n"),
        (("evaluate", "nowhere"), "error: 'nowhere' is not a model folder: it has no model.json\n"),
        (("predict", "nowhere", "--head", "x", "--tail", "y"), "error: 'nowhere' is not a model folder"),
        (
            ("data", "info", "nowhere"),
            "error: file 'nowhere' does not exist; give a folder, a file or a benchmark's name\n",
        ),
        (("recipes", "nowhere"), "error: recipe 'nowhere' is unknown"),
        (("train", "family", "--recipe", "demo/family", "--out", "x", "--set", "epochs"), "error: --set got 'epochs'"),
    ],
    ids=lambda value: value[0] if isinstance(value, tuple) else "",
)
def test_a_wrong_value_is_one_line_and_exits_with_2(cli, tmp_path, monkeypatch, arguments, message):
    monkeypatch.chdir(tmp_path)
    done = cli(*arguments)
    assert done.code == 2 and done.out == ""
    assert done.err.startswith(message) and done.err.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


def test_work_that_fails_exits_with_1(cli, tmp_path):
    done = cli("train", "family", "--recipe", "demo/family", "--out", tmp_path / "x", "--set", "entity_lr=1e20")
    assert done.code == 1
    assert done.err.splitlines()[-1].startswith("error: the loss became nan in epoch 1")


def test_the_module_is_the_command_line(python):
    done = python("-m", "dihedral", "recipes", "demo/umls", "--json")
    assert done.returncode == 0 and '"name": "demo/umls"' in done.stdout and done.stderr == ""


ON_ONE_CORE = """
import os, sys
if hasattr(os, "sched_setaffinity"):
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
from dihedral.cli.main import main
sys.argv = ["dihedral", "data", "info", sys.argv[1]]
main()
"""


def test_a_bad_file_exits_with_2_from_a_process_of_its_own(python, tmp_path):
    """On one core a thread that is still at work when Python ends shows: the process would abort."""
    (tmp_path / "bad.tsv").write_text("a\tr\tb\na\tr\n")
    ended = [python("-c", ON_ONE_CORE, tmp_path / "bad.tsv") for _ in range(4)]
    assert [done.returncode for done in ended] == [2, 2, 2, 2]
    for done in ended:
        assert done.stderr.startswith("error: ") and done.stderr.count("\n") == 1
