"""Time of fold-in: entities of FB15k-237 placed by half of their facts, one at a time and many at once.

The time does not depend on how long the model was trained, so that its vectors are random.

    python -m benchmarks.fold_in
"""

from __future__ import annotations

import argparse
from typing import Any

import numpy as np

from benchmarks.living import Facts, split_off
from benchmarks.record import save, seconds
from dihedral.graph import load_graph
from dihedral.learn import choose_recipe
from dihedral.learn.trainer import Trainer
from dihedral.predict.predictor import Predictor
from dihedral.store.trained import TrainedModel

RECORD = "fold-in"
COUNTS = (1, 10, 100, 1000)


def measure(graph_name: str, dimension: int, seed: int) -> list[dict[str, Any]]:
    """Milliseconds per new entity, for several numbers of entities at once."""
    facts, rng = Facts(load_graph(graph_name)), np.random.default_rng(seed)
    often = np.flatnonzero(facts.graph.train_index.degrees.numpy() >= 2)
    rows = []
    for count in COUNTS:
        new = {facts.graph.entities[i] for i in rng.permutation(often)[:count].tolist()}
        kept, theirs = split_off(facts.train, np.array([h in new or t in new for h, _, t in facts.train]))
        graph = facts.part(kept, without=new)
        known = {*graph.entities, *new, *graph.relations}
        given = [fact for fact in theirs[::2] if known.issuperset(fact) and fact[0] != fact[2]]
        names = sorted(new & {name for h, _, t in given for name in (h, t)})
        recipe = choose_recipe(graph).replace(dimension=dimension)
        model, _ = Trainer(graph, recipe, seed=seed).best_model()
        predictor = Predictor(TrainedModel(model, graph, recipe=recipe))
        predictor.fold_in_context()  # computed once per model

        def work(predictor: Predictor = predictor, names: list[str] = names, given: Any = given) -> Predictor:
            return predictor.fold_in(names, given)

        found = 1000 * seconds(work) / len(names)
        rows.append({"entities": len(names), "facts": len(given), "milliseconds_per_entity": round(found, 3)})
        print(rows[-1], flush=True)
    return rows


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--graph", default="FB15k-237")
    parser.add_argument("--dimension", type=int, default=800)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    about = {"command": "python -m benchmarks.fold_in", **vars(arguments)}
    save(RECORD, about | {"rows": measure(arguments.graph, arguments.dimension, arguments.seed)})
