"""`dihedral rules`: mine or read rules, and count them in a graph; `dihedral materialise`: derive facts with them."""

from __future__ import annotations

import csv
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

import dihedral as dh
from dihedral.cli import options as opt
from dihedral.cli.output import counted_bar, print_found, print_json, print_table, read_data, remark, say
from dihedral.errors import DihedralError
from dihedral.graph import Graph
from dihedral.interpretation.constants import find_constant_rules
from dihedral.interpretation.derivation import SUFFIXES, materialise
from dihedral.interpretation.horn import HornRule, RuleCounter, from_mined, in_graph
from dihedral.interpretation.mining import KINDS, MIN_SCORE, MinedRule, find_rules
from dihedral.interpretation.rule_formats import FORMATS, read_rules, write_rules
from dihedral.io.files import check_suffix
from dihedral.io.iris import BASE

TITLES = {kind: "compositions" if kind == "composition" else f"{kind} relations" for kind in KINDS}
LEAST = ("95 % interval", "order matters", "kappa", "PCA conf.", "head cov.")  # columns, the least important first


def rules_command(
    model: Annotated[Path, typer.Argument(help="A model folder; with --read it may also be a graph.")],
    data: Annotated[str | None, typer.Option(help="Count in this graph instead of the model's own.")] = None,
    kind: Annotated[list[str] | None, typer.Option(help=f"{', '.join(KINDS)}; repeatable; by default all.")] = None,
    relation: Annotated[str | None, typer.Option(help="Only rules that imply this relation.")] = None,
    min_support: Annotated[int, typer.Option(help="Minimum support: pairs for which body and head hold.")] = 10,
    top: Annotated[int, typer.Option(help="Maximum number of rules per kind.")] = 100,
    inverses: Annotated[bool, typer.Option(help="Whether compositions may follow relations backwards.")] = True,
    length: Annotated[int, typer.Option(help="Maximum number of relations in the body of a composition: 2 or 3.")] = 2,
    min_score: Annotated[float, typer.Option(help="Leave out rules that the model scores lower.")] = MIN_SCORE,
    min_confidence: Annotated[float, typer.Option(help="Leave out rules with a lower confidence.")] = 0.0,
    sort: Annotated[str, typer.Option(help="confidence (its lower 95 % bound), belief of the model, or support.")] = (
        "confidence"
    ),
    constants: Annotated[
        str | None, typer.Option(help="head or tail: mine rules with constants, h(c,Y) <= r(Y,d) or h(X,c) <= r(X,d).")
    ] = None,
    device: opt.Device = "cpu",
    read: Annotated[Path | None, typer.Option(help="Count the rules of this file by AMIE or AnyBURL instead.")] = None,
    format: Annotated[str | None, typer.Option(help=f"Print the rules as {', '.join(FORMATS)}.")] = None,
    base: opt.Base = BASE,
    as_csv: opt.Csv = False,
    columns: opt.Columns = None,
    wide: opt.Wide = False,
    json: opt.Json = False,
) -> None:
    """Mine (skew-)symmetric relations, inverses and compositions, with the model's score and the support in the graph.

    Example: dihedral rules out/demo --top 5
    """
    if format is not None and (format not in FORMATS or json or as_csv):
        wrong = f"format is {format!r}" if format not in FORMATS else "--format is given with --json or --csv"
        raise DihedralError(f"{wrong}; choose one of {', '.join(FORMATS)}")
    if read is not None:
        _count_file(read, _graph_of(model, data, columns), format or ("json" if json else "amie"), base)
        return
    predictor = dh.load(model, device=device)
    graph = None if data is None else read_data(data, columns, all_as="train")
    if constants is not None:
        if kind or relation or as_csv:
            other = "--kind" if kind else "--relation" if relation else "--csv"
            raise DihedralError(f"--constants is given with {other}; leave one of the two out")
        found = find_constant_rules(
            predictor, graph, side=constants, inverses=inverses, min_support=min_support, top=top, min_score=min_score,  # type: ignore[arg-type]
            min_confidence=min_confidence, sort=sort,  # type: ignore[arg-type]
        )  # fmt: skip
        _print_constants(found, format or ("json" if json else None), base, predictor.graph)
        return
    kinds: tuple[Any, ...] = tuple(kind or KINDS)
    with counted_bar("scoring bodies") as on_progress:
        rules = find_rules(
            predictor, graph, kinds=kinds, relation=relation, min_support=min_support, top=top, inverses=inverses,
            length=length, min_score=min_score, min_confidence=min_confidence, sort=sort, on_progress=on_progress,  # type: ignore[arg-type]
        )  # fmt: skip
    if format is not None:
        counted = predictor.graph if graph is None else predictor.align(graph)
        sys.stdout.write(write_rules(from_mined(rules, counted), format, base=base, graph=predictor.graph))
    elif json:
        print_json([rule.to_dict() for rule in rules], predictor.graph)
    elif as_csv:
        _print_csv(rules)
    else:
        for each in kinds:
            _print_kind(TITLES[each], [rule for rule in rules if rule.kind == each], predictor.graph)


def _graph_of(source: Path, data: str | None, columns: str | None) -> Graph:
    """The graph to count in: that of --data, or that of a model folder, or the source itself."""
    if data is None and (source / "model.json").is_file():
        return dh.load(source).graph
    return read_data(data or str(source), columns, all_as="train")


def _count_file(path: Path, graph: Graph, format: str, base: str) -> None:
    rules, counter, counted = _read_rules(path, graph), RuleCounter(graph), []
    with counted_bar("counting rules") as on_progress:
        for number, rule in enumerate(rules, 1):
            counted.append(counter.count(rule))
            on_progress(number, len(rules))
    sys.stdout.write(write_rules(counted, format, base=base, graph=graph))


def _read_rules(path: Path, graph: Graph) -> Sequence[HornRule]:
    """The rules of a file that are about the names of a graph; others are counted in a remark."""
    found = read_rules(path)
    rules, unknown = in_graph(found.rules, graph)
    if found.left_out:
        remark(f"left out {len(found.left_out)} rules of {path}, such as line {found.left_out[0]}")
    if unknown:
        remark(f"left out {len(unknown)} rules with names that the graph does not have, such as {unknown[0]!r}")
    if not rules:
        raise DihedralError(f"no rule of {str(path)!r} can be used with graph {graph.name!r}")
    return rules


def _print_kind(title: str, rules: list[MinedRule], graph: Graph) -> None:
    if not rules:
        say(f"no {title}")
        return
    ordered, sampled = rules[0].kind == "composition", any(rule.interval for rule in rules)
    header = ["rule", "confidence", "support", "belief", "PCA conf.", "head cov.", "kappa"]
    header += ["order matters"] * ordered + ["95 % interval"] * sampled
    rows = []
    for rule in rules:
        row = [rule.text(graph.relations.shown), rule.confidence, rule.support, rule.score]
        row += [rule.pca_confidence, rule.head_coverage, rule.agreement]
        row += ["yes" if rule.order_matters else "no"] * ordered
        interval = "exact" if rule.interval is None else f"{rule.interval.low:.4f} to {rule.interval.high:.4f}"
        rows.append(row + [interval] * sampled)
    print_table(f"\n{title}", header, rows, graph, LEAST)
    if sampled:
        say("counts with an interval, which is that of the confidence, are estimates from a sample of paths")


def _print_constants(rules: list[HornRule], format: str | None, base: str, graph: Graph) -> None:
    if format is not None:
        sys.stdout.write(write_rules(rules, format, base=base, graph=graph))
        return
    header = ["rule", "confidence", "support", "belief", "PCA conf.", "head cov."]
    rows = [
        [rule.text(graph.entities.shown, graph.relations.shown), rule.confidence, rule.counts and rule.counts.support,
         rule.score, rule.pca_confidence, rule.head_coverage]
        for rule in rules
    ]  # fmt: skip
    print_table("\nrules with constants", header, rows, graph, LEAST)


def _print_csv(rules: list[MinedRule]) -> None:
    fields = [name for name in MinedRule.__dataclass_fields__ if name not in ("agreement", "examples", "interval")]
    compared = ["share", "chance", "kappa", "p", "sample", "low", "high"]
    writer = csv.DictWriter(sys.stdout, [*fields, *compared, "example"], extrasaction="ignore")
    writer.writeheader()
    for rule in rules:
        row = rule.to_dict() | rule.agreement.to_dict() | (rule.interval._asdict() if rule.interval else {})
        examples = [" · ".join(example) for example in rule.examples[:1]]
        writer.writerow(row | {"body": " · ".join(rule.body), "example": "".join(examples)})


def materialise_command(
    rules: Annotated[Path, typer.Argument(help="A file of rules by AMIE, AnyBURL or `dihedral rules --format json`.")],
    data: Annotated[str, typer.Argument(metavar="GRAPH", help="The graph: anything that `train` reads.")],
    out: Annotated[
        Path | None, typer.Option(help="Write .tsv, .csv, .parquet, .nt or .nq instead of printing.")
    ] = None,
    min_confidence: Annotated[float, typer.Option(help="Leave out rules with a lower confidence in the graph.")] = 0.0,
    min_support: Annotated[int, typer.Option(help="Leave out rules with a lower support in the graph.")] = 1,
    base: opt.Base = BASE,
    columns: opt.Columns = None,
    wide: opt.Wide = False,
    json: opt.Json = False,
) -> None:
    """Derive new facts from a graph with rules, each with the confidence of its best rule and one reason.

    Rules are counted in the training facts of the graph and applied to them once. Facts that it holds are left out.

    Example: dihedral materialise rules.tsv umls --min-confidence 0.5 --out derived.tsv
    """
    if out is not None:
        check_suffix("out", out, SUFFIXES)
    graph = read_data(data, columns, all_as="train")
    known = _read_rules(rules, graph)
    with counted_bar("rules") as on_progress:
        found = materialise(
            known, graph, min_confidence=min_confidence, min_support=min_support, on_progress=on_progress
        )
    if out is not None:
        found.write(out, base)
        remark(f"wrote {len(found)} facts that {len(found.rules)} of {len(known)} rules derive to {out}")
        return
    table = found.to_arrow()
    header = [name for name in table.column_names if name not in ("pca_confidence", "support")]
    print_found(json, table.to_pylist(), header, None, graph)
