"""What a record says about how it was made."""

from __future__ import annotations

import sys

import pytest
import torch

import dihedral as dh
from dihedral.runtime.environment import environment


@pytest.fixture
def command(monkeypatch):
    """command("reproduce", "all"): the command line that a record of that call holds."""
    main = sys.modules["__main__"]

    def run(*arguments, program="/somewhere/bin/dihedral", spec=None):
        monkeypatch.setattr(main, "__spec__", spec, raising=False)
        monkeypatch.setattr(sys, "argv", [program, *arguments])
        return environment()["command"]

    return run


def test_the_command_is_the_call_without_the_programs_folder(command):
    assert command("reproduce", "table3", "--seeds", "3") == "dihedral reproduce table3 --seeds 3"


@pytest.mark.parametrize("option", ["--out", "--results"])
@pytest.mark.parametrize("place", [0, 1, 2])
def test_the_command_leaves_out_where_files_went(command, option, place):
    words = ["reproduce", "figure1"]
    words[place:place] = [option, "/tmp/secret place"]
    assert command(*words) == "dihedral reproduce figure1"


def test_an_option_joined_to_its_value_is_left_out_too(command):
    assert command("reproduce", "all", "--out=/tmp/secret", "--results=x") == "dihedral reproduce all"


def test_both_places_are_left_out_and_other_options_stay(command):
    words = ("all", "--results", "a", "--quick", "--out", "b", "--only", "best/wn18")
    assert command("reproduce", *words) == "dihedral reproduce all --quick --only best/wn18"


def test_an_option_at_the_end_without_a_value_is_left_out(command):
    assert command("reproduce", "all", "--out") == "dihedral reproduce all"


def test_a_module_is_called_as_it_was(command):
    from importlib.machinery import ModuleSpec

    spec = ModuleSpec("benchmarks.neural", None)
    assert command("--out", "x", spec=spec, program="/y/benchmarks/neural.py") == "python -m benchmarks.neural"


def test_the_package_called_as_a_module_is_the_command(command):
    from importlib.machinery import ModuleSpec

    for spec in (ModuleSpec("dihedral.__main__", None), None):  # None: in a process that a run started
        program = "/y/dihedral/__main__.py"
        assert command("reproduce", "figure1", spec=spec, program=program) == "dihedral reproduce figure1"


def test_versions_and_hardware_are_told():
    found = environment()
    assert found["dihedral"] == dh.__version__ and found["torch"] == torch.__version__
    assert found["threads"] == torch.get_num_threads()
    assert found["cpu"] and found["time"]
    assert (found["gpu"] is None) == (not torch.cuda.is_available())
