"""Read RDF: IRIs and blank nodes become names; literals that are labels are kept, others are left out and counted."""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dihedral.errors import DihedralError
from dihedral.graph.numbering import NameTable, Numbering
from dihedral.graph.prefixes import with_well_known
from dihedral.graph.triples import Triples
from dihedral.io.decoding import Decoding, decoding_rdf
from dihedral.io.iris import BASE, from_iri
from dihedral.io.sources import RDF_SUFFIXES, Source

LEFT_OUT = {
    "literal": "triples with a literal left out", "quoted": "triples about triples left out",
    "rejected": "triples that reviewers rejected left out",
}  # fmt: skip
NAMES_AT_ONCE = 1 << 20
SURROGATE = re.compile("[\ud800-\udfff]")  # UTF-8 has no place for one


def read_rdf(source: Source, columns: Sequence[str] | None, numbering: Numbering) -> Triples:
    """Number the triples of an RDF file, including those of named graphs."""
    if columns is not None:
        raise DihedralError(f"{source.where} is RDF, which has no named columns; leave `columns` out")
    with _decoding(source, len(numbering.entities), numbering.languages) as (work, header):
        triples = np.frombuffer(bytearray(work.read(header["triples"] * 12)), np.int32).reshape(-1, 3)
        names, labels = _read_texts(work, header)
    numbering.prefixes = with_well_known(numbering.prefixes | header["prefixes"])
    for kind, count in sorted(header["skipped"].items()):
        numbering.note(source.name, f"{count} {LEFT_OUT[kind]}")
    if not len(triples):
        raise DihedralError(f"{source.where} holds no triple between IRIs or blank nodes; literals are left out")
    if len(labels):
        numbering.labels.append(labels)
    for columns_of, own, all_names in (([0, 2], names[0], numbering.entities), ([1], names[1], numbering.relations)):
        triples[:, columns_of] = _number(own, all_names)[triples[:, columns_of]]
    return triples


def read_rdf_labels(source: Source, languages: Sequence[str]) -> pa.Table:
    """All labels of an RDF file, one for each node: id, label and language."""
    with _decoding(source, 0, languages, all_labels=True) as (work, header):
        work.read(header["triples"] * 12)
        return _read_texts(work, header)[1]


@contextmanager
def _decoding(
    source: Source, first: int, languages: Sequence[str], all_labels: bool = False
) -> Iterator[tuple[Decoding, dict[str, Any]]]:
    """A decoder at work and the first line of its output. first: the number of names before this file."""
    if importlib.util.find_spec("pyoxigraph") is None:
        raise DihedralError(f"{source.where} is RDF, which needs pyoxigraph: pip install 'dihedral[rdf]'")
    request = {"format": RDF_SUFFIXES[source.suffix], "first": first}
    request |= {"languages": list(languages), "all_labels": all_labels}
    with decoding_rdf(source, request) as work:
        yield work, work.line()
        work.finish()


def _read_texts(work: Decoding, header: dict[str, Any]) -> tuple[list[pa.Array], pa.Table]:
    """The names of entities and of relations, and the table of labels."""
    *names, ids, labels, languages = (_read_strings(work, *sizes) for sizes in header["names"])
    return list(map(_own_names, names)), pa.table({"id": _own_names(ids), "label": labels, "language": languages})


def _own_names(names: pa.Array) -> pa.Array:
    """Names, instead of the IRIs that exports write for them."""
    import pyarrow.compute as pc

    places = np.flatnonzero(pc.starts_with(names, BASE).to_numpy(zero_copy_only=False))
    if not len(places):
        return names
    texts = names.to_pylist()
    for place in places.tolist():
        name = from_iri(texts[place])
        if name and name == name.strip() and not SURROGATE.search(name):
            texts[place] = name
    return pa.array(texts, names.type)


def _read_strings(work: Decoding, count: int, size: int) -> pa.Array:
    buffers = [None, pa.py_buffer(work.read(8 * (count + 1))), pa.py_buffer(work.read(size))]
    return pa.Array.from_buffers(pa.large_string(), count, buffers)


def _number(own: pa.Array, names: NameTable) -> NDArray[np.int32]:
    """The ids of the names of one file, by their numbers in it."""
    starts = range(0, len(own), NAMES_AT_ONCE)
    return np.concatenate([names.number(own.slice(start, NAMES_AT_ONCE).cast(pa.string())) for start in starts])
