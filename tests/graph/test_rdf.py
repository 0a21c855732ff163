"""Reading RDF: IRIs and blank nodes are names, literals are counted, an error names the file and the line."""

from __future__ import annotations

import io
import sys
import tarfile

import pytest

import dihedral as dh
from dihedral import DihedralError, load_graph

EX = "http://example.org/"
FACTS = sorted((f"{EX}{h}", f"{EX}{r}", f"{EX}{t}") for h, r, t in [("ann", "knows", "bob"), ("bob", "likes", "eve")])
NT = "".join(f"<{h}> <{r}> <{t}> .\n" for h, r, t in FACTS)
SAME = {
    "nt": NT,
    "nq": NT.replace(" .\n", f" <{EX}graph> .\n"),
    "ttl": f"@prefix ex: <{EX}> .\nex:ann ex:knows ex:bob .\nex:bob ex:likes ex:eve .\n",
    "trig": f"@prefix ex: <{EX}> .\nex:g {{ ex:ann ex:knows ex:bob }}\nex:bob ex:likes ex:eve .\n",
    "rdf": f"""<rdf:RDF xmlns:rdf="http://www.w3.org/1999/02/22-rdf-syntax-ns#" xmlns:ex="{EX}">
<rdf:Description rdf:about="{EX}ann"><ex:knows rdf:resource="{EX}bob"/></rdf:Description>
<rdf:Description rdf:about="{EX}bob"><ex:likes rdf:resource="{EX}eve"/></rdf:Description>
</rdf:RDF>""",
    "jsonld": f"""{{"@context": {{"ex": "{EX}"}}, "@graph": [
{{"@id": "ex:ann", "ex:knows": {{"@id": "ex:bob"}}}}, {{"@id": "ex:bob", "ex:likes": {{"@id": "ex:eve"}}}}]}}""",
}
SAME |= {"owl": SAME["rdf"], "xml": SAME["rdf"]}


@pytest.fixture
def read(tmp_path):
    """read("a.nt", "..."): the graph of a file with that content, not split."""

    def load(name, content):
        (tmp_path / name).write_text(content, encoding="utf-8")
        return load_graph(tmp_path / name, valid=0, test=0)

    return load


def triples_of(graph):
    return sorted(graph.names_of(graph.known))


@pytest.mark.parametrize("suffix", SAME)
def test_every_format_gives_full_iris(read, suffix):
    graph = read(f"facts.{suffix}", SAME[suffix])
    assert triples_of(graph) == FACTS
    assert graph.name == "facts" and graph.notes == ("split with seed 0",)


@pytest.mark.parametrize("suffix", ["ttl", "trig", "rdf", "jsonld"])
def test_the_files_own_prefixes_shorten_names_and_find_them(read, suffix):
    graph = read(f"facts.{suffix}", SAME[suffix])
    assert graph.entities.short(f"{EX}ann") == "ex:ann"
    assert graph.relations.short(f"~{EX}knows · {EX}likes") == "~ex:knows · ex:likes"
    assert graph.entities[graph.entities.id("ex:ann")] == f"{EX}ann"
    assert graph.relations.id("ex:likes") == graph.relations.id(f"{EX}likes")


def test_well_known_prefixes_need_not_be_declared(read):
    graph = read("facts.nt", "<http://dbpedia.org/resource/Ann> <http://xmlns.com/foaf/0.1/knows> <http://x.y/z> .\n")
    assert [graph.entities.short(name) for name in graph.entities] == ["dbr:Ann", "http://x.y/z"]
    assert graph.relations.id("foaf:knows") == 0


def test_an_unknown_name_with_a_prefix_is_reported_as_typed(read):
    with pytest.raises(DihedralError, match="entity 'ex:zoe' is not among the 3 known"):
        read("facts.ttl", SAME["ttl"]).entities.id("ex:zoe")


def test_prefixes_do_not_change_names(read):
    assert read("a.ttl", SAME["ttl"]).entities == read("b.nt", NT).entities


def test_literals_and_quoted_triples_are_left_out_and_counted(read):
    graph = read(
        "facts.ttl", SAME["ttl"] + 'ex:ann ex:age 5 ; ex:name "Ann"@en .\n<<ex:a ex:b ex:c>> ex:said ex:bob .\n'
    )
    assert "facts.ttl: 2 triples with a literal left out" in graph.notes
    assert "facts.ttl: 1 triples about triples left out" in graph.notes
    assert set(FACTS) < set(triples_of(graph)) and len(graph.train) == 3


def test_blank_nodes_are_names(read):
    graph = read("facts.nt", f"_:x <{EX}knows> _:y .\n_:y <{EX}knows> <{EX}ann> .\n")
    assert triples_of(graph) == [("_:x", f"{EX}knows", "_:y"), ("_:y", f"{EX}knows", f"{EX}ann")]


ANONYMOUS = f"@prefix ex: <{EX}> .\nex:ann ex:knows [ ex:likes [ ex:likes ex:bob ] ] .\n_:lab ex:likes ex:ann .\n"


def test_nodes_without_a_label_get_the_same_names_every_time(read):
    first, second = read("facts.ttl", ANONYMOUS), read("facts.ttl", ANONYMOUS)
    assert first.fingerprint == second.fingerprint
    assert first.num_entities == 5 and "_:lab" in first.entities


def test_nodes_without_a_label_differ_from_file_to_file(tmp_path):
    for split in ("train", "test"):
        (tmp_path / f"{split}.ttl").write_text(ANONYMOUS)
    graph = load_graph(tmp_path)
    blank = [
        {n for h, _, t in graph.names_of(graph.split(s)) for n in (h, t) if n[0] == "_"} for s in ("train", "test")
    ]
    assert len(blank[0]) == len(blank[1]) == 3 and blank[0] & blank[1] == {"_:lab"}


def test_a_folder_may_mix_rdf_formats(tmp_path):
    (tmp_path / "train.ttl").write_text(SAME["ttl"])
    (tmp_path / "valid.nt").write_text(f'<{EX}eve> <{EX}likes> <{EX}ann> .\n<{EX}eve> <{EX}name> "Eve" .\n')
    graph = load_graph(tmp_path)
    assert triples_of(graph) == sorted([*FACTS, (f"{EX}eve", f"{EX}likes", f"{EX}ann")])
    assert graph.notes == ("no test file", "valid.nt: 1 triples with a literal left out")
    assert graph.entities.short(f"{EX}eve") == "ex:eve"


def test_an_archive_is_read_in_place(tmp_path):
    with tarfile.open(tmp_path / "data.tar.gz", "w:gz") as archive:
        for split in ("train", "valid", "test"):
            info = tarfile.TarInfo(f"data/{split}.nt")
            info.size = len(NT)
            archive.addfile(info, io.BytesIO(NT.encode()))
    graph = load_graph(tmp_path / "data.tar.gz")
    assert sorted(graph.names_of(graph.test)) == FACTS


@pytest.mark.parametrize(
    ("name", "content", "line"),
    [
        pytest.param("a.nt", NT + f"<{EX}ann> <{EX}knows> .\n", 3, id="no object"),
        pytest.param("a.nt", NT + f"<{EX}a b> <{EX}knows> <{EX}bob> .\n", 3, id="a blank in an IRI"),
        pytest.param("a.nq", "ann knows bob\n", 1, id="no IRIs"),
        pytest.param("a.nt", NT.replace(" .\n", "\n", 1), 1, id="no dot"),
        pytest.param("a.ttl", "\n" + SAME["ttl"] + "foo:x ex:knows ex:y .\n", 5, id="an unknown prefix"),
        pytest.param("a.trig", "@prefix ex: <http://x.y/> .\nex:g { ex:a ex:b }\n", 2, id="half a triple"),
        pytest.param("a.rdf", SAME["rdf"].replace("</rdf:Description>\n</rdf", "</rdf"), 3, id="XML tags crossed"),
        pytest.param("a.jsonld", '{\n"@id": \n', 3, id="half a document"),
    ],
)
def test_a_malformed_file_is_refused_with_its_line(read, name, content, line):
    with pytest.raises(DihedralError, match=rf"{name}, line {line}: ") as refused:
        read(name, content)
    assert "\n" not in str(refused.value) and "Parser error" not in str(refused.value)


@pytest.mark.parametrize("content", ["<a> <http://x.y/p> <b> .\n", "<http://x.y/a> <p> <#b> .\n"])
def test_a_relative_iri_needs_a_base(read, content):
    with pytest.raises(DihedralError, match=r"a\.ttl, line 1: a relative IRI without a base; write IRIs in full"):
        read("a.ttl", content)
    assert list(read("a.ttl", f"@base <{EX}> .\n" + content).train) != []


def test_a_context_on_the_web_is_not_fetched(read):
    with pytest.raises(DihedralError, match=r"a\.jsonld: its @context is a web address, which is not fetched"):
        read("a.jsonld", '{"@context": "https://schema.org/", "@id": "http://a/b", "knows": {"@id": "http://a/c"}}')


@pytest.mark.parametrize("content", ["", f'<{EX}ann> <{EX}age> "5" .\n'], ids=["empty", "literals only"])
def test_a_file_without_triples_between_nodes_is_refused(read, content):
    with pytest.raises(DihedralError, match=r"a\.nt holds no triple between IRIs or blank nodes"):
        read("a.nt", content)


def test_columns_are_refused_for_rdf(tmp_path):
    (tmp_path / "a.nt").write_text(NT)
    with pytest.raises(DihedralError, match=r"a\.nt is RDF, which has no named columns; leave `columns` out"):
        load_graph(tmp_path / "a.nt", columns=["s", "p", "o"])


def test_without_pyoxigraph_the_extra_is_named(read, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyoxigraph", None)
    with pytest.raises(DihedralError, match=r"a\.nt is RDF, which needs pyoxigraph: pip install 'dihedral\[rdf\]'"):
        read("a.nt", NT)


# --- models of RDF ----------------------------------------------------------------------------------


@pytest.fixture
def iri_model(family, tmp_path):
    """A model of the family with IRIs for names, in its folder."""
    lines = (f"ex:{h} ex:{r} ex:{t} .\n" for h, r, t in family.names_of(family.known))
    (tmp_path / "family.ttl").write_text(f"@prefix ex: <{EX}> .\n" + "".join(lines) + 'ex:man_0000 ex:name "Adam" .\n')
    graph = load_graph(tmp_path / "family.ttl")
    dh.train(graph, "demo/family", dimension=8, epochs=1, progress=False).save(tmp_path / "model")
    return tmp_path / "model"


def test_a_stored_model_keeps_full_iris_prefixes_and_notes(iri_model):
    graph = dh.load(iri_model).graph
    assert f"{EX}man_0000" in graph.entities and graph.entities.short(f"{EX}man_0000") == "ex:man_0000"
    assert "family.ttl: 1 triples with a literal left out" in graph.notes


def test_predictions_hold_full_iris_for_short_and_full_names(iri_model):
    predictor = dh.load(iri_model)
    asked = {"head": "ex:man_0000", "relation": "ex:spouse"}
    found = predictor.predict(**asked, top=3)
    assert found == predictor.predict(head=f"{EX}man_0000", relation=f"{EX}spouse", top=3)
    assert all(part.startswith(EX) for p in found for part in (p.head, p.relation, p.tail))
    first = predictor.predict(head="ex:man_0000", tail="ex:man_0001", top=1)[0]
    assert first.head == f"{EX}man_0000" and first.tail == f"{EX}man_0001"


def test_the_command_line_prints_prefixes_in_tables_and_iris_in_json(cli, iri_model):
    asked = ("predict", iri_model, "--head", "ex:man_0000", "--relation", "ex:spouse", "--top", "2")
    shown = cli(*asked)
    assert shown.code == 0 and shown.out.splitlines()[1].startswith("ex:man_0000 ") and EX not in shown.out
    assert f'"{EX}man_0000"' in cli(*asked, "--json").out
    for words in (
        ("evaluate", iri_model),
        ("rules", iri_model, "--min-support", "1", "--min-score", "0"),
        ("query", iri_model, "--from", "ex:man_0000", "--via", "~ex:spouse"),
        ("explain", iri_model, "ex:man_0000", "ex:spouse", "ex:woman_0010"),
    ):
        done = cli(*words)
        assert done.code == 0 and "ex:" in done.out and EX not in done.out, words


def test_a_model_is_evaluated_on_a_file_without_its_prefixes(cli, iri_model, tmp_path):
    graph = dh.load(iri_model).graph
    lines = (f"<{h}> <{r}> <{t}> .\n" for h, r, t in graph.names_of(graph.valid))
    (tmp_path / "other.nt").write_text("".join(lines))
    assert cli("evaluate", iri_model, "--data", tmp_path / "other.nt").code == 0


def test_iris_of_names_are_read_as_the_names(read):
    graph = read("a.nt", "<urn:dihedral:Ann%20Smith> <urn:dihedral:knows> <http://ex.org/bob> .\n")
    assert list(graph.names_of(graph.train)) == [("Ann Smith", "knows", "http://ex.org/bob")]


@pytest.mark.parametrize("iri", ["urn:dihedral:%FF", "urn:dihedral:%ED%A0%80", "urn:dihedral:%20"])
def test_iris_that_stand_for_no_name_stay_iris(read, iri):
    graph = read("a.nt", f"<{iri}> <urn:dihedral:knows> <urn:dihedral:bob> .\n")
    assert list(graph.names_of(graph.train)) == [(iri, "knows", "bob")]


def test_rejected_facts_of_an_export_are_left_out(read):
    lines = [f"<urn:dihedral:{s}> <urn:dihedral:r> <urn:dihedral:b> <urn:dihedral:review#{s}> .\n" for s in
             ("accepted", "rejected")]  # fmt: skip
    graph = read("a.nq", "".join(lines))
    assert list(graph.names_of(graph.train)) == [("accepted", "r", "b")]
    assert any("1 triples that reviewers rejected left out" in note for note in graph.notes)
