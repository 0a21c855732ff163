"""The model card describes the folder and never prevents a model from loading."""

from __future__ import annotations

import re

import pytest

import dihedral as dh
from dihedral import Graph, Predictor
from dihedral.models import build_model
from dihedral.store.trained import TrainedModel


@pytest.fixture
def folder(predictor, tmp_path):
    predictor.save(tmp_path / "model")
    return tmp_path / "model"


def table_rows(card):
    """The rows of all tables in a card."""
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in card.splitlines() if line.startswith("|")]


def test_the_card_covers_data_metrics_use_recipe_and_limitations(predictor, family, folder):
    card = (folder / "README.md").read_text()
    headings = [line[3:] for line in card.splitlines() if line.startswith("## ")]
    assert headings == ["Data", "Metrics", "Use", "Recipe", "Limitations"]
    rows = table_rows(card)
    assert ["name", "`family`"] in rows and ["entities", "40"] in rows and ["relations", "6"] in rows
    assert ["train triples", str(len(family.train))] in rows
    assert ["fingerprint", f"`{family.fingerprint}`"] in rows
    assert ["`model`", "`dihedral-gumbel`"] in rows and ["`seed`", "`0`"] in rows
    assert "8 elements of the dihedral group D_4" in card


@pytest.mark.parametrize("split", ["valid", "test"])
def test_the_card_gives_both_protocols_of_a_split(predictor, folder, split):
    rows = table_rows((folder / "README.md").read_text())
    report = predictor.metrics[split]
    for name, count, values in (
        ("all", report["triples"], report["both"]),
        ("seen entities", report["seen_only"]["triples"], report["seen_only"]),
    ):
        row = next(row for row in rows if row[:2] == [split, name])
        assert row[2:4] == [str(count), f"{values['mrr']:.4f}"]
        assert row[4:7] == [f"{values[f'hits@{k}']:.4f}" for k in (1, 3, 10)]


def test_the_card_says_which_known_answers_are_left_out(folder):
    assert "those of train and valid for the split valid, of all splits for test" in (folder / "README.md").read_text()


def test_the_example_in_the_card_runs(folder):
    code = (folder / "README.md").read_text().split("```python\n")[1].split("```")[0]
    exec(code.replace("path/to/this/folder", str(folder)), {})


def test_a_loaded_model_writes_the_same_card(folder, tmp_path):
    dh.load(folder).save(tmp_path / "again")
    assert (tmp_path / "again" / "README.md").read_text() == (folder / "README.md").read_text()


@pytest.mark.parametrize("change", ["edit", "remove"])
def test_a_model_loads_with_an_edited_or_removed_card(predictor, folder, change):
    if change == "edit":
        (folder / "README.md").write_text("mine")
    else:
        (folder / "README.md").unlink()
    assert dh.load(folder).graph.fingerprint == predictor.graph.fingerprint


def test_a_new_model_replaces_a_generated_card_but_not_a_users_text(family, folder):
    other = Predictor(TrainedModel(build_model("complex", 40, 6, dimension=4), family))
    other.save(folder, overwrite=True)
    assert "`complex` model" in (folder / "README.md").read_text()
    (folder / "README.md").write_text("mine")
    other.save(folder, overwrite=True)
    assert (folder / "README.md").read_text() == "mine"


def test_the_card_of_a_model_that_was_not_evaluated(family, tmp_path):
    Predictor(TrainedModel(build_model("transe", 40, 6, dimension=4), family)).save(tmp_path / "model")
    card = (tmp_path / "model" / "README.md").read_text()
    assert "This model has not been evaluated." in card and "Not recorded." in card and "D_" not in card


def test_markdown_in_names_is_escaped(tmp_path):
    graph = Graph.from_names([("a`b", "*r*|s", "c")], name="my|da`ta")
    Predictor(TrainedModel(build_model("dihedral-ste", 2, 1, dimension=4), graph)).save(tmp_path / "model")
    card = (tmp_path / "model" / "README.md").read_text()
    assert "# Link prediction on `` my|da`ta ``" in card and "| name | `` my\\|da`ta `` |" in card
    assert "predict(head='a`b', relation='*r*|s', top=10)" in card


@pytest.mark.parametrize("name", ["a`b", "``", "a ``` b", "\x1b[2J|", "<script>alert(1)</script>", "![x](http://e/x)"])
def test_no_name_leaves_its_code(tmp_path, name):
    graph = Graph.from_names([(name, name, "b")], name=name)
    Predictor(TrainedModel(build_model("distmult", 2, 1, dimension=4), graph)).save(tmp_path / "model")
    card = (tmp_path / "model" / "README.md").read_text()
    assert "\x1b" not in card
    title = card.splitlines()[1]
    marks = re.search("`+", title)[0]
    assert len(marks) > max(map(len, re.findall("`+", name)), default=0) and title.count(marks) == 2


def test_blanks_in_names_are_all_shown(family, tmp_path):
    graph = family.replace(notes=("the names 'lives in' and 'lives  in' differ in blanks",))
    Predictor(TrainedModel(build_model("dihedral-ste", 40, 6, dimension=4), graph)).save(tmp_path / "model")
    assert "'lives in' and 'lives\u00a0 in'" in (tmp_path / "model" / "README.md").read_text()  # not merged by Markdown


def test_the_card_contains_the_notes_of_the_graph(family, tmp_path):
    graph = dh.load_graph(family.to_arrow().drop_columns("split"))
    Predictor(TrainedModel(build_model("dihedral-ste", 40, 6, dimension=4), graph)).save(tmp_path / "model")
    assert "- `split with seed 0`" in (tmp_path / "model" / "README.md").read_text()
