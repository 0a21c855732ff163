"""Are the paths of path models their reasons? `python -m benchmarks.path_faithfulness MODEL ... [--triples 150]`.

As in `benchmarks.faithfulness`, facts are removed, but from the graph that a model answers in, and nothing is trained
again. For test triples that the model ranks well, these are the facts of all paths of the three kinds that add most to
the score, or only those of the one path of each kind that is shown. As many random facts of the neighbourhood are
those of the two entities, and if these are too few also those of their neighbours.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np
import torch

import dihedral as dh
from benchmarks.faithfulness import MAX_RANK, PATHS
from benchmarks.record import RESULTS, environment
from dihedral.graph.steps import SIDES, Step
from dihedral.interpretation.path_reasons import PathKind, path_shares
from dihedral.io.jsonl import append_line
from dihedral.predict.predictor import Predictor
from dihedral.scoring.path_scorer import PathScorer

Ids = tuple[int, int, int]


def measure(folder: Path, triples: int, seed: int) -> dict[str, Any]:
    predictor = dh.load(folder, device="cpu")
    graph, rng, rows = predictor.graph, np.random.default_rng(seed), []
    for number in rng.permutation(len(graph.test)).tolist():
        triple = tuple(graph.test[number].tolist())
        before = rank_without(predictor, triple, [])
        kinds = path_shares(predictor.scorer, triple, PATHS).kinds if before <= MAX_RANK else []
        if not kinds:
            continue
        named = {
            "all": {tuple(fact) for kind in kinds for fact in kind.facts.tolist()},
            "shown": {fact for kind in kinds for fact in facts_shown(kind, graph.num_relations)},
        }
        row: dict[str, Any] = {"triple": list(next(graph.names_of(graph.test[[number]]))), "before": before}
        for name, facts in named.items():
            others = random_facts(graph, triple, facts, rng)
            row |= {f"facts_{name}": len(facts), name: rank_without(predictor, triple, facts)}
            row[f"random_{name}"] = rank_without(predictor, triple, others)
        rows.append(row)
        if len(rows) == triples:
            break
    ranks = {name: summary(rows, name) for name in ("before", "all", "random_all", "shown", "random_shown")}
    facts = {name: float(np.median([row[f"facts_{name}"] for row in rows])) for name in named}
    about = {"graph": graph.name, "update": predictor.recipe.update, "triples": len(rows), "seed": seed}
    about |= {"valid_mrr": predictor.metrics["valid"]["both"]["mrr"], "recipe": predictor.recipe.to_dict()}
    return about | {"median_facts": facts, "ranks": ranks, "rows": rows, "environment": environment()}


def summary(rows: list[dict[str, Any]], name: str) -> dict[str, float]:
    ranks = np.array([row[name] for row in rows])
    return {"median": float(np.median(ranks)), "mean": float(ranks.mean()), "one_over": float((1 / ranks).mean())}


def rank_without(predictor: Predictor, triple: Any, facts: Any) -> float:
    """The mean of the two ranks of a triple in the graph without facts, and without itself."""
    gone = torch.tensor([triple, *facts])
    scorer = PathScorer(predictor.scorer.model, predictor.scorer.index.without(gone))
    counts = (scorer.rank_counts(torch.tensor([triple]), side, predictor.known) for side in SIDES)
    return float(np.mean([1 + int(greater) + int(equal) / 2 for greater, equal in counts]))


def facts_shown(kind: PathKind, num_relations: int) -> set[Ids]:
    """The facts of the path that an explanation shows."""
    found = set()
    for start, step, end in zip(kind.entities, kind.steps, kind.entities[1:], strict=False):
        relation, backwards = Step.from_id(step, num_relations)
        found.add((end, relation, start) if backwards else (start, relation, end))
    return found


def random_facts(graph: dh.Graph, triple: Any, but: set[Any], rng: np.random.Generator) -> list[Ids]:
    """As many facts of the two entities, and then of their neighbours, as there are in `but`, and others than these."""
    near, found = np.array([triple[0], triple[2]]), []
    for _ in range(2):
        rows = graph.train[np.isin(graph.train[:, 0], near) | np.isin(graph.train[:, 2], near)]
        others = sorted(set(map(tuple, rows.tolist())) - but - {triple} - set(found))
        found += [others[place] for place in rng.permutation(len(others))[: len(but) - len(found)]]
        near = np.unique(rows[:, [0, 2]])
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("models", type=Path, nargs="+", metavar="MODEL")
    parser.add_argument("--triples", type=int, default=150)
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args()
    for folder in options.models:
        found = measure(folder, options.triples, 0)
        print({key: found[key] for key in ("graph", "update", "triples", "median_facts", "ranks")}, flush=True)
        append_line(options.out / "faithfulness-paths.jsonl", found)


if __name__ == "__main__":
    main()
