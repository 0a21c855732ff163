"""`dihedral review`: accept or reject the facts that are most likely missing from the graph."""

from __future__ import annotations

import getpass
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

import dihedral as dh
from dihedral.cli.options import Base, ModelFolder, Relations, SpreadsheetSafe
from dihedral.cli.output import counted_bar, remark, say
from dihedral.errors import DihedralError
from dihedral.interpretation.explanations import explain
from dihedral.io.iris import BASE
from dihedral.predict.reviewing import (
    Proposal,
    at_least,
    check_min_probability,
    fact_of,
    find_proposals,
    left_open,
    make_decision,
)
from dihedral.store.folder import replace_metrics
from dihedral.store.manifest import MANIFEST, holds_model, read_manifest
from dihedral.store.review_files import read_decisions, write_reviews
from dihedral.store.reviews import PAST, Decision, Fact, Reviews, check_reviewer, utc

# Besides the commands and their first letters.
WORDS = {"y": "accept", "yes": "accept", "n": "reject", "no": "reject"}
COMMANDS = ("accept", "reject", "skip", "undo", "evidence", "quit")
QUESTION = "accept, reject, skip, undo, evidence or quit? A note may follow. [a/r/s/u/e/q] "


def review_command(
    model: ModelFolder,
    relation: Relations = None,
    type: Annotated[
        str | None, typer.Option(help="Only facts with an entity of this type: of its label, or by an isa relation.")
    ] = None,
    min_probability: Annotated[float | None, typer.Option(help="Only facts with at least this probability.")] = None,
    top: Annotated[int, typer.Option(help="Number of facts to review.")] = 100,
    reviewer: Annotated[str | None, typer.Option(help="Who decides; by default your login name.")] = None,
    export: Annotated[
        Path | None, typer.Option(help="Write the decisions to a .tsv, .csv, .parquet, .nt or .nq file.")
    ] = None,
    import_: Annotated[
        Path | None, typer.Option("--import", help="Import decisions from a .tsv or .csv file, and exit.")
    ] = None,
    calibrate: Annotated[
        bool, typer.Option("--calibrate", help="Correct the model's probabilities by the decisions, and exit.")
    ] = False,
    base: Base = BASE,
    spreadsheet_safe: SpreadsheetSafe = False,
) -> None:
    """Accept or reject missing facts one by one; decisions are kept beside the model, in reviews.jsonl.

    Commands are read from the terminal or from another program, one per line: accept, reject, skip, undo, evidence and
    quit, or their first letters. What follows on the line is kept as a note.

    Example: dihedral review out/umls --relation causes --min-probability 0.2

    Example: dihedral review out/umls --export decisions.tsv
    """
    if not holds_model(model):
        raise DihedralError(f"{str(model)!r} is not a model folder: it has no {MANIFEST}")
    reviews, who = Reviews(model), check_reviewer(reviewer if reviewer is not None else _login())
    if import_ is not None:
        _import(dh.load(model), reviews, import_, who)
    if export is not None:
        count = write_reviews(reviews, export, base=base, spreadsheet_safe=spreadsheet_safe)
        remark(f"wrote {_counted(count, 'decision')} to {export}")
    if calibrate:
        _calibrate(reviews, model)
    if import_ is None and export is None and not calibrate:
        predictor = dh.load(model)
        check_min_probability(predictor, min_probability)
        with counted_bar("relations") as on_progress:
            found = find_proposals(
                predictor, reviews, reviewer=who, relations=relation or (), type=type, top=top, on_progress=on_progress
            )
        Session(predictor, reviews, who).run(left_open(at_least(found, min_probability), reviews, who))


def _login() -> str:
    try:
        return getpass.getuser()
    except (OSError, KeyError, ImportError):  # a user without a name, as in some containers
        return "reviewer"


def _import(predictor: dh.Predictor, reviews: Reviews, path: Path, reviewer: str) -> None:
    made: list[Decision] = []
    left_out: Counter[str] = Counter()
    entities, relations = predictor.graph.entities, predictor.graph.relations
    for each in read_decisions(path, reviewer):
        head, relation, tail = each.fact
        if None in (entities.find(head), relations.find(relation), entities.find(tail)):
            left_out["with names that the graph does not know"] += 1
        elif bool(predictor.known.contains(*predictor.triple_ids([each.fact]).T)[0]):
            left_out["about facts that the graph holds"] += 1
        else:
            now = make_decision(predictor, each.fact, each.decision, each.reviewer, each.note, each.time)
            before = reviews.opinion(now.fact, each.reviewer)
            if before is not None and each.time and utc(each.time) < utc(before.time):
                left_out["older than what the reviewer decided since"] += 1
                continue
            if each.probability is not None:
                now = replace(now, probability=each.probability, uncorrected=each.uncorrected)
            made.append(now)
    new = reviews.add(*made)
    if len(made) > new:
        left_out["known already"] += len(made) - new
    say("; ".join([f"imported {_counted(new, 'decision')}", *(f"{n} left out: {why}" for why, n in left_out.items())]))


def _calibrate(reviews: Reviews, folder: Path) -> None:
    manifest = read_manifest(folder)
    predictor = dh.load(folder)
    predictor.use_reviews(reviews)
    replace_metrics(folder, predictor.trained, since=manifest)
    assert predictor.calibration is not None and predictor.calibration.corrections is not None
    found = predictor.calibration.corrections
    say(f"probabilities now follow {_counted(found.accepted + found.rejected, 'decision')}")


def _counted(count: int, noun: str) -> str:
    return f"{count} {noun}{'' if count == 1 else 's'}"


class Session:
    """One reviewer, and the facts that are shown one after the other."""

    def __init__(self, predictor: dh.Predictor, reviews: Reviews, reviewer: str) -> None:
        self.predictor, self.reviews, self.reviewer = predictor, reviews, reviewer
        self.counts: Counter[str] = Counter()

    def run(self, proposals: list[Proposal]) -> None:
        place = 0
        shown = -1
        while place < len(proposals):
            if shown != place:
                if (other := self._decided(proposals[place])) is not None:
                    decided = f"in the meantime, {other.reviewer} {PAST[other.decision]} it"
                    remark(f"{self._text(fact_of(proposals[place]))}: {decided}")
                    place += 1
                    continue
                self._show(proposals[place], place + 1, len(proposals))
                shown = place
            line = _read_line()
            if line is None:
                break
            word, _, note = line.strip().partition(" ")
            chosen = WORDS.get(word.lower()) or next((each for each in COMMANDS if each in _spelled(word)), None)
            if chosen == "quit":
                break
            if chosen is None:
                remark(f"command {word!r:.80} is not known; write {', '.join(COMMANDS[:-1])} or quit")
            elif chosen == "evidence":
                self._explain(proposals[place])
            elif chosen == "undo":
                place = self._undo(proposals, place)
                shown = -1
            elif self._decide(proposals[place], chosen, note):
                place += 1
        self._finish(proposals)

    def _show(self, proposal: Proposal, number: int, total: int) -> None:
        likely = proposal["probability"]
        value = f"score {proposal['score']:.2f}" if likely is None else f"probability {_shown(likely)}"
        say(f"{number} of {total}: {self._text(fact_of(proposal))}, {value}")

    def _decided(self, proposal: Proposal) -> Decision | None:
        """What another reviewer has decided since the facts were found."""
        standing = self.reviews.standing().get(fact_of(proposal))
        return None if standing is None or standing.reviewer == self.reviewer else standing

    def _text(self, fact: Fact) -> str:
        graph = self.predictor.graph
        head, relation, tail = fact
        return f"{graph.entities.shown(head)}  {graph.relations.shown(relation)}  {graph.entities.shown(tail)}"

    def _decide(self, proposal: Proposal, decision: str, note: str) -> bool:
        """Keep a decision; returns whether it was valid."""
        try:
            self.reviews.add(make_decision(self.predictor, fact_of(proposal), decision, self.reviewer, note))
        except DihedralError as error:
            remark(str(error))
            return False
        self.counts[decision] += 1
        return True

    def _undo(self, proposals: list[Proposal], place: int) -> int:
        """Take back the latest decision; returns the place of its fact, if that is among those shown."""
        try:
            undone = self.reviews.undo(self.reviewer)
        except DihedralError as error:
            remark(str(error))
            return place
        say(f"undone: {undone.decision} {self._text(undone.fact)}")
        self.counts[undone.decision] = max(0, self.counts[undone.decision] - 1)  # it may be of an earlier session
        places = [number for number, each in enumerate(proposals) if fact_of(each) == undone.fact]
        return places[0] if places else place

    def _explain(self, proposal: Proposal) -> None:
        graph = self.predictor.graph
        try:
            found = explain(self.predictor, *fact_of(proposal))
        except DihedralError as error:
            remark(str(error))
        else:
            say(found.text(graph.entities.shown, graph.relations.shown))

    def _finish(self, proposals: list[Proposal]) -> None:
        if not proposals:
            say("no facts are left to review")
            return
        counts = ", ".join(f"{self.counts[name]} {word}" for name, word in PAST.items())
        say(f"{counts}; decisions are in {self.reviews.path}")


def _shown(probability: float) -> str:
    """A probability; never as 0 or 1."""
    return "< 0.01" if probability < 0.01 else "> 0.99" if probability > 0.99 else f"{probability:.2f}"


def _spelled(word: str) -> set[str]:
    """The commands that a word may mean: its own name or its first letter."""
    return {each for each in COMMANDS if word.lower() in (each, each[0])}


def _read_line() -> str | None:
    """The next line; None at the end of the input, and after Ctrl-C."""
    try:
        return input(QUESTION if sys.stdin.isatty() else "")
    except (EOFError, KeyboardInterrupt):
        return None
