"""The process that parses RDF and Parquet files, which are not trusted, within limits on memory and time.

Parsers are compiled code: a hostile file can make one abort, overflow its stack, or take gigabytes or hours. Here that
ends this process only. `decoding.py` starts it and reads what it writes. It imports only what its format needs.
"""

from __future__ import annotations

import array
import json
import os
import re
import resource
import signal
import sys
from collections import Counter
from collections.abc import Sequence
from typing import IO, Any
from xml.parsers import expat

MAX_DEPTH = 200  # levels of elements, objects and lists within each other
MAX_ATTRIBUTES = 1000  # one XML element may have
PARQUET_ROWS = 1 << 16
MAX_BYTES_PER_NUMBER = 8  # a column with fewer refers to distinct texts by number
REFUSED, NO_MEMORY = 3, 4  # exit statuses
REJECTED = "review#rejected"  # the end of the IRI of a graph that holds what reviewers rejected
LABEL_IRIS = (  # properties whose values are labels, the preferred one first
    "http://www.w3.org/2004/02/skos/core#prefLabel",
    "http://www.w3.org/2000/01/rdf-schema#label",
    "http://schema.org/name",
    "https://schema.org/name",
    "http://xmlns.com/foaf/0.1/name",
)


class RefusedError(Exception):
    """The file is not read; the text continues a sentence that starts with its name."""

    def __init__(self, reason: str, line: int | None = None) -> None:
        super().__init__(f", line {line}: {reason}" if line else f": {reason}")


def main() -> None:
    """Decode standard input or a descriptor as the request, the only argument, says."""
    request: dict[str, Any] = json.loads(sys.argv[1])
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # the reader has enough
    decode = {"rdf": decode_rdf, "parquet": decode_parquet}[request["kind"]]
    try:
        decode(request, sys.stdout.buffer)
        sys.stdout.flush()
        os._exit(0)  # all is written; threads of libraries can abort at their end for want of memory
    except RefusedError as refused:
        sys.stderr.write(str(refused))
        sys.stderr.flush()
        os._exit(REFUSED)  # without flushing standard output, which may be incomplete
    except MemoryError:
        os._exit(NO_MEMORY)


def set_limits(request: dict[str, Any]) -> None:
    """Limit the memory besides what the imported modules take, and the processor time."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    _lower(resource.RLIMIT_CPU, request["seconds"])
    if sys.platform == "linux":  # elsewhere the limit has no effect
        with open("/proc/self/statm") as sizes:
            mapped = int(sizes.read().split()[0]) * resource.getpagesize()
        _lower(resource.RLIMIT_AS, mapped + request["memory"])


def _lower(kind: int, limit: int) -> None:
    _, hard = resource.getrlimit(kind)
    resource.setrlimit(kind, (limit if hard == resource.RLIM_INFINITY else min(limit, hard), hard))


# --- RDF ------------------------------------------------------------------------------------------------


class GuardedXml:
    """XML without document types, which declare entities, and without deep nesting: checked before it is parsed."""

    def __init__(self, stream: IO[bytes]) -> None:
        self.stream = stream
        self.depth = 0
        self.expat = expat.ParserCreate("utf-8")  # the only encoding that the parser of RDF/XML accepts
        self.expat.StartDoctypeDeclHandler = self.doctype
        self.expat.StartElementHandler = self.start
        self.expat.EndElementHandler = self.end

    def read(self, size: int = -1) -> bytes:
        block = self.stream.read(size)
        try:
            self.expat.Parse(block, not block)
        except expat.ExpatError as error:
            raise RefusedError(expat.ErrorString(error.code), error.lineno) from None
        return block

    def doctype(self, *_: object) -> None:
        raise self.refused("a document type with entities is not read; write IRIs in full and remove <!DOCTYPE ...>")

    def start(self, _: str, attributes: dict[str, str]) -> None:
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise self.refused(f"elements are nested more than {MAX_DEPTH} deep")
        if len(attributes) > MAX_ATTRIBUTES:
            raise self.refused(f"an element has more than {MAX_ATTRIBUTES} attributes")

    def end(self, _: str) -> None:
        self.depth -= 1

    def refused(self, reason: str) -> RefusedError:
        return RefusedError(reason, self.expat.CurrentLineNumber)


def language_rank(language: str | None, wanted: Sequence[str]) -> int:
    """How far the language of a label is from the preferred one: then come labels without a language, then others.

    >>> [language_rank(each, ["en", "de"]) for each in ("en", "en-gb", "de", "", "fr")]
    [0, 1, 2, 4, 5]
    """
    own = (language or "").lower()
    for place, each in enumerate(wanted):
        if own == each or own.partition("-")[0] == each:
            return 2 * place + (own != each)
    return 2 * len(wanted) + bool(own)


class RdfContent:
    """The triples of a file, with names by number, and the best label of each node."""

    def __init__(self, request: dict[str, Any]) -> None:
        import pyoxigraph as ox

        self.request, self.named, self.blank, self.literal = request, ox.NamedNode, ox.BlankNode, ox.Literal
        self.entities: dict[str, int] = {}
        self.relations: dict[str, int] = {}
        self.ids = array.array("i")  # head, relation, tail, head, ...
        self.skipped: Counter[str] = Counter()
        self.labels: dict[Any, tuple[int, int, str, str]] = {}  # by node: ranks, label, language
        self.anonymous: dict[str, str] | None = None if request["format"] in ("N_TRIPLES", "N_QUADS") else {}

    def add(self, head: Any, relation: Any, tail: Any, graph: Any) -> None:
        entities, nodes = self.entities, (self.named, self.blank)
        if type(graph) is self.named and graph.value.endswith(REJECTED):
            self.skipped["rejected"] += 1
        elif type(tail) in nodes and type(head) in nodes:
            self.ids.append(entities.setdefault(self.name(head), len(entities)))
            self.ids.append(self.relations.setdefault(relation.value, len(self.relations)))
            self.ids.append(entities.setdefault(self.name(tail), len(entities)))
        elif type(tail) is self.literal and type(head) in nodes and relation.value in LABEL_IRIS:
            language = tail.language or ""
            rank = language_rank(language, self.request["languages"]), LABEL_IRIS.index(relation.value)
            if head not in self.labels or rank < self.labels[head][:2]:
                self.labels[head] = (*rank, tail.value, language)
        else:
            self.skipped["literal" if type(tail) is self.literal else "quoted"] += 1

    def name(self, node: Any) -> str:
        label: str = node.value
        if type(node) is self.named:
            return label
        if self.anonymous is not None and re.fullmatch("[0-9a-f]{20,32}", label):
            # the parser names `[]` at random; labels in files cannot contain brackets, so this name is free
            label = self.anonymous.setdefault(label, f"[{self.request['first'] + len(self.entities)}]")
        return f"_:{label}"

    def tables(self) -> list[Any]:
        """The ids, the names of entities and of relations, and the labels of those names, or of all IRIs."""
        import pyarrow as pa

        every, text = self.request["all_labels"], pa.large_string()
        rows = [
            {"id": self.name(node), "label": label, "language": language}
            for node, (_, _, label, language) in self.labels.items()
            if (every and type(node) is self.named)
            or self.name(node) in self.entities
            or self.name(node) in self.relations
        ]
        return [
            pa.table({"id": pa.Array.from_buffers(pa.int32(), len(self.ids), [None, pa.py_buffer(self.ids)])}),
            pa.table({"name": pa.array(list(self.entities), text)}),
            pa.table({"name": pa.array(list(self.relations), text)}),
            pa.Table.from_pylist(rows, pa.schema([("id", text), ("label", text), ("language", text)])),
        ]


def decode_rdf(request: dict[str, Any], out: IO[bytes]) -> None:
    """Write the prefixes and the counts of what is left out as a line of JSON, then an Arrow stream for each table."""
    import pyarrow as pa
    import pyoxigraph as ox

    content = RdfContent(request)
    set_limits(request)
    stream: Any = GuardedXml(sys.stdin.buffer) if request["format"] == "RDF_XML" else sys.stdin.buffer
    by_path = request["path"] and request["format"] != "RDF_XML"
    given = {"path": request["path"]} if by_path else {"input": stream}
    prefixes: dict[str, str] | None = None
    try:
        parser = ox.parse(**given, format=getattr(ox.RdfFormat, request["format"]))
        for quad in parser:
            if prefixes is None:
                prefixes = parser.prefixes  # the RDF/XML parser has none at its end
            content.add(*quad)
        prefixes = (prefixes or {}) | parser.prefixes
    except SyntaxError as error:
        raise _explained(error) from None
    except OSError as error:
        raise RefusedError(error.strerror or str(error)) from None
    tables = content.tables()
    if sum(table.nbytes for table in tables[1:]) > request["max_decoded"]:
        limit = request["max_decoded"] >> 20
        raise RefusedError(f"its names in full are more than {limit} MiB of text, far beyond its size")
    out.write(json.dumps({"prefixes": prefixes, "skipped": content.skipped}).encode() + b"\n")
    for table in tables:
        with pa.ipc.new_stream(out, table.schema) as writer:
            writer.write_table(table)


def _explained(error: SyntaxError) -> RefusedError:
    """The reason and the line of a syntax error."""
    reason = re.sub(r"^Parser error at .*?: ", "", (error.msg or "not valid RDF").splitlines()[0])
    if "LoadDocumentCallback" in reason:
        reason = "its @context is a web address, which is not fetched; write the context into the file"
    if "No scheme found" in reason:
        reason = "a relative IRI without a base; write IRIs in full, or the base into the file (@base, xml:base)"
    line = error.lineno
    if line and line > 1 and error.offset == 1 and "followed by a dot" in reason:
        line -= 1  # the parser reports the start of the next line
    return RefusedError(reason[:300], line)


# --- Parquet --------------------------------------------------------------------------------------------


def decode_parquet(request: dict[str, Any], out: IO[bytes]) -> None:
    """Write the names of the columns and the claimed number of rows as a line of JSON, then an Arrow stream of the
    columns that a line of standard input asks for: those that are used, and those that are watched if they are flat."""
    import pyarrow as pa
    import pyarrow.parquet as papq

    set_limits(request)
    try:
        with os.fdopen(request["descriptor"], "rb") as source:
            opened = papq.ParquetFile(source)
            schema = opened.schema_arrow
            out.write(json.dumps({"columns": schema.names, "rows": opened.metadata.num_rows}).encode() + b"\n")
            out.flush()
            asked = json.loads(sys.stdin.buffer.readline() or '{"used": [], "watched": []}')
            places = asked["used"] + [
                place for place in asked["watched"] if not pa.types.is_nested(schema.types[place])
            ]
            file = papq.ParquetFile(source, metadata=opened.metadata, read_dictionary=_repetitive(opened))
            _write_batches(file, places, out, request["max_decoded"])
    except (pa.ArrowException, OSError) as error:
        if isinstance(error, MemoryError):
            raise
        raise RefusedError(f"it cannot be read ({str(error).splitlines()[0][:300]})") from None


def _repetitive(file: Any) -> list[str]:
    """The columns of text that are stored as numbers of distinct texts: decoded as such, they take little memory."""
    import pyarrow as pa

    texts = (pa.string(), pa.large_string(), pa.binary(), pa.large_binary())
    stored: Counter[str] = Counter()
    for group in range(file.metadata.num_row_groups):
        for place in range(file.metadata.num_columns):
            column = file.metadata.row_group(group).column(place)
            stored[column.path_in_schema] += column.total_uncompressed_size
    most = MAX_BYTES_PER_NUMBER * file.metadata.num_rows
    return [field.name for field in file.schema_arrow if field.type in texts and stored[field.name] < most]


def _write_batches(file: Any, places: Sequence[int], out: IO[bytes], limit: int) -> None:
    """Write columns as a stream of batches, in which they are named by their places in the file."""
    import pyarrow as pa

    decoded, writer = 0, None
    names, columns = file.schema_arrow.names, list(map(str, places))
    for batch in file.iter_batches(PARQUET_ROWS, columns=[names[place] for place in places], use_threads=False):
        decoded += batch.nbytes
        if decoded > limit:
            raise RefusedError(f"its columns decode to more than {limit >> 20} MiB, far beyond its size")
        first = [batch.schema.names.index(names[place]) for place in places]  # of columns with the same name
        batch = batch.select(first).rename_columns(columns)
        writer = writer or pa.ipc.new_stream(out, batch.schema)
        writer.write_batch(batch)
    (writer or pa.ipc.new_stream(out, pa.schema([(column, pa.string()) for column in columns]))).close()


if __name__ == "__main__":
    main()
