"""Answers in order of score and of probability: filtered MRR and Hits@k of both, for trained models.

    python -m benchmarks.ordering --recipes best/wn18rr-d8-graded best/umls-d8-graded --seeds 0 1 2
    python -m benchmarks.ordering --graphs nations kinships FB15k-237-1000-1 --minutes 2
    python -m benchmarks.ordering --models out/wn18rr

Probabilities are fitted on valid with the evidence of the training facts (`probability.calibration`), and the
evidence of the answers to valid and test is that of the training facts too. So the difference on test is what
evidence is worth.
Ranks by probability take long in graphs with many relations; with `--sample` both orders rank the same random triples.
`--without` also measures test with each kind of evidence replaced by its median.
"""

from __future__ import annotations

import argparse
import json
import time
from collections import defaultdict
from itertools import chain
from pathlib import Path
from statistics import mean, stdev
from typing import Any
from unittest.mock import patch

import numpy as np

import dihedral as dh
from benchmarks.record import RESULTS
from benchmarks.small_graphs import open_graph
from dihedral.graph.benchmarks import BENCHMARKS
from dihedral.io.jsonl import append_line
from dihedral.learn import Trainer, load_recipe, recipe_names
from dihedral.learn.finish import finish
from dihedral.learn.identity import run_identity
from dihedral.predict.predictor import Predictor
from dihedral.probability.evidence import FEATURES, Evidence, Features
from dihedral.runtime.device import choose_device
from dihedral.runtime.environment import environment
from paper.tables import markdown

RECORD, EVIDENCE, FRESH = (RESULTS / f"ordering{part}.jsonl" for part in ("", "-evidence", "-fresh"))
ORDERS = ("score", "probability")
METRICS = ("mrr", "hits@1", "hits@3", "hits@10")


def graph_of(recipe: str) -> str:
    """The benchmark that a recipe is for, by its name."""
    slug = recipe.split("/")[1]
    return max((each.name for each in BENCHMARKS.values() if slug.startswith(f"{each.name.lower()}-")), key=len)


def trained(recipe: str, seed: int, device: str) -> Predictor:
    trainer = Trainer(dh.load_graph(graph_of(recipe)), load_recipe(recipe), seed=seed, device=choose_device(device))
    trainer.run()
    return Predictor(finish(trainer))


def measure(predictor: Predictor, sample: int) -> dict[str, Any]:
    """The metrics of both splits in both orders, and which order valid chooses."""
    started = time.perf_counter()
    predictor.calibrate()
    row: dict[str, Any] = {"graph": predictor.graph.name, "calibrate_seconds": round(time.perf_counter() - started, 1)}
    row["chosen"] = predictor.order
    for split in ("valid", "test"):
        row[split] = {}
        for order in ORDERS:
            found = dh.evaluate(predictor, split=split, sample=sample, order=order)
            both = found.to_dict()["both"]
            row[split][order] = {name: both[name] for name in METRICS}
            row[split]["triples"] = len(found.triples)
        row[split]["score, all triples"] = predictor.metrics[split]["both"]["mrr"]
    return row | {"recipe": predictor.recipe.to_dict(), "environment": environment()}


def without_each(predictor: Predictor, sample: int) -> dict[str, float]:
    """Test MRR in order of probability if one kind of evidence is the same for all answers."""
    found = {}
    original = Evidence.features
    for column, name in list(enumerate(FEATURES))[1:]:

        def features(self: Evidence, *arguments: Any, column: int = column, **options: Any) -> Features:
            values = original(self, *arguments, **options)
            values[:, column] = np.median(values[:, column])
            return values

        with patch.object(Evidence, "features", features):
            found[name] = dh.evaluate(predictor, sample=sample, order="probability").mrr
    return found


def rows(path: Path = RECORD) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()] if path.exists() else []


def by_recipe() -> dict[tuple[str, str], list[dict[str, Any]]]:
    """The rows of each graph and recipe."""
    found: dict[tuple[str, str], list[dict[str, Any]]] = defaultdict(list)
    for row in rows():
        found[row["graph"], row["recipe"]["name"]].append(row)
    return found


def is_current(row: dict[str, Any]) -> bool:
    """Whether a row's recipe still has the settings that it was measured with."""
    settings = row["recipe"]
    return settings["name"] not in recipe_names() or (
        run_identity(load_recipe(settings["name"]).to_dict(), 0, "") == run_identity(settings, 0, "")
    )


def estimates(found: list[dict[str, Any]]) -> list[float]:
    """Test MRR in order of probability, per seed: that of all facts by score, plus the difference on the sample."""
    tests = [row["test"] for row in found]
    return [test["score, all triples"] + test["probability"]["mrr"] - test["score"]["mrr"] for test in tests]


def table() -> str:
    """Test MRR in both orders, per recipe: mean and standard deviation over seeds."""
    lines = []
    for (graph, name), found in by_recipe().items():
        by_score = spread([row["test"]["score, all triples"] for row in found])
        valid = f"{mean(row['valid']['probability']['mrr'] - row['valid']['score']['mrr'] for row in found):+.4f}"
        ranked = f"{found[0]['test']['triples']:,}"
        name += "" if all(map(is_current, found)) else ", before its last change"
        lines.append([graph, name, str(len(found)), by_score, spread(estimates(found)), ranked, valid])
    header = ["graph", "recipe", "seeds", "test: score", "test: probability", "test facts", "gain on valid"]
    return markdown(header, lines)


def fresh_table() -> str:
    """MRR in both orders on other graphs, with default settings."""
    lines = [
        [row["graph"], *(f"{row[split][order]['mrr']:.3f}" for split in ("valid", "test") for order in ORDERS)]
        for row in rows(FRESH)
    ]
    return markdown(["graph", *(f"{split}: {order}" for split in ("valid", "test") for order in ORDERS)], lines)


def evidence_table() -> str:
    """Test MRR with all evidence, and with one kind of it replaced by its median."""
    lines = []
    for row in rows(EVIDENCE):
        shown = [row["test"]["score"]["mrr"], row["test"]["probability"]["mrr"], *row["without"].values()]
        lines.append([row["graph"], *(f"{value:.3f}" for value in shown)])
    without = [f"without {name}" for name in FEATURES[1:]]
    return markdown(["graph", "score", "probability", *without], lines)


def spread(values: list[float]) -> str:
    return f"{mean(values):.4f} ± {stdev(values):.4f}" if len(values) > 1 else f"{values[0]:.4f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--recipes", nargs="+", default=[])
    parser.add_argument("--seeds", nargs="+", type=int, default=[0])
    parser.add_argument("--models", nargs="+", type=Path, default=[], help="Trained models instead of recipes.")
    parser.add_argument("--graphs", nargs="+", default=[], help="Graphs to train with the default settings.")
    parser.add_argument("--minutes", type=float, help="Limit on the time of a training with the default settings.")
    parser.add_argument("--sample", type=int, default=0, help="Triples of each split; 0 means all.")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--without", action="store_true", help="Also measure what each kind of evidence is worth.")
    parser.add_argument("--out", type=Path, default=RECORD, help="Rows are appended to this file.")
    options = parser.parse_args()
    stored = (dh.load(model, device=choose_device(options.device)) for model in options.models)
    models = ((each, int(each.metrics["seed"])) for each in stored)
    new = ((trained(recipe, seed, options.device), seed) for recipe in options.recipes for seed in options.seeds)
    by_default = {"minutes": options.minutes, "device": options.device, "progress": False}
    default = ((dh.train(open_graph(name), seed=seed, **by_default), seed)
               for name in options.graphs for seed in options.seeds)  # fmt: skip
    for predictor, seed in chain(models, new, default):
        row = measure(predictor, options.sample) | {"seed": seed}
        if options.without:
            row["without"] = without_each(predictor, options.sample)
        append_line(options.out, row)
        print({key: row.get(key) for key in ("graph", "chosen", "valid", "test", "without")}, flush=True)


if __name__ == "__main__":
    main()
