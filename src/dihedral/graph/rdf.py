"""Read RDF with pyoxigraph: IRIs and blank nodes become names; literals are left out and counted."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from types import ModuleType
from typing import Any
from xml.parsers import expat

import numpy as np
import pyarrow as pa

from dihedral.errors import DihedralError
from dihedral.graph.numbering import Numbering
from dihedral.graph.prefixes import with_well_known
from dihedral.graph.sources import RDF_SUFFIXES, Source
from dihedral.graph.triples import Triples

LEFT_OUT = {"literal": "triples with a literal left out", "quoted": "triples about triples left out"}


def read_rdf(source: Source, columns: Sequence[str] | None, numbering: Numbering) -> Triples:
    """Number the triples of an RDF file, including those of named graphs."""
    if columns is not None:
        raise DihedralError(f"{source.where} is RDF, which has no named columns; leave `columns` out")
    ox = _pyoxigraph(source.where)
    format = RDF_SUFFIXES[source.suffix]
    anonymous: dict[str, str] | None = {} if format not in ("N_TRIPLES", "N_QUADS") else None
    entities: dict[str, int] = {}  # numbers within this file
    relations: dict[str, int] = {}
    ids: list[int] = []  # flat: millions of tuples would slow the garbage collector down
    skipped: Counter[str] = Counter()
    prefixes: dict[str, str] | None = None
    given: dict[str, Any]
    if source.compression:
        given = {"input": source.plain()}
    else:
        given = {"input": source.content} if isinstance(source.content, bytes) else {"path": source.content}
    named, nodes = ox.NamedNode, {ox.NamedNode, ox.BlankNode}

    def name(node: object) -> str:
        if type(node) is named:
            return node.value  # type: ignore[attr-defined]
        label: str = node.value  # type: ignore[attr-defined]
        if anonymous is not None and re.fullmatch("[0-9a-f]{20,32}", label):
            # the parser names `[]` at random; labels in files cannot contain brackets, so this name is free
            label = anonymous.setdefault(label, f"[{len(numbering.entities) + len(entities)}]")
        return f"_:{label}"

    try:
        parser = ox.parse(**given, format=getattr(ox.RdfFormat, format))
        for head, relation, tail, _ in parser:
            if prefixes is None:
                prefixes = parser.prefixes  # the RDF/XML parser has none at its end
            if type(tail) in nodes and type(head) in nodes:
                ids.append(entities.setdefault(name(head), len(entities)))
                ids.append(relations.setdefault(relation.value, len(relations)))
                ids.append(entities.setdefault(name(tail), len(entities)))
            else:
                skipped["literal" if type(tail) is ox.Literal else "quoted"] += 1
        numbering.prefixes = with_well_known(numbering.prefixes | (prefixes or {}) | parser.prefixes)
    except SyntaxError as error:
        raise DihedralError(_explain(source, error)) from None
    except OSError as error:
        raise DihedralError(f"{source.where} cannot be read: {error.strerror or error}") from None
    for kind, count in sorted(skipped.items()):
        numbering.note(source.name, f"{count} {LEFT_OUT[kind]}")
    if not ids:
        raise DihedralError(f"{source.where} holds no triple between IRIs or blank nodes; literals are left out")
    triples = np.array(ids, np.int32).reshape(-1, 3)
    for columns_of, names, own in (([0, 2], numbering.entities, entities), ([1], numbering.relations, relations)):
        triples[:, columns_of] = names.number(pa.array(own, pa.string()))[triples[:, columns_of]]
    return triples


def _explain(source: Source, error: SyntaxError) -> str:
    """The file, the line and the reason in one sentence."""
    reason = re.sub(r"^Parser error at .*?: ", "", (error.msg or "not valid RDF").splitlines()[0])
    if "LoadDocumentCallback" in reason:
        reason = "its @context is a web address, which is not fetched; write the context into the file"
    if "No scheme found" in reason:
        reason = "a relative IRI without a base; write IRIs in full, or the base into the file (@base, xml:base)"
    line = error.lineno
    if line and line > 1 and error.offset == 1 and "followed by a dot" in reason:
        line -= 1  # the parser reports the start of the next line
    if line is None and RDF_SUFFIXES[source.suffix] == "RDF_XML":
        try:  # pyoxigraph does not report the line of an XML error
            with source.plain() as stream:
                expat.ParserCreate().ParseFile(stream)
        except expat.ExpatError as broken:
            line = broken.lineno
    place = source.where if line is None else f"{source.where}, line {line}"
    return f"{place}: {reason[:300]}"


def _pyoxigraph(where: str) -> ModuleType:
    try:
        import pyoxigraph
    except ImportError:
        raise DihedralError(f"{where} is RDF, which needs pyoxigraph: pip install 'dihedral[rdf]'") from None
    return pyoxigraph
