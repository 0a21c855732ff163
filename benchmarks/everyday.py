"""Everyday use: `python -m benchmarks.everyday FB15K237_MODEL`.

The benchmark measures the calibration of probabilities on the test split of FB15k-237, and the time of 1000 top-10
questions on a model of the size of WN18RR (2L = 200, random vectors, which cost the same).
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np
import torch

import dihedral as dh
from benchmarks.record import RESULTS, save, seconds
from dihedral.evaluation import Evaluator
from dihedral.models import build_model
from dihedral.predict.predictor import Predictor
from dihedral.store.trained import TrainedModel

QUERIES = 1000


def top_ten() -> dict[str, Any]:
    graph = dh.load_graph("WN18RR")
    model = build_model("dihedral-ste", graph.num_entities, graph.num_relations, dimension=200, entity_init=0.1, seed=0)
    predictor = Predictor(TrainedModel(model, graph))
    heads, relations, _ = torch.from_numpy(graph.test[:QUERIES].astype(np.int64)).T
    took = seconds(lambda: predictor.scorer.top(heads, relations, 10, exclude=predictor.known))
    return {"graph": "WN18RR", "dimension": 200, "questions": QUERIES, "seconds": took}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", type=Path)
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args()
    predictor = dh.load(options.model)
    predictor.calibrate()
    calibration = {split: predictor.metrics["calibration"][split] for split in ("valid", "test")}
    mrr = Evaluator(predictor.graph, "test")(predictor.scorer).mrr
    content = {"recipe": predictor.recipe.to_dict(), "test_mrr": mrr, "calibration": calibration, "top_ten": top_ten()}
    save("everyday", content, options.out)
    print({split: found["expected_calibration_error"] for split, found in calibration.items()}, content["top_ten"])


if __name__ == "__main__":
    main()
