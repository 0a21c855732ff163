"""Compares results of the fast paths and of plain torch: `python -m benchmarks.agreement [--device cuda]`.

Each recipe is trained with three seeds, in plain torch (no compiled kernels, float32, no captured steps) and on the
fast paths. Their single steps are compared with `dihedral.reference` in the tests.
"""

from __future__ import annotations

import argparse
import math
import os
from contextlib import nullcontext
from pathlib import Path
from statistics import mean
from typing import Any
from unittest.mock import patch

import torch

import dihedral as dh
from benchmarks.record import RESULTS, save
from dihedral.learn.finish import finish
from dihedral.learn.trainer import Trainer
from dihedral.objectives.recipe import Recipe, load_recipe

SOFTMAX = Recipe(objective="softmax", regulariser="l2", regulariser_weight=0.3, entity_init=0.001, dimension=200,
                 validate_every=5)  # fmt: skip
SAMPLED = Recipe(regulariser_weight=0.1, dimension=200, validate_every=5)
RUNS: dict[str, list[tuple[str, str, Recipe]]] = {
    "cpu": [
        ("family", "logistic", load_recipe("demo/family")),
        ("umls", "softmax", load_recipe("demo/umls")),
        ("umls", "logistic", SAMPLED.replace(model="dihedral-ste", epochs=60, regulariser_weight=0.01)),
    ],
    "cuda": [
        ("WN18RR", "softmax", SOFTMAX.replace(model="dihedral-ste", epochs=20)),
        ("WN18RR", "softmax", SOFTMAX.replace(model="dihedral-gumbel", relation_lr=1.0, cooling=0.05, epochs=20)),
        ("FB15k-237", "softmax", SOFTMAX.replace(model="dihedral-ste", epochs=20)),
        ("WN18RR", "logistic", SAMPLED.replace(model="dihedral-ste", epochs=60, validate_every=20)),
        ("FB15k-237", "logistic", SAMPLED.replace(model="dihedral-ste", epochs=20)),
    ],
}


def measure(device: str, seeds: int, out: Path) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    for name, objective, recipe in RUNS[device]:
        graph = dh.load_graph(name)
        row: dict[str, Any] = {"graph": graph.name, "model": recipe.model, "objective": objective}
        row |= {"recipe": recipe.to_dict(), "device": device}
        for way in ("reference", "fast"):
            found = []
            for seed in range(seeds):
                trainer = Trainer(graph, recipe if way == "fast" else _plain(recipe), seed=seed, device=device)
                with nullcontext() if way == "fast" else patch.dict(os.environ, DIHEDRAL_COMPILED="0"):
                    if way == "reference":
                        trainer.steps_before_capture = math.inf
                    trainer.run()
                metrics = finish(trainer).metrics
                found.append(
                    (metrics["valid"]["both"]["mrr"], metrics["test"]["both"]["mrr"], metrics["train_seconds"])
                )
            row[way] = {
                "valid_mrr": [valid for valid, _, _ in found],
                "test_mrr": [test for _, test, _ in found],
                "seconds": [seconds for _, _, seconds in found],
            }
        row["test_difference"] = mean(row["fast"]["test_mrr"]) - mean(row["reference"]["test_mrr"])
        rows.append(row)
        print({key: value for key, value in row.items() if key != "recipe"}, flush=True)
        save(f"agreement-{device}", {"rows": rows}, out)
    return rows


def _plain(recipe: Recipe) -> Recipe:
    return recipe.replace(precision="float32") if recipe.objective == "softmax" else recipe


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args()
    measure(options.device, options.seeds, options.out)


if __name__ == "__main__":
    main()
