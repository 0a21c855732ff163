"""Search of names and labels by words: in any order, without accents and case, the most frequent names first.

The index holds the distinct words in sorted order, and for each the names that contain it, by their rank in frequency.
All words that start with a text are neighbours, and so are their lists.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cached_property
from itertools import islice

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dihedral.errors import DihedralError
from dihedral.graph.labels import narrow
from dihedral.graph.numbering import NameTable
from dihedral.graph.string_array import StringArray
from dihedral.graph.vocabulary import Vocabulary
from dihedral.io.iris import expand

NAMES_AT_ONCE = 1 << 17
MAX_WORDS = 8  # a search ignores further words
MAX_SCANNED = 32 << 20  # bytes of words that are searched for a part of a word
MAX_PARTS = 1000  # words that contain a text
FEW = 1 << 14  # ranks that are looked at without a bound
_SEPARATORS = r"[^\p{L}\p{N}]+"  # between words, for Arrow
_BETWEEN = re.compile(r"[\W_]+")  # the same for Python
_NAMESPACE = r"^[A-Za-z][A-Za-z0-9+.-]*://.*[/#](.)"  # an IRI is indexed without it
_OTHERS = {"ß": "ss", "ø": "o", "ł": "l", "đ": "d", "ð": "d", "þ": "th", "æ": "ae", "œ": "oe", "ı": "i", "ħ": "h"}


def fold(texts: pa.Array) -> pa.Array:
    """Texts without the namespaces of IRIs, case and accents.

    >>> fold(pa.array(["Łódź", "Straße", "Poincaré", "http://example.org/Ann"])).to_pylist()
    ['lodz', 'strasse', 'poincare', 'ann']
    """
    import pyarrow.compute as pc

    if pc.any(pc.match_substring(texts, "://")).as_py():
        texts = pc.replace_substring_regex(texts, _NAMESPACE, r"\1")
    plain = pc.string_is_ascii(texts)
    lower = pc.ascii_lower(texts)
    if pc.all(plain).as_py() or not len(texts):
        return lower
    others = pc.utf8_lower(pc.utf8_normalize(texts.filter(pc.invert(plain)), form="NFKD"))
    others = pc.replace_substring_regex(others, r"\p{M}+", "")
    for char, instead in _OTHERS.items():
        others = pc.replace_substring(others, char, instead)
    return pc.replace_with_mask(lower, pc.invert(plain), others)


class WordIndex:
    """The words of names and labels. ranks[starts[w]:starts[w + 1]] are those of the names with word w."""

    def __init__(
        self, words: pa.Array, starts: NDArray[np.int64], ranks: NDArray[np.int32], count: int, file: str = ""
    ) -> None:
        self.words = StringArray(words, "words", file, order=range(len(words)))
        self.starts, self.ranks, self.count = starts, ranks, count

    @classmethod
    def build(cls, names: Vocabulary, by_frequency: NDArray[np.int32]) -> WordIndex:
        rank_of, words = _ranks(by_frequency), NameTable()
        parts = [np.zeros((2, 0), np.int32)]
        for found, codes, rows in _words_of(names):
            parts.append(np.stack([codes, rank_of[rows]]))
            words.number(found, parts[-1][0])
        texts = narrow(words.settle())
        code, rank = np.concatenate(parts, axis=1)
        order = StringArray(texts, "words").order
        place = np.empty(len(order), np.int64)
        place[order] = np.arange(len(order))
        keys = np.sort(place[code] * max(1, len(names)) + rank)
        keys = keys[np.append(True, keys[1:] != keys[:-1])] if len(keys) else keys
        word, ranks = np.divmod(keys, max(1, len(names)))
        starts = np.searchsorted(word, np.arange(len(order) + 1))
        return cls(texts.take(pa.array(order)), starts, ranks.astype(np.int32), len(names))

    @classmethod
    def from_arrow(cls, table: pa.Table, count: int, file: str) -> WordIndex:
        """An index as `to_arrow` returns it, checked: it may come from a damaged file. count: the number of names."""
        words, lists = (_one(table.column(name)) for name in ("word", "ranks"))
        try:
            lists.validate(full=True)
        except pa.ArrowException:
            raise DihedralError(
                f"{file!r} cannot be read: its lists of names are damaged; copy the folder again"
            ) from None
        starts = np.frombuffer(lists.buffers()[1] or b"\0" * 4, np.int32)[lists.offset :][: len(lists) + 1]
        values = lists.values
        ranks = np.frombuffer(values.buffers()[1] or b"", np.int32)[values.offset :][: len(values)]
        if lists.null_count or values.null_count or (len(ranks) and not 0 <= ranks.min() <= ranks.max() < count):
            raise DihedralError(f"{file!r} cannot be read: it is about other names; copy the folder again")
        index = cls(words, starts.astype(np.int64), ranks, count, file)
        index.words.check()
        return index

    def to_arrow(self) -> dict[str, pa.Array]:
        lists = pa.ListArray.from_arrays(pa.array(self.starts, pa.int32()), pa.array(self.ranks))
        return {"word": self.words.array, "ranks": lists}

    def search(self, text: str, limit: int) -> NDArray[np.int32]:
        """The ranks of names with a word that starts with each word of a text; then those that contain it, in order."""
        (folded,) = fold(pa.array([text.encode("utf-8", "replace").decode()])).to_pylist()
        wanted = list(dict.fromkeys(word for word in _BETWEEN.split(folded) if word))[:MAX_WORDS]
        if not wanted or not self.count:
            return np.zeros(0, np.int32)
        spans = [[self._span(word)] for word in wanted]
        found = self._all(spans, limit)
        if len(found) < limit and len(self.words.buffers[1]) <= MAX_SCANNED:
            spans = [span + self._containing(word) for span, word in zip(spans, wanted, strict=True)]
            found = np.concatenate([found, np.setdiff1d(self._all(spans, 2 * limit), found)])[:limit]
        return found

    def _span(self, word: str) -> tuple[int, int]:
        """The part of `ranks` with the names of all words that start with a text."""
        key = word.encode("utf-8", "surrogatepass")
        first, last = self.words.rank(key), self.words.rank(key + b"\xff")
        return int(self.starts[first]), int(self.starts[last])

    def _containing(self, word: str) -> list[tuple[int, int]]:
        """The parts of `ranks` of the words that contain a text after their first letter."""
        offsets, text = self.words.buffers
        key = word.encode("utf-8", "surrogatepass")
        found = re.compile(re.escape(key)).finditer(text, int(offsets[0]), int(offsets[-1]))
        places = np.fromiter((match.start() for match in islice(found, MAX_PARTS)), np.int64)
        numbers = np.searchsorted(offsets, places, side="right") - 1
        numbers = np.unique(numbers[places + len(key) <= offsets[numbers + 1]])  # not across two words
        return list(zip(self.starts[numbers].tolist(), self.starts[numbers + 1].tolist(), strict=True))

    def _all(self, spans: list[list[tuple[int, int]]], limit: int) -> NDArray[np.int32]:
        """The first ranks that are in a part of each list; low ones are looked at first, which usually suffices."""
        size = min(sum(last - first for first, last in parts) for parts in spans)
        bound = self.count if size <= FEW else min(self.count, max(FEW, 64 * limit * self.count // size))
        while True:
            everywhere = np.ones(bound, bool)
            for parts in spans:
                here = np.zeros(bound, bool)
                for first, last in parts:
                    ranks = self.ranks[first:last]
                    here[ranks if bound == self.count else ranks[ranks < bound]] = True
                everywhere &= here
            found = np.flatnonzero(everywhere)[:limit]
            if len(found) >= limit or bound == self.count:
                return found.astype(np.int32)
            bound = min(self.count, 16 * bound)


class NameSearch:
    """Search of the names and labels of one vocabulary."""

    def __init__(self, names: Vocabulary, by_frequency: NDArray[np.int32], index: WordIndex | None = None) -> None:
        self.names, self.by_frequency = names, by_frequency
        self.index = WordIndex.build(names, by_frequency) if index is None else index

    @cached_property
    def _rank_of(self) -> NDArray[np.int32]:
        return _ranks(self.by_frequency)

    def search(self, text: str, limit: int) -> list[int]:
        """The ids of names: first those that are the text or have it as their label, then the most frequent.

        >>> names = Vocabulary(["New York", "York", "Yorkshire"])
        >>> [names[i] for i in NameSearch(names, np.array([2, 1, 0])).search("york", 5)]
        ['Yorkshire', 'York', 'New York']
        """
        full = expand(text.strip(), self.names.prefixes)
        found = dict.fromkeys(self._exact(full, limit))
        if "://" in full and found:  # the beginning of an IRI
            return list(found)
        found |= dict.fromkeys(self.by_frequency[self.index.search(full, limit)].tolist())
        return list(found)[:limit]

    def _exact(self, text: str, limit: int) -> Iterator[int]:
        if text in self.names:
            yield self.names.id(text)
        if self.names.labels is not None:
            yield from sorted(self.names.labels.find(text), key=self._rank_of.__getitem__)[:limit]
        if "://" in text:
            for number in self.names.after(text, limit):
                if self.names[number].startswith(text):
                    yield number


def _ranks(by_frequency: NDArray[np.int32]) -> NDArray[np.int32]:
    """The rank of each id."""
    ranks = np.empty(len(by_frequency), np.int32)
    ranks[by_frequency] = np.arange(len(ranks), dtype=np.int32)
    return ranks


def _words_of(names: Vocabulary) -> Iterator[tuple[pa.Array, NDArray[np.int32], NDArray[np.int64]]]:
    """The distinct words of some names, those of each row by number, and the id of each row."""
    import pyarrow.compute as pc

    columns = [names.array] + ([] if names.labels is None else [names.labels.texts["label"].array])
    for start in range(0, len(names), NAMES_AT_ONCE):
        for column in columns:
            lists = pc.split_pattern_regex(fold(column.slice(start, NAMES_AT_ONCE)), _SEPARATORS)
            rows, words = pc.list_parent_indices(lists), pc.list_flatten(lists)
            filled = pc.not_equal(words, "")
            encoded = words.filter(filled).dictionary_encode()
            yield (
                encoded.dictionary.cast(pa.string()),
                encoded.indices.to_numpy(),
                rows.filter(filled).to_numpy().astype(np.int64) + start,
            )


def _one(column: pa.ChunkedArray) -> pa.Array:
    """A column as one array, without a copy if it has one chunk."""
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()
