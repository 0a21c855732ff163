"""Both kinds of models together: the score of an embedding model is further evidence for the answers of a path model.

`python -m benchmarks.fused out/umls-paths out/umls-embedding` takes two model folders of one graph and fits two
additive models (`probability.additive`) on the answers to a sample of the questions of valid: one with the evidence of
the path model alone, and one with the score of the embedding model as a further column. The fit knows train and valid
only. Test is ranked filtered, among all entities: answers that are not among the best of one of the two models keep
their rank by path score. Each run is added to results/fused.jsonl.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

import dihedral as dh
from benchmarks.record import RESULTS, environment
from dihedral.graph.index import GraphIndex, KnownAnswers
from dihedral.graph.steps import SIDES, Side, anchors_and_targets, question_steps
from dihedral.io.jsonl import append_line
from dihedral.probability.additive import AdditiveModel, fit_additive
from dihedral.probability.evidence import CountedRules, Evidence
from dihedral.probability.ordering import as_triples
from dihedral.scoring.scorer import AnswerLookup, Scorer

POOL = 100  # best answers of each model
SAMPLE = 1500  # facts of valid for the fit
AT_ONCE = 128  # questions


class Fusion:
    """Candidates of questions with the evidence for them, from a path model and an embedding model."""

    def __init__(self, paths: Scorer, embedding: Scorer, facts: GraphIndex) -> None:
        self.scorers, self.rows = (paths, embedding), (paths.rows(), embedding.rows())
        self.evidence = Evidence(paths, facts, CountedRules.count(facts))

    def pool(self, triples: Tensor, side: Side, known: AnswerLookup) -> tuple[Any, ...]:
        """Of facts [n, 3]: candidates, their scores by each model, which are answers, and the ranks by each model."""
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
        scores = torch.stack([share[question, candidate] for share in shares], 1)
        return question, asked, scores, (candidate == targets[question]).numpy(), ranks

    def features(self, asked: Tensor, scores: Tensor) -> np.ndarray:
        """The evidence of the path model, and the score of the embedding model as the last column."""
        return np.concatenate([self.evidence.features(asked, scores[:, 0]), scores[:, 1:].numpy()], 1)

    def batches(self, triples: np.ndarray, known: AnswerLookup) -> Iterator[tuple[Any, ...]]:
        """What `pool` gives for both sides of facts, with the features; those are computed by several threads."""
        with ThreadPoolExecutor(os.cpu_count()) as threads:
            waiting = []
            for part in torch.from_numpy(triples.astype(np.int64)).split(AT_ONCE):
                for side in SIDES:
                    found = self.pool(part, side, known)
                    waiting.append((found, threads.submit(self.features, *found[1:3])))
            for found, features in waiting:
                yield *found, features.result()


def fit(batches: Iterable[tuple[Any, ...]], num_relations: int, seed: int) -> list[AdditiveModel]:
    """Models of the evidence of the path model, and of that of both."""
    found = [(asked[:, 1].numpy(), truth, features) for _, asked, _, truth, _, features in batches]
    relations, truth, features = (np.concatenate(each) for each in zip(*found, strict=True))
    columns = features[:, :-1], features
    return [fit_additive(each, relations, truth, num_relations, seed=seed)[0] for each in columns]


def measure(batches: Iterable[tuple[Any, ...]], models: list[AdditiveModel]) -> dict[str, float]:
    """Filtered MRR of both models, of the evidence of the path model, and of that of both."""
    inverse: dict[str, list[Tensor]] = {"paths": [], "embedding": [], "paths and counts": [], "all": []}
    for question, asked, _, truth, ranks, features in batches:
        inverse["paths"].append(1 / ranks[0])
        inverse["embedding"].append(1 / ranks[1])
        for name, model, columns in zip(list(inverse)[2:], models, (features[:, :-1], features), strict=True):
            z, is_true = torch.from_numpy(model.logits(columns, asked[:, 1].numpy())), torch.from_numpy(truth)
            own = torch.full((len(ranks[0]),), float("-inf"), dtype=z.dtype)
            own[question[is_true]] = z[is_true]
            higher, same = (
                torch.zeros(len(own)).index_add_(0, question, each.float())
                for each in (z > own[question], z == own[question])
            )
            rank = torch.where(own.isneginf(), ranks[0].double(), 1 + higher + (same - 1) / 2)
            inverse[name].append(1 / rank)
    return {name: float(torch.cat(parts).double().mean()) for name, parts in inverse.items()}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.fused", description=__doc__)
    parser.add_argument("paths", type=Path, help="the folder of a path model")
    parser.add_argument("embedding", type=Path, help="the folder of an embedding model of the same graph")
    parser.add_argument("--seed", type=int, default=0, help="of the sample of valid")
    parser.add_argument("--device", default="auto")
    options = parser.parse_args()
    models = [dh.load(folder, device=options.device) for folder in (options.paths, options.embedding)]
    graph, started = models[0].graph, time.process_time()
    fusion = Fusion(models[0].scorer, models[1].scorer, graph.train_index)
    sample = graph.valid[np.random.default_rng(options.seed).permutation(len(graph.valid))[:SAMPLE]]
    fitted = fit(fusion.batches(sample, graph.train_index.answers), graph.num_relations, options.seed)
    row = {"graph": graph.name, "recipes": [model.recipe.name for model in models], "seed": options.seed}
    row |= {"settings": [model.recipe.to_dict() for model in models]}
    row |= {"test": measure(fusion.batches(graph.test, KnownAnswers(graph)), fitted)}
    row |= {"device": str(fusion.scorers[0].device)}
    row |= {"cpu_seconds": round(time.process_time() - started, 1), "environment": environment()}
    print({key: row[key] for key in ("graph", "test", "cpu_seconds")}, flush=True)
    append_line(RESULTS / "fused.jsonl", row)


if __name__ == "__main__":
    main()
