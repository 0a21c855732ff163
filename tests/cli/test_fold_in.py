"""`dihedral fold-in`: questions about entities that a model does not know."""

from __future__ import annotations

import json

import pytest

import dihedral as dh


@pytest.fixture
def facts(tmp_path):
    path = tmp_path / "new.tsv"
    path.write_text("zoe\tsibling\tman_0001\nzoe\tsibling\tyan\n")
    return path


def test_questions_about_new_entities_are_answered(cli, model_folder, facts):
    done = cli("fold-in", model_folder, "--facts", facts, "--head", "zoe", "--relation", "sibling", "--json")
    assert done.code == 0 and "2 new entities: zoe, yan" in done.err
    found = [json.loads(line) for line in done.out.splitlines()]
    assert len(found) == 10 and found[0]["head"] == "zoe"
    assert {each["tail"] for each in found if each["known"]} <= {"man_0001", "yan"}


def test_the_model_with_new_entities_is_written_to_another_folder(cli, model_folder, facts, tmp_path):
    done = cli("fold-in", model_folder, "--facts", facts, "--out", tmp_path / "grown")
    assert done.code == 0
    grown = dh.load(tmp_path / "grown")
    assert "zoe" in grown.graph.entities and "zoe" not in dh.load(model_folder).graph.entities


def test_invalid_input_is_one_sentence(cli, model_folder, facts, tmp_path):
    assert (
        "0 of --head, --relation and --tail are given; give two of them, or only --out"
        in cli("fold-in", model_folder, "--facts", facts).err
    )
    (tmp_path / "known.tsv").write_text("man_0000\tspouse\tman_0001\n")
    done = cli("fold-in", model_folder, "--facts", tmp_path / "known.tsv", "--out", tmp_path / "out")
    assert done.code == 2 and "name no entity that the model does not know" in done.err
