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
import time
from itertools import chain
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np

import dihedral as dh
from benchmarks.record import RESULTS, environment
from benchmarks.small_graphs import open_graph
from dihedral.graph.benchmarks import BENCHMARKS
from dihedral.io.jsonl import append_line
from dihedral.learn import Trainer, load_recipe
from dihedral.learn.finish import finish
from dihedral.predict.predictor import Predictor
from dihedral.probability.evidence import FEATURES, Evidence, Features
from dihedral.runtime.device import choose_device

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
    row["chosen"] = predictor.resolve_order("auto")
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
