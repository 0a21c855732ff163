"""The command line in general: help, exit codes and one-line errors."""

from __future__ import annotations

import shlex
import subprocess
import sys

import pytest

import dihedral as dh
from dihedral.cli.main import COMMANDS, all_commands


def commands(found=None, path=()):
    """Yield each command with the words that invoke it."""
    for name, command in (found or all_commands()).items():
        if hasattr(command, "commands"):
            yield from commands(command.commands, (*path, name))
        else:
            yield (*path, name), command


ALL = dict(commands())
every_command = pytest.mark.parametrize("path", ALL, ids=" ".join)


def test_the_main_commands_exist():
    assert {"train", "evaluate", "predict", "info", "recipes", "demo"} <= {path[0] for path in ALL}
    assert {("data", "list"), ("data", "info"), ("data", "fetch"), ("data", "make-family")} <= set(ALL)


def test_the_list_of_commands_shows_what_their_own_help_starts_with(cli):
    shown = " ".join(cli("--help").out.replace("│", " ").split())
    for name, command in all_commands().items():
        assert " ".join(command.help.split("\n\n")[0].split()) in shown, name
    assert [shown.index(f" {name} ") for name in COMMANDS]


def test_the_list_of_commands_does_not_import_torch():
    script = "import sys; from dihedral.cli.main import main; sys.argv = ['dihedral', '--help']\n"
    script += "try: main()\nexcept SystemExit: pass\nassert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", script], check=True, capture_output=True)


@every_command
def test_help_contains_an_example(cli, path):
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
def test_help_lists_every_option(cli, path):
    shown = cli(*path, "--help").out
    options = [parameter for parameter in ALL[path].params if parameter.param_type_name == "option"]
    assert all(option.opts[-1] in shown for option in options)


@every_command
def test_every_argument_and_option_has_a_help_text(path):
    assert [parameter.name for parameter in ALL[path].params if not parameter.help] == []


@pytest.mark.parametrize("arguments", [(), ("data",)])
def test_help_is_shown_without_a_command(cli, arguments):
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
def test_a_usage_error_exits_with_2(cli, arguments):
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
def test_an_invalid_value_prints_one_line_and_exits_with_2(cli, tmp_path, monkeypatch, arguments, message):
    monkeypatch.chdir(tmp_path)
    done = cli(*arguments)
    assert done.code == 2 and done.out == ""
    assert done.err.startswith(message) and done.err.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


def test_a_failed_training_run_exits_with_1(cli, tmp_path):
    done = cli("train", "family", "--recipe", "demo/family", "--out", tmp_path / "x", "--set", "entity_lr=1e20")
    assert done.code == 1
    assert done.err.splitlines()[-1].startswith("error: the loss became nan in epoch 1")


def test_version_is_shown(cli):
    done = cli("--version")
    assert (done.code, done.out) == (0, f"{dh.__version__}\n")


def test_only_train_supports_several_processes(cli, model_folder, monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setenv("MASTER_ADDR", "localhost")
    done = cli("info", model_folder)
    assert done.code == 2
    assert done.err.startswith("error: torchrun started 2 processes of `dihedral info`; only `train` supports several")


def test_python_m_dihedral_runs_the_command_line(python):
    done = python("-m", "dihedral", "recipes", "demo/umls", "--json")
    assert done.returncode == 0 and '"name": "demo/umls"' in done.stdout and done.stderr == ""


ON_ONE_CORE = """
import os, sys
if hasattr(os, "sched_setaffinity"):
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
from dihedral.cli.main import main
sys.argv = ["dihedral", "data", "info", sys.argv[1]]
codes = []
for _ in range(2):
    child = os.fork()
    if child == 0:
        main()
    codes.append(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
print(*codes)
"""


def test_an_invalid_file_exits_with_2_in_a_separate_process(python, tmp_path):
    """A thread that still runs when Python exits would abort the process; one core makes that likely."""
    (tmp_path / "bad.tsv").write_text("a\tr\tb\na\tr\n")
    done = python("-c", ON_ONE_CORE, tmp_path / "bad.tsv")
    assert done.stdout == "2 2\n"
    lines = done.stderr.splitlines()
    assert len(lines) == 2 and all(line.startswith("error: ") for line in lines)
