"""Quality of the rules found by a model: `python -m benchmarks.rules [--graphs umls family-neural-lp]`.

Compositions: every (r₁, r₂, r₃) for which r₁ · r₂ joins at least 10 pairs in training is a candidate; r₃ is any
relation. A candidate is correct if its standard confidence is at least one half. The scores use the model and the heads
and tails of each relation; they do not count facts. Inverse pairs and symmetric relations are evaluated in the same
way. `--path-models FOLDER ...` measures stored path models, and adds rows to results/rules-paths.jsonl.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

import dihedral as dh
from benchmarks.record import RESULTS, environment, save, seconds
from dihedral.graph.patterns import Chains, find_chains, find_reversals
from dihedral.interpretation.beliefs import Beliefs, PathBeliefs
from dihedral.interpretation.mining import MinedRule
from dihedral.io.jsonl import append_line
from dihedral.learn import Recipe, load_recipe
from dihedral.predict.predictor import Predictor
from paper.studies import relation_matrix

BASE = Recipe(model="dihedral-gumbel", objective="softmax", regulariser="l2", entity_init=0.001, relation_lr=1.0,
              cooling=0.05, averaging=0.8, validate_every=5)  # fmt: skip
RECIPES = {
    **{name: load_recipe(f"algebra/{name.lower()}-d4-gumbel") for name in ("umls", "family-neural-lp", "FB15k-237")},
    "FB15k": BASE.replace(regulariser_weight=0.05, dimension=1000, epochs=20),
    "WN18": BASE.replace(regulariser_weight=0.1, dimension=600, batch_size=512, epochs=25),
}
PLAIN: dict[str, Any] = {"paths": 0.0}  # trained without path queries
GRADED: dict[str, Any] = {"levels": "1, 1/2, 1/4, 0"}
OTHER: dict[str, Any] = PLAIN | {"relation_lr": 0.1, "relation_scale": False, "regulariser": "dura"}
MODELS: dict[str, dict[str, Any]] = {
    "D4-Gumbel": PLAIN,
    "D4-Gumbel, paths": {},
    "graded D4-Gumbel, paths": GRADED,
    "graded D4-Gumbel, composition loss": GRADED | {"paths": 0.3, "composition_weight": 1.0},
    "ComplEx": OTHER | {"model": "complex"},
    "O(2)": OTHER | {"model": "orthogonal", "regulariser": "l2"},
    "RESCAL": OTHER | {"model": "rescal", "dimension": 100, "relation_weight": 0.0},
}

Scores = np.ndarray  # [bodies, R]


def average_precision(truth: np.ndarray, scores: np.ndarray) -> float:
    """Return the mean precision at each hit; among ties, misses come first."""
    order = np.lexsort((truth, -scores))
    hits = truth[order]
    precision = np.cumsum(hits) / np.arange(1, len(hits) + 1)
    return float(precision[hits].mean()) if hits.any() else float("nan")


def scores_of(predictor: Predictor) -> dict[str, Callable[[np.ndarray], Scores]]:
    """Return functions by name that score bodies [n, steps] against all relations."""
    model, count = predictor.model, predictor.graph.num_relations
    if predictor.model.relations.kind in ("rescal", "hole"):
        matrices = np.stack([relation_matrix(model, r) for r in range(count)]).astype(np.float32)
        both_ways = np.concatenate([matrices, matrices.transpose(0, 2, 1)])
        return {"matrix cosine": lambda bodies: _cosine(_dense_product(both_ways, bodies), matrices)}
    matrices = predictor.scorer.operators.float().cpu().numpy()
    matrices = matrices.reshape(count, 2, 2, -1)
    both_ways = np.concatenate([matrices, matrices.swapaxes(1, 2)])
    found: dict[str, Callable[[np.ndarray], Scores]] = {
        "matrix cosine": lambda bodies: _cosine(_block_product(both_ways, bodies), matrices),
        "belief": Beliefs(predictor.scorer, predictor.graph).score,
    }
    if model.codes is not None:
        a = dh.algebra(predictor)

        def count_share(bodies: np.ndarray) -> Scores:
            codes = [predictor_codes[body] for body in bodies.T]
            product = codes[0]
            for more in codes[1:]:
                product = a.monoid.product(product, more)
            return np.stack([(product == row).mean(axis=1) for row in a.codes], axis=1)

        predictor_codes = np.concatenate([a.codes, a.monoid.transpose(a.codes)])
        found["count"] = count_share
    return found


def path_scores_of(predictor: Predictor) -> dict[str, Callable[[np.ndarray], Scores]]:
    """The same of a path model: its belief, the cosine of products of elements, and products of gates."""
    model, count = predictor.scorer.model, predictor.graph.num_relations
    matrices = model.relations.exact().numpy().reshape(count, 2, 2, -1)
    both_ways = np.concatenate([matrices, matrices.swapaxes(1, 2)])
    gates, keep = model.gates(torch.arange(count)).numpy(), model.shared[0].numpy()  # [R, T, 2R, L], [T, L]

    def by_gates(bodies: np.ndarray) -> Scores:
        """Sums over the times at which the steps may be taken, of products of gates and of what states keep."""
        found = np.empty((len(bodies), count), np.float32)
        for question in range(count):
            taken = [1.0, *(0.0 for _ in bodies.T)]
            for t, kept in enumerate(keep):
                for place in range(bodies.shape[1], 0, -1):
                    gate = gates[question, t, bodies[:, place - 1]]  # [bodies, L]
                    taken[place] = kept * taken[place] + gate * taken[place - 1]
            found[:, question] = np.abs(taken[-1]).mean(axis=1)
        return found

    return {
        "belief": PathBeliefs(predictor.scorer, predictor.graph).score,
        "matrix cosine": lambda bodies: _cosine(_block_product(both_ways, bodies), matrices),
        "gates": by_gates,
    }


def _dense_product(matrices: np.ndarray, bodies: np.ndarray) -> np.ndarray:
    product = matrices[bodies[:, 0]]
    for step in range(1, bodies.shape[1]):
        product = product @ matrices[bodies[:, step]]
    return product


def _block_product(matrices: np.ndarray, bodies: np.ndarray) -> np.ndarray:
    product = matrices[bodies[:, 0]]
    for step in range(1, bodies.shape[1]):
        product = np.einsum("nabl,nbcl->nacl", product, matrices[bodies[:, step]], optimize=True)
    return product


def _cosine(products: np.ndarray, relations: np.ndarray) -> Scores:
    left, right = products.reshape(len(products), -1), relations.reshape(len(relations), -1)
    norms = np.linalg.norm(left, axis=1)[:, None] * np.linalg.norm(right, axis=1)[None]
    return (left @ right.T) / np.maximum(norms, 1e-12)


class Compositions:
    """The candidates of a graph, and which of them are correct."""

    def __init__(self, graph: dh.Graph) -> None:
        count = graph.num_relations
        chains = find_chains(graph.train_index, min_support=10)
        self.bodies = np.argwhere(chains.joined.toarray() >= 10)
        self.confidence = self._table(chains, count)
        self.truth = self.confidence[tuple(self.bodies.T)] >= 0.5
        heads = np.arange(count)[None]
        self.new_head = (heads != self.bodies[:, :1]) & (heads != self.bodies[:, 1:])
        # confidence in the complete graph, without the pairs for which the rule holds in training
        complete = find_chains(graph.index, min_support=1)
        part = find_chains(graph.train_index, min_support=1)
        support, known = (self._table(found, count, "support") for found in (complete, part))
        body = complete.joined[tuple(self.bodies.T)][:, None]
        here = tuple(self.bodies.T)
        unknown = body - known[here]
        self.held_out = (support[here] - known[here]) / np.maximum(unknown, 1)
        rules = np.argwhere(self.confidence >= 0.5)
        rules = rules[rules[:, 0] != rules[:, 1]]
        swapped = self.confidence[rules[:, 1], rules[:, 0], rules[:, 2]]
        self.ordered = rules[swapped < 0.5]  # rules whose order matters in the graph

    @staticmethod
    def _table(chains: Chains, count: int, what: str = "confidence") -> np.ndarray:
        table = np.zeros((count, count, count), np.float32)
        table[tuple(chains.rules.T)] = getattr(chains, what)
        return table

    def measure(self, score: Callable[[np.ndarray], Scores]) -> dict[str, float]:
        scores = score(self.bodies)
        ordered = self.ordered
        right = np.take_along_axis(score(ordered[:, :2]), ordered[:, 2:], 1)[:, 0]
        swapped = np.take_along_axis(score(ordered[:, 1::-1]), ordered[:, 2:], 1)[:, 0]
        tied = np.abs(right - swapped) < 1e-5  # as exactly as float32 can tell; counted as half right
        in_order = np.where(tied, 0.5, right > swapped)
        new_head = (ordered[:, 2:] != ordered[:, :2]).all(axis=1)
        wanted = int(self.truth.sum())
        best = np.argsort(-scores, axis=None, kind="stable")[:wanted]
        held_out = self.held_out >= 0.1
        return {
            "average_precision": average_precision(self.truth.ravel(), scores.ravel()),
            "recall_at_n": float(self.truth.ravel()[best].mean()),
            "average_precision_new_head": average_precision(self.truth[self.new_head], scores[self.new_head]),
            "order_accuracy": float(in_order.mean()),
            "order_accuracy_new_head": float(in_order[new_head].mean()),
            "average_precision_held_out": average_precision(held_out.ravel(), scores.ravel()),
        }


def measure_reversals(graph: dh.Graph, score: Callable[[np.ndarray], Scores]) -> dict[str, float]:
    """Evaluate inverse pairs of relations with at least 10 facts, and symmetric against skew-symmetric relations.

    Training lacks the facts of valid and test: on FB15k a perfect inverse has a confidence of about 0.8 in training,
    which is the threshold. Therefore the inverse pairs of the complete graph are evaluated as well.
    """
    count = graph.num_relations
    found, complete = find_reversals(graph.train_index), find_reversals(graph.index)
    scores = score(np.arange(count, 2 * count)[:, None])
    both = np.minimum(scores, scores.T)
    first, second = np.triu_indices(count, k=1)
    frequent = np.minimum(found.size[first], found.size[second]) >= 10
    first, second = first[frequent], second[frequent]
    result = {}
    for name, reversals in (("inverse_average_precision", found), ("inverse_average_precision_complete", complete)):
        truth = np.zeros((count, count), bool)
        truth[tuple(np.array(reversals.inverse_pairs(), int).reshape(-1, 2).T)] = True
        truth |= truth.T
        if truth[first, second].any():
            result[name] = average_precision(truth[first, second], both[first, second])
    symmetric = found.symmetric()
    skew = np.flatnonzero((found.support.diagonal() == 0) & (found.size >= 10))
    if len(symmetric) and len(skew):
        own = scores.diagonal()
        result["symmetry_auc"] = float(np.mean([(own[s] > own[skew]).mean() for s in symmetric]))
    return result


def _true_confidence(graph: dh.Graph) -> Callable[[np.ndarray], Scores]:
    """Return a score that knows every fact: the confidence of ~r₂ ⇒ r₁ in the complete graph."""
    confidence = find_reversals(graph.index).confidence
    return lambda bodies: confidence[bodies[:, 0] - graph.num_relations].astype(np.float32)


def measure(name: str, models: list[str], device: str, out: Path) -> None:
    graph = dh.load_graph(name)
    compositions = Compositions(graph) if name not in ("WN18", "FB15k") else None
    rows: list[dict[str, Any]] = []
    for label in models:
        recipe = RECIPES[name].replace(**MODELS[label])
        if label == "D4-Gumbel, paths" and not recipe.paths:
            continue
        predictor = dh.train(graph, recipe, device=device, progress=False)
        scores = scores_of(predictor)
        if label == "D4-Gumbel":
            known = {"all facts known": _true_confidence(graph)}
            scores |= _baselines(graph, scores["belief"]) if compositions else known
        for kind, score in scores.items():
            started = time.perf_counter()
            found = measure_reversals(graph, score) | (compositions.measure(score) if compositions else {})
            row = {"graph": name, "model": label, "score": kind, **found}
            row |= {"seconds": time.perf_counter() - started, "device": device}
            row |= {f"{split}_mrr": predictor.metrics[split]["both"]["mrr"] for split in ("valid", "test")}
            rows.append(row | {"recipe": recipe.to_dict()})
            print({k: round(v, 4) if isinstance(v, float) else v for k, v in row.items()}, flush=True)
        save(f"rules-{name.lower()}", {"rows": rows}, out)


def measure_path_model(folder: Path, out: Path) -> None:
    predictor = dh.load(folder, device="cpu")
    graph, compositions = predictor.graph, Compositions(predictor.graph)
    for kind, score in path_scores_of(predictor).items():
        row = {"graph": graph.name, "update": predictor.recipe.update, "score": kind, **compositions.measure(score)}
        row |= {f"{split}_mrr": predictor.metrics[split]["both"]["mrr"] for split in ("valid", "test")}
        print({k: round(v, 4) if isinstance(v, float) else v for k, v in row.items()}, flush=True)
        row |= {"seed": predictor.metrics["seed"], "recipe": predictor.recipe.to_dict()}
        append_line(out / "rules-paths.jsonl", row | {"environment": environment()})


def count_chains(names: list[str], out: Path) -> None:
    """Measure the time to count every chain r₁ · r₂ ⇒ r₃ of training, without and with inverse relations."""
    rows = []
    for name in names:
        graph = dh.load_graph(name)
        for inverses in (False, True):

            def count(graph: dh.Graph = graph, inverses: bool = inverses) -> Chains:
                return find_chains(graph.train_index, inverses=inverses)

            found = count()
            repeats = 1 if inverses and name == "FB15k" else 3
            row = {"graph": name, "inverses": inverses, "chains": int((found.confidence >= 0.5).sum())}
            rows.append(row | {"seconds": seconds(count, repeats=repeats, warmup=0)})
            print(rows[-1], flush=True)
    save("rules-counting", {"rows": rows}, out)


def mine(model: Path, out: Path) -> None:
    """Measure the time to find rules with a model, and count them."""
    predictor, rows = dh.load(model, device="cpu"), []
    for length in (2, 3):
        found: list[MinedRule] = []

        def find(length: int = length, found: list[MinedRule] = found) -> None:
            found[:] = dh.find_rules(predictor, length=length)

        row = {"graph": predictor.graph.name, "length": length, "seconds": seconds(find, repeats=3, warmup=0)}
        sizes = [len(rule.body) for rule in found if rule.kind == "composition"]
        rows.append(row | {"rules": len(found), "of_three_steps": sizes.count(3), "recipe": predictor.recipe.to_dict()})
        print({key: value for key, value in rows[-1].items() if key != "recipe"}, flush=True)
    save("rules-mining", {"rows": rows}, out)


def _baselines(graph: dh.Graph, ours: Callable[[np.ndarray], Scores]) -> dict[str, Callable[[np.ndarray], Scores]]:
    """Return baselines: the frequency of r₃, and our scores with permuted relations."""
    count = graph.num_relations
    frequency = np.bincount(graph.train[:, 1], minlength=count).astype(np.float32)
    shuffle = np.random.default_rng(0).permutation(count)
    steps = np.concatenate([shuffle, shuffle + count])
    return {
        "frequency": lambda bodies: np.tile(frequency, (len(bodies), 1)),
        "shuffled": lambda bodies: ours(steps[bodies])[:, shuffle],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--graphs", nargs="+", choices=list(RECIPES), default=["umls", "family-neural-lp"])
    parser.add_argument("--models", nargs="+", choices=list(MODELS), default=list(MODELS))
    parser.add_argument("--counting", action="store_true", help="measure only the time of exact counting")
    parser.add_argument("--mining", type=Path, metavar="MODEL", help="measure only the time of finding rules")
    parser.add_argument("--path-models", type=Path, nargs="+", metavar="MODEL", help="measure only these path models")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args()
    if options.counting:
        count_chains(options.graphs, options.out)
        return
    if options.path_models:
        for folder in options.path_models:
            measure_path_model(folder, options.out)
        return
    if options.mining:
        mine(options.mining, options.out)
        return
    for name in options.graphs:
        measure(name, options.models, options.device, options.out)


if __name__ == "__main__":
    main()
