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
from collections.abc import Iterable, Iterator, Sequence
from typing import IO, Any
from xml.parsers import expat

MAX_DEPTH = 200  # levels of elements, objects and lists within each other
MAX_ATTRIBUTES = 1000  # one XML element may have
NAMES_PER_WRITE = 1 << 16
PARQUET_ROWS = 1 << 18
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
_TOKENS = re.compile(rb'["\\\[\]{}]')


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


class Guarded:
    """A stream that is checked while the parser reads it."""

    def __init__(self, stream: IO[bytes]) -> None:
        self.stream = stream

    def read(self, size: int = -1) -> bytes:
        block = self.stream.read(size)
        self.check(block)
        return block

    def check(self, block: bytes) -> None:
        """Raise RefusedError if the file must not be parsed any further; an empty block is its end."""
        raise NotImplementedError


class GuardedXml(Guarded):
    """XML without document types, which declare entities, and without deep nesting; errors have a line."""

    def __init__(self, stream: IO[bytes]) -> None:
        super().__init__(stream)
        self.depth = 0
        self.expat = expat.ParserCreate("utf-8")  # the only encoding that the parser of RDF/XML accepts
        self.expat.StartDoctypeDeclHandler = self.doctype
        self.expat.StartElementHandler = self.start
        self.expat.EndElementHandler = self.end

    def check(self, block: bytes) -> None:
        try:
            self.expat.Parse(block, not block)
        except expat.ExpatError as error:
            raise RefusedError(expat.ErrorString(error.code), error.lineno) from None

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


class GuardedJson(Guarded):
    """JSON without deep nesting."""

    def __init__(self, stream: IO[bytes]) -> None:
        super().__init__(stream)
        self.depth, self.quoted = 0, False
        self.escaped = -1  # the place of an escaped character, counted from the start of the next block

    def check(self, block: bytes) -> None:
        for found in _TOKENS.finditer(block):
            at, token = found.start(), found[0]
            if at == self.escaped:
                continue
            if token == b'"':
                self.quoted = not self.quoted
            elif token == b"\\":
                self.escaped = at + 1 if self.quoted else -1
            elif not self.quoted:
                self.depth += 1 if token in b"[{" else -1
                if self.depth > MAX_DEPTH:
                    raise RefusedError(f"objects and lists are nested more than {MAX_DEPTH} deep")
        self.escaped -= len(block)


GUARDS: dict[str, type[Guarded]] = {"RDF_XML": GuardedXml, "JSON_LD": GuardedJson}


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


class RdfLabels:
    """The best label of each node so far."""

    def __init__(self, languages: Sequence[str]) -> None:
        self.languages = languages
        self.best: dict[Any, tuple[int, int, str, str]] = {}  # by node: ranks, label, language
        self.count = 0

    def add(self, node: Any, relation: str, literal: Any) -> bool:
        """Take note of a literal; whether it is a label."""
        if relation not in LABEL_IRIS:
            return False
        self.count += 1
        kind, language = LABEL_IRIS.index(relation), literal.language or ""
        rank = language_rank(language, self.languages), kind
        if node not in self.best or rank < self.best[node][:2]:
            self.best[node] = (*rank, literal.value, language)
        return True


def decode_rdf(request: dict[str, Any], out: IO[bytes]) -> None:
    """Write a line of JSON, the ids [n, 3] as 32-bit numbers, then the ends and the text of each list of strings.

    These are the names of entities and of relations, and of those with a label their name, the label and its language.
    """
    import pyoxigraph as ox

    set_limits(request)
    format, first = request["format"], request["first"]
    stream: Any = GUARDS[format](sys.stdin.buffer) if format in GUARDS else sys.stdin.buffer
    given = {"path": request["path"]} if request["path"] and format not in GUARDS else {"input": stream}
    anonymous: dict[str, str] | None = {} if format not in ("N_TRIPLES", "N_QUADS") else None
    entities: dict[str, int] = {}  # numbers within this file
    relations: dict[str, int] = {}
    ids = array.array("i")
    skipped: Counter[str] = Counter()
    labels = RdfLabels(request["languages"])
    prefixes: dict[str, str] | None = None
    named, nodes = ox.NamedNode, {ox.NamedNode, ox.BlankNode}

    def name(node: Any) -> str:
        if type(node) is named:
            return node.value
        label: str = node.value
        if anonymous is not None and re.fullmatch("[0-9a-f]{20,32}", label):
            # the parser names `[]` at random; labels in files cannot contain brackets, so this name is free
            label = anonymous.setdefault(label, f"[{first + len(entities)}]")
        return f"_:{label}"

    try:
        parser = ox.parse(**given, format=getattr(ox.RdfFormat, format))
        for head, relation, tail, graph in parser:
            if prefixes is None:
                prefixes = parser.prefixes  # the RDF/XML parser has none at its end
            if type(graph) is named and graph.value.endswith(REJECTED):
                skipped["rejected"] += 1
            elif type(tail) in nodes and type(head) in nodes:
                ids.append(entities.setdefault(name(head), len(entities)))
                ids.append(relations.setdefault(relation.value, len(relations)))
                ids.append(entities.setdefault(name(tail), len(entities)))
            elif type(tail) is not ox.Literal or type(head) not in nodes:
                skipped["literal" if type(tail) is ox.Literal else "quoted"] += 1
            elif not labels.add(head, relation.value, tail):
                skipped["literal"] += 1
        prefixes = (prefixes or {}) | parser.prefixes
    except SyntaxError as error:
        raise _explained(error) from None
    except OSError as error:
        raise RefusedError(error.strerror or str(error)) from None
    columns: list[Iterable[str]] = [entities, relations]
    columns += _label_columns(labels, {name(node): node for node in labels.best if _is_named(node, anonymous)},
                              None if request["all_labels"] else (entities, relations))  # fmt: skip
    header: dict[str, Any] = {"prefixes": prefixes, "skipped": skipped, "triples": len(ids) // 3}
    ends = [_ends(texts, request["max_decoded"]) for texts in columns]
    header["names"] = [[len(part) - 1, part[-1]] for part in ends]
    out.write(json.dumps(header).encode() + b"\n")
    ids.tofile(out)
    for part, texts in zip(ends, columns, strict=True):
        part.tofile(out)
        _write_text(texts, out)


def _is_named(node: Any, anonymous: dict[str, str] | None) -> bool:
    """Whether a node has a name already: asking for the name of another blank node would number it."""
    return anonymous is None or not re.fullmatch("[0-9a-f]{20,32}", node.value) or node.value in anonymous


def _label_columns(
    labels: RdfLabels, nodes: dict[str, Any], known: tuple[dict[str, int], dict[str, int]] | None
) -> list[list[str]]:
    """Names, labels and languages; only those of known names."""
    names = [name for name in nodes if known is None or name in known[0] or name in known[1]]
    found = [labels.best[nodes[name]] for name in names]
    return [names, [label for _, _, label, _ in found], [language for *_, language in found]]


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


def _ends(names: Iterable[str], limit: int) -> array.array[int]:
    """The start of each name in their concatenated text, then the end of the last."""
    ends, total = array.array("q", [0]), 0
    for name in names:
        total += len(name.encode())
        ends.append(total)
    if total > limit:
        raise RefusedError(f"its names in full are more than {limit >> 20} MiB of text, far beyond its size")
    return ends


def _write_text(names: Iterable[str], out: IO[bytes]) -> None:
    waiting: list[str] = []
    for name in names:
        waiting.append(name)
        if len(waiting) == NAMES_PER_WRITE:
            out.write("".join(waiting).encode())
            waiting = []
    out.write("".join(waiting).encode())


# --- Parquet --------------------------------------------------------------------------------------------


def decode_parquet(request: dict[str, Any], out: IO[bytes]) -> None:
    """Write the names of the columns and the claimed number of rows as a line of JSON, then one Arrow stream for each
    column that a line of standard input asks for: those that are used, and the values of those that are watched."""
    import pyarrow as pa
    import pyarrow.parquet as papq

    set_limits(request)
    try:
        with os.fdopen(request["descriptor"], "rb") as source:
            opened = papq.ParquetFile(source)
            schema = opened.schema_arrow
            out.write(json.dumps({"columns": schema.names, "rows": opened.metadata.num_rows}).encode() + b"\n")
            out.flush()
            asked = json.loads(sys.stdin.buffer.readline() or "{}")
            file = papq.ParquetFile(source, metadata=opened.metadata, read_dictionary=_repetitive(opened))
            decoded = 0
            for place in asked.get("used", []):
                decoded = _write_column(file, schema.field(place), out, decoded, request["max_decoded"])
            for place in asked.get("watched", []):
                _write_values(file, schema.field(place), out, asked["max_values"])
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


def _batches(file: Any, name: str) -> Iterator[Any]:
    return file.iter_batches(PARQUET_ROWS, columns=[name], use_threads=False)


def _write_column(file: Any, field: Any, out: IO[bytes], decoded: int, limit: int) -> int:
    """Write a column as a stream of batches; returns the bytes decoded so far."""
    import pyarrow as pa

    writer = None
    for batch in _batches(file, field.name):
        decoded += batch.nbytes
        if decoded > limit:
            raise RefusedError(f"its columns decode to more than {limit >> 20} MiB, far beyond its size")
        batch = batch.select([0])  # the first of columns with the same name counts
        writer = writer or pa.ipc.new_stream(out, batch.schema)
        writer.write_batch(batch)
    (writer or pa.ipc.new_stream(out, pa.schema([field]))).close()
    return decoded


def _write_values(file: Any, field: Any, out: IO[bytes], max_values: int) -> None:
    """Write the distinct values of each batch of a column, until there are more than `max_values` in all."""
    import pyarrow as pa

    found: set[Any] = set()
    with pa.ipc.new_stream(out, pa.schema([("value", pa.string())])) as writer:
        for batch in _batches(file, field.name):
            try:
                values = batch.column(0).unique().slice(0, max_values + 1).cast(pa.string())
            except pa.ArrowException:  # a type that is not text
                return
            writer.write_batch(pa.record_batch([values], ["value"]))
            found.update(values.to_pylist())
            if len(found) > max_values:
                return


if __name__ == "__main__":
    main()
