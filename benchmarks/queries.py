"""Queries of several facts: `python -m benchmarks.queries MODEL [QUERIES]`.

QUERIES is a folder with valid_TYPE.jsonl.xz for the nine types of Query2Box on FB15k-237, ind2ent.json and
ind2rel.json. Without it, queries of these types are drawn from the facts of train and valid of the model's graph, and a
line is added to results/queries-drawn.jsonl. Training facts are known. Each hard answer of a query is ranked against
the entities that are not answers. Metrics are averaged per query, then over queries; also over the hard answers whose
best known proof, among the facts of train and valid, needs one missing fact, and over those that need more (Gregucci et
al., arXiv 2410.12537).
"""

from __future__ import annotations

import argparse
import json
import lzma
import math
import time
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

import dihedral as dh
from benchmarks.record import RESULTS, environment, save
from dihedral.ask.answer_calibration import SHAPES, draw_queries
from dihedral.ask.messages import FLOOR, SHARE, WIDTH, Semantics, Transitions, evaluate
from dihedral.ask.query_plan import Either, Every, Given, Node, Walk, inputs
from dihedral.graph import Graph, GraphIndex
from dihedral.io.jsonl import append_line
from dihedral.predict.predictor import Predictor

UNIONS = ("2u", "up")
INVERSE_SUFFIX = "_reverse"
BATCH = 100
SINGLE = 40  # queries timed one by one
TRIES = 20  # of so many drawn queries, about one has an answer that training facts do not give
DRAWN = 200  # queries of each type if they are drawn
METRICS = ("hits@1", "hits@3", "hits@10", "mrr")


@dataclass(frozen=True)
class Asked:
    """A query of the set with its answers."""

    plan: Node
    hard: list[int]
    all: list[int]
    missing: list[int]  # per hard answer: the facts of its best known proof that training does not hold


def read_queries(folder: Path, kind: str, graph: Graph, max_queries: int, seed: int) -> tuple[list[Asked], list[int]]:
    """A sample of the queries of a type with the ids of the graph, and the entities of the query set."""
    entity_names, relation_names = (
        {int(key): name for key, name in json.loads((folder / file).read_text()).items()}
        for file in ("ind2ent.json", "ind2rel.json")
    )
    entity = {number: graph.entities.id(name) for number, name in entity_names.items() if name in graph.entities}

    def step(number: int) -> int:
        name = relation_names[number]
        relation = graph.relations.id(name.removesuffix(INVERSE_SUFFIX))
        return relation + graph.num_relations * name.endswith(INVERSE_SUFFIX)

    with lzma.open(folder / f"valid_{kind}.jsonl.xz", "rt") as lines:
        rows = [json.loads(line) for line in lines]
    if max_queries:
        drawn = np.random.default_rng(seed).permutation(len(rows))[:max_queries]
        rows = [rows[i] for i in sorted(drawn.tolist())]
    train, valid = graph.train_index, graph.index.select(graph.index.splits == 1)
    asked = []
    for row in rows:
        branches = []
        for anchor, relations in row["q"]:
            node: Node = Given((entity[anchor],))
            for number, relation in enumerate(relations):
                node = Walk(step(relation), node, f"v{number}" if number else None)
            branches.append(node)
        plan = branches[0] if len(branches) == 1 else (Either if kind in UNIONS else Every)(tuple(branches))
        if "then" in row:
            plan = Walk(step(row["then"]), plan, "v")
        hard, answers = ([entity[each] for each in row[name]] for name in ("hard", "all"))
        asked.append(Asked(plan, hard, answers, num_missing(plan, train, valid)[hard].int().tolist()))
    return asked, list(entity.values())


def drawn_queries(graph: Graph, count: int, seed: int) -> dict[str, list[Asked]]:
    """Queries of each type that have an answer which training facts do not give."""
    train, valid = graph.train_index, graph.index.select(graph.index.splits == 1)
    plans, found = draw_queries(graph.evidence_index, TRIES * count, seed), {}
    for place, kind in enumerate(SHAPES):
        found[kind] = asked = []
        for plan in dict.fromkeys(plans[place * TRIES * count : (place + 1) * TRIES * count]):
            missing = num_missing(plan, train, valid)
            hard = ((missing > 0) & torch.isfinite(missing)).nonzero()[:, 0]
            if len(hard) and len(asked) < count:
                answers = torch.isfinite(missing).nonzero()[:, 0].tolist()
                asked.append(Asked(plan, hard.tolist(), answers, missing[hard].int().tolist()))
    return found


def num_missing(plan: Node, train: GraphIndex, valid: GraphIndex) -> Tensor:
    """The smallest number of valid facts in a proof of each entity [N]; infinite where there is none."""
    parts = [num_missing(part, train, valid) for part in inputs(plan)]
    cost = torch.full((train.num_entities,), math.inf)
    if isinstance(plan, Given):
        cost[list(plan.entities)] = 0
    elif isinstance(plan, Walk):
        source = torch.isfinite(parts[0]).nonzero()[:, 0]
        for price, facts in enumerate((train, valid)):
            row, answer = facts.answers(source, torch.full_like(source, plan.step))
            cost.scatter_reduce_(0, answer, parts[0][source[row]] + price, "amin")
    else:
        stacked = torch.stack(parts)
        cost = stacked.amin(0) if isinstance(plan, Either) else stacked.sum(0)
    return cost


class Measured:
    """Metrics per query, of all hard answers and by the number of missing facts."""

    def __init__(self) -> None:
        self.rows: dict[str, list[list[float]]] = {"all": [], "one missing": [], "more missing": []}

    def add(self, ranks: Tensor, missing: list[int]) -> None:
        one = torch.tensor(missing) == 1
        for name, chosen in (("all", torch.ones_like(one)), ("one missing", one), ("more missing", ~one)):
            if chosen.any():
                mine = ranks[chosen]
                values = [float((mine <= k).float().mean()) for k in (1, 3, 10)]
                self.rows[name].append([*values, float((1 / mine).mean())])

    def summary(self) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for name, rows in self.rows.items():
            means = np.array(rows).mean(0).tolist() if rows else [None] * 4
            found[name] = {"queries": len(rows), **dict(zip(METRICS, means, strict=True))}
        return found


def ranks(likely: Tensor, query: Asked, outside: Tensor) -> Tensor:
    """The ranks of the hard answers of a query among the entities that are not answers; a tie counts half."""
    scores = likely.masked_fill(outside, -math.inf)
    hard = scores[query.hard]
    scores[query.all] = -math.inf
    scores = scores.sort().values
    below, up_to = torch.searchsorted(scores, hard), torch.searchsorted(scores, hard, right=True)
    return 1 + (len(scores) - up_to) + 0.5 * (up_to - below)


def measure(rows: Transitions, asked: list[Asked], outside: Tensor, semantics: Semantics) -> dict[str, Any]:
    """The metrics and times of queries of one type."""
    measured, exact = Measured(), 0
    seconds = used = 0.0
    for start in range(0, len(asked), BATCH):
        part = asked[start : start + BATCH]
        began, before = time.perf_counter(), time.process_time()
        found = [messages[plan] for plan, messages in evaluate([each.plan for each in part], rows, semantics)]
        seconds += time.perf_counter() - began
        used += time.process_time() - before
        for query, message in zip(part, found, strict=True):
            exact += message.exact
            measured.add(ranks(message.likely, query, outside), query.missing)
    single = []
    for query in asked[:SINGLE]:
        began, before = time.perf_counter(), time.process_time()
        list(evaluate([query.plan], rows, semantics))
        single.append((1000 * (time.perf_counter() - began), 1000 * (time.process_time() - before)))
    wall, cpu = np.median(np.array(single), axis=0).tolist()
    times = {"ms_one": wall, "cpu_ms_one": cpu, "ms_in_batch": 1000 * seconds / len(asked),
             "cpu_ms_in_batch": 1000 * used / len(asked)}  # fmt: skip
    return {**measured.summary(), "exact": exact / len(asked), **times}


def peak_mb() -> int:
    """The most memory that this process held since the last call."""
    (line,) = [line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM")]
    Path("/proc/self/clear_refs").write_text("5")
    return int(line.split()[1]) // 1024


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else "")
    parser.add_argument("model", type=Path)
    parser.add_argument("queries", type=Path, nargs="?", help="by default they are drawn from the model's graph")
    parser.add_argument("--kinds", nargs="+", default=list(SHAPES), choices=SHAPES)
    parser.add_argument("--max-queries", type=int, default=0, help="queries drawn of each type; 0 means all")
    parser.add_argument("--widths", type=int, nargs="+", default=[WIDTH])
    parser.add_argument("--share", type=float, default=SHARE)
    parser.add_argument("--floor", type=float, default=FLOOR)
    parser.add_argument("--conjunction", nargs="+", default=["product"])
    parser.add_argument("--ways", nargs="+", default=["noisy-or"])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--name", default="queries", help="name of the record")
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args()
    predictor = dh.load(options.model)
    graph, records = predictor.graph, []
    drawn = {} if options.queries else drawn_queries(graph, options.max_queries or DRAWN, options.seed)
    rows = Transitions(predictor.scorer, graph.train_index.to(predictor.device))
    for kind in options.kinds:
        outside = torch.full((graph.num_entities,), options.queries is not None)
        if options.queries is None:
            asked = drawn[kind]
        else:
            asked, entities = read_queries(options.queries, kind, graph, options.max_queries, options.seed)
            outside[entities] = False
        for width, conjunction, ways in product(options.widths, options.conjunction, options.ways):
            semantics = Semantics(conjunction, ways, width=width, floor=options.floor, share=options.share)
            peak_mb()
            found = measure(rows, asked, outside, semantics)
            setup = {"probabilities": "normalised", "width": width, "conjunction": conjunction, "ways": ways}
            setup["share"] = options.share
            records.append({"kind": kind, **setup, "queries": len(asked), **found, "peak_mb": peak_mb()})
            print(json.dumps(records[-1]), flush=True)
    content = {"recipe": predictor.recipe.to_dict(), "valid_mrr": _valid_mrr(predictor), "rows": records}
    if options.queries is None:
        row = {"graph": graph.name, **content, "environment": environment()}
        append_line(options.out / "queries-drawn.jsonl", row)
    else:
        save(options.name, content, options.out)


def _valid_mrr(predictor: Predictor) -> Any:
    return predictor.metrics.get("valid", {}).get("both", {}).get("mrr")


if __name__ == "__main__":
    main()
