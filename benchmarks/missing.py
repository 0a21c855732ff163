"""Probabilities of facts that nobody knows: what lists of missing facts, answers and judgements claim, and what holds.

The graph to complete holds train and valid. The facts of test are missing from it: neither the model, nor the fit of
probabilities, nor the filter of known facts sees them. The fit estimates how many facts are missing. True facts that
are in no split count as wrong.

    python -m benchmarks.missing --graphs umls family-neural-lp --set model=dihedral-gumbel
    python -m benchmarks.missing --graphs umls --hold-outs 50 --models out/missing

Measured are: the best facts over all relations; the ten best answers to the questions of missing facts, by the number
of known facts about the entity that is asked about; judgements of missing facts and of as many false ones, of which
half are drawn from the best proposals that are not missing facts; the ten best answers to queries of several facts,
drawn from all facts. `--hold-outs` divides valid and test in other ways, fits probabilities again, and counts how often
the stated intervals hold what was found. A row replaces that of the same graph in results/missing.json,
or in another record (`--name`). "ranking" is the CPU time of finding and scoring all proposals.
"""

from __future__ import annotations

import argparse
import json
import time
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

import dihedral as dh
from benchmarks.record import RESULTS, environment, save
from benchmarks.small_graphs import open_graph
from dihedral.ask import OneOf, Query, Variable
from dihedral.ask.answer_calibration import SHAPES, draw_queries, fit_answers
from dihedral.ask.asking import PlannedQuery
from dihedral.ask.messages import KnownSteps, Semantics, evaluate
from dihedral.graph import Graph
from dihedral.graph.index import GraphIndex
from dihedral.graph.steps import SIDES, anchors_and_targets, question_steps
from dihedral.graph.triples import Triples
from dihedral.predict.predictor import Predictor
from dihedral.probability.calibration import (
    expected_error,
    false_triples,
    fit_calibration,
    reliability,
    report_judgements,
)
from dihedral.probability.ordering import as_triples
from dihedral.probability.proposals import draw, is_among, sides_of

CUTS = (20, 100, 500, 1000)
DEGREES = ((0, 1 << 40), (1, 1), (2, 3), (4, 10), (11, 1 << 40))  # all, and by the number of facts
TOP = 10  # answers to each question and query
HARD = 5  # of so many times as many of the best wrong proposals as are needed, some are drawn
QUERIES = 60  # of each shape
GRAPHS = ("umls", "kinships", "family", "family-neural-lp", "nations")


def hold_out(graph: Graph, seed: int | None = None) -> tuple[Graph, Triples]:
    """The graph to complete, and the facts that are missing from it; with a seed, valid and test are drawn again."""
    if seed is None:
        return graph.replace(test=graph.test[:0]), graph.test
    both = np.random.default_rng(seed).permutation(np.concatenate([graph.valid, graph.test]))
    count = len(graph.valid)
    return graph.replace(valid=both[:count], test=graph.test[:0]), both[count:]


def completed(trained: Predictor, seed: int | None = None) -> tuple[Predictor, Triples]:
    """A predictor of the graph to complete, with probabilities that were fitted on it, and what is missing."""
    graph, missing = hold_out(trained.graph, seed)
    calibration = fit_calibration(trained.scorer, graph)
    if seed is None:
        calibration = replace(calibration, queries=fit_answers(trained.scorer, graph))
    return Predictor(replace(trained.trained, graph=graph, calibration=calibration)), missing


def best_list(predictor: Predictor, missing: Triples) -> dict[str, dict[str, float]]:
    """For each length of the list: the share that holds, the share that is claimed, and its interval."""
    table = dh.missing_facts(predictor, top=max(CUTS))
    rows = table.to_pylist()
    hits = is_among(
        predictor.triple_ids([(row["head"], row["relation"], row["tail"]) for row in rows]),
        missing,
        predictor.graph.num_entities,
    )
    return {
        str(cut): {"holds": float(hits[:cut].mean()), "claimed": rows[cut - 1]["precision"],
                   "low": rows[cut - 1]["precision_low"], "high": rows[cut - 1]["precision_high"]}
        for cut in CUTS if cut <= len(rows)
    }  # fmt: skip


def answers(predictor: Predictor, missing: Triples) -> list[dict[str, Any]]:
    """The ten best answers to the questions of missing facts: what is claimed, and what holds, by degree."""
    triples, degrees, first = [], [], []
    ids = torch.from_numpy(missing.astype(np.int64))
    for side in SIDES:
        anchors, relations, _ = anchors_and_targets(ids, side)
        anchors, relations = torch.stack([anchors, relations]).unique(dim=1)
        steps = question_steps(relations, side, predictor.graph.num_relations)
        best, scores = predictor.scorer.top(anchors, steps, TOP, exclude=predictor.known)
        found = scores > float("-inf")
        triples.append(as_triples(side, anchors, relations, best)[found])
        degrees.append(predictor.graph.index.degrees[anchors][:, None].expand_as(best)[found])
        first.append((torch.arange(best.shape[1]) == 0).expand_as(best)[found])
    asked, degree, is_first = torch.cat(triples), torch.cat(degrees).numpy(), torch.cat(first).numpy()
    likely = np.array(predictor.probabilities(asked))
    holds = is_among(asked, missing, predictor.graph.num_entities)
    rows = []
    for low, high in DEGREES:
        here = (degree >= low) & (degree <= high)
        if here.any():
            best_of = here & is_first
            rows.append(
                {"facts": low, "answers": int(here.sum()), "claimed": float(likely[here].mean()),
                 "holds": float(holds[here].mean()), "error": expected_error(reliability(likely[here], holds[here])),
                 "first_claimed": float(likely[best_of].mean()), "first_holds": float(holds[best_of].mean())}
            )  # fmt: skip
    return rows


def judgements(predictor: Predictor, missing: Triples) -> dict[str, dict[str, Any]]:
    """Judgements of missing facts among false triples of each kind."""
    graph, evidence = predictor.graph, predictor.evidence
    sides = sides_of(evidence)
    proposals, scores = draw(evidence, sides, dict.fromkeys(sides, min(1.0, 2e5 / max(_pairs(sides), 1))), seed=1)
    wrong = ~is_among(proposals, missing, graph.num_entities)
    proposals, scores = proposals[torch.from_numpy(wrong)], scores[torch.from_numpy(wrong)]
    doubt = 1 - predictor.calibration.estimate(evidence, proposals, scores)[0].clip(max=1 - 1e-6)
    best = np.argsort(doubt, kind="stable")[: HARD * (len(missing) // 2)]
    every = graph.replace(train=np.concatenate([graph.train, graph.valid]), valid=missing)
    true, false = false_triples(evidence, every, (proposals.numpy()[:0], doubt[:0]), seed=1)
    rng, half = np.random.default_rng(1), min(len(missing) // 2, len(best))
    drawn = rng.choice(best, half, replace=False, p=doubt[best] / doubt[best].sum())
    true = np.concatenate([true, rng.permutation(missing)[:half]])
    false = np.concatenate([false, proposals.numpy()[drawn]])
    hard = np.arange(len(true)) >= len(true) - half
    found = {}
    for kind, chosen in (("both kinds", hard | True), ("an entity replaced", ~hard), ("proposals", hard)):
        judged = torch.from_numpy(np.concatenate([true[chosen], false[chosen]]).astype(np.int64))
        likely = predictor.calibration.estimate(evidence, judged, judge=True)[0]
        report = asdict(report_judgements(likely, np.arange(len(judged)) < len(judged) // 2))
        found[kind] = {key: value for key, value in report.items() if key != "reliability"}
    return found


def _pairs(sides: dict[int, list[np.ndarray]]) -> int:
    return 10 * sum(len(heads) + len(tails) for heads, tails in sides.values())


def queries(predictor: Predictor, missing: Triples) -> dict[str, Any]:
    """The ten best answers that known facts do not give to queries of each shape: what is claimed, and what holds."""
    graph = predictor.graph
    facts = GraphIndex.build([graph.train, graph.valid, missing], graph.num_entities, graph.num_relations)
    plans = draw_queries(facts, QUERIES, seed=1)
    named = Query(Variable("x"), OneOf(Variable("x"), (graph.entities[0],)))
    found = predictor.ask_many([PlannedQuery(named, plan) for plan in plans], top=TOP, known="exclude")
    rows = []
    for number, (plan, messages) in enumerate(evaluate(plans, KnownSteps(facts), Semantics(width=1))):
        holds = messages[plan].best == 0
        rows += [
            (SHAPES[number // QUERIES], answer.probability, bool(holds[graph.entities.id(answer.entity)]))
            for answer in found[number]
        ]
    shape, likely, truth = map(np.array, zip(*rows, strict=True))
    chosen = {"all": np.ones(len(shape), bool), **{each: shape == each for each in SHAPES}}
    return {
        each: {"answers": int(here.sum()), "claimed": float(likely[here].mean()), "holds": float(truth[here].mean()),
               "error": expected_error(reliability(likely[here], truth[here]))}
        for each, here in chosen.items() if here.any()
    }  # fmt: skip


def coverage(trained: Predictor, count: int) -> dict[str, Any]:
    """Over other hold-outs: how often the interval of the list held what was found, and the mean difference."""
    found: dict[str, list[dict[str, float]]] = {}
    for seed in range(count):
        for cut, row in best_list(*completed(trained, seed)).items():
            found.setdefault(cut, []).append(row)
    return {
        cut: {"inside": float(np.mean([row["low"] <= row["holds"] <= row["high"] for row in rows])),
              "claimed": float(np.mean([row["claimed"] for row in rows])),
              "holds": float(np.mean([row["holds"] for row in rows]))}
        for cut, rows in found.items()
    } | {"hold_outs": count}  # fmt: skip


def measure(trained: Predictor, hold_outs: int) -> dict[str, Any]:
    started = time.perf_counter()
    predictor, missing = completed(trained)
    seconds = time.perf_counter() - started
    sides, before = sides_of(predictor.evidence), time.process_time()
    proposals, _ = draw(predictor.evidence, sides, dict.fromkeys(sides, 1.0))
    ranking = {"proposals": len(proposals), "cpu_seconds": round(time.process_time() - before, 1)}
    return {
        "graph": trained.graph.name, "train": len(trained.graph.train), "valid": len(trained.graph.valid),
        "missing": len(missing), "ratio": len(missing) / len(trained.graph.valid),
        "estimate": asdict(predictor.calibration.missing), "fit_seconds": round(seconds, 1),
        "ranking": ranking, "list": best_list(predictor, missing),
        "answers": answers(predictor, missing), "judgements": judgements(predictor, missing),
        "queries": queries(predictor, missing) if predictor.calibration.queries else None,
        "hold_outs": coverage(trained, hold_outs) if hold_outs else None,
        "valid_mrr": trained.metrics["valid"]["both"]["mrr"],
    }  # fmt: skip


def open_model(models: Path | None, name: str, limits: dict[str, Any]) -> Predictor:
    """The stored model of a graph, or one that is trained now."""
    folder = models / Path(name).stem if models else None
    if folder and folder.exists():
        return dh.load(folder)
    return dh.train(open_graph(name), out=folder, **limits)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.missing", description=__doc__)
    parser.add_argument("--graphs", nargs="+", default=list(GRAPHS), help="graphs, or files of triples")
    parser.add_argument("--hold-outs", type=int, default=0)
    parser.add_argument("--minutes", type=float, help="of training; by default as long as by default")
    parser.add_argument("--set", nargs="+", default=[], metavar="KEY=VALUE", help="settings of models that are trained")
    parser.add_argument("--fresh", action="store_true", help="mark the graphs as not looked at before")
    parser.add_argument("--models", type=Path, help="folder of trained models; those that it lacks are added")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--name", default="missing", help="name of the record")
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args()
    limits = {"minutes": options.minutes, "device": options.device, "progress": False}
    limits |= dict(word.split("=", 1) for word in options.set)
    for name in options.graphs:
        trained = open_model(options.models, name, limits)
        row = measure(trained, options.hold_outs) | {"minutes": options.minutes, "fresh": options.fresh}
        print(json.dumps(row), flush=True)
        record = options.out / f"{options.name}.json"
        rows = json.loads(record.read_text(encoding="utf-8"))["rows"] if record.exists() else []
        others = [old for old in rows if old["graph"] != row["graph"]]
        save(options.name, {"rows": [*others, row | {"environment": environment()}]}, options.out)


if __name__ == "__main__":
    main()
