"""Both kinds of models together: the score of an embedding model is further evidence for the answers of a path model.

`python -m benchmarks.fused umls --embedding best/umls-d8-graded` trains both with their recipes and fits two additive
models (`probability.additive`) on the answers to a sample of the questions of valid: one with the evidence of the path
model alone, and one with the score of the embedding model as a further column. The fit knows train and valid only. Test
is ranked filtered, among all entities: answers that are not among the best of one of the two models keep their rank by
path score. Each run is added to results/fused.jsonl.
"""

from __future__ import annotations

import argparse
import time
from typing import Any

import numpy as np
import torch
from torch import Tensor

import dihedral as dh
from benchmarks.record import RESULTS
from dihedral.graph import Graph
from dihedral.graph.index import GraphIndex, KnownAnswers
from dihedral.graph.steps import SIDES, Side, anchors_and_targets, question_steps
from dihedral.io.jsonl import append_line
from dihedral.learn.path_trainer import PathTrainer
from dihedral.learn.trainer import Trainer
from dihedral.objectives.recipe import Recipe, load_recipe
from dihedral.probability.additive import AdditiveModel, fit_additive
from dihedral.probability.evidence import CountedRules, Evidence
from dihedral.probability.ordering import as_triples
from dihedral.runtime.device import choose_device
from dihedral.runtime.environment import environment
from dihedral.scoring.scorer import AnswerLookup, Scorer

POOL = 100  # best answers of each model
SAMPLE = 1500  # facts of valid for the fit
AT_ONCE = 128  # questions


class Fusion:
    """Candidates of questions with the evidence for them, from a path model and an embedding model."""

    def __init__(self, paths: Scorer, embedding: Scorer, facts: GraphIndex) -> None:
        self.scorers, self.rows = (paths, embedding), (paths.rows(), embedding.rows())
        self.evidence = Evidence(paths, facts, CountedRules.count(facts))

    def candidates(self, triples: Tensor, side: Side, known: AnswerLookup) -> tuple[Any, ...]:
        """Of facts [n, 3]: candidates with their evidence, which are the answers, and the ranks by each model alone."""
        anchors, relation, targets = anchors_and_targets(triples, side)
        steps = question_steps(relation, side, self.scorers[0].num_relations)
        row, answers = known(anchors, steps)
        others = answers != targets[row]
        row, answers = row[others], answers[others]
        pool = torch.zeros(len(triples), self.scorers[0].num_entities, dtype=torch.bool)
        shares, ranks = [], []
        for scorer, rows in zip(self.scorers, self.rows, strict=True):
            share = rows(anchors.to(scorer.device), steps.to(scorer.device)).float().log_softmax(1).cpu()
            share[row, answers] = float("-inf")
            own = share.gather(1, targets[:, None])
            ranks.append(1 + (share > own).sum(1) + ((share == own).sum(1) - 1) / 2)
            pool.scatter_(1, share.topk(min(POOL, share.shape[1])).indices, True)
            shares.append(share)
        pool[row, answers] = False
        question, candidate = pool.nonzero().unbind(1)
        asked = as_triples(side, anchors[question], relation[question], candidate[:, None])[:, 0]
        by_path, by_embedding = (share[question, candidate] for share in shares)
        features = np.concatenate([self.evidence.features(asked, by_path), by_embedding[:, None].numpy()], 1)
        return question, asked[:, 1].numpy(), features, (candidate == targets[question]).numpy(), ranks


def fit(fusion: Fusion, graph: Graph, seed: int) -> list[AdditiveModel]:
    """Models of the evidence of the path model, and of that of both, fitted on questions of valid."""
    drawn = np.random.default_rng(seed).permutation(len(graph.valid))[:SAMPLE]
    triples, known = torch.from_numpy(graph.valid[drawn].astype(np.int64)), graph.train_index.answers
    found = [fusion.candidates(part, side, known) for side in SIDES for part in triples.split(AT_ONCE)]
    relations, features, truth = (np.concatenate([each[place] for each in found]) for place in (1, 2, 3))
    columns = features[:, :-1], features
    return [fit_additive(each, relations, truth, graph.num_relations, seed=seed)[0] for each in columns]


def measure(fusion: Fusion, graph: Graph, models: list[AdditiveModel]) -> dict[str, float]:
    """Filtered test MRR of both models, of the evidence of the path model, and of that of both."""
    known = KnownAnswers(graph)
    inverse: dict[str, list[Tensor]] = {"paths": [], "embedding": [], "paths and counts": [], "all": []}
    for part in torch.from_numpy(graph.test.astype(np.int64)).split(AT_ONCE):
        for side in SIDES:
            question, relations, features, truth, ranks = fusion.candidates(part, side, known)
            inverse["paths"].append(1 / ranks[0])
            inverse["embedding"].append(1 / ranks[1])
            for name, model, columns in zip(list(inverse)[2:], models, (features[:, :-1], features), strict=True):
                z, is_true = torch.from_numpy(model.logits(columns, relations)), torch.from_numpy(truth)
                own = torch.full((len(part),), float("-inf"), dtype=z.dtype)
                own[question[is_true]] = z[is_true]
                higher, same = (
                    torch.zeros(len(part)).index_add_(0, question, each.float())
                    for each in (z > own[question], z == own[question])
                )
                rank = torch.where(own.isneginf(), ranks[0].double(), 1 + higher + (same - 1) / 2)
                inverse[name].append(1 / rank)
    return {name: float(torch.cat(parts).double().mean()) for name, parts in inverse.items()}


def train(graph: Graph, recipe: Recipe, seed: int, options: dict[str, Any]) -> Scorer:
    run = (PathTrainer if recipe.objective == "paths" else Trainer)(graph, recipe, seed=seed, **options)
    run.run()
    return run.result().scorer


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.fused", description=__doc__)
    parser.add_argument("name")
    parser.add_argument("--paths", help="by default paths/NAME")
    parser.add_argument("--embedding", required=True)
    parser.add_argument("--set", nargs="+", default=[], metavar="KEY=VALUE", help="settings of the path model")
    parser.add_argument("--set-embedding", nargs="+", default=[], metavar="KEY=VALUE")
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--minutes", type=float, help="of training of each model")
    parser.add_argument("--device", default="auto")
    options = parser.parse_args()
    graph, limits = dh.load_graph(options.name), {"minutes": options.minutes, "device": choose_device(options.device)}
    names = options.paths or f"paths/{options.name.lower()}", options.embedding
    changes = [dict(word.split("=", 1) for word in words) for words in (options.set, options.set_embedding)]
    recipes = [load_recipe(name).changed(change) for name, change in zip(names, changes, strict=True)]
    for seed in range(options.seeds):
        started = time.process_time()
        paths, embedding = (train(graph, recipe, seed, limits) for recipe in recipes)
        fusion = Fusion(paths, embedding, graph.train_index)
        row = {"graph": options.name, "recipes": names, "changes": changes, "seed": seed, "minutes": options.minutes}
        row |= {"train_cpu_seconds": round(time.process_time() - started, 1), "device": str(limits["device"])}
        row["test"] = measure(fusion, graph, fit(fusion, graph, seed))
        print(row, flush=True)
        append_line(RESULTS / "fused.jsonl", row | {"environment": environment()})


if __name__ == "__main__":
    main()
