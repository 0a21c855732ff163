"""Whole files of questions, and the facts that a graph lacks: the same answers as one by one."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.parquet as papq
import pytest

from dihedral import DihedralError
from dihedral.inference.completion import complete, missing_facts, read_questions, write_table

QUESTIONS = [
    ("man_0000", "spouse", None), (None, "parent", "man_0001"), ("man_0002", None, "man_0003"),
    ("man_0004", "parent", None),
]  # fmt: skip


@pytest.mark.parametrize("known", ["include", "exclude"])
def test_a_table_of_answers_is_what_predict_says_one_by_one(predictor, known):
    rows = complete(predictor, QUESTIONS, top=4, known=known).to_pylist()
    for number, (head, relation, tail) in enumerate(QUESTIONS):
        wanted = predictor.predict(head=head, relation=relation, tail=tail, top=4, known=known)
        got = [row for row in rows if row["question"] == number + 1]
        assert [row["rank"] for row in got] == list(range(1, len(got) + 1))
        assert [(r["head"], r["relation"], r["tail"], r["known"]) for r in got] == [(*p[:3], p.known) for p in wanted]
        assert [r["score"] for r in got] == pytest.approx([p.score for p in wanted], abs=1e-5)
        assert [r["probability"] for r in got] == pytest.approx([p.probability for p in wanted], abs=1e-5)


def test_answers_can_be_kept_to_a_relations_range(predictor, family):
    parents = {t for _, r, t in family.labels(family.train) if r == "parent"}
    rows = complete(predictor, [("man_0004", "parent", None)], top=40, among="range").to_pylist()
    assert {row["tail"] for row in rows} == parents
    assert {p.tail for p in predictor.predict(head="man_0004", relation="parent", top=40, among="range")} == parents


def test_answers_can_be_kept_to_the_members_of_a_type(predictor, family):
    members = predictor.members("parent", "man_0001")
    assert set(members) == {h for h, r, t in family.labels(family.known) if (r, t) == ("parent", "man_0001")}
    found = predictor.predict(head="man_0004", relation="sibling", top=40, among=members)
    assert {p.tail for p in found} == set(members)


def test_missing_facts_are_the_likeliest_of_all_triples_that_are_not_known(predictor, family):
    found = missing_facts(predictor, top=25, among=None).to_pylist()
    known = set(family.labels(family.known))
    everything = [
        p
        for head in family.entities
        for relation in family.relations
        for p in predictor.predict(head=head, relation=relation, top=family.num_entities, known="exclude")
        if p.head != p.tail
    ]
    best = sorted((p.probability for p in everything), reverse=True)[:25]
    assert [row["probability"] for row in found] == pytest.approx(best, abs=1e-5)
    assert not known & {(row["head"], row["relation"], row["tail"]) for row in found}


def test_small_tiles_find_the_same_missing_facts(predictor, monkeypatch):
    whole = missing_facts(predictor, top=10, relations=["parent", "spouse"])
    monkeypatch.setattr("dihedral.inference.completion.tile_rows", lambda model, memory_mb: 3)
    apart = missing_facts(predictor, top=10, relations=["parent", "spouse"])
    assert apart["score"].to_pylist() == pytest.approx(whole["score"].to_pylist(), abs=1e-5)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("q.tsv", "man_0000\tspouse\t?\n\tparent\tman_0001\n"),
        ("q.csv", "head,relation,tail\nman_0000,spouse,\n?,parent,man_0001\n"),
        ("q.CSV", "Predicate,Subject,Object\nspouse,man_0000,\nparent,?,man_0001\n"),
    ],
)
def test_questions_are_read_from_text_with_or_without_a_header(tmp_path, name, text):
    (tmp_path / name).write_text(text)
    assert read_questions(tmp_path / name) == [("man_0000", "spouse", None), (None, "parent", "man_0001")]


def test_questions_are_read_from_parquet_in_any_order_of_columns(tmp_path):
    table = pa.table({"tail": [None], "head": ["man_0000"], "relation": ["spouse"]})
    papq.write_table(table, tmp_path / "q.parquet")
    assert read_questions(tmp_path / "q.parquet") == [("man_0000", "spouse", None)]


def test_bad_questions_are_named(predictor, tmp_path):
    with pytest.raises(DihedralError, match="question 2 lacks 2 parts"):
        complete(predictor, [("man_0000", "spouse", None), ("man_0000", None, None)])
    with pytest.raises(DihedralError, match="relation 'spouze' is not among"):
        complete(predictor, [("man_0000", "spouze", None)])
    (tmp_path / "two.tsv").write_text("a\tb\n")
    with pytest.raises(DihedralError, match=r"two\.tsv, line 1: 2 columns"):
        read_questions(tmp_path / "two.tsv")
    with pytest.raises(DihedralError, match="does not exist"):
        read_questions(tmp_path / "none.tsv")


@pytest.mark.parametrize("suffix", ["parquet", "csv", "tsv"])
def test_the_command_writes_a_table(cli, model_folder, tmp_path, suffix):
    (tmp_path / "q.tsv").write_text("man_0000\tspouse\t?\n")
    done = cli("complete", model_folder, "--queries", tmp_path / "q.tsv", "--top", 3, "--out", tmp_path / f"a.{suffix}")
    assert done.code == 0, done.err
    assert (tmp_path / f"a.{suffix}").stat().st_size > 0
    if suffix == "parquet":
        assert papq.read_table(tmp_path / "a.parquet").num_rows == 3


def test_the_command_names_missing_facts(cli, model_folder):
    done = cli("complete", model_folder, "--relation", "spouse", "--top", 3)
    assert done.code == 0 and done.out.count("spouse") == 3


def test_another_suffix_is_refused(tmp_path):
    with pytest.raises(DihedralError, match=r"must end in \.parquet, \.csv or \.tsv"):
        write_table(pa.table({"a": [1]}), tmp_path / "a.json")
