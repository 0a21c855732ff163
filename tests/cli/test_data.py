"""`dihedral data`."""

from __future__ import annotations

import json

import pytest

from dihedral import load_graph, make_family

NAMES = ["WN18", "WN18RR", "FB15k", "FB15k-237", "YAGO3-10", "umls", "family-neural-lp"]


@pytest.fixture
def no_benchmarks(tmp_path, monkeypatch):
    monkeypatch.delenv("DIHEDRAL_DATA", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def test_list_shows_the_path_of_available_benchmarks(cli, benchmark_path):
    path = benchmark_path("umls")
    rows = {row["name"]: row for row in cli("data", "list", "--json").rows}
    assert list(rows) == NAMES
    assert rows["umls"] == {
        "name": "umls", "entities": 135, "relations": 46, "train": 5216, "valid": 652, "test": 661, "path": str(path),
    }  # fmt: skip


def test_list_marks_unavailable_benchmarks(cli, no_benchmarks):
    assert [row["path"] for row in cli("data", "list", "--json").rows] == [None] * 7
    done = cli("data", "list")
    lines = done.out.splitlines()
    assert done.code == 0 and lines[0].split() == [
        "name",
        "entities",
        "relations",
        "train",
        "valid",
        "test",
        "available",
    ]
    assert lines[1].split() == ["WN18", "40943", "18", "141442", "5000", "5000", "no"]


def test_info_reports_the_statistics_of_a_benchmark(cli, benchmark_path):
    benchmark_path("umls")
    done = cli("data", "info", "umls", "--json")
    assert done.code == 0 and done.err == ""
    assert json.loads(done.out) == {
        "name": "umls",
        "entities": 135,
        "relations": 46,
        "train": 5216,
        "valid": 652,
        "test": 661,
        "test triples with an unseen entity": 0,
        "categories": {"1-1": 3, "1-N": 9, "N-1": 3, "N-N": 31},
        "fingerprint": load_graph("umls").fingerprint,
        "notes": [],
    }


def test_info_prints_tables(cli, benchmark_path):
    benchmark_path("umls")
    out = cli("data", "info", "umls").out
    assert ["entities", "135"] in [line.split() for line in out.splitlines()]
    assert "relations by category" in out and ["N-N", "31"] in [line.split() for line in out.splitlines()]


def test_info_reads_a_file_with_named_columns(cli, tmp_path):
    (tmp_path / "facts.csv").write_text("id,subject,verb,object\n1,a,r,b\n2,b,r,c\n")
    done = cli("data", "info", tmp_path / "facts.csv", "--columns", "subject,verb,object", "--json")
    content = json.loads(done.out)
    assert (content["name"], content["entities"], content["relations"]) == ("facts", 3, 1)
    notes = [
        "split with seed 0",
        "facts.csv: the first line is a header; columns subject, verb, object are read as head, relation, tail; "
        "not used: id",
    ]
    assert done.err == "".join(f"note: {note}\n" for note in notes) and content["notes"] == notes
    shown = cli("data", "info", tmp_path / "facts.csv", "--columns", "subject,verb,object")
    assert shown.err == done.err and "notes" not in shown.out


def test_info_of_an_rdf_file_notes_the_number_of_literals(cli, tmp_path):
    (tmp_path / "facts.ttl").write_text(
        '@prefix ex: <http://x.y/> .\nex:a ex:r ex:b ; ex:name "A" .\nex:b ex:r ex:c .\n'
    )
    done = cli("data", "info", tmp_path / "facts.ttl", "--json")
    content = json.loads(done.out)
    assert (content["name"], content["entities"], content["relations"]) == ("facts", 3, 1)
    assert "note: facts.ttl: 1 triples with a literal left out\n" in done.err


def test_fetch_prints_the_location_of_an_available_benchmark(cli, benchmark_path):
    path = benchmark_path("umls")
    done = cli("data", "fetch", "UMLS")
    assert done.code == 0
    assert done.out == f"Graph('umls': 135 entities, 46 relations, 5216 train / 652 valid / 661 test) is in {path}\n"


def test_fetch_suggests_a_name_for_an_unknown_benchmark(cli):
    done = cli("data", "fetch", "umsl")
    assert done.code == 2 and done.err.endswith("did you mean 'umls'?\n")


def test_make_family_writes_a_folder(cli, tmp_path):
    done = cli("data", "make-family", tmp_path / "family", "--people", "80", "--parents", "1", "--seed", "3")
    expected = make_family(80, parents=1, seed=3)
    assert done.code == 0 and done.out == f"wrote {expected!r} to {tmp_path / 'family'}\n"
    written = load_graph(tmp_path / "family")
    assert sorted(path.name for path in (tmp_path / "family").iterdir()) == ["test.txt", "train.txt", "valid.txt"]
    for split in ("train", "valid", "test"):
        assert list(written.names_of(written.split(split))) == list(expected.names_of(expected.split(split)))


def test_make_family_rejects_a_number_of_people_that_is_not_a_multiple_of_4(cli, tmp_path):
    done = cli("data", "make-family", tmp_path / "family", "--people", "41")
    assert done.code == 2 and done.err.startswith("error: people is 41; ")
    assert not (tmp_path / "family").exists()


def test_make_family_rejects_a_negative_seed(cli, tmp_path):
    done = cli("data", "make-family", tmp_path / "family", "--seed", "-1")
    assert done.code == 2 and "seed" in done.err


def test_make_family_reports_a_folder_that_cannot_be_created(cli, tmp_path):
    (tmp_path / "file").write_text("")
    done = cli("data", "make-family", tmp_path / "file" / "family", "--people", "40")
    assert (done.code, done.err) == (2, f"error: folder '{tmp_path}/file/family' cannot be created: Not a directory\n")


def test_a_file_can_be_cleaned_while_it_is_read(cli, tmp_path):
    (tmp_path / "facts.csv").write_text("head,relation,tail\nann,knows,bob\nAnn,knows,\nAnn,knows,eve\nann,knows,dan\n")
    assert "blank cells in 1 lines: 3;" in cli("data", "info", tmp_path / "facts.csv").err
    done = cli("data", "info", tmp_path / "facts.csv", "--skip-blank", "--merge-similar", "--json")
    assert json.loads(done.out)["entities"] == 4
