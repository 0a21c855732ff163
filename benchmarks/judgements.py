"""True or false: how often judgements of test triples are right, and how well calibrated they are.

Half of the triples are test facts; the others have one entity replaced by another that fits that side of the relation.
Each graph is trained twice with the settings that its size gives: with the default model, and with ComplEx. Both are
calibrated in the same way.

    python -m benchmarks.judgements --graphs nations umls
    python -m benchmarks.judgements --fresh
"""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import dihedral as dh
from benchmarks.record import RESULTS, save
from benchmarks.small_graphs import open_graph
from dihedral.runtime.environment import environment

GRAPHS = ("nations", "umls", "family", "family-neural-lp", "FB15k-237-500", "FB15k-237-2000", "WN18-5000")
FRESH = ("kinships", "FB15k-237-1000-1")
MODELS = {"default": "dihedral-gumbel", "ComplEx": "complex"}
VALUES = ("triples", "accuracy", "expected_calibration_error", "error_by_chance")


def measure(name: str, model: str) -> dict[str, Any]:
    trained = dh.train(open_graph(name), model=MODELS[model], device="cpu", progress=False)
    judged = asdict(trained.calibration.judged)
    row = {"graph": name, "model": model} | {key: judged[key] for key in VALUES}
    return row | {"test_mrr": trained.metrics["test"]["both"]["mrr"], "recipe": trained.recipe.to_dict()}


def rows_of(path: Path) -> list[dict[str, Any]]:
    return json.loads(path.read_text(encoding="utf-8"))["rows"] if path.exists() else []


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--graphs", nargs="+", default=list(GRAPHS))
    parser.add_argument("--fresh", action="store_true", help="Graphs that were not looked at before.")
    parser.add_argument("--out", type=Path, default=RESULTS)
    arguments = parser.parse_args()
    for name in FRESH if arguments.fresh else arguments.graphs:
        for model in MODELS:
            row = measure(name, model) | ({"fresh": True} if arguments.fresh else {}) | {"environment": environment()}
            print({key: value for key, value in row.items() if key != "recipe"}, flush=True)
            same = (row["graph"], row["model"])
            others = [old for old in rows_of(arguments.out / "judgements.json") if (old["graph"], old["model"]) != same]
            save("judgements", {"rows": [*others, row]}, arguments.out)


if __name__ == "__main__":
    main()
