"""Everyday use: `python -m benchmarks.everyday FB15K237_MODEL`.

The benchmark measures the calibration of probabilities on the test split of FB15k-237, the time of 1000 top-10 queries
on a model of the size of WN18RR (2L = 200, random vectors, which cost the same), and a faiss index of the first model.
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
from dihedral.predict.neighbours import NearestAnswers
from dihedral.predict.predictor import Predictor

QUERIES = 1000


def top_ten() -> dict[str, Any]:
    graph = dh.load_graph("WN18RR")
    model = build_model("dihedral-ste", graph.num_entities, graph.num_relations, dimension=200, entity_init=0.1, seed=0)
    predictor = Predictor(model, graph)
    heads, relations, _ = torch.from_numpy(graph.test[:QUERIES].astype(np.int64)).T
    took = seconds(lambda: predictor.scorer.top(heads, relations, 10, exclude=predictor.known))
    return {"graph": "WN18RR", "dimension": 200, "questions": QUERIES, "seconds": took}


def index(predictor: Predictor) -> dict[str, Any]:
    """Hits@10 of tails on test, without filtering known answers, by exact search and by the index."""
    test = torch.from_numpy(predictor.graph.test.astype(np.int64))
    nearest = NearestAnswers(predictor.scorer, predictor.graph.train)
    found: dict[str, Any] = {"recall": nearest.recall}
    timed = test[:QUERIES, 0], test[:QUERIES, 1]
    for name, top in (("exact", predictor.scorer.top), ("index", nearest.top)):
        hits = [(top(part[:, 0], part[:, 1], 10)[0] == part[:, 2:]).any(dim=1) for part in test.split(QUERIES)]
        found[f"{name}_hits@10"] = float(torch.cat(hits).float().mean())
        found[f"{name}_seconds"] = seconds(lambda top=top: top(*timed, 10))  # type: ignore[misc]
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", type=Path)
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args()
    predictor = dh.load(options.model)
    predictor.calibrate()
    calibration = {split: predictor.metrics["calibration"][split] for split in ("valid", "test")}
    mrr = Evaluator(predictor.graph, "test")(predictor.scorer).mrr
    content = {"recipe": predictor.recipe, "test_mrr": mrr, "calibration": calibration, "top_ten": top_ten()}
    save("everyday", content | {"index": index(predictor)}, options.out)
    print({split: found["expected_calibration_error"] for split, found in calibration.items()}, content["top_ten"])


if __name__ == "__main__":
    main()
