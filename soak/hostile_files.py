"""Create hostile graphs: RDF, Parquet, text, JSON lines and archives."""

from __future__ import annotations

import gzip
import io
import json
import lzma
import random
import shutil
import struct
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as papq

BASE = "http://e/"
FACTS = [(f"n{i % 7}", f"r{i % 3}", f"n{(i * 3 + 1) % 9}") for i in range(40)]
NAMES = [*(f"n{i}" for i in range(10)), *(f"r{i}" for i in range(3))]
LIES = (0, 1, -1, 127, 128, 255, 2**15, 2**16 - 1, 2**24, 2**31 - 1, 2**31, 2**32 - 1, 2**40, 2**62, 2**63 - 1)
Make = Callable[[random.Random], bytes]


def remove(folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)


def amount(rng: random.Random, most: int) -> int:
    """A number up to `most`; each order of magnitude is equally likely."""
    return int(most ** rng.random())


def _one_of(rng: random.Random, place: Path, makers: dict[str, Make]) -> str:
    """Write a file of one kind; the key is the suffix and a description."""
    name = rng.choice(list(makers))
    content = makers[name](rng)
    (place / f"case.{name.split(' ')[0]}").write_bytes(content)
    return f"{name}, {len(content)} bytes"


# --- RDF ------------------------------------------------------------------------------------------------

_RDF = '<rdf:RDF xmlns:rdf="http://www.w3.org/1999/02/22-rdf-syntax-ns#" xmlns:e="http://e/">%s</rdf:RDF>'
_FACT = '<rdf:Description rdf:about="http://e/a"><e:p rdf:resource="http://e/%s"/></rdf:Description>'


def _entities(rng: random.Random) -> bytes:
    depth, width = rng.randint(1, 12), rng.randint(2, 30)
    outside = rng.choice(["", '<!ENTITY x SYSTEM "file:///etc/passwd">', '<!ENTITY % p SYSTEM "http://e/p">%p;'])
    nested = "".join(f'<!ENTITY e{i} "{f"&e{i - 1};" * width if i else "http://e/"}">' for i in range(depth))
    kind = rng.choice(["<!DOCTYPE rdf:RDF [%s]>", "<?xml version='1.0'?>\n<!-- x -->\n<!DOCTYPE rdf:RDF [%s]>"])
    used = rng.choice([f"&e{depth - 1};", "&x;", "b"])
    return (kind.replace("%s", outside + nested) + _RDF.replace("%s", _FACT.replace("%s", used))).encode()


def _deep_xml(rng: random.Random) -> bytes:
    depth = amount(rng, 200_000)
    closed = "</e:p></rdf:Description>" * depth if rng.random() < 0.7 else ""
    return _RDF.replace("%s", "<rdf:Description><e:p>" * depth + closed + _FACT.replace("%s", "b")).encode()


def _wide_xml(rng: random.Random) -> bytes:
    count = amount(rng, 30_000)
    what = rng.choice(["e:p{}='x'", "xmlns:n{}='http://n{}/'", "e:p='{}'"])
    attributes = " ".join(what.replace("{}", str(i)) for i in range(count))
    return _RDF.replace("%s", f"<rdf:Description {attributes}>" + _FACT.replace("%s", "b") * amount(rng, 2000)).encode()


def _xml_words(rng: random.Random) -> bytes:
    odd = [
        "<![CDATA[<!DOCTYPE x>]]>",
        "&#0;",
        "&#xD800;",
        "&undefined;",
        "<?php x?>",
        "\x0b",
        "</rdf:RDF>",
        "<rdf:li rdf:resource='http://e/a'/>",
        "<e:p rdf:parseType='Literal'><b>" * 50,
        "<rdf:RDF>",
        "\ud7ff",
    ]
    parts = "".join(rng.choice([*odd, _FACT.replace("%s", str(i))]) for i in range(rng.randint(1, 30)))
    return _RDF.replace("%s", parts).encode(rng.choice(["utf-8", "utf-16", "utf-8-sig"]))


def _deep_json(rng: random.Random) -> bytes:
    depth = amount(rng, 100_000)
    opened, inner, closed = rng.choice(
        [
            ('{"@id":"http://e/a","http://e/p":', '{"@id":"http://e/b"}', "}"),
            ("[", "1", "]"),
            ('{"@context":', '{"p":"http://e/p"}', "}"),
            ('{"@list":[', "1", "]}"),
            ('{"@graph":', "[]", "}"),
            ('{"@context":{"p":{"@id":"http://e/p","@context":', "{}", "}}}"),
        ]
    )
    return (opened * depth + inner + (closed * depth if rng.random() < 0.8 else "")).encode()


def _contexts(rng: random.Random) -> bytes:
    terms, nodes = amount(rng, 20_000), amount(rng, 20_000)
    context = {f"t{i}": rng.choice([f"http://e/{i}", {"@id": f"http://e/{i}", "@type": "@id"}, f"t{i - 1}:x"])
               for i in range(terms)}  # fmt: skip
    wrapped: Any = {"p": {"@id": "http://e/p", "@context": context}} if rng.random() < 0.5 else context
    rows = [
        {"@id": f"http://e/{i}", "p": {"@id": f"http://e/{i + 1}"}, "http://e/q": {"@id": "http://e/z"}}
        for i in range(nodes)
    ]
    return json.dumps({"@context": rng.choice([wrapped, "https://e.org/x", [wrapped] * 20]), "@graph": rows}).encode()


def _nested_turtle(rng: random.Random) -> bytes:
    depth = amount(rng, 200_000)
    opened, inner, closed = rng.choice([("[ :p ", ":c", " ]"), ("( ", ":c", " )"), ("<< ", ":a :p :c", " >> :p :c")])
    start = "" if opened == "<< " else ":a :p "
    return f"@prefix : <http://e/> .\n{start}{opened * depth}{inner}{closed * depth} .\n".encode()


def _quoted(rng: random.Random) -> bytes:
    depth = amount(rng, 200_000)
    a = "<http://e/a> <http://e/p> "
    return f"{a}<http://e/b> .\n{a}{f'<<( {a}' * depth}<http://e/c>{' )>>' * depth} .\n".encode()


def _long_prefix(rng: random.Random) -> bytes:
    length, count = amount(rng, 100_000), amount(rng, 60_000)
    prefixes = "".join(f"@prefix p{i}: <http://e/{i}> .\n" for i in range(amount(rng, 20_000)))
    facts = "".join(f":a{i} :b :c{i} .\n" for i in range(count))
    return f"{prefixes}@prefix : <http://e/{'x' * length}> .\n{facts}".encode()


def _triples(rng: random.Random) -> bytes:
    lines = [f"<http://e/{h}> <http://e/{r}> <http://e/{t}> .\n".encode() for h, r, t in FACTS]
    odd = [
        b'<http://e/a> <http://e/p> "' + b"x" * amount(rng, 10**7) + b'" .\n',
        b"<http://e/\\uD800> <p> <q> .\n",
        b"\xff\xfe\n",
        b"\0" * 100 + b"\n",
        b"<" + b"x" * amount(rng, 10**6) + b"\n",
        b"_:" + b"a" * 10**5 + b"\n",
        b"<http://e/" + b"y" * amount(rng, 10**6) + b"> <http://e/p> <http://e/q> .\n",
        b"#" * 10**6 + b"\n",
        b"_:a <http://e/p> _:b .\n" * amount(rng, 10**4),
    ]
    for _ in range(rng.randint(1, 3)):
        lines.insert(rng.randrange(len(lines)), rng.choice(odd))
    return b"".join(lines)


def _compressed(rng: random.Random) -> bytes:
    line = b"<http://e/a> <http://e/p> <http://e/b> .\n"
    return gzip.compress(line * amount(rng, 4_000_000), 1)


_RDF_FILES: dict[str, Make] = {
    "rdf with entities": _entities,
    "owl with entities": _entities,
    "rdf nested": _deep_xml,
    "xml with attributes": _wide_xml,
    "rdf with odd words": _xml_words,
    "jsonld nested": _deep_json,
    "jsonld with contexts": _contexts,
    "ttl nested": _nested_turtle,
    "trig nested": _nested_turtle,
    "nt quoted": _quoted,
    "nq quoted": _quoted,
    "ttl with long names": _long_prefix,
    "nt with odd lines": _triples,
    "nt.gz compressed": _compressed,
}


def rdf(rng: random.Random, place: Path, _: Path) -> str:
    return _one_of(rng, place, _RDF_FILES)


# --- Parquet --------------------------------------------------------------------------------------------


def _table(rng: random.Random) -> pa.Table:
    columns = dict(zip(("head", "relation", "tail"), map(list, zip(*FACTS, strict=True)), strict=True))
    return pa.table(columns)


def _written(table: pa.Table, **options: Any) -> bytes:
    out = io.BytesIO()
    papq.write_table(table, out, **options)
    return out.getvalue()


def _options(rng: random.Random) -> dict[str, Any]:
    options: dict[str, Any] = {"compression": rng.choice(["none", "snappy", "zstd", "gzip", "brotli", "lz4"])}
    options["use_dictionary"] = rng.random() < 0.5
    if not options["use_dictionary"] and rng.random() < 0.5:
        options["column_encoding"] = rng.choice(["DELTA_BYTE_ARRAY", "DELTA_LENGTH_BYTE_ARRAY", "PLAIN"])
    options["data_page_version"] = rng.choice(["1.0", "2.0"])
    options["row_group_size"] = rng.choice([1, 7, 100])
    return options


def varint(number: int) -> bytes:
    """A number as Thrift's compact protocol writes it."""
    number, found = (number << 1) ^ (number >> 63), b""
    while number >= 0x80:
        found, number = found + bytes([number & 0x7F | 0x80]), number >> 7
    return found + bytes([number])


def _false_numbers(rng: random.Random, first: int = 4) -> bytes:
    """Bytes in the footer, or anywhere, are replaced by numbers."""
    content = bytearray(_written(_table(rng), **_options(rng)))
    footer = len(content) - 8 - int.from_bytes(content[-8:-4], "little")
    for _ in range(rng.choice([1, 1, 2, 5])):
        start = first or footer
        at = rng.randrange(start, len(content) - 8)
        lie = varint(rng.choice(LIES))[: rng.choice([1, 2, 3, 10])]
        content[at : at + len(lie)] = lie[: max(0, len(content) - 8 - at)]
    if rng.random() < 0.1:
        content[-8:-4] = struct.pack("<I", rng.choice(LIES) & 0xFFFFFFFF)
    return bytes(content)


def _false_footer(rng: random.Random) -> bytes:
    return _false_numbers(rng, 0)


def _false_rows(rng: random.Random) -> bytes:
    """The number of rows in the footer, in a row group, or everywhere."""
    content = _written(_table(rng), **_options(rng) | {"row_group_size": 100})
    footer = len(content) - 8 - int.from_bytes(content[-8:-4], "little")
    true, lie = varint(len(FACTS)), varint(rng.randrange(64))
    at = content.index(b"\x16" + true, footer) + 1  # a field of 64 bits
    if rng.random() < 0.5:
        return content[:at] + lie + content[at + 1 :]
    return content[:footer] + content[footer:].replace(b"\x16" + true, b"\x16" + lie)


def _parquet_bomb(rng: random.Random) -> bytes:
    long, rows = "x" * amount(rng, 1 << 20), amount(rng, 300)
    columns = {name: [long if name == "head" else name] * rows for name in ("head", "relation", "tail")}
    return _written(pa.table(columns), **_options(rng) | {"row_group_size": 1000})


def _many_rows(rng: random.Random) -> bytes:
    rows = amount(rng, 1 << 22)
    codes = pa.Array.from_buffers(pa.int32(), rows, [None, pa.py_buffer(bytes(4 * rows))])
    column = pa.DictionaryArray.from_arrays(codes, ["a"])
    return _written(pa.table([column] * 3, ["head", "relation", "tail"]), compression="zstd")


def _odd_columns(rng: random.Random) -> bytes:
    nested: Any = "x"
    kind: Any = pa.string()
    for _ in range(amount(rng, 60)):
        nested, kind = ([nested], pa.list_(kind)) if rng.random() < 0.5 else ({"f": nested}, pa.struct({"f": kind}))
    odd = [
        pa.array([nested], kind),
        pa.array([None]),
        pa.array([b"\xff\xfe"]),
        pa.array([True]),
        pa.array([1e308]),
        pa.array([float("nan")]),
        pa.array([2**63 - 1]),
        pa.array(["\0"]),
        pa.array([" "]),
        pa.array([""]),
        pa.array(["x"], pa.large_string()),
        pa.array([b"x"], pa.binary(1)),
        pa.array(["a"]).dictionary_encode(),
    ]
    width = rng.choice([3, 3, 3, 4, 1, amount(rng, 3000)])
    names = (
        [
            rng.choice(["head", "relation", "tail", "split", "label", "x" * amount(rng, 10**5), "", "a.b", "\0", "é"])
            for _ in range(width)
        ]
        if rng.random() < 0.5
        else ["head", "relation", "tail", *map(str, range(width - 3))]
    )
    return _written(pa.table([rng.choice(odd) for _ in names], names))


_PARQUET_FILES: dict[str, Make] = {
    "parquet with a false footer": _false_footer,
    "parquet with false numbers": _false_numbers,
    "parquet with false rows": _false_rows,
    "parquet that expands": _parquet_bomb,
    "parquet of many rows": _many_rows,
    "parquet with odd columns": _odd_columns,
}


def parquet(rng: random.Random, place: Path, _: Path) -> str:
    about = _one_of(rng, place, _PARQUET_FILES)
    if "false footer" in about or "false rows" in about:
        (place / ".names").write_text(json.dumps(NAMES))  # all that the file can hold
    return about


# --- text and JSON lines --------------------------------------------------------------------------------


def text(rng: random.Random, place: Path, _: Path) -> str:
    suffix = rng.choice(["csv", "tsv", "txt", "csv", "csv.gz", "tsv.zst"])
    mark = "," if "csv" in suffix else "\t"
    rows = [mark.join(fact) for fact in FACTS]
    odd = [
        '"',
        'a,"b',
        '"a""b",r,"c\nd"',
        '"' * amount(rng, 10**5),
        "x" * amount(rng, 3 << 20),
        mark * amount(rng, 10**6),
        "\0",
        "\r",
        "\ufeff",
        "=cmd()" + mark + "@x" + mark + "-1",
        mark * 2,
        " " * amount(rng, 10**6) + mark + "r" + mark + "b",
        "\x1b[2J" + mark + "r" + mark + "\x9b",
        "head" + mark + "head" + mark + "head",
        '"a' + "\n" * amount(rng, 10**5),
        ("a" + mark + "r" + mark + "b\n") * amount(rng, 10**5),
        "\u2028" + mark + "r" + mark + "\x85",
    ]
    for _ in range(rng.randint(1, 4)):
        rows.insert(rng.randrange(len(rows)), rng.choice(odd))
    content = (
        rng.choice(["\n", "\n", "\r\n", "\r"]).join(rows).encode(rng.choice(["utf-8", "utf-8", "utf-16", "utf-8-sig"]))
    )
    if rng.random() < 0.1:
        content = content[: rng.randrange(len(content))] + b"\xff\xc0\x80" + content
    if suffix.endswith("gz"):
        content = gzip.compress(content * amount(rng, 200), 1)
    elif suffix.endswith("zst"):
        content = pa.compress(content * amount(rng, 200), "zstd", asbytes=True)
    (place / f"case.{suffix}").write_bytes(content)
    return f"{suffix}, {len(content)} bytes"


def json_lines(rng: random.Random, place: Path, _: Path) -> str:
    row = {"head": "a", "relation": "r", "tail": "b"}
    depth = amount(rng, 10**6)
    odd = [
        "[" * depth,
        '{"a":' * depth,
        json.dumps({**row, "head": "x" * amount(rng, 3 << 20)}),
        "NaN",
        '{"head": NaN}',
        json.dumps({**row, "head": "\ud800"}),
        "1" * amount(rng, 10**5),
        json.dumps({str(i): i for i in range(depth % 10**5)}),
        '{"head": 1e999, "relation": "r", "tail": "b"}',
        '{"head": "a", "head": "b", "relation": "r", "tail": "b"}',
        json.dumps({**row, "split": "train"}),
        json.dumps({**row, "tail": [row] * (depth % 1000)}),
        "null",
        "\ufeff{}",
        '{"head": ' + "9" * amount(rng, 10**4) + ', "relation": "r", "tail": "b"}',
        '"' + "\\" * depth,
    ]
    lines = [json.dumps(dict(zip(("head", "relation", "tail"), fact, strict=True))) for fact in FACTS]
    for _ in range(rng.randint(1, 3)):
        lines.insert(rng.randrange(len(lines)), rng.choice(odd))
    content = "\n".join(lines).encode("utf-8", "replace")
    (place / "case.jsonl").write_bytes(content)
    return f"{len(content)} bytes"


# --- archives -------------------------------------------------------------------------------------------

_TEXT = "".join("\t".join(fact) + "\n" for fact in FACTS).encode()


def _zip(rng: random.Random) -> bytes:
    """Offsets, sizes, counts, flags and methods in the directory and in headers are replaced."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", rng.choice([zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_LZMA])) as archive:
        for name in ("train.txt", "valid.txt", "test.txt"):
            archive.writestr(rng.choice([name, f"a/{name}", f"../{name}"]), _TEXT)
    content = bytearray(out.getvalue())
    starts = [at for at in range(len(content) - 4) if content[at : at + 4] in (b"PK\1\2", b"PK\5\6", b"PK\3\4")]
    for _ in range(rng.choice([1, 1, 2, 4])):
        at = rng.choice(starts) + rng.randrange(4, 46)
        lie = struct.pack("<q", rng.choice(LIES))[: rng.choice([1, 2, 4])]
        content[at : at + len(lie)] = lie
    return bytes(content)


def _tar(rng: random.Random) -> bytes:
    """Sizes, kinds and extended headers that lie."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=rng.choice([tarfile.PAX_FORMAT, tarfile.GNU_FORMAT])) as archive:
        for name in ("train.txt", "valid.txt", "test.txt"):
            info = tarfile.TarInfo(rng.choice([name, "x" * 200 + "/" + name, f"/{name}"]))
            info.size = len(_TEXT)
            if rng.random() < 0.3:
                key = rng.choice(
                    ["size", "path", "GNU.sparse.size", "GNU.sparse.map", "mtime", "linkpath", "hdrcharset"]
                )
                info.pax_headers = {key: rng.choice([*map(str, LIES), "x" * 10_000, "train.txt", "0,9" * 999])}
            archive.addfile(info, io.BytesIO(_TEXT))
    content = bytearray(out.getvalue())
    if rng.random() < 0.6:
        at = rng.randrange(len(content) // 512) * 512
        field, size = rng.choice([(124, 12), (156, 1), (0, 100), (483, 12), (386, 97)])
        content[at + field : at + field + size] = rng.choice([b"7" * size, b"\x80" + b"\xff" * (size - 1), bytes(size),
                                                             rng.randbytes(size), b"S" * size])  # fmt: skip
        header = content[at : at + 512]
        header[148:156] = b" " * 8
        content[at + 148 : at + 156] = b"%06o\0 " % sum(header)
    return bytes(content)


def _bomb(rng: random.Random) -> bytes:
    info = tarfile.TarInfo(rng.choice(["train.txt", "other.bin"]))
    info.size = amount(rng, 150 << 20)
    return info.tobuf() + _TEXT[:9] * (info.size // 9 + 1)


def archive(rng: random.Random, place: Path, _: Path) -> str:
    kind = rng.choice(["zip", "zip", "tar", "tar.gz", "tar.xz", "zip of a hostile file", "bomb"])
    if kind == "zip of a hostile file":
        name = rng.choice(list(_RDF_FILES))
        inner = _RDF_FILES[name](rng)
        with zipfile.ZipFile(place / "case.zip", "w", zipfile.ZIP_DEFLATED) as found:
            found.writestr(f"train.{name.split(' ')[0]}", inner)
        return f"zip of {name}"
    if kind == "bomb":
        suffix = rng.choice(["tar.gz", "tar.xz"])
        content = _bomb(rng)
    else:
        suffix, content = kind, _zip(rng) if kind == "zip" else _tar(rng)
    if suffix == "tar.gz":
        content = gzip.compress(content, 1)
    elif suffix == "tar.xz":
        content = lzma.compress(content, preset=0)
    (place / f"case.{suffix}").write_bytes(content)
    return f"{kind} ({suffix}), {len(content)} bytes"
