"""Read RDF: IRIs and blank nodes become names; literals that are labels are kept, others are left out and counted."""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from dihedral.errors import DihedralError
from dihedral.graph.numbering import Numbering
from dihedral.graph.triples import Triples
from dihedral.io.decoding import decoding_rdf
from dihedral.io.iris import BASE, from_iri, with_well_known
from dihedral.io.sources import RDF_SUFFIXES, Source

LEFT_OUT = {
    "literal": "triples with a literal left out", "quoted": "triples about triples left out",
    "rejected": "triples that reviewers rejected left out",
}  # fmt: skip
SURROGATE = re.compile("[\ud800-\udfff]")  # UTF-8 has no place for one


def read_rdf(source: Source, columns: Sequence[str] | None, numbering: Numbering) -> Triples:
    """Number the triples of an RDF file, including those of named graphs."""
    if columns is not None:
        raise DihedralError(f"{source.where} is RDF, which has no named columns; leave `columns` out")
    header, (ids, entities, relations, labels) = _decode(source, len(numbering.entities), numbering.languages)
    numbering.prefixes = with_well_known(numbering.prefixes | header["prefixes"])
    for kind, count in sorted(header["skipped"].items()):
        numbering.note(source.name, f"{count} {LEFT_OUT[kind]}")
    if not len(ids):
        raise DihedralError(f"{source.where} holds no triple between IRIs or blank nodes; literals are left out")
    if len(labels):
        numbering.labels.append(labels)
    triples = ids["id"].to_numpy().reshape(-1, 3).copy()
    numbering.entities.number(_own_names(entities["name"]), triples[:, ::2])
    numbering.relations.number(_own_names(relations["name"]), triples[:, 1])
    numbering.settle()
    return triples


def read_rdf_labels(source: Source, languages: Sequence[str]) -> pa.Table:
    """All labels of an RDF file, one for each node: id, label and language."""
    return _decode(source, 0, languages, all_labels=True)[1][3]


def _decode(
    source: Source, first: int, languages: Sequence[str], all_labels: bool = False
) -> tuple[dict[str, Any], list[pa.Table]]:
    """What the decoder found: prefixes and counts, then tables; first: the number of names before this file."""
    if importlib.util.find_spec("pyoxigraph") is None:
        raise DihedralError(f"{source.where} is RDF, which needs pyoxigraph: pip install 'dihedral[rdf]'")
    request = {"format": RDF_SUFFIXES[source.suffix], "first": first}
    request |= {"languages": list(languages), "all_labels": all_labels}
    with decoding_rdf(source, request) as work:
        header, tables = work.line(), []
        for _ in range(4):
            with work.stream() as stream:
                tables.append(stream.read_all())
        work.finish()
    tables[3] = tables[3].set_column(0, "id", _own_names(tables[3]["id"]))
    return header, tables


def _own_names(column: pa.ChunkedArray) -> pa.Array:
    """Names, instead of the IRIs that exports write for them."""
    import pyarrow.compute as pc

    names = column.combine_chunks()
    places = np.flatnonzero(pc.starts_with(names, BASE).to_numpy(zero_copy_only=False))
    if not len(places):
        return names
    texts = names.to_pylist()
    for place in places.tolist():
        name = from_iri(texts[place])
        if name and name == name.strip() and not SURROGATE.search(name):
            texts[place] = name
    return pa.array(texts, names.type)
