"""What rules derive from a graph: new facts, each with the confidence of its best rule and one reason."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dihedral.errors import DihedralError
from dihedral.graph import Graph
from dihedral.graph.columns import PARTS
from dihedral.graph.triples import Triples
from dihedral.interpretation.horn import HornRule, RuleCounter
from dihedral.io.files import check_suffix, make_folder, write_text
from dihedral.io.iris import BASE, check_base, to_statement
from dihedral.io.table_files import write_table

SUFFIXES = (".tsv", ".csv", ".parquet", ".nt", ".nq")
MAX_DERIVED = 10_000_000  # derivations: about 2 GB
XSD = "http://www.w3.org/2001/XMLSchema#"
RDFS_LABEL = "http://www.w3.org/2000/01/rdf-schema#label"


@dataclass(frozen=True, eq=False)
class Derived:
    """New facts of a graph, and the rules that derive them; the best facts come first."""

    graph: Graph
    rules: list[HornRule]  # counted in the graph, by descending confidence
    facts: Triples  # [n, 3]
    best: NDArray[np.int64]  # [n]: the rule with the highest confidence
    num_rules: NDArray[np.int64]  # [n]: how many rules derive each fact
    reasons: list[NDArray[np.int64]]  # per rule [m, 1 + variables]: the fact, and the entities of its variables

    def __len__(self) -> int:
        return len(self.facts)

    def to_arrow(self) -> pa.Table:
        """One row per fact: head, relation, tail, confidence, pca_confidence, support, rules, rule and reason."""
        graph = self.graph
        reasons = np.full(len(self), "", object)
        for number, (rule, rows) in enumerate(zip(self.rules, self.reasons, strict=True)):
            for fact, *entities in rows[self.best[rows[:, 0]] == number].tolist():
                chosen = {name: graph.entities[i] for name, i in zip(rule.variables, entities, strict=True)}
                atoms = (f"{atom.relation}({','.join(atom.words(chosen.__getitem__))})" for atom in rule.body)
                reasons[fact] = ", ".join(atoms)
        names = list(graph.names_of(self.facts))
        best_rules = pa.table(
            {
                "confidence": pa.array([rule.confidence for rule in self.rules], pa.float64()),
                "pca_confidence": pa.array([rule.pca_confidence for rule in self.rules], pa.float64()),
                "support": pa.array([rule.counts.support if rule.counts else 0 for rule in self.rules], pa.int64()),
                "rule": pa.array([str(rule) for rule in self.rules], pa.string()),
            }
        ).take(self.best)
        columns = {name: pa.array([fact[i] for fact in names], pa.string()) for i, name in enumerate(PARTS)}
        columns |= {name: best_rules.column(name) for name in ("confidence", "pca_confidence", "support")}
        columns |= {"rules": pa.array(self.num_rules, pa.int64()), "rule": best_rules.column("rule")}
        return pa.table(columns | {"reason": pa.array(reasons.tolist(), pa.string())})

    def to_quads(self, base: str = BASE) -> str:
        """N-Quads: each fact in the graph of each rule that derives it, and statements about these rules."""
        lines, statements = [], self._statements(base)
        for number, (rule, rows) in enumerate(zip(self.rules, self.reasons, strict=True), 1):
            if not len(rows) or rule.counts is None:
                continue
            name, text = f"<{base}rule#{number}>", json.dumps(str(rule), ensure_ascii=False)  # the same escapes
            lines.append(f"{name} <{RDFS_LABEL}> {text} .\n")
            for key, value, kind in (
                ("confidence", rule.confidence, "double"),
                ("pca_confidence", rule.pca_confidence, "double"),
                ("support", rule.counts.support, "integer"),
                ("body_pairs", rule.counts.pairs, "integer"),
            ):
                lines.append(f'{name} <{base}vocabulary#{key}> "{value}"^^<{XSD}{kind}> .\n')
            lines += [f"{statements[fact]} {name} .\n" for fact in rows[:, 0].tolist()]
        return "".join(lines)

    def _statements(self, base: str) -> list[str]:
        return [to_statement(fact, base) for fact in self.graph.names_of(self.facts)]

    def write(self, path: Path, base: str = BASE) -> None:
        """Write a table (.tsv, .csv, .parquet), N-Triples (.nt) or N-Quads (.nq)."""
        check_suffix("out", path, SUFFIXES)
        if path.suffix in (".tsv", ".csv", ".parquet"):
            write_table(self.to_arrow(), path)
            return
        base = check_base(base)
        lines = (f"{line} .\n" for line in self._statements(base))  # N-Triples have no place for rules
        text = "".join(lines) if path.suffix == ".nt" else self.to_quads(base)
        make_folder(path.parent)
        write_text(path, text)


def materialise(
    rules: Sequence[HornRule],
    graph: Graph,
    *,
    min_confidence: float = 0.0,
    min_support: int = 1,
    on_progress: Callable[[int, int], None] | None = None,
) -> Derived:
    """Derive the facts that rules imply and that the training facts of a graph do not hold.

    Rules are counted in the graph. Each is applied once to the known facts, not to derived ones.

    min_confidence, min_support: leave out rules with less.
    """
    if not 0 <= min_confidence <= 1:
        raise DihedralError(f"min_confidence is {min_confidence}; it must be between 0 and 1")
    report = on_progress or (lambda done, total: None)
    counter, counted = RuleCounter(graph), []
    for number, rule in enumerate({rule.key: rule for rule in rules}.values(), 1):
        report(number, 2 * len(rules))
        counted.append(counter.count(rule))
    kept = [rule for rule in counted if rule.counts and rule.counts.support >= min_support]
    kept = [rule for rule in kept if rule.confidence >= min_confidence]
    kept.sort(key=lambda rule: (-rule.confidence, -(rule.counts.support if rule.counts else 0), str(rule)))
    most = sum(rule.counts.pairs - rule.counts.support for rule in kept if rule.counts)
    if most > MAX_DERIVED:
        raise DihedralError(
            f"the rules derive {most:,} facts, some of them perhaps several times, and the limit is {MAX_DERIVED:,}; "
            "raise the minimum confidence or support, or give fewer rules"
        )
    triples, bindings = [np.zeros((0, 3), np.int32)], []
    for number, rule in enumerate(kept):
        report(len(rules) + number, 2 * len(rules))
        found, binding = _new_facts(counter, rule)
        triples.append(found)
        bindings.append(binding)
    return _best(graph, kept, np.concatenate(triples), bindings)


def _new_facts(counter: RuleCounter, rule: HornRule) -> tuple[Triples, NDArray[np.int64]]:
    relation = counter.graph.relations.id(rule.head.relation)
    held = counter.pairs_of(relation)
    facts, bindings = [np.zeros((0, 3), np.int64)], [np.zeros((0, len(rule.variables)), np.int64)]
    for heads, tails, binding in counter.ground(rule):
        new = ~held.has(heads, tails)
        facts.append(np.stack([heads[new], np.full(int(new.sum()), relation), tails[new]], axis=1))
        bindings.append(binding[new])
    return np.concatenate(facts).astype(np.int32), np.concatenate(bindings)


def _best(graph: Graph, rules: list[HornRule], triples: Triples, bindings: list[NDArray[np.int64]]) -> Derived:
    """Put the derivations of each fact together; facts are ordered by their best rule."""
    sizes = [len(binding) for binding in bindings]
    rule = np.repeat(np.arange(len(bindings)), sizes)
    facts, first, group, counts = np.unique(
        triples, axis=0, return_index=True, return_inverse=True, return_counts=True
    )  # the first derivation of a fact is that of its best rule
    ranked = np.argsort(rule[first], kind="stable")
    place = np.argsort(ranked)[group.reshape(-1)]
    parts = np.split(place, np.cumsum(sizes)[:-1]) if sizes else []
    reasons = [np.column_stack(each) for each in zip(parts, bindings, strict=True)]
    return Derived(graph, rules, facts[ranked], rule[first[ranked]], counts[ranked], reasons)
