"""Missing facts: of the best proposals over all relations, how many are held-out facts, and how many were claimed.

A model is trained on train alone. The graph that it completes holds train, valid, and what test holds beyond the size
of valid; the other test facts are held out. So as many facts are missing as the probabilities assume. Proposals that
are true but in no split count as wrong, so all values are lower bounds.

    python -m benchmarks.missing --graphs umls family-neural-lp
    python -m benchmarks.missing --models out/fb15k-237
    python -m benchmarks.missing --fresh

`--fresh` takes the graphs that were not looked at while defaults and probabilities were designed. A row replaces that
of the same graph in the record.
"""

from __future__ import annotations

import argparse
import json
import time
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch

import dihedral as dh
from benchmarks.record import RESULTS, save
from benchmarks.small_graphs import FRESH_GRAPHS, open_graph
from dihedral.graph import Graph
from dihedral.graph.triples import Triples
from dihedral.predict.predictor import Predictor
from dihedral.probability.evidence import CountedRules
from dihedral.probability.ordering import compare_orders
from dihedral.probability.proposals import is_among, propose
from dihedral.runtime.device import choose_device
from dihedral.runtime.environment import environment

SPLITS: tuple[Literal["valid", "test"], ...] = ("valid", "test")
CUTS = (20, 100, 500, 1000)
TOP = 20_000  # length of the list for the area under the precision-recall curve
GRAPHS = ("umls", "family-neural-lp", "family", "WN18RR", "FB15k-237", "WN18", "FB15k")


def hold_out(graph: Graph, seed: int = 0) -> tuple[Graph, Triples]:
    """The graph to complete, and the facts that are missing from it."""
    order = np.random.default_rng(seed).permutation(len(graph.test))
    count = min(len(graph.test), len(graph.valid))
    return graph.replace(test=graph.test[order[count:]]), graph.test[order[:count]]


def precision(found: np.ndarray, cuts: tuple[int, ...] = CUTS) -> dict[str, float]:
    return {str(cut): float(found[:cut].mean()) for cut in cuts if cut <= len(found)}


def area(found: np.ndarray, total: int) -> float:
    """Area under the precision-recall curve of a list; held-out facts beyond its end are never found."""
    return float((np.cumsum(found) / np.arange(1, len(found) + 1))[found].sum() / total) if total else 0.0


def implied_by_rules(predictor: Predictor, held: Triples) -> np.ndarray:
    """Whether each fact implied by a counted rule is held out, by descending confidence."""
    graph, facts = predictor.graph, predictor.graph.index
    rules = CountedRules.count(facts)
    triples, values = [], []
    for relation in range(graph.num_relations):
        heads = np.arange(graph.num_entities)
        keys, confidence = rules.implied(facts, relation, heads)
        head, tail = np.divmod(keys, graph.num_entities)
        triples.append(np.stack([head, np.full_like(head, relation), tail], axis=1))
        values.append(confidence)
    found, order = torch.from_numpy(np.concatenate(triples)), np.concatenate(values)
    unknown = ((facts.locate(*found.unbind(1)) < 0) & (found[:, 0] != found[:, 2])).numpy()
    found, order = found[unknown], order[unknown]
    best = np.lexsort((np.random.default_rng(0).random(len(order)), -order))
    return is_among(found[best], held, graph.num_entities)


def by_frequency(predictor: Predictor, held: Triples) -> np.ndarray:
    """The same for the proposals of the most frequent relations, in random order within a relation."""
    graph = predictor.graph
    counts = np.bincount(graph.train[:, 1], minlength=graph.num_relations)
    found: list[np.ndarray] = []
    for relation in np.argsort(-counts).tolist():
        if sum(map(len, found)) >= max(CUTS):
            break
        sides = (predictor.candidates("signature", relation, side).numpy() for side in ("head", "tail"))
        triples, _ = propose(predictor.evidence, relation, *sides)
        found.append(is_among(triples[torch.randperm(len(triples))], held, graph.num_entities))
    return np.concatenate(found)


def per_relation(graph: Graph, table: list[dict[str, Any]], hits: np.ndarray, held: Triples) -> list[dict[str, Any]]:
    """For each relation of the list's first thousand: proposals, held-out facts among them, and all held-out facts."""
    names = np.array([row["relation"] for row in table[:1000]])
    wanted = np.bincount(held[:, 1], minlength=graph.num_relations)
    return [
        {"relation": name, "proposed": int((names == name).sum()), "held_out": int(wanted[graph.relations.id(name)]),
         "found": int(hits[:1000][names == name].sum()),
         "claimed": float(np.mean([row["probability"] for row in table[:1000] if row["relation"] == name]))}
        for name in dict.fromkeys(names.tolist())
    ]  # fmt: skip


def measure(trained: Predictor) -> dict[str, Any]:
    graph, held = hold_out(trained.graph)
    predictor = Predictor(replace(trained.trained, graph=graph))
    started = time.perf_counter()
    table = dh.missing_facts(predictor, top=TOP).to_pylist()
    seconds = time.perf_counter() - started
    ids = predictor.triple_ids([(row["head"], row["relation"], row["tail"]) for row in table]).cpu()
    hits = is_among(ids, held, graph.num_entities)
    claimed = np.array([row["probability"] for row in table], float)
    sides = [[predictor.allowed("signature", name, side) for side in ("head", "tail")] for name in graph.relations]
    reached = [bool(sides[r][0][h] and sides[r][1][t]) for h, r, t in held.tolist()]
    assert trained.calibration is not None
    parts = trained.scorer, trained.graph, trained.calibration
    judged = asdict(trained.calibration.judged)
    return {
        "graph": graph.name, "held_out": len(held), "reachable": float(np.mean(reached)),
        "precision": precision(hits), "claimed": precision(claimed), "area": area(hits, len(held)),
        "rules": precision(implied_by_rules(predictor, held)), "frequency": precision(by_frequency(predictor, held)),
        "per_relation": per_relation(graph, table, hits, held), "seconds": round(seconds, 2),
        "judgements": {key: judged[key] for key in ("triples", "accuracy", "expected_calibration_error")},
        "answers": {split: compare_orders(*parts, split) for split in SPLITS},
        "test_mrr": trained.metrics["test"]["both"]["mrr"], "recipe": trained.recipe.to_dict(),
    }  # fmt: skip


def rows_of(path: Path) -> list[dict[str, Any]]:
    return json.loads(path.read_text(encoding="utf-8"))["rows"] if path.exists() else []


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--graphs", nargs="+", default=list(GRAPHS))
    parser.add_argument("--models", nargs="+", type=Path, default=[], help="Trained models instead of graphs.")
    parser.add_argument("--fresh", action="store_true", help="Graphs that were not looked at before.")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--name", default="missing", help="The name of the record.")
    parser.add_argument("--set", nargs="*", default=[], metavar="KEY=VALUE", help="Settings of the recipe.")
    parser.add_argument("--out", type=Path, default=RESULTS)
    arguments = parser.parse_args()
    settings = dict(each.split("=", 1) for each in arguments.set)
    for each in arguments.models or (FRESH_GRAPHS if arguments.fresh else arguments.graphs):
        extra: dict[str, Any] = {"fresh": True} if arguments.fresh else {}
        if arguments.models:
            trained = dh.load(each, device=choose_device(arguments.device))
            started = time.perf_counter()
            trained.calibrate()
            extra["calibrate_seconds"] = round(time.perf_counter() - started, 2)
        else:
            trained = dh.train(open_graph(each), device=arguments.device, progress=False, **settings)
        row = measure(trained) | extra | {"environment": environment()}
        print({key: value for key, value in row.items() if key not in ("per_relation", "recipe")}, flush=True)
        others = [old for old in rows_of(arguments.out / f"{arguments.name}.json") if old["graph"] != row["graph"]]
        save(arguments.name, {"rows": [*others, row]}, arguments.out)


if __name__ == "__main__":
    main()
