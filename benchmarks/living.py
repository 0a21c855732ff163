"""Living graphs: updates against training again on the final graph.

- facts: 5 % of the training facts arrive in ten batches.
- entities: 10 % of the entities arrive with half of their facts; the other half is asked.
- relation: a relation arrives with its training facts; its valid and test facts are asked.
- removal: 5 % of the training facts are removed. Their ranks are compared with those in a model that never saw them.
- correction: the same with 0.1 % of the training facts, at least 20.
- rounds: all of it, twenty times.
- growth: facts arrive until there are half as many again as at training, to see when to train again.

Models with entity vectors are trained again in every scenario that removes facts or adds a relation.

    python -m benchmarks.living --graphs umls family-neural-lp --seeds 0 1 2
    python -m benchmarks.living --graphs FB15k-237 --seeds 0 --device cuda --scenarios entities removal
    python -m benchmarks.living --graphs umls --seeds 0 --recipe paths/umls --set epochs=4
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.record import RESULTS, environment
from benchmarks.small_graphs import open_graph
from dihedral.evaluation import Evaluator
from dihedral.graph import Graph
from dihedral.graph.triples import Triples
from dihedral.io.jsonl import append_line
from dihedral.learn import choose_recipe, load_recipe
from dihedral.learn.finish import finish
from dihedral.learn.trainer import make_run
from dihedral.predict.predictor import Predictor
from dihedral.runtime.device import choose_device

Names = tuple[str, str, str]
Train = Callable[..., Predictor]  # of a graph, and of a seed if it is another one
RECORD = "living"


class Facts:
    """The facts of a benchmark by name, and graphs of parts of them."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.train, self.valid, self.test = (list(graph.names_of(graph.split(s))) for s in ("train", "valid", "test"))
        self.known = self.train + self.valid + self.test

    def part(self, train: Sequence[Names], without: Iterable[str] = ()) -> Graph:
        """Training facts with the valid and test facts whose names occur in them, except those in `without`."""
        used = {name for h, _, t in train for name in (h, t)} | {r for _, r, _ in train}
        used -= set(without)
        valid, test = ([fact for fact in part if used.issuperset(fact)] for part in (self.valid, self.test))
        return Graph.from_names(train, valid, test, name=self.graph.name)

    def mrr(self, predictor: Predictor, asked: Sequence[Names]) -> float:
        """MRR of facts that the model may rank; all facts of the benchmark are known."""
        return float((1 / self.ranks(predictor, asked)).mean())

    def ranks(self, predictor: Predictor, asked: Sequence[Names]) -> np.ndarray:
        """Filtered ranks of both sides."""
        graph = predictor.graph
        names = {*graph.entities, *graph.relations}
        known = [fact for fact in self.known if names.issuperset(fact)]
        options = {"triples": ids_of(graph, asked), "also_known": ids_of(graph, known)}
        found = Evaluator(graph, "asked", device=predictor.device, **options)(predictor.scorer)
        return found.both.realistic


def ids_of(graph: Graph, facts: Sequence[Names]) -> Triples:
    heads, relations, tails = (list(column) for column in zip(*facts, strict=True))
    columns = graph.entities.ids(heads), graph.relations.ids(relations), graph.entities.ids(tails)
    return np.stack(columns, axis=1).astype(np.int32)


def split_off(facts: Sequence[Names], chosen: np.ndarray) -> tuple[list[Names], list[Names]]:
    """The facts outside and inside a mask."""
    return [f for f, c in zip(facts, chosen, strict=True) if not c], [
        f for f, c in zip(facts, chosen, strict=True) if c
    ]


def timed(predictor: Predictor, **changes: Any) -> tuple[Predictor, dict[str, float]]:
    """An update, with the time until it was trained and until everything was measured and calibrated."""
    started = time.perf_counter()
    updated = predictor.update(progress=False, **changes)
    version = updated.history.latest
    return updated, {"train_seconds": version.train_seconds, "seconds": round(time.perf_counter() - started, 3)}


def arriving_facts(facts: Facts, rng: np.random.Generator, train: Train, batches: int = 10) -> dict[str, Any]:
    """5 % of the training facts in batches."""
    chosen = np.zeros(len(facts.train), bool)
    chosen[rng.permutation(len(facts.train))[: len(facts.train) // 20]] = True
    kept, arriving = split_off(facts.train, chosen)
    base, retrained = train(facts.part(kept)), train(facts.part(facts.train))
    asked = [f for f in facts.test if {*base.graph.entities, *base.graph.relations}.issuperset(f)]
    row: dict[str, Any] = {"retrained_mrr": facts.mrr(retrained, asked), "base_mrr": facts.mrr(base, asked)}
    row |= {"retrained_seconds": retrained.metrics["train_seconds"], "mrr": [], "train_seconds": [], "seconds": []}
    for batch in np.array_split(np.arange(len(arriving)), batches):
        base, times = timed(base, add=[arriving[i] for i in batch], calibrate=False)
        row["mrr"].append(facts.mrr(base, asked))
        for name, value in times.items():
            row[name].append(value)
    row["share_of_mrr"] = row["mrr"][-1] / row["retrained_mrr"]
    row["share_of_seconds"] = sum(row["train_seconds"]) / row["retrained_seconds"]
    return row


def arriving_entities(facts: Facts, rng: np.random.Generator, train: Train) -> dict[str, Any]:
    """10 % of the entities with half of their facts."""
    graph = facts.graph
    often = np.flatnonzero(graph.train_index.degrees.numpy() >= 2)
    new = {graph.entities[i] for i in rng.permutation(often)[: graph.num_entities // 10].tolist()}
    chosen = np.array([h in new or t in new for h, _, t in facts.train])
    kept, theirs = split_off(facts.train, chosen)
    base = train(facts.part(kept, without=new))
    relations = set(base.graph.relations)
    theirs = [fact for fact in theirs if fact[1] in relations]
    asked, given = split_off(theirs, rng.permutation(len(theirs)) < len(theirs) // 2)
    names = list(dict.fromkeys(name for h, _, t in given for name in (h, t) if name not in base.graph.entities))
    placed = {name for h, _, t in given if h != t for name in (h, t)}
    names = [name for name in names if name in placed]
    ready = set(base.graph.entities) | set(names)
    given, asked = ([f for f in part if ready.issuperset((f[0], f[2]))] for part in (given, asked))
    retrained = train(facts.part(kept + given, without=new))
    others = [f for f in facts.test if {*base.graph.entities, *relations}.issuperset(f)]
    updated, times = timed(base, add=given, calibrate=False)
    models = {"retrained": retrained, "updated": updated}
    found = {f"{name}_mrr": facts.mrr(model, asked) for name, model in models.items()}
    found |= {f"{name}_others_mrr": facts.mrr(model, others) for name, model in models.items()}
    return found | times | {
        "updated_share": found["updated_mrr"] / found["retrained_mrr"],
        "retrained_seconds": retrained.metrics["train_seconds"],
        "entities": len(names), "given": len(given), "asked": len(asked),
    }  # fmt: skip


def arriving_relation(facts: Facts, rng: np.random.Generator, train: Train) -> dict[str, Any]:
    """A relation of middle size with its training facts."""
    graph = facts.graph
    counts = np.bincount(graph.train[:, 1], minlength=graph.num_relations)
    held = np.bincount(np.concatenate([graph.valid, graph.test])[:, 1], minlength=graph.num_relations)
    middle = np.flatnonzero((counts <= 0.15 * counts.sum()) & (counts >= 20))
    best = middle[np.argsort(-held[middle], kind="stable")[:5]]  # those with the most facts to ask
    name = graph.relations[int(rng.choice(best))]
    kept, given = split_off(facts.train, np.array([r == name for _, r, _ in facts.train]))
    base = train(facts.part(kept))
    ready = {*base.graph.entities, name}
    given = [fact for fact in given if ready.issuperset(fact)]
    asked = [fact for fact in facts.valid + facts.test if fact[1] == name and ready.issuperset(fact)]
    retrained = train(facts.part(kept + given))
    updated, times = timed(base, add=given, calibrate=False)
    found = {f"{key}_mrr": facts.mrr(model, asked) for key, model in (("retrained", retrained), ("updated", updated))}
    return found | times | {
        "relation": name, "given": len(given), "asked": len(asked),
        "share": found["updated_mrr"] / found["retrained_mrr"], "retrained_seconds": retrained.metrics["train_seconds"],
    }  # fmt: skip


def removal(facts: Facts, rng: np.random.Generator, train: Train, share: float = 0.05) -> dict[str, Any]:
    """Some training facts are removed; entities and relations keep at least one fact."""
    from scipy.stats import ks_2samp, mannwhitneyu

    trained = train(facts.part(facts.train))
    left = {name: 0 for fact in facts.train for name in fact}
    for fact in facts.train:
        for name in fact:
            left[name] += 1
    chosen, count = np.zeros(len(facts.train), bool), max(20, int(share * len(facts.train)))
    for i in rng.permutation(len(facts.train)).tolist():
        if chosen.sum() == count:
            break
        if all(left[name] > 2 for name in facts.train[i]):
            chosen[i] = True
            for name in facts.train[i]:
                left[name] -= 1
    kept, gone = split_off(facts.train, chosen)
    retrained = train(facts.part(kept))
    again = train(facts.part(kept), seed=1000)  # how much two trainings differ
    updated, times = timed(trained, remove=gone, calibrate=False)
    models = {"trained": trained, "updated": updated, "retrained": retrained, "again": again}
    ranks = {name: facts.ranks(model, gone) for name, model in models.items()}
    names = {*retrained.graph.entities, *retrained.graph.relations}
    asked = [fact for fact in facts.test if names.issuperset(fact)]
    never = {name: facts.ranks(model, asked) for name, model in models.items()}
    row: dict[str, Any] = {"removed": len(gone), **times, "retrained_seconds": retrained.metrics["train_seconds"]}
    for name in models:
        row[f"{name}_test_mrr"] = float((1 / never[name]).mean())
        row[f"{name}_removed_mrr"] = float((1 / ranks[name]).mean())
    for name in ("trained", "updated", "again"):
        row[f"{name}_ks_p"] = float(ks_2samp(ranks[name], ranks["retrained"]).pvalue)
        test = mannwhitneyu(-ranks[name], -ranks["retrained"])
        row[f"{name}_auc"] = float(test.statistic / len(ranks[name]) ** 2)
    row["share_of_seconds"] = times["train_seconds"] / row["retrained_seconds"]
    return row | {"trained_again": updated.history.latest.trained_again}


def correction(facts: Facts, rng: np.random.Generator, train: Train) -> dict[str, Any]:
    """Few facts are removed, so that most rows stay."""
    return removal(facts, rng, train, share=0.001)


def growth(facts: Facts, rng: np.random.Generator, train: Train, count: int = 5) -> dict[str, Any]:
    """Two thirds of the facts are trained on; each update adds 10 % to them, with new entities and relations."""
    order = rng.permutation(len(facts.train))
    first, step = 2 * len(order) // 3, len(order) // (3 * count)
    base = train(facts.part([facts.train[i] for i in order[:first]]))
    asked = [f for f in facts.test if {*base.graph.entities, *base.graph.relations}.issuperset(f)]
    row: dict[str, Any] = {key: [] for key in ("changed", "mrr", "retrained_mrr", "train_seconds")}
    row["base_mrr"] = facts.mrr(base, asked)
    for number in range(1, count + 1):
        end = len(order) if number == count else first + number * step
        retrained = train(facts.part([facts.train[i] for i in order[:end]]))
        arriving = [facts.train[i] for i in order[first + (number - 1) * step : end]]
        joined = {name for h, _, t in arriving if h != t for name in (h, t)} | {*base.graph.entities}
        base, times = timed(base, add=[f for f in arriving if joined.issuperset((f[0], f[2]))], calibrate=False)
        row["changed"].append((end - first) / first)
        row["mrr"].append(facts.mrr(base, asked))
        row["retrained_mrr"].append(facts.mrr(retrained, asked))
        row["train_seconds"].append(times["train_seconds"])
    return row


def rounds(facts: Facts, rng: np.random.Generator, train: Train, count: int = 20) -> dict[str, Any]:
    """In each round facts arrive, some of them with new entities, and others are removed."""
    graph = facts.graph
    often = np.flatnonzero(graph.train_index.degrees.numpy() >= 2)
    new = {graph.entities[i] for i in rng.permutation(often)[: graph.num_entities // 20].tolist()}
    late = np.array([h in new or t in new for h, _, t in facts.train])
    late[rng.permutation(len(late))[: len(late) // 20]] = True
    kept, arriving = split_off(facts.train, late)
    base = train(facts.part(kept, without=new))
    usable = {*base.graph.relations}
    arriving = [fact for fact in arriving if fact[1] in usable and fact[0] != fact[2]]
    waste = set(rng.permutation(len(kept))[: len(kept) // 20].tolist())
    removed, final = [kept[i] for i in sorted(waste)], [f for i, f in enumerate(kept) if i not in waste]
    retrained = train(facts.part(final + arriving))
    order = rng.permutation(len(removed))
    asked = [f for f in facts.test if {*base.graph.entities, *base.graph.relations}.issuperset(f)]
    asked = [f for f in asked if {*retrained.graph.entities, *retrained.graph.relations}.issuperset(f)]
    row: dict[str, Any] = {"base_mrr": facts.mrr(base, asked), "retrained_mrr": facts.mrr(retrained, asked)}
    row |= {"mrr": [], "train_seconds": [], "retrained_seconds": retrained.metrics["train_seconds"]}
    for batch, gone in zip(np.array_split(np.arange(len(arriving)), count), np.array_split(order, count), strict=True):
        base, times = timed(base, add=[arriving[i] for i in batch], remove=[removed[i] for i in gone], calibrate=False)
        row["mrr"].append(facts.mrr(base, asked))
        row["train_seconds"].append(times["train_seconds"])
    row["share_of_mrr"] = row["mrr"][-1] / row["retrained_mrr"]
    row["trend_per_round"] = float(np.polyfit(np.arange(count), row["mrr"], 1)[0])
    return row


SCENARIOS: dict[str, Callable[[Facts, np.random.Generator, Train], dict[str, Any]]] = {
    "facts": arriving_facts, "entities": arriving_entities, "relation": arriving_relation, "removal": removal,
    "correction": correction, "rounds": rounds, "growth": growth,
}  # fmt: skip


def trained(graph: Graph, recipe: str | None, settings: dict[str, str], seed: int, device: str) -> Predictor:
    """A model without probabilities, which no scenario needs and which take longer than a short training."""
    here = choose_device(device)
    chosen = choose_recipe(graph, device=here) if recipe is None else load_recipe(recipe)
    trainer = make_run(graph, chosen.changed(settings), seed=seed, device=here)
    trainer.run()
    return Predictor(finish(trainer))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--graphs", nargs="+", default=["umls", "family-neural-lp"])
    parser.add_argument("--scenarios", nargs="+", default=list(SCENARIOS), choices=list(SCENARIOS))
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    parser.add_argument("--device", default="auto")
    parser.add_argument("--recipe", help="By default one is chosen by the size of the graph.")
    parser.add_argument("--set", nargs="*", default=[], metavar="KEY=VALUE", help="Settings of the recipe.")
    parser.add_argument("--alone", action="store_true", help="Nothing else runs on this machine, so that times count.")
    parser.add_argument("--out", type=Path, default=RESULTS / f"{RECORD}.jsonl", help="Rows are appended to this file.")
    arguments = parser.parse_args()
    settings = dict(each.split("=", 1) for each in arguments.set)
    for name in arguments.graphs:
        facts = Facts(open_graph(name))
        models: dict[tuple[str, int], Predictor] = {}  # scenarios share some graphs
        for seed in arguments.seeds:

            def train(graph: Graph, seed: int = seed, models: dict[tuple[str, int], Predictor] = models) -> Predictor:
                key = graph.fingerprint, seed
                if key not in models:
                    models[key] = trained(graph, arguments.recipe, settings, seed, arguments.device)
                return models[key]

            for scenario in arguments.scenarios:
                found = SCENARIOS[scenario](facts, np.random.default_rng(seed), train)
                about = {"graph": name, "scenario": scenario, "seed": seed, "device": arguments.device}
                about |= {"recipe": arguments.recipe, "settings": settings}
                about["alone"] = arguments.alone
                append_line(arguments.out, about | found | {"environment": environment()})
                print(about | found, flush=True)


if __name__ == "__main__":
    main()
