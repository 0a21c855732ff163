"""Are explanations faithful? `python -m benchmarks.faithfulness [--graphs umls] [--triples 50] [--seeds 3]`.

For test triples that the model ranks well, the facts on the paths of an explanation are removed, and the model is
trained again. The same is done with an equal number of random facts of the same two entities. If explanations name the
facts that the model relies on, the first worsens the rank of the triple more often (sign test without ties).

`--reasons` measures instead what explanations and rules of models with default settings show. Some of the most probable
missing facts are joined by a path whose rule holds for another pair: how many of these does `explain` give a path?
Products of sparse matrices count the paths. How high is the confidence of the first rules of `find_rules`, and that of
the same number of rules with the highest confidence of all?
"""

from __future__ import annotations

import argparse
import multiprocessing
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import torch
from scipy.sparse import csr_array
from scipy.stats import binomtest

import dihedral as dh
from benchmarks.record import RESULTS, save
from benchmarks.rules import BASE
from benchmarks.small_graphs import EMBEDDING
from dihedral.graph.patterns import find_chains, find_reversals
from dihedral.graph.triples import SPLITS
from dihedral.learn import choose_recipe
from dihedral.predict.predictor import Predictor

QUICK = BASE.replace(regulariser_weight=0.05, dimension=200, entity_init=0.01)  # small: one run per removal
RECIPES = {
    "umls": QUICK.replace(batch_size=128, epochs=40),
    "family-neural-lp": QUICK.replace(batch_size=512, epochs=12),
}
MAX_RANK = 10  # mean of both sides
PATHS = 3  # number of paths whose facts are removed
EPOCHS = {"umls": 10, "family-neural-lp": 10, "WN18RR": 20}  # of default settings: few, on a CPU
PROPOSALS = 200
FIRST_RULES = 20
PART = 5000  # entities of a larger graph: those with the most facts


def rank(predictor: Predictor, triple: tuple[str, str, str]) -> float:
    """Return the mean of the two ranks of a triple; an entity that lost all its facts is at chance level."""
    ranks = dh.explain(predictor, *triple, top=1).ranks
    return float(np.mean(list(ranks.values())))


def train(graph: dh.Graph, seed: int, device: str) -> Predictor:
    return dh.train(graph, RECIPES[graph.name], seed=seed, device=device, progress=False)


def without(graph: dh.Graph, facts: set[tuple[int, int, int]]) -> dh.Graph:
    kept = [i for i, row in enumerate(graph.train.tolist()) if tuple(row) not in facts]
    return graph.replace(train=graph.train[kept])


def named_facts(predictor: Predictor, triple: tuple[str, str, str]) -> set[tuple[int, int, int]]:
    graph = predictor.graph
    return {
        (graph.entities.id(h), graph.relations.id(r), graph.entities.id(t))
        for path in dh.explain(predictor, *triple, top=PATHS).paths
        for h, r, t in path.facts
    }


def random_facts(graph: dh.Graph, triple: tuple[str, str, str], but: set[Any], seed: int) -> set[tuple[int, int, int]]:
    """Return as many facts of the two entities that the explanation does not name, or all such facts."""
    ends = [graph.entities.id(triple[0]), graph.entities.id(triple[2])]
    of_them = graph.train[np.isin(graph.train[:, 0], ends) | np.isin(graph.train[:, 2], ends)].tolist()
    others = [fact for fact in map(tuple, of_them) if fact not in but]
    order = np.random.default_rng(seed).permutation(len(others))[: len(but)]
    return {others[i] for i in order}


def retrained_rank(task: tuple[str, tuple[str, str, str], set[tuple[int, int, int]], int, str]) -> float:
    name, triple, removed, seed, device = task
    torch.set_num_threads(1)
    return rank(train(without(dh.load_graph(name), removed), seed, device), triple)


def measure(name: str, triples: int, seeds: int, device: str, workers: int) -> list[dict[str, Any]]:
    graph = dh.load_graph(name)
    rows: list[dict[str, Any]] = []
    for seed in range(seeds):
        predictor = train(graph, seed, device)
        order = np.random.default_rng(seed).permutation(len(graph.test))
        for number in order:
            triple = next(graph.names_of(graph.test[[number]]))
            before = rank(predictor, triple)
            named = named_facts(predictor, triple)
            others = random_facts(graph, triple, named, seed)
            if before <= MAX_RANK and named and len(others) == len(named):
                rows.append({"graph": name, "seed": seed, "triple": triple, "before": before, "removed": len(named)})
                rows[-1] |= {"named": named, "random": others}
            if sum(row["seed"] == seed for row in rows) == triples:
                break
    tasks = [(name, row["triple"], row[kind], row["seed"], device) for row in rows for kind in ("named", "random")]
    with ProcessPoolExecutor(workers, multiprocessing.get_context("spawn")) as pool:
        ranks = list(pool.map(retrained_rank, tasks))
    for row, named_rank, random_rank in zip(rows, ranks[::2], ranks[1::2], strict=True):
        row |= {"named": named_rank, "random": random_rank}
    return rows


def summarise(rows: list[dict[str, Any]]) -> dict[str, Any]:
    worse = sum(row["named"] > row["random"] for row in rows)
    better = sum(row["named"] < row["random"] for row in rows)
    test = binomtest(worse, worse + better, alternative="greater") if worse + better else None
    return {
        "graph": rows[0]["graph"],
        "triples": len(rows),
        "named_hurts_more": worse,
        "random_hurts_more": better,
        "p": float(test.pvalue) if test else None,
        "mean_of_one_over_mean_rank": {
            kind: float(np.mean([1 / row[kind] for row in rows])) for kind in ("before", "named", "random")
        },
    }


# --- reasons ------------------------------------------------------------------------------------------


def part_of(graph: dh.Graph, count: int) -> dh.Graph:
    """The facts between the entities with the most training facts."""
    degrees = np.bincount(graph.train[:, [0, 2]].ravel(), minlength=graph.num_entities)
    kept = np.isin(np.arange(graph.num_entities), np.argsort(-degrees, kind="stable")[:count])
    splits = {name: graph.split(name) for name in SPLITS}
    facts = {name: rows[kept[rows[:, 0]] & kept[rows[:, 2]]] for name, rows in splits.items()}
    return dh.load_graph({name: list(graph.names_of(rows)) for name, rows in facts.items()})


class PathCounter:
    """Which pairs are joined by a path of one or two training facts whose rule holds for another pair."""

    def __init__(self, graph: dh.Graph) -> None:
        head, relation, tail = graph.train[graph.train[:, 0] != graph.train[:, 2]].T
        shape = graph.num_entities, graph.num_entities
        of = [relation == each for each in range(graph.num_relations)]
        forwards = [csr_array((np.ones(row.sum(), np.int64), (head[row], tail[row])), shape) for row in of]
        self.steps = [*forwards, *(each.T.tocsr() for each in forwards)]
        self.holds: dict[tuple[int, ...], bool] = {}

    def has_reason(self, head: int, relation: int, tail: int) -> bool:
        leaving = [each[[head]] for each in self.steps]
        arriving = [each[:, [tail]] for each in self.steps]
        bodies = [(first,) for first, row in enumerate(leaving) if row[0, tail]]
        bodies += [
            (first, second)
            for first, row in enumerate(leaving)
            if row.nnz
            for second, column in enumerate(arriving)
            if column.nnz and (row @ column).sum()
        ]
        return any(self._holds(body, relation) for body in bodies)

    def _holds(self, body: tuple[int, ...], relation: int) -> bool:
        key = (*body, relation)
        if key not in self.holds:
            first, *rest = (self.steps[step] for step in body)
            joined = first @ rest[0] if rest else first
            self.holds[key] = joined.multiply(self.steps[relation]).nnz > 0
        return self.holds[key]


def measure_reasons(name: str, device: str) -> dict[str, Any]:
    graph = dh.load_graph(name)
    graph = graph if graph.num_entities <= PART else part_of(graph, PART)
    recipe = choose_recipe(graph, EMBEDDING | {"epochs": EPOCHS[name]}, device=device)
    predictor = dh.train(graph, recipe, device=device, progress=False)
    table = dh.missing_facts(predictor, top=PROPOSALS).to_pylist()
    ids = predictor.triple_ids([(row["head"], row["relation"], row["tail"]) for row in table]).tolist()
    counter = PathCounter(graph)
    joined = [counter.has_reason(*triple) for triple in ids]
    shown = [bool(dh.explain(predictor, row["head"], row["relation"], row["tail"]).paths) for row in table]
    rules = [rule.confidence for rule in dh.find_rules(predictor)][:FIRST_RULES]
    chains, pairs = find_chains(graph.train_index, inverses=True), find_reversals(graph.train_index)
    of_pairs = pairs.confidence[pairs.support.toarray() >= 10]
    best = np.sort(np.concatenate([chains.confidence, of_pairs]))[::-1][:FIRST_RULES]
    return {
        "graph": name,
        "seed": 0,
        "entities": graph.num_entities,
        "facts": len(graph.train),
        "proposals": len(table),
        "with_a_path": sum(joined),
        "shown": sum(one and other for one, other in zip(shown, joined, strict=True)),
        "first_rules": len(rules),
        "mean_confidence": float(np.mean(rules)),
        "mean_confidence_of_best": float(best.mean()),
        "recipe": recipe.to_dict(),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--graphs", nargs="+", choices=list(EPOCHS), default=list(RECIPES))
    parser.add_argument("--reasons", action="store_true", help="measure what explanations and rules show")
    parser.add_argument("--triples", type=int, default=50)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--workers", type=int, default=8)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args()
    if unknown := set(options.graphs) - set(EPOCHS if options.reasons else RECIPES):
        parser.error(f"--graphs names {', '.join(unknown)}, which only --reasons has")
    if options.reasons:
        for name in options.graphs:
            found = measure_reasons(name, options.device)
            print({key: value for key, value in found.items() if key != "recipe"}, flush=True)
            save(f"reasons-{name.lower()}", found, options.out)
        return
    for name in options.graphs:
        rows = measure(name, options.triples, options.seeds, options.device, options.workers)
        summary = summarise(rows)
        print(summary, flush=True)
        save(f"faithfulness-{name}", {"summary": summary, "recipe": RECIPES[name].to_dict(), "rows": rows}, options.out)


if __name__ == "__main__":
    main()
