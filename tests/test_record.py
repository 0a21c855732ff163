"""The description of how a result was produced."""

from __future__ import annotations

import sys

import pytest
import torch

import dihedral as dh
from benchmarks.record import environment


@pytest.fixture
def command(monkeypatch):
    """command("reproduce", "all") returns the recorded command line of that call."""
    main = sys.modules["__main__"]

    def run(*arguments, program="/somewhere/bin/dihedral", spec=None):
        monkeypatch.setattr(main, "__spec__", spec, raising=False)
        monkeypatch.setattr(sys, "argv", [program, *arguments])
        return environment()["command"]

    return run


def test_the_command_omits_the_folder_of_the_program(command):
    assert command("reproduce", "table3", "--seeds", "3") == "dihedral reproduce table3 --seeds 3"


@pytest.mark.parametrize("option", ["--out", "--results"])
@pytest.mark.parametrize("place", [0, 1, 2])
def test_the_command_omits_output_folders(command, option, place):
    words = ["reproduce", "figure1"]
    words[place:place] = [option, "/tmp/secret place"]
    assert command(*words) == "dihedral reproduce figure1"


def test_the_command_omits_output_folders_given_with_an_equals_sign(command):
    assert command("reproduce", "all", "--out=/tmp/secret", "--results=x") == "dihedral reproduce all"


def test_the_command_keeps_other_options(command):
    words = ("all", "--results", "a", "--quick", "--out", "b", "--only", "best/wn18")
    assert command("reproduce", *words) == "dihedral reproduce all --quick --only best/wn18"


def test_the_command_omits_a_trailing_option_without_a_value(command):
    assert command("reproduce", "all", "--out") == "dihedral reproduce all"


def test_the_command_of_a_module_names_the_module(command):
    from importlib.machinery import ModuleSpec

    spec = ModuleSpec("benchmarks.neural", None)
    assert command("--out", "x", spec=spec, program="/y/benchmarks/neural.py") == "python -m benchmarks.neural"


def test_the_package_run_as_a_module_is_recorded_as_the_program(command):
    from importlib.machinery import ModuleSpec

    for spec in (ModuleSpec("dihedral.__main__", None), None):  # None: in a child process
        program = "/y/dihedral/__main__.py"
        assert command("reproduce", "figure1", spec=spec, program=program) == "dihedral reproduce figure1"


def test_versions_and_hardware_are_recorded():
    found = environment()
    assert found["dihedral"] == dh.__version__ and found["torch"] == torch.__version__
    assert found["threads"] == torch.get_num_threads()
    assert found["cpu"] and found["time"]
    assert (found["gpu"] is None) == (not torch.cuda.is_available())
