"""The defaults of both kinds of models on one graph, and ComplEx with the settings of the embedding, on a CPU.

Each run adds a line to the file that the variable ROWS names, by default results/default-kinds.jsonl: MRR on all of
valid and test, CPU seconds of training and of ranking these, and CPU milliseconds per question. Epochs limit the runs,
not minutes, so that the results do not depend on the load.

    python -m benchmarks.default_kinds umls paths
    python -m benchmarks.default_kinds WN18RR-10000 embedding --set epochs=60
"""

from __future__ import annotations

import argparse
import json
import os
from itertools import pairwise
from pathlib import Path
from time import process_time
from typing import Any

import torch

import dihedral as dh
from benchmarks.record import RESULTS, environment
from benchmarks.small_graphs import EMBEDDING, open_graph
from dihedral.graph import Graph
from dihedral.io.jsonl import append_line
from dihedral.learn.defaults import choose_recipe
from dihedral.learn.finish import finish
from dihedral.learn.trainer import make_run
from dihedral.objectives.recipe import Recipe

LOG = Path(os.environ.get("ROWS", RESULTS / "default-kinds.jsonl"))
KINDS = ("paths", "embedding", "complex")


def recipe_of(graph: Graph, kind: str, changes: dict[str, str]) -> Recipe:
    """The default of a kind; of ComplEx all settings are those of the embedding but one learning rate."""
    if kind == "paths":
        return choose_recipe(graph, {"objective": "paths", **changes})
    recipe = choose_recipe(graph, EMBEDDING | changes)
    return recipe.adapt(model="complex", relation_lr=recipe.entity_lr) if kind == "complex" else recipe


def measure(graph: Graph, kind: str, changes: dict[str, str], seed: int) -> dict[str, Any]:
    """Train, rank valid and test, and answer some questions."""
    recipe = recipe_of(graph, kind, changes)
    trainer = make_run(graph, recipe, seed=seed)
    times = [process_time()]
    trainer.run()
    times.append(process_time())
    trained = finish(trainer)
    times.append(process_time())
    by_score = {split: round(trained.metrics[split]["both"]["mrr"], 5) for split in ("valid", "test")}
    trained.scorer.top(*torch.from_numpy(graph.train[:256, :2].copy()).long().T, 10)
    times.append(process_time())
    spent = dict(zip(("train", "rank", "ask"), (b - a for a, b in pairwise(times)), strict=True))
    ask = round(1000 * spent.pop("ask") / min(256, len(graph.train)), 3)
    row: dict[str, Any] = by_score | {key: trained.metrics[key] for key in ("best_epoch", "epochs", "stopped_by")}
    row |= {"cpu_seconds": {name: round(each, 1) for name, each in spent.items()}, "milliseconds_per_question": ask}
    return row | {"settings": recipe.to_dict()}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.default_kinds", description=__doc__)
    parser.add_argument("graph", help="a name that `benchmarks.small_graphs` opens, or a file")
    parser.add_argument("kind", choices=KINDS)
    parser.add_argument("--set", nargs="+", default=[], metavar="KEY=VALUE")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    graph = dh.load_graph(options.graph) if Path(options.graph).is_file() else open_graph(options.graph)
    changes = dict(word.split("=", 1) for word in options.set)
    row = {"graph": graph.name, "kind": options.kind, "changes": changes, "seed": options.seed}
    row |= {"train": len(graph.train), "entities": graph.num_entities, "relations": graph.num_relations}
    row |= measure(graph, options.kind, changes, options.seed) | {"environment": environment()}
    append_line(LOG, row)
    print(json.dumps({key: value for key, value in row.items() if key not in ("settings", "environment")}))


if __name__ == "__main__":
    main()
