"""Rules as text: AMIE, AnyBURL, JSON and SPARQL. All but SPARQL are read back.

- AMIE 3: a table with `?a  r  ?c  ?c  s  ?b   => ?a  h  ?b` and its counts; terms are separated by two blanks
- AnyBURL and PyClause: pairs of the body, support, confidence and `h(X,Y) <= r(X,A), s(A,Y)`, separated by tabs
- SPARQL: one CONSTRUCT query per rule, which derives facts that the data does not hold
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from pathlib import Path
from typing import Any, NamedTuple

from dihedral.errors import DihedralError
from dihedral.graph import Graph
from dihedral.graph.patterns import Interval, RuleCount
from dihedral.interpretation.horn import BETWEEN, Atom, Constant, HornRule, Term, make_rule
from dihedral.io.files import parse_json, read_record, read_text
from dihedral.io.iris import BASE, check_base, to_iri

AMIE_COLUMNS = (
    "Rule", "Head Coverage", "Std Confidence", "PCA Confidence", "Positive Examples", "Body size", "PCA Body size",
    "Functional variable",
)  # fmt: skip
AMIE_VARIABLES = {"X": "?a", "Y": "?b"} | {name: f"?{chr(ord(name) + 2).lower()}" for name in BETWEEN}
ANYBURL_VARIABLE = re.compile("[A-Z]")
MAX_COUNT = 1 << 53  # in JSON
ShowRule = Callable[[HornRule], str]  # how a rule is shown to people


class Parsed(NamedTuple):
    """A rule as a file has it."""

    body: list[Atom]
    head: Atom
    functional: Term | None = None
    known: dict[str, Any] | None = None  # counts and examples


def write_rules(rules: Sequence[HornRule], format: str, *, base: str = BASE, graph: Graph | None = None) -> str:
    """Rules in one of the formats FORMATS.

    base: what comes before names that are not IRIs, in SPARQL.
    graph: where the labels are found that people read, which AMIE and AnyBURL have no place for.
    """
    if format not in FORMATS:
        raise DihedralError(f"format is {format!r}; choose {', '.join(FORMATS)}")

    def text(rule: HornRule) -> str:
        if graph is None or graph.entities.labels is graph.relations.labels is None:
            return str(rule)
        return rule.text(graph.entities.shown, graph.relations.shown)

    return FORMATS[format](rules, check_base(base), text)


def _counts(rule: HornRule) -> RuleCount:
    if rule.counts is None:
        raise DihedralError(f"the rule {rule} has no counts; count it first")
    return rule.counts


def _line(rule: HornRule, line: str, parse: Callable[[str], Parsed | None], name: str) -> str:
    """A line about a rule; names that it cannot hold are refused."""
    try:
        parsed = parse(line) if line.splitlines() == [line] else None
        same = parsed is not None and make_rule(parsed.body, parsed.head).key == rule.key
    except DihedralError:
        same = False
    if not same:
        raise DihedralError(f"{name}'s format cannot hold the names of {str(rule)!r}; choose json or sparql")
    return f"{line}\n"


# --- AMIE ------------------------------------------------------------------------------------------


def _write_amie(rules: Sequence[HornRule], base: str, text: ShowRule) -> str:
    lines = ["\t".join(AMIE_COLUMNS) + "\n"]
    for rule in rules:
        line = f"{'  '.join(map(_amie_atom, rule.body))}   => {_amie_atom(rule.head)}"
        shares = (f"{share:.9g}" for share in (rule.head_coverage, rule.confidence, rule.pca_confidence))
        functional = "?a" if rule.functional == "head" else "?b"
        columns = [line, *shares, *map(str, _counts(rule)[:3]), functional]
        lines.append(_line(rule, "\t".join(columns), _parse_amie, "AMIE"))
    return "".join(lines)


def _amie_atom(atom: Atom) -> str:
    subject, object_ = atom.words(variable=AMIE_VARIABLES.__getitem__)
    return f"{subject}  {atom.relation}  {object_}"


def _parse_amie(line: str) -> Parsed | None:
    rule, *columns = line.split("\t")
    body, arrow, head = (part.strip() for part in rule.partition("=>"))
    if not arrow:
        return None  # the header, and what AMIE says about its run
    terms = [*re.split(r"\s{2,}", body), *re.split(r"\s{2,}", head)]
    if len(terms) % 3 or len(re.split(r"\s{2,}", head)) != 3:
        raise DihedralError(f"{rule.strip()!r} is not an AMIE rule; two blanks separate its terms")
    named = [term[1:] if term.startswith("?") else Constant(term) for term in terms]
    atoms = list(map(Atom, named[::3], terms[1::3], named[2::3]))
    functional = columns[6].strip() if len(columns) > 6 else ""  # ?a and ?b, or their numbers -1 and -2
    return Parsed(atoms[:-1], atoms[-1], atoms[-1].object if functional == "-2" else functional.removeprefix("?"))


# --- AnyBURL and PyClause --------------------------------------------------------------------------


def _write_anyburl(rules: Sequence[HornRule], base: str, text: ShowRule) -> str:
    lines = []
    for rule in rules:
        line = f"{_counts(rule).pairs}\t{_counts(rule).support}\t{rule.confidence:.9g}\t{rule}"
        lines.append(_line(rule, line, _parse_anyburl, "AnyBURL"))
    return "".join(lines)


def _parse_anyburl(line: str) -> Parsed | None:
    rule = line.split("\t")[-1]
    if not rule.strip():
        return None
    head, arrow, body = rule.partition(" <=")
    if not arrow:
        raise DihedralError(f"{rule.strip()[:200]!r} is not an AnyBURL rule; it has no ` <= `")
    parts = re.split(r"(?<=\)), (?=[^ ])", body.strip()) if body.strip() else []
    return Parsed(list(map(_anyburl_atom, parts)), _anyburl_atom(head))


def _anyburl_atom(text: str) -> Atom:
    """relation(subject,object): at least one of the two is a capital letter, so names may have commas and brackets."""
    text = text.strip()
    places = [place for place, letter in enumerate(text) if letter == "("] if text.endswith(")") else []
    for place in reversed(places):
        inside = text[place + 1 : -1]
        for subject, comma, object_ in (inside.partition(","), inside.rpartition(",")):
            terms = [name if ANYBURL_VARIABLE.fullmatch(name) else Constant(name) for name in (subject, object_)]
            if comma and place and any(isinstance(term, str) for term in terms):
                return Atom(terms[0], text[:place], terms[1])
    raise DihedralError(f"{text[:200]!r} is not an atom such as relation(X,A)")


# --- JSON ------------------------------------------------------------------------------------------


def _write_json(rules: Sequence[HornRule], base: str, text: ShowRule) -> str:
    return json.dumps([_to_dict(rule) | {"text": text(rule)} for rule in rules], indent=2, ensure_ascii=False) + "\n"


def _to_dict(rule: HornRule) -> dict[str, Any]:
    count = _counts(rule)
    return {
        "rule": str(rule),
        "body": [_atom_dict(atom) for atom in rule.body],
        "head": _atom_dict(rule.head),
        "support": count.support,
        "body_pairs": count.pairs,
        "pca_pairs": count.pca_pairs,
        "head_facts": rule.head_size,
        "confidence": rule.confidence,
        "pca_confidence": rule.pca_confidence,
        "head_coverage": rule.head_coverage,
        "functional": rule.functional,
        "interval": count.interval and count.interval._asdict(),
        "score": rule.score,
        "examples": [[list(fact) for fact in example] for example in rule.examples],
    }


def _atom_dict(atom: Atom) -> dict[str, Any]:
    subject, object_ = ({"variable": x} if isinstance(x, str) else {"entity": x.name} for x in atom.terms)
    return {"subject": subject, "relation": atom.relation, "object": object_}


@dataclass(frozen=True)
class _JsonRule:
    """A rule in JSON, without what is only read by people."""

    head: dict[str, Any]
    body: list[Any]
    support: int
    body_pairs: int
    pca_pairs: int
    head_facts: int
    score: float | None
    examples: list[list[list[str]]]
    interval: dict[str, float] | None
    functional: str = "head"


def _parse_json(content: Any) -> Parsed:
    found = read_record(_JsonRule, content)
    numbers = found.support, found.body_pairs, found.pca_pairs, found.head_facts
    if not all(0 <= number <= MAX_COUNT for number in numbers):
        raise ValueError(f"its counts {numbers} are not all from 0 to {MAX_COUNT:,}")
    head, interval = _dict_atom(found.head), found.interval and Interval(**found.interval)  # type: ignore[arg-type]
    count = RuleCount(found.support, found.body_pairs, found.pca_pairs, interval or None)
    examples = tuple(tuple((h, r, t) for h, r, t in example) for example in found.examples)
    known = {"counts": count, "head_size": found.head_facts, "score": found.score, "examples": examples}
    functional = head.object if found.functional == "tail" else head.subject
    return Parsed([_dict_atom(atom) for atom in found.body], head, functional, known)


def _dict_atom(content: dict[str, Any]) -> Atom:
    def term(each: dict[str, Any]) -> Term:
        return Constant(str(each["entity"])) if "entity" in each else str(each["variable"])

    return Atom(term(content["subject"]), str(content["relation"]), term(content["object"]))


# --- SPARQL ----------------------------------------------------------------------------------------


def _write_sparql(rules: Sequence[HornRule], base: str, text: ShowRule) -> str:
    queries = []
    for number, rule in enumerate(rules, 1):
        count = _counts(rule)
        estimated = ", estimated" if count.interval else ""
        numbers = f"support {count.support}, pairs {count.pairs}, confidence {rule.confidence:.4f}{estimated}"
        remark = f"{number}. {text(rule)} | {numbers}, PCA confidence {rule.pca_confidence:.4f}"
        queries.append(f"# {' '.join(remark.split())}\n{_construct(rule, base)}")
    return "\n".join(queries)


def _construct(rule: HornRule, base: str) -> str:
    def variable(name: str) -> str:
        return f"?{name.lower()}"

    def iri(name: str) -> str:
        return f"<{to_iri(name, base)}>"

    def triple(atom: Atom) -> str:
        subject, object_ = atom.words(variable, iri)
        return f"{subject} {iri(atom.relation)} {object_}"

    variables, constants = list(map(variable, rule.variables)), list(map(iri, rule.constants))
    pairs = combinations([*variables, *constants], 2)
    apart = " && ".join(f"{one} != {other}" for one, other in pairs if one in variables)
    body = "".join(f"  {triple(atom)} .\n" for atom in rule.body)
    head = triple(rule.head)
    return f"CONSTRUCT {{ {head} }}\nWHERE {{\n{body}  FILTER ({apart})\n  FILTER NOT EXISTS {{ {head} }}\n}}\n"


Writer = Callable[[Sequence[HornRule], str, ShowRule], str]
FORMATS: dict[str, Writer] = {
    "amie": _write_amie, "anyburl": _write_anyburl, "json": _write_json, "sparql": _write_sparql,
}  # fmt: skip


# --- reading ---------------------------------------------------------------------------------------


class RuleFile(NamedTuple):
    """Rules read from a file."""

    rules: list[HornRule]
    left_out: list[str]  # why other lines were left out


def read_rules(path: str | Path) -> RuleFile:
    """The rules of a file by AMIE, AnyBURL or PyClause, or in the JSON of `write_rules`.

    The counts of JSON files are read. Those of the others depend on how they were made, so rules are to be counted
    again. Rules without a body and rules about an entity and itself are left out.
    """
    try:
        text = read_text(Path(path))
    except FileNotFoundError:
        raise DihedralError(f"file {str(path)!r} does not exist; give a file of rules") from None
    except OSError as error:
        raise DihedralError(f"file {str(path)!r} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise DihedralError(f"file {str(path)!r} is not UTF-8: {error}") from None
    found = RuleFile([], [])
    for number, parsed in _parse(text, str(path)):
        try:
            rule = make_rule(parsed.body, parsed.head, parsed.functional)
            found.rules.append(replace(rule, **(parsed.known or {})))
        except DihedralError as error:
            found.left_out.append(f"{number}: {error}")
    if not found.rules and not found.left_out:
        raise DihedralError(f"file {str(path)!r} holds no rules; it must be a file by AMIE or AnyBURL, or JSON")
    return found


def _parse(text: str, path: str) -> list[tuple[int, Parsed]]:
    """The rules of a file, with their lines or their places in a list."""
    if text.lstrip().startswith("["):
        try:
            return list(enumerate(map(_parse_json, parse_json(text)), 1))
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise DihedralError(f"{path!r}, the file is not a JSON list of rules: {error!r:.200}") from None
    parse, found = _parse_amie if "=>" in text else _parse_anyburl, []
    for number, line in enumerate(text.splitlines(), 1):
        try:
            parsed = parse(line)
        except DihedralError as error:
            raise DihedralError(f"{path!r}, line {number}: {error}") from None
        if parsed is not None:
            found.append((number, parsed))
    return found
