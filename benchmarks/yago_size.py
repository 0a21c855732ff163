"""The recipes for YAGO3-10 on a generated graph of the same size: `python -m benchmarks.yago_size [--epochs 2]`.

The dataset itself was not available. The benchmark shows that the code works at this size, and its cost.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.record import RESULTS, device_name, save
from dihedral.graph import Graph
from dihedral.graph.benchmarks import BENCHMARKS
from dihedral.graph.triples import build_graph
from dihedral.graph.vocabulary import Vocabulary
from dihedral.learn import Trainer, load_recipe
from dihedral.learn.finish import finish
from dihedral.runtime.device import choose_device


def generate(seed: int = 0) -> Graph:
    """Return a graph with skewed entities and relations, in which every entity occurs in training."""
    entities, relations, train, valid, test = BENCHMARKS["yago3-10"].size
    rng = np.random.default_rng(seed)
    wanted = train + valid + test

    def skewed(size: int, count: int) -> np.ndarray:
        weights = 1 / np.arange(1, size + 1) ** 0.7
        return rng.choice(size, size=count, p=weights / weights.sum())

    every = np.stack([np.arange(entities), skewed(relations, entities), skewed(entities, entities)], axis=1)
    more = np.stack([skewed(entities, 2 * wanted), skewed(relations, 2 * wanted), skewed(entities, 2 * wanted)], axis=1)
    rows = np.concatenate([every, more])
    _, first = np.unique(rows, axis=0, return_index=True)
    rows = rows[np.sort(first)][:wanted].astype(np.int32)
    names = Vocabulary([f"e{i}" for i in range(entities)]), Vocabulary([f"r{i}" for i in range(relations)], "relation")
    return build_graph(*names, [rows[:train], rows[train : train + valid], rows[train + valid :]], "yago3-10-sized")


def measure(epochs: int, device: str) -> list[dict[str, Any]]:
    graph = generate()
    rows = []
    for variant in ("ste", "gumbel"):
        recipe = load_recipe(f"paper/yago3-10-d4-{variant}").replace(epochs=epochs, validate_every=epochs)
        trainer = Trainer(graph, recipe, device=choose_device(device))
        trainer.run()
        metrics = finish(trainer).metrics
        rows.append(
            {
                "graph": repr(graph),
                "recipe": recipe.to_dict(),
                "hardware": device_name(trainer.device),
                "epochs": [{key: row[key] for key in ("loss", "seconds")} for row in trainer.state.history],
                "test_mrr_of_random_triples": metrics["test"]["both"]["mrr"],
            }
        )
        print(rows[-1]["epochs"], flush=True)
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args()
    save("yago-size", {"rows": measure(options.epochs, options.device)}, options.out)


if __name__ == "__main__":
    main()
