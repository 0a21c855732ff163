"""Reviews: what people decided about proposed facts, in the journal `reviews.jsonl` beside a model.

Facts are stored by name, so decisions survive updates of the model. Nothing is ever overwritten: a later decision of a
reviewer replaces an earlier one, and an undo takes back the latest. If several reviewers decided about a fact, the
latest accept or reject stands; nobody can take back or skip away what another has decided.
"""

from __future__ import annotations

import threading
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Literal, get_args

import pyarrow as pa
import torch

from dihedral.errors import DihedralError
from dihedral.graph.columns import PARTS, common_columns
from dihedral.graph.triples import Graph
from dihedral.io.files import atomic_path, check_suffix, make_folder, write_text
from dihedral.io.iris import BASE, check_base, to_statement
from dihedral.io.jsonl import Append, Journal
from dihedral.io.sources import TEXT_SUFFIXES, Source
from dihedral.io.table_files import tab_separated, text_rows, write_table

FILE = "reviews.jsonl"
MAX_REVIEWER, MAX_NOTE = 100, 2000  # characters
UNDO = "undo"
MAX_AHEAD = timedelta(days=1)  # clocks differ

Fact = tuple[str, str, str]
Verdict = Literal["accept", "reject", "skip"]
VERDICTS: tuple[str, ...] = get_args(Verdict)
PAST = {"accept": "accepted", "reject": "rejected", "skip": "skipped"}
ReviewFormat = Literal["tsv", "ntriples", "nquads"]
RDF_SUFFIXES: dict[str, ReviewFormat] = {".nt": "ntriples", ".nq": "nquads"}
SUFFIXES = (".tsv", ".csv", ".parquet", *RDF_SUFFIXES)
MEDIA_TYPES: dict[ReviewFormat, str] = {
    "tsv": "text/tab-separated-values", "ntriples": "application/n-triples", "nquads": "application/n-quads",
}  # fmt: skip
PROBABILITIES = ("probability", "uncorrected")
IMPORTED = ("decision", *PROBABILITIES, "note", "reviewer", "time")  # columns besides the fact
VERBS = {past: verdict for verdict, past in PAST.items()}


@dataclass(frozen=True)
class Decision:
    """What a reviewer decided about a fact. The probabilities are those at that time, if the model had any."""

    fact: Fact
    decision: str  # one of VERDICTS
    reviewer: str
    time: str  # UTC
    note: str = ""
    probability: float | None = None  # as it was shown
    uncorrected: float | None = None  # without the correction by earlier decisions (`probability.corrections`)

    def to_dict(self) -> dict[str, Any]:
        content: dict[str, Any] = dict(zip(PARTS, self.fact, strict=True)) | {"decision": self.decision}
        content |= {"reviewer": self.reviewer, "time": self.time}
        optional = {"note": self.note, "probability": self.probability, "uncorrected": self.uncorrected}
        return content | {name: value for name, value in optional.items() if value not in (None, "")}

    @classmethod
    def from_dict(cls, row: dict[str, Any]) -> Decision | None:
        """The decision in a line of the journal; None if the line is no decision."""
        texts = [row.get(name) for name in ("head", "relation", "tail", "decision", "reviewer", "time")]
        note = row.get("note", "")
        if not all(isinstance(text, str) for text in (*texts, note)) or row["decision"] not in (*VERDICTS, UNDO):
            return None
        head, relation, tail, decision, reviewer, time = map(str, texts)
        likely = [_probability(row.get(name)) for name in ("probability", "uncorrected")]
        return cls((head, relation, tail), decision, reviewer, time, note, *likely)


def _probability(value: Any) -> float | None:
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    return float(value) if is_number and 0 <= value <= 1 else None


class Reviews:
    """The decisions beside a model. Every call sees what other processes have written meanwhile."""

    def __init__(self, folder: Path) -> None:
        self.journal = Journal(folder / FILE)
        self._lock = threading.RLock()
        self._all: dict[int, Decision] = {}  # those not taken back, by their number, in order
        self._about: dict[tuple[str, Fact], list[int]] = {}  # the numbers of those of a reviewer about a fact
        self._count = 0
        self._standing: dict[Fact, Decision] | None = None

    @property
    def path(self) -> Path:
        return self.journal.path

    # --- reading -------------------------------------------------------------------------------

    @contextmanager
    def _current(self) -> Iterator[Collection[Decision]]:
        """All decisions that were not taken back."""
        with self._lock:
            rows, replaced = self.journal.read()
            if replaced:
                self._all.clear()
                self._about.clear()
            if rows or replaced:
                self._standing = None
            for decision in filter(None, map(Decision.from_dict, rows)):
                own = self._about.setdefault((decision.reviewer, decision.fact), [])
                if decision.decision != UNDO:
                    self._count += 1
                    self._all[self._count] = decision
                    own.append(self._count)
                elif own:
                    del self._all[own.pop()]
            yield self._all.values()

    def standing(self) -> dict[Fact, Decision]:
        """The accept or reject that stands for each fact, in the order in which they were made; do not change it."""
        with self._current() as decisions:
            if self._standing is not None:
                return self._standing
            stands = {fact: _stands(about) for fact, about in _opinions(decisions).items()}
            self._standing = {each.fact: each for each in decisions if stands[each.fact] is each}
            return self._standing

    def facts(self, verdict: Verdict) -> list[Fact]:
        """The facts with a verdict; with "skip", those that a reviewer skipped and nobody decided."""
        with self._current() as decisions:
            standing = self.standing()
            if verdict == "skip":
                return list(dict.fromkeys(each.fact for each in decisions if each.fact not in standing))
            return [fact for fact, decision in standing.items() if decision.decision == verdict]

    def pending(self, graph: Graph) -> list[Fact]:
        """The accepted facts of known names that the graph does not hold yet."""
        entities, relations = graph.entities, graph.relations
        accepted = self.facts("accept")
        facts = [(h, r, t) for h, r, t in accepted if h in entities and r in relations and t in entities]
        heads, which, tails = zip(*facts, strict=True) if facts else ((), (), ())
        columns = entities.ids(heads), relations.ids(which), entities.ids(tails)
        places = graph.index.locate(*(torch.from_numpy(column).long() for column in columns)).tolist()
        return [fact for fact, place in zip(facts, places, strict=True) if place < 0]

    def probabilities(self) -> dict[Fact, float]:
        """The probability that the latest decision about a fact has, of those with one."""
        with self._current() as decisions:
            return {each.fact: each.probability for each in decisions if each.probability is not None}

    def opinions(self, reviewer: str) -> dict[Fact, Decision]:
        """The latest decision of one reviewer about each fact."""
        with self._current() as decisions:
            return {each.fact: each for each in decisions if each.reviewer == reviewer}

    def disputed(self) -> set[Fact]:
        """The facts that one reviewer accepts and another rejects."""
        with self._current() as decisions:
            found = {fact: {each.decision for each in about.values()} for fact, about in _opinions(decisions).items()}
            return {fact for fact, verdicts in found.items() if {"accept", "reject"} <= verdicts}

    # --- writing -------------------------------------------------------------------------------

    @contextmanager
    def _writing(self) -> Iterator[Append]:
        # the file's lock comes first: who waits for it keeps nobody from reading
        with self.journal.locked() as append, self._lock, self._current():
            yield append

    def add(self, *decisions: Decision) -> int:
        """Keep decisions on the disk and return how many were new: the same decision again changes nothing."""
        checked, new = [_checked(each) for each in decisions], []
        if not checked:
            return 0
        with self._writing() as append:
            opinions = _opinions(self._all.values())
            for each in checked:
                about = opinions.setdefault(each.fact, {})
                if not _is_made(each, about):
                    about.pop(each.reviewer, None)
                    about[each.reviewer] = each
                    new.append(each.to_dict())
            if new:
                append(new)
        return len(new)

    def undo(self, reviewer: str, fact: Fact | None = None) -> Decision:
        """Take back the latest decision of a reviewer, or that about a fact; returns what was taken back."""
        reviewer = check_reviewer(reviewer)
        with self._writing() as append:
            own = (each for each in reversed(self._all.values()) if each.reviewer == reviewer)
            undone = next((each for each in own if fact in (None, each.fact)), None)
            if undone is None:
                about = "" if fact is None else f" about {fact!r:.300}"
                raise DihedralError(f"reviewer {reviewer!r} has made no decision{about} that can be undone")
            append([Decision(undone.fact, UNDO, reviewer, now()).to_dict()])
        return undone

    def copy_to(self, folder: Path) -> None:
        """Put a copy of the journal beside another model, which has none."""
        if (folder / FILE).exists():
            raise DihedralError(f"{str(folder / FILE)!r} exists; decisions are never overwritten")
        if self.path.exists():
            with self._writing(), atomic_path(folder / FILE) as partial:
                partial.write_bytes(self.path.read_bytes())


def now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")


def utc(text: str) -> str:
    """A time in UTC; one without a zone is taken as UTC, and no time stays none.

    >>> utc("2020-01-01T02:00:00+02:00")
    '2020-01-01T00:00:00.000+00:00'
    """
    if not text:
        return ""
    try:
        found = datetime.fromisoformat(text)
        found = (found if found.tzinfo else found.replace(tzinfo=UTC)).astimezone(UTC)
    except (ValueError, OverflowError):
        raise DihedralError(f"time is {text!r:.80}; write it as {now()}") from None
    if found > datetime.now(UTC) + MAX_AHEAD:
        raise DihedralError(f"time is {text!r:.80}, which is in the future; it is now {now()}")
    return found.isoformat(timespec="milliseconds")


def clean(text: str) -> str:
    """Text as one line that UTF-8 can hold.

    >>> clean(" seen\\tin the\\n archive ")
    'seen in the archive'
    """
    return " ".join(text.split()).encode("utf-8", "replace").decode()


def check_reviewer(name: str) -> str:
    name = clean(name)
    if not 0 < len(name) <= MAX_REVIEWER:
        raise DihedralError(f"reviewer is {name!r:.120}; give a name of 1 to {MAX_REVIEWER} characters")
    return name


def _checked(decision: Decision) -> Decision:
    if decision.decision not in VERDICTS:
        raise DihedralError(f"decision is {decision.decision!r:.80}; choose {', '.join(VERDICTS)}")
    note = clean(decision.note)
    if len(note) > MAX_NOTE:
        raise DihedralError(f"the note has {len(note):,} characters; it may have at most {MAX_NOTE:,}")
    for value in (decision.probability, decision.uncorrected):
        if value is not None and not 0 <= value <= 1:
            raise DihedralError(f"the probability of {decision.fact!r:.300} is {value}; it must be between 0 and 1")
    reviewer, time = check_reviewer(decision.reviewer), utc(decision.time) or now()
    return replace(decision, reviewer=reviewer, time=time, note=note)


def _opinions(decisions: Iterable[Decision]) -> dict[Fact, dict[str, Decision]]:
    """The latest decision of each reviewer about each fact, in the order in which they were made."""
    found: dict[Fact, dict[str, Decision]] = {}
    for each in decisions:
        about = found.setdefault(each.fact, {})
        about.pop(each.reviewer, None)
        about[each.reviewer] = each
    return found


def _stands(opinions: dict[str, Decision]) -> Decision | None:
    """The latest accept or reject of those about one fact."""
    found = None
    for each in opinions.values():
        if each.decision != "skip" and (found is None or each.time >= found.time):
            found = each
    return found


def _is_made(decision: Decision, opinions: dict[str, Decision]) -> bool:
    """Whether this is what the reviewer has decided already, and nobody has decided otherwise since."""
    known = opinions.get(decision.reviewer)
    if known is None or (known.decision, known.note) != (decision.decision, decision.note):
        return False
    return decision.decision == "skip" or _stands(opinions) is known


# --- files of decisions ----------------------------------------------------------------------------


def to_table(reviews: Reviews) -> pa.Table:
    """One row per accepted or rejected fact, with the decision that stands."""
    disputed = reviews.disputed()
    rows = [
        each.to_dict() | {"disputed": "yes" if each.fact in disputed else ""} for each in reviews.standing().values()
    ]
    columns = (*PARTS, *IMPORTED, "disputed")
    kinds = [(name, pa.float64() if name in PROBABILITIES else pa.string()) for name in columns]
    return pa.Table.from_pylist(rows, pa.schema(kinds))


def to_text(reviews: Reviews, form: ReviewFormat, base: str = BASE) -> str:
    """Decisions as text: N-Triples hold the accepted facts, N-Quads the accepted and the rejected in two graphs."""
    if form not in get_args(ReviewFormat):
        raise DihedralError(f"format is {form!r:.80}; choose {', '.join(get_args(ReviewFormat))}")
    if form == "tsv":
        return "".join(tab_separated(to_table(reviews), Path("the export")))
    base, lines = check_base(base), []
    for each in reviews.standing().values():
        statement = to_statement(each.fact, base)
        if form == "nquads":
            lines.append(f"{statement} <{base}review#{PAST[each.decision]}> .\n")
        elif each.decision == "accept":
            lines.append(f"{statement} .\n")
    return "".join(lines)


def write_reviews(reviews: Reviews, path: Path, *, base: str = BASE, spreadsheet_safe: bool = False) -> int:
    """Write decisions as a table (.tsv, .csv, .parquet), N-Triples (.nt) or N-Quads (.nq); returns their number."""
    check_suffix("export", path, SUFFIXES)
    if path.suffix in RDF_SUFFIXES:
        text = to_text(reviews, RDF_SUFFIXES[path.suffix], base)
        make_folder(path.parent)
        write_text(path, text)
        return text.count("\n")
    write_table(to_table(reviews), path, spreadsheet_safe=spreadsheet_safe)
    return len(reviews.standing())


def read_decisions(path: Path, reviewer: str) -> list[Decision]:
    """Decisions from a TSV or CSV file with head, relation, tail and decision; reviewer: of rows without one."""
    if path.suffix not in TEXT_SUFFIXES or not path.is_file():
        raise DihedralError(f"import is {str(path)!r}; give a file that exists and ends in {', '.join(TEXT_SUFFIXES)}")
    try:
        rows = list(text_rows(Source(str(path), path)))
    except (UnicodeDecodeError, OSError) as error:
        raise DihedralError(f"file {str(path)!r} cannot be read: {error}") from None
    header = [cell.strip().lower() for cell in rows[0][1]] if rows else []
    places = common_columns(header)
    if places is None or "decision" not in header:
        raise DihedralError(f"file {str(path)!r} has no columns head, relation, tail and decision in its first line")
    found = []
    for number, cells in rows[1:]:
        if len(cells) != len(header):
            raise DihedralError(f"{path}, line {number}: {len(cells)} columns; expected {len(header)}")
        row = {name: cells[header.index(name)].strip() if name in header else "" for name in IMPORTED}
        head, relation, tail = (cells[place].strip() for place in places)
        decision = VERBS.get(row["decision"], row["decision"])
        try:
            likely = [float(row[name]) if row[name] else None for name in PROBABILITIES]
        except ValueError as error:
            raise DihedralError(f"{path}, line {number}: {error}; a probability is a number from 0 to 1") from None
        who = row["reviewer"] or reviewer
        found.append(Decision((head, relation, tail), decision, who, row["time"], row["note"], *likely))
    return found
