"""Multi-hop path queries on FB15k-237: `python -m benchmarks.path_queries MODEL QUERIES [--width 32]`.

QUERIES is a folder with valid_1p.jsonl.xz, valid_2p.jsonl.xz, valid_3p.jsonl.xz, ind2ent.json and ind2rel.json. Each
hard answer of a query is ranked against the entities of the query set that are not answers. Metrics are averaged per
query, then over queries.
"""

from __future__ import annotations

import argparse
import json
import lzma
import time
from pathlib import Path
from typing import Any

import torch

import dihedral as dh
from benchmarks.record import RESULTS, save
from dihedral.graph.steps import Step
from dihedral.inference.paths import path_vectors
from dihedral.inference.predictor import Predictor
from dihedral.inference.transitions import Transitions
from dihedral.queries.evaluation import WIDTH, Semantics, evaluate
from dihedral.queries.plan import Given, Node, Walk

INVERSE_SUFFIX = "_reverse"
BATCH_SIZE = 100


def read_queries(folder: Path, kind: str, predictor: Predictor) -> tuple[list[dict[str, Any]], list[int]]:
    """Queries with the ids of the model, as signed steps; and the entities of the query set."""
    entity_names, relation_names = (
        {int(key): name for key, name in json.loads((folder / file).read_text()).items()}
        for file in ("ind2ent.json", "ind2rel.json")
    )
    entities, relations = predictor.graph.entities, predictor.graph.relations
    entity = {number: entities.id(name) for number, name in entity_names.items() if name in entities}

    def step(number: int) -> int:
        name = relation_names[number]
        signed = Step(relations.id(name.removesuffix(INVERSE_SUFFIX)), backwards=name.endswith(INVERSE_SUFFIX))
        return signed.id(len(relations))

    queries = []
    with lzma.open(folder / f"valid_{kind}.jsonl.xz", "rt") as lines:
        for line in lines:
            row = json.loads(line)
            (anchor, steps) = row["q"][0]
            queries.append(
                {
                    "anchor": entity[anchor],
                    "steps": [step(number) for number in steps],
                    "hard": [entity[answer] for answer in row["hard"]],
                    "all": [entity[answer] for answer in row["all"]],
                }
            )
    return queries, list(entity.values())


def path_plan(anchor: int, steps: list[int]) -> Node:
    plan: Node = Given((anchor,))
    for step in steps:
        plan = Walk(step, plan, None)
    return plan


@torch.no_grad()
def measure(
    predictor: Predictor, queries: list[dict[str, Any]], entities: list[int], mode: str, width: int
) -> dict[str, float]:
    """Return Hits@1/3/10 and MRR, averaged per query, then over queries."""
    outside = torch.ones(predictor.model.num_entities, dtype=torch.bool, device=predictor.device)
    outside[entities] = False
    sums: dict[str, float] = dict.fromkeys(("mrr", "hits@1", "hits@3", "hits@10"), 0.0)
    seconds = 0.0
    for start in range(0, len(queries), BATCH_SIZE):
        part = queries[start : start + BATCH_SIZE]
        anchors = torch.tensor([query["anchor"] for query in part], device=predictor.device)
        steps = torch.tensor([query["steps"] for query in part], device=predictor.device)
        began = time.perf_counter()
        if mode == "product":
            scores = path_vectors(predictor.scorer, anchors, steps) @ predictor.scorer.candidates.T
        else:
            plans = [path_plan(query["anchor"], query["steps"]) for query in part]
            rows = Transitions(predictor.scorer, predictor.train_index)
            found = evaluate(plans, rows, Semantics(width=width))
            scores = torch.stack([messages[plan].likely for plan, messages in found])
        if scores.is_cuda:
            torch.cuda.synchronize()
        seconds += time.perf_counter() - began
        scores[:, outside] = float("-inf")
        for row, query in zip(scores, part, strict=True):
            hard = row[query["hard"]]
            row[query["all"]] = float("-inf")
            rank = 1 + (row[None] > hard[:, None]).sum(1) + 0.5 * (row[None] == hard[:, None]).sum(1)
            sums["mrr"] += float((1 / rank).mean())
            for k in (1, 3, 10):
                sums[f"hits@{k}"] += float((rank <= k).float().mean())
    return {key: value / len(queries) for key, value in sums.items()} | {"ms_per_query": 1000 * seconds / len(queries)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", type=Path)
    parser.add_argument("queries", type=Path)
    parser.add_argument("--width", type=int, default=WIDTH)
    parser.add_argument("--max-queries", type=int, default=0, help="first queries of each kind to use; 0 means all")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args()
    predictor = dh.load(options.model, device=options.device)
    rows = []
    for kind in ("1p", "2p", "3p"):
        queries, entities = read_queries(options.queries, kind, predictor)
        queries = queries[: options.max_queries or None]
        for mode in ("product", "beam"):
            row = {"kind": kind, "mode": mode, "width": options.width, "queries": len(queries)}
            rows.append(row | measure(predictor, queries, entities, mode, options.width))
            print(rows[-1], flush=True)
    save("path-queries", {"recipe": predictor.recipe, "rows": rows}, options.out)


if __name__ == "__main__":
    main()
