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
from dihedral.cli import options as opt
from dihedral.cli.output import counted_bar, remark, say
from dihedral.errors import DihedralError
from dihedral.interpretation.explanations import explain
from dihedral.io.display import probability_text
from dihedral.io.iris import BASE
from dihedral.predict import reviewing
from dihedral.predict.completion import check_share
from dihedral.predict.reviewing import Proposal, fact_of, make_decision
from dihedral.store.folder import replace_metrics
from dihedral.store.manifest import read_manifest
from dihedral.store.reviews import PAST, Decision, Fact, Reviews, check_reviewer, read_decisions, utc, write_reviews

COMMANDS = ("accept", "reject", "skip", "undo", "evidence", "quit")
WORDS = {word: command for command in COMMANDS for word in (command, command[0])}
QUESTION = "accept, reject, skip, undo, evidence or quit? A note may follow. [a/r/s/u/e/q] "


def review_command(
    model: opt.ModelFolder,
    relation: opt.Relations = None,
    type: Annotated[str | None, typer.Option(help="Only facts with an entity of this type, by label or isa.")] = None,
    min_probability: Annotated[float | None, typer.Option(help="Only facts with at least this probability.")] = None,
    top: Annotated[int, typer.Option(help="Number of facts to review.")] = 100,
    reviewer: Annotated[str | None, typer.Option(help="Who decides; by default your login name.")] = None,
    export: Annotated[Path | None, typer.Option(help="Write decisions to .tsv, .csv, .parquet, .nt or .nq.")] = None,
    import_: Annotated[Path | None, typer.Option("--import", help="Import decisions from .tsv or .csv.")] = None,
    calibrate: Annotated[bool, typer.Option("--calibrate", help="Correct probabilities by the decisions.")] = False,
    base: opt.Base = BASE,
    spreadsheet_safe: opt.SpreadsheetSafe = False,
) -> None:
    """Accept or reject missing facts one by one; decisions are kept beside the model, in reviews.jsonl.

    Commands are read from the terminal or from another program, one per line: accept, reject, skip, undo, evidence and
    quit, or their first letters. What follows on the line is kept as a note.

    Example: dihedral review out/umls --relation causes --min-probability 0.2

    Example: dihedral review out/umls --export decisions.tsv
    """
    read_manifest(model)  # an error if the folder holds no model
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
        check_share(predictor, "min_probability", min_probability)
        with counted_bar("relations") as on_progress:
            found = reviewing.find_proposals(
                predictor, reviews, reviewer=who, relations=relation or (), type=type, top=top, on_progress=on_progress
            )
        Session(predictor, reviews, who).run(reviewing.at_least(found, min_probability))


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
            before = reviews.opinions(each.reviewer).get(now.fact)
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
        if not proposals:
            say("no facts are left to review")
            return
        place = 0
        while place < len(proposals):
            proposal = proposals[place]
            if (other := self._decided(proposal)) is not None:
                remark(f"{self._text(fact_of(proposal))}: in the meantime, {other.reviewer} {PAST[other.decision]} it")
                place += 1
                continue
            likely = proposal["probability"]
            value = f"score {proposal['score']:.2f}" if likely is None else f"probability {probability_text(likely)}"
            say(f"{place + 1} of {len(proposals)}: {self._text(fact_of(proposal))}, {value}")
            place = self._next_place(proposals, place)
        counts = ", ".join(f"{self.counts[name]} {word}" for name, word in PAST.items())
        say(f"{counts}; decisions are in {self.reviews.path}")

    def _next_place(self, proposals: list[Proposal], place: int) -> int:
        """Follow commands about a fact until one leads to another; the place after the last ends the session."""
        graph, fact = self.predictor.graph, fact_of(proposals[place])
        while True:
            word, _, note = _read_line().strip().partition(" ")
            chosen = WORDS.get(word.lower())
            try:
                if chosen == "quit":
                    return len(proposals)
                if chosen == "undo":
                    return self._undo(proposals, place)
                if chosen == "evidence":
                    say(explain(self.predictor, *fact).text(graph.entities.shown, graph.relations.shown))
                elif chosen is None:
                    remark(f"command {word!r:.80} is not known; write {', '.join(COMMANDS[:-1])} or quit")
                else:
                    self.reviews.add(make_decision(self.predictor, fact, chosen, self.reviewer, note))
                    self.counts[chosen] += 1
                    return place + 1
            except DihedralError as error:
                remark(str(error))

    def _decided(self, proposal: Proposal) -> Decision | None:
        """What another reviewer has decided since the facts were found."""
        standing = self.reviews.standing().get(fact_of(proposal))
        return None if standing is None or standing.reviewer == self.reviewer else standing

    def _text(self, fact: Fact) -> str:
        graph = self.predictor.graph
        head, relation, tail = fact
        return f"{graph.entities.shown(head)}  {graph.relations.shown(relation)}  {graph.entities.shown(tail)}"

    def _undo(self, proposals: list[Proposal], place: int) -> int:
        """Take back the latest decision; returns the place of its fact, if that is among those shown."""
        undone = self.reviews.undo(self.reviewer)
        say(f"undone: {undone.decision} {self._text(undone.fact)}")
        self.counts[undone.decision] = max(0, self.counts[undone.decision] - 1)  # it may be of an earlier session
        places = [number for number, each in enumerate(proposals) if fact_of(each) == undone.fact]
        return places[0] if places else place


def _read_line() -> str:
    """The next line; `quit` at the end of the input, and after Ctrl-C."""
    try:
        return input(QUESTION if sys.stdin.isatty() else "")
    except (EOFError, KeyboardInterrupt):
        return "quit"
