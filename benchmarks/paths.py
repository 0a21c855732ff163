"""Path models: accuracy on benchmarks, and on graphs of entities that training has never seen.

`python -m benchmarks.paths umls family-neural-lp --seeds 3` trains the recipe paths/NAME; `python -m benchmarks.paths
--inductive FOLDER` trains on each graph FOLDER/NAME and ranks the test facts of FOLDER/NAME_ind among the entities of
that graph, over its training facts. `--set KEY=VALUE` changes a setting of the recipe. Each run is added to
results/paths.jsonl; one that is there is not repeated.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

import numpy as np

import dihedral as dh
from benchmarks.record import RESULTS, environment
from dihedral.evaluation import Evaluator
from dihedral.graph import Graph
from dihedral.io.jsonl import append_line, read_lines
from dihedral.learn.finish import finish
from dihedral.learn.path_trainer import PathTrainer
from dihedral.objectives.recipe import Recipe, load_recipe
from dihedral.runtime.device import choose_device
from dihedral.scoring.path_scorer import PathScorer

LOG = RESULTS / "paths.jsonl"
RED_GNN = {  # MRR, as quoted in Zhang & Yao, "Knowledge Graph Reasoning with Relational Digraph", 2022
    "WN18RR_v1": 0.701, "WN18RR_v2": 0.690, "WN18RR_v3": 0.427, "fb237_v1": 0.369, "fb237_v2": 0.469,
    "fb237_v3": 0.445, "nell_v1": 0.637, "nell_v2": 0.419,
}  # fmt: skip


def other_entities(graph: Graph, folder: Path) -> Graph:
    """The graph in a folder, with the relations of another graph; facts of further relations are left out."""
    found = dh.load_graph(folder)
    ids = np.array([graph.relations.find(name) if name in graph.relations else -1 for name in found.relations])
    splits = {}
    for split in ("train", "valid", "test"):
        triples = found.split(split).copy()
        triples[:, 1] = ids[triples[:, 1]]
        splits[split] = triples[triples[:, 1] >= 0]
    return found.replace(relations=graph.relations, **splits)


def measure(name: str, recipe: Recipe, seed: int, folder: Path | None, options: dict[str, Any]) -> dict[str, Any]:
    """Train on a graph, and rank its test facts, or those of the graph of other entities."""
    graph = dh.load_graph(name if folder is None else folder / name)
    run = PathTrainer(graph, recipe, seed=seed, **options)
    started = time.process_time()
    run.run()
    cpu_seconds = round(time.process_time() - started, 1)
    trained = finish(run)
    row = {split: trained.metrics[split]["both"]["mrr"] for split in ("valid", "test")}
    row |= {key: trained.metrics[key] for key in ("best_epoch", "train_seconds", "epochs", "stopped_by", "device")}
    row["train_cpu_seconds"], row["settings"] = cpu_seconds, recipe.to_dict()
    if folder is not None:
        other = other_entities(graph, folder / f"{name}_ind")
        scorer = PathScorer(run.path_scorer.model, other.train_index)
        row |= {f"inductive_{split}": Evaluator(other, split)(scorer).mrr for split in ("valid", "test")}
        row["red_gnn"] = RED_GNN.get(name)
    return row


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.paths", description=__doc__)
    parser.add_argument("names", nargs="*", help="benchmarks, or graphs of the inductive folder; by default all of it")
    parser.add_argument("--inductive", type=Path)
    parser.add_argument("--recipe")
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--set", nargs="+", default=[], metavar="KEY=VALUE")
    parser.add_argument("--minutes", type=float)
    parser.add_argument("--device", default="auto")
    options = parser.parse_args()
    folder = options.inductive
    names = options.names or sorted(path.name.removesuffix("_ind") for path in folder.glob("*_ind"))
    changes = dict(word.split("=", 1) for word in options.set)
    limits = changes | ({} if options.minutes is None else {"minutes": options.minutes})
    done = {(row["graph"], row["recipe"], row["seed"], str(row.get("changes", {}))) for row in read_lines(LOG)}
    for seed in range(options.seeds):
        for name in names:
            recipe = options.recipe or ("paths/inductive" if folder else f"paths/{name.lower()}")
            if (name, recipe, seed, str(limits)) not in done:
                row = {"graph": name, "recipe": recipe, "seed": seed, "changes": limits}
                limit = {"minutes": options.minutes, "device": choose_device(options.device)}
                row |= measure(name, load_recipe(recipe).changed(changes), seed, folder, limit)
                append_line(LOG, row | {"environment": environment()})
                print(json.dumps({key: row[key] for key in row if key != "settings"}), flush=True)


if __name__ == "__main__":
    main()
