"""Labels: what people call entities and relations whose names are ids; no part of a graph's fingerprint."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dihedral.errors import DihedralError
from dihedral.graph.string_array import StringArray
from dihedral.io.decoder import language_rank
from dihedral.io.iris import expand

if TYPE_CHECKING:
    from dihedral.graph.vocabulary import Vocabulary

COLUMNS = ("label", "description", "type", "language")
MAX_LENGTH = 10_000  # characters of a label, a description or a type
LANGUAGES = ("en",)  # preferred by default


class Labels:
    """The label of each id of a vocabulary, with a description, a type and a language; missing text is empty."""

    def __init__(self, columns: Mapping[str, pa.Array], order: NDArray[np.int32] | None = None, file: str = "") -> None:
        orders = {"label": order}
        self.texts = {name: StringArray(array, f"{name}s", file, orders.get(name)) for name, array in columns.items()}

    def __len__(self) -> int:
        return len(self.texts["label"])

    def check(self) -> None:
        """Raise an error if the file is damaged."""
        for texts in self.texts.values():
            texts.check()
        if not self.texts["label"].has_order:
            raise self.texts["label"].damaged("are not in their order")

    @property
    def order(self) -> NDArray[np.int32]:
        """The ids sorted by label; those without one come first."""
        return self.texts["label"].order

    @property
    def count(self) -> int:
        """How many have a label."""
        import pyarrow.compute as pc

        return int(pc.sum(pc.not_equal(self.texts["label"].array, "")).as_py() or 0)

    def label(self, number: int) -> str:
        return self.texts["label"].text(number)

    def get(self, column: str, number: int) -> str:
        """The description, the type or the language; empty if there is none."""
        return self.texts[column].text(number) if column in self.texts else ""

    def about(self, number: int) -> str:
        """What tells an id from others with its label: the description, or else the type."""
        return self.get("description", number) or self.get("type", number)

    def find(self, label: str) -> list[int]:
        """The ids that have this label."""
        return sorted(self.texts["label"].places(label)) if label else []

    def extended(self, count: int) -> Labels:
        """The same with so many further ids, which have no labels."""
        arrays = {name: texts.array for name, texts in self.texts.items()}
        return Labels(
            {name: pa.concat_arrays([each, pa.array([""] * count, each.type)]) for name, each in arrays.items()}
        )

    def distinct(self) -> list[str]:
        """All labels."""
        return [label for label in self.texts["label"].array.unique().to_pylist() if label]


def parse_languages(language: str | Sequence[str]) -> tuple[str, ...]:
    """Languages in the order of preference, from a list or from text such as `en,de`."""
    parts = language.split(",") if isinstance(language, str) else language
    languages = tuple(part.strip().lower() for part in parts if part.strip())
    for each in languages:
        if not all(part.isalnum() and part.isascii() and len(part) <= 8 for part in each.split("-")):
            raise DihedralError(f"language is {each!r:.80}; write codes such as en, de or pt-br, separated by commas")
    return languages


def choose_labels(names: Vocabulary, table: pa.Table, languages: Sequence[str]) -> Labels | None:
    """The labels of a vocabulary from a table, those of preferred languages first; others stay where it has none."""
    import pyarrow.compute as pc

    table = table.set_column(table.column_names.index("label"), "label", _clean(table["label"]))
    ids = _find_all(names, table["id"])
    rows = np.flatnonzero(ids >= 0)
    if not len(rows):
        return names.labels
    ranks = _language_ranks(table, languages)[rows]
    unlabelled = pc.equal(table["label"], "").to_numpy()[rows]
    rows = rows[np.lexsort((rows, ranks, unlabelled, ids[rows]))]
    rows = rows[np.unique(ids[rows], return_index=True)[1]]  # the best row of each id
    place = np.full(len(names), -1)
    place[ids[rows]] = rows
    here = pa.array(place, mask=place < 0)
    old = names.labels
    columns = {}
    for name in COLUMNS:
        if name not in table.column_names and (old is None or name not in old.texts):
            continue
        values = table[name].combine_chunks() if name in table.column_names else pa.array([""] * len(table))
        new = _clean(values).cast(pa.large_string()).take(here)
        kept = old.texts[name].array.cast(pa.large_string()) if old and name in old.texts else ""
        columns[name] = narrow(pc.coalesce(pc.if_else(pc.equal(new, ""), None, new), kept))
    return Labels(columns)


def _clean(texts: pa.Array | pa.ChunkedArray) -> pa.Array | pa.ChunkedArray:
    """Text on one line, without blanks around it."""
    import pyarrow.compute as pc

    cleaned = pc.utf8_trim_whitespace(pc.replace_substring_regex(pc.fill_null(texts, ""), r"\s+", " "))
    if (longest := pc.max(pc.utf8_length(cleaned)).as_py() or 0) > MAX_LENGTH:
        raise DihedralError(f"a label, description or type has {longest:,} characters; it may have {MAX_LENGTH:,}")
    return cleaned


def narrow(texts: pa.Array | pa.ChunkedArray) -> pa.Array:
    """One array with 32-bit offsets if they suffice."""
    texts = texts.combine_chunks() if isinstance(texts, pa.ChunkedArray) else texts
    return texts.cast(pa.string()) if texts.nbytes < 2**31 else texts


def _find_all(names: Vocabulary, wanted: pa.ChunkedArray) -> NDArray[np.int64]:
    """The ids of names, with or without a prefix; -1 for others."""
    import pyarrow.compute as pc

    known = names.array.cast(wanted.type)
    found = pc.index_in(wanted, value_set=known).fill_null(-1).to_numpy().astype(np.int64)
    others = np.flatnonzero(found < 0)
    if names.prefixes and len(others):
        full = [expand(name or "", names.prefixes) for name in wanted.take(pa.array(others)).to_pylist()]
        found[others] = pc.index_in(pa.array(full, wanted.type), value_set=known).fill_null(-1).to_numpy()
    return found


def unknown_ids(table: pa.Table, *vocabularies: Vocabulary) -> list[str]:
    """The ids in a table of labels that no vocabulary has."""
    known = np.any([_find_all(names, table["id"]) >= 0 for names in vocabularies], axis=0)
    return table["id"].filter(pa.array(~known)).unique().to_pylist()


def _language_ranks(table: pa.Table, languages: Sequence[str]) -> NDArray[np.int64]:
    """How far the language of each row is from the preferred one."""
    if "language" not in table.column_names or not len(table):
        return np.zeros(len(table), np.int64)
    encoded = table["language"].combine_chunks().fill_null("").dictionary_encode()
    by_code = np.array([language_rank(each.strip(), languages) for each in encoded.dictionary.to_pylist()], np.int64)
    return by_code[encoded.indices.to_numpy()]


def count_labels(*vocabularies: Vocabulary) -> str:
    """How many names have a label, such as `3 of 4 entities, 2 of 2 relations`."""
    kinds = {"entity": "entities", "relation": "relations"}
    counts = [(names.labels.count if names.labels else 0, len(names), kinds[names.kind]) for names in vocabularies]
    return ", ".join(f"{count:,} of {total:,} {kind}" for count, total, kind in counts)


def labels_in(content: Any, vocabularies: Sequence[Vocabulary]) -> dict[str, str]:
    """The labels of all names in a value made of dicts, lists and objects, by name."""
    vocabularies = [names for names in vocabularies if names.labels is not None]
    found: dict[str, str] = {}
    if not vocabularies:
        return found
    seen: set[str] = set()
    waiting = [content]
    while waiting:
        value = waiting.pop()
        if isinstance(value, str):
            seen.add(value)
        elif isinstance(value, Mapping):
            waiting.extend(value.values())
        elif isinstance(value, (list, tuple)):
            waiting.extend(value)
        elif hasattr(value, "__dict__"):
            waiting.extend(vars(value).values())
    for text in sorted(seen):
        for name in (text, text.removeprefix("~")):
            label = next((label for names in vocabularies if (label := names.label(name))), "")
            if label:
                found[name] = label
                break
    return found
