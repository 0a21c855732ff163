"""Labels: read from files, tables and RDF, chosen by language, shown with names and accepted instead of them."""

from __future__ import annotations

import json

import pyarrow as pa
import pyarrow.parquet as papq
import pytest

import dihedral as dh
from dihedral import DihedralError
from dihedral.graph.labels import parse_languages
from dihedral.graph.types import types_of
from dihedral.graph.vocabulary import AmbiguousNameError

GRAPH = dh.Graph.from_names([("Q42", "P106", "Q36180"), ("Q90", "P17", "Q142"), ("Q830149", "P17", "Q30")])
ROWS = [
    ("Q42", "Douglas Adams", "writer", "human", "en"),
    ("P106", "occupation", "", "", "en"),
    ("Q90", "Paris", "capital of France", "city", "en"),
    ("Q830149", "Paris", "city in Texas", "city", "en"),
]
HEADER = ("id", "label", "description", "type", "language")


def text_of(separator: str, *, header: bool = True) -> str:
    return "".join(separator.join(row) + "\n" for row in ([HEADER] if header else []) + ROWS)


def write(path, rows=ROWS):
    if path.suffix == ".parquet":
        papq.write_table(pa.table(dict(zip(HEADER, map(list, zip(*rows, strict=True)), strict=True))), path)
        return path
    objects = [dict(zip(HEADER, row, strict=True)) for row in rows]
    path.write_text(
        {
            ".tsv": lambda: text_of("\t"),
            ".csv": lambda: text_of(","),
            ".json": lambda: json.dumps(objects),
            ".jsonl": lambda: "".join(json.dumps(each) + "\n" for each in objects),
        }[path.suffix](),
        encoding="utf-8",
    )
    return path


@pytest.mark.parametrize("suffix", ["tsv", "csv", "json", "jsonl", "parquet"])
def test_every_format_gives_the_same_labels(tmp_path, suffix):
    graph = GRAPH.with_labels(write(tmp_path / f"labels.{suffix}"))
    assert graph.entities.shown("Q42") == "Douglas Adams (Q42)" and graph.entities.shown("Q142") == "Q142"
    assert (
        graph.relations.shown("P106") == "occupation (P106)" and graph.relations.shown("~P106") == "~occupation (P106)"
    )
    assert graph.entities.labels.about(graph.entities.id("Q42")) == "writer"
    assert graph.entities.labels.get("type", graph.entities.id("Q42")) == "human"


def test_labels_do_not_change_a_graph():
    labelled = GRAPH.with_labels({"Q42": "Douglas Adams"})
    assert labelled.fingerprint == GRAPH.fingerprint
    assert labelled.entities == GRAPH.entities and list(labelled.entities) == list(GRAPH.entities)


@pytest.mark.parametrize("content", [{"Q42": "Douglas Adams"}, {"Q42": {"label": "Douglas Adams"}}])
def test_a_json_object_maps_ids_to_labels(tmp_path, content):
    (tmp_path / "labels.json").write_text(json.dumps(content))
    assert GRAPH.with_labels(tmp_path / "labels.json").entities.label("Q42") == "Douglas Adams"


def test_a_file_without_a_header_is_read_in_the_order_of_its_columns(tmp_path):
    (tmp_path / "labels.tsv").write_text("Q42\tDouglas Adams\twriter\nQ90\tParis\n")
    graph = GRAPH.with_labels(tmp_path / "labels.tsv")
    assert graph.entities.label("Q90") == "Paris" and graph.entities.labels.get("description", 0) == "writer"


def test_a_label_is_accepted_instead_of_a_name():
    graph = GRAPH.with_labels({"Q42": "Douglas Adams", "P106": "occupation"})
    assert graph.entities.id("Douglas Adams") == graph.entities.id("Q42")
    assert graph.relations.ids(["occupation", "P17"]).tolist() == graph.relations.ids(["P106", "P17"]).tolist()
    assert graph.entities.unknown(["Douglas Adams", "Q42", "Zaphod"]) == ["Zaphod"]
    with pytest.raises(DihedralError, match="did you mean 'Douglas Adams'"):
        graph.entities.id("Duglas Adams")


def test_a_name_wins_over_a_label_that_reads_the_same():
    graph = GRAPH.with_labels({"Q42": "Q90", "Q90": "Paris"})
    assert graph.entities.id("Q90") == GRAPH.entities.id("Q90")


def test_a_label_of_several_is_refused_with_their_ids(tmp_path):
    graph = GRAPH.with_labels(write(tmp_path / "labels.tsv"))
    with pytest.raises(
        AmbiguousNameError, match=r"2 entities: Q90 \(capital of France\), Q830149 \(city in Texas\)"
    ) as got:
        graph.entities.id("Paris")
    assert got.value.names == ["Q90", "Q830149"]


def test_of_several_labels_that_of_the_preferred_language_counts():
    rows = {
        "id": ["Q142"] * 4,
        "label": ["Frankreich", "Frantza", "France", "FR"],
        "language": ["de", "eu", "en-gb", ""],
    }
    for language, expected in (("en", "France"), ("de,en", "Frankreich"), ("fr", "FR"), ("nl,eu", "Frantza")):
        assert GRAPH.with_labels(rows, language=language).entities.label("Q142") == expected


def test_later_labels_replace_earlier_ones_and_keep_the_others():
    graph = GRAPH.with_labels({"Q42": "Douglas", "Q90": "Paris"}).with_labels({"Q42": "Douglas Adams"})
    assert graph.entities.label("Q42") == "Douglas Adams" and graph.entities.label("Q90") == "Paris"


@pytest.mark.parametrize("suffix", ["tsv", "csv", "json", "jsonl", "parquet"])
def test_the_type_of_an_entity_without_a_label_is_kept(tmp_path, suffix):
    write(tmp_path / f"labels.{suffix}", [("Q30", "", "", "country", ""), ("Q142", "France", "", "country", "en")])
    if suffix in ("tsv", "csv"):
        content = "id,label,type\nQ30,,country\nQ142,France,country\n"
        (tmp_path / f"labels.{suffix}").write_text(content.replace(",", "\t") if suffix == "tsv" else content)
    graph = GRAPH.with_labels(tmp_path / f"labels.{suffix}")
    assert types_of(graph)["country"].tolist() == sorted(graph.entities.ids(["Q30", "Q142"]).tolist())
    assert graph.entities.shown("Q30") == "Q30" and graph.entities.labels.count == 1


def test_a_type_may_come_without_a_label_and_takes_none_away(tmp_path):
    (tmp_path / "types.json").write_text('{"Q90": {"type": "city"}}')
    graph = GRAPH.with_labels({"Q90": "Paris"}).with_labels(tmp_path / "types.json")
    assert graph.entities.label("Q90") == "Paris" and list(types_of(graph)) == ["city"]
    rows = {"id": ["Q90", "Q90"], "label": ["", "Paris"], "type": ["town", "city"]}
    assert GRAPH.with_labels(rows).entities.shown("Q90") == "Paris (Q90)"


def test_labels_are_one_line_of_text():
    assert GRAPH.with_labels({"Q42": "  Douglas\n Adams "}).entities.label("Q42") == "Douglas Adams"


def test_labels_for_other_names_are_refused():
    with pytest.raises(DihedralError, match="no id in the labels is a name of graph 'unnamed': the first is 'x'"):
        GRAPH.with_labels({"x": "y"})


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("labels.tsv", "", "holds no labels"),
        ("labels.tsv", "Q42\n", "line 1: 1 columns; expected an id and a label"),
        ("labels.tsv", "Q42\ta\nQ90\n", "line 2: 1 columns"),
        ("labels.csv", 'Q42,"a\n', "line 1: a quote is opened"),
        ("labels.json", "[1]", "neither an object nor a list"),
        ("labels.json", '[{"id": "Q42"}]', "row 1: .* has no id, or neither a label nor a type"),
        ("labels.json", '{"Q42": ["a"]}', "row 1: label is"),
        ("labels.json", "[" * 1000, "nested"),
        ("labels.xlsx", "", "has the suffix '.xlsx'"),
    ],
)
def test_a_file_that_cannot_be_read_is_named(tmp_path, name, content, message):
    (tmp_path / name).write_text(content)
    with pytest.raises(DihedralError, match=message):
        GRAPH.with_labels(tmp_path / name)


def test_text_that_is_not_utf8_is_refused(tmp_path):
    (tmp_path / "labels.tsv").write_bytes(b"Q42\t\xff\n")
    with pytest.raises(DihedralError, match="not UTF-8"):
        GRAPH.with_labels(tmp_path / "labels.tsv")


def test_languages_are_codes():
    assert parse_languages("en, pt-BR") == ("en", "pt-br") == parse_languages(["en", "pt-br"])
    with pytest.raises(DihedralError, match="language is 'e/n'"):
        parse_languages("e/n")


# --- RDF ---------------------------------------------------------------------------------------------

EX = "http://example.org/"
TURTLE = f"""@prefix ex: <{EX}> . @prefix rdfs: <http://www.w3.org/2000/01/rdf-schema#> .
@prefix skos: <http://www.w3.org/2004/02/skos/core#> . @prefix schema: <https://schema.org/> .
@prefix foaf: <http://xmlns.com/foaf/0.1/> .
ex:a ex:knows ex:b . ex:b ex:knows [ rdfs:label "nobody" ; ex:knows [ ex:knows ex:c ] ] . ex:c ex:age 5 .
ex:a rdfs:label "Anna"@de , "Ann"@en ; foaf:name "Annie"@en .
ex:b schema:name "Bob" . ex:c foaf:name "Carl"@de ; skos:prefLabel "Charles"@de .
ex:knows rdfs:label "knows somebody"@en . ex:elsewhere rdfs:label "not in the graph" .
[] rdfs:label "alone" .
"""


@pytest.fixture
def rdf(tmp_path):
    (tmp_path / "facts.ttl").write_text(TURTLE)
    return tmp_path / "facts.ttl"


def test_labels_in_rdf_are_read(rdf):
    graph = dh.load_graph(rdf, valid=0, test=0)
    assert [graph.entities.label(f"{EX}{name}") for name in "abc"] == ["Ann", "Bob", "Charles"]
    assert graph.entities.shown(f"{EX}a") == "Ann (ex:a)" and graph.relations.id("knows somebody") == 0
    assert graph.entities[graph.entities.id("nobody")].startswith("_:")
    assert "labels: 4 of 5 entities, 1 of 1 relations" in graph.notes
    assert "facts.ttl: 1 triples with a literal left out" in graph.notes


def test_the_language_of_labels_in_rdf_can_be_chosen(rdf):
    graph = dh.load_graph(rdf, valid=0, test=0, language="de,en")
    assert graph.entities.label(f"{EX}a") == "Anna"


def test_labels_in_rdf_do_not_change_names(rdf, tmp_path):
    plain = "".join(line + "\n" for line in TURTLE.replace('rdfs:label "nobody" ;', "").splitlines()[:4])
    (tmp_path / "plain.ttl").write_text(plain)
    one, two = (dh.load_graph(path, valid=0, test=0) for path in (rdf, tmp_path / "plain.ttl"))
    assert list(one.entities) == list(two.entities) and one.fingerprint == two.fingerprint


def test_an_rdf_file_of_labels_needs_no_other_triples(tmp_path):
    path = tmp_path / "labels.nt"
    path.write_text('<Q42> <http://www.w3.org/2000/01/rdf-schema#label> "x" .\n'.replace("<Q42>", f"<{EX}Q42>"))
    graph = dh.Graph.from_names([(f"{EX}Q42", "r", f"{EX}b")]).with_labels(path)
    assert graph.entities.label(f"{EX}Q42") == "x"


def test_ids_of_labels_may_have_prefixes(rdf):
    graph = dh.load_graph(rdf, valid=0, test=0).with_labels({"ex:b": "Robert"})
    assert graph.entities.label(f"{EX}b") == "Robert"


def test_an_id_is_never_taken_for_a_label(rdf):
    graph = dh.load_graph(rdf, valid=0, test=0).with_labels({"Bob": "somebody else", "ex:c": "Carla"})
    assert graph.entities.label(f"{EX}b") == "Bob" and graph.entities.label(f"{EX}c") == "Carla"


def test_labels_of_a_value_are_collected_by_name():
    graph = GRAPH.with_labels({"Q42": "Douglas Adams", "P106": "occupation"})
    content = {"paths": [{"relations": ["~P106"]}], "fact": ("Q42", "P17", "Q30"), "n": 1}
    assert graph.labels_in(content) == {"Q42": "Douglas Adams", "P106": "occupation"}
    assert GRAPH.labels_in(content) == {}


@pytest.mark.parametrize("suffix", ["json", "jsonl"])
def test_half_a_character_in_a_label_becomes_a_question_mark(tmp_path, suffix):
    file = tmp_path / f"labels.{suffix}"
    file.write_text('{"id": "a", "label": "x\\ud800"}\n' if suffix == "jsonl" else '{"a": "x\\ud800"}\n')
    graph = dh.load_graph([("a", "r", "b")], valid=0, test=0, labels=file)
    assert graph.entities.shown("a") == "x? (a)"
