"""`evaluate`: filtered ranking of one split with a trained model."""

from __future__ import annotations

from typing import Any

import numpy as np

from dihedral.evaluation.metrics import Evaluation, Evaluator
from dihedral.graph import Graph
from dihedral.predict.predictor import Predictor
from dihedral.probability.ordering import Ranker
from dihedral.scoring.questions import Order
from dihedral.scoring.scorer import MEMORY_MB


def evaluate(
    predictor: Predictor,
    graph: Graph | None = None,
    *,
    split: str = "test",
    memory_mb: int = MEMORY_MB,
    sample: int = 0,
    seed: int = 0,
    order: Order = "score",
) -> Evaluation:
    """Rank the answers of one split among all entities, with known answers filtered out.

    graph: another graph to evaluate on; by default the one the model was trained on. Known answers are those of
    both graphs; those of test count for the split test only. "Seen" entities are those of the model's own training
    triples.
    sample: rank only this many triples, drawn with `seed`, against all entities; 0 ranks all. The result then has
    `standard_errors`.
    order: "score" ranks by score, as published metrics do. "probability" ranks the best answers again, as they are
    shown in that order, but with the evidence of the training facts alone: answers that are shown use all known facts.
    "auto" is the order in which the model shows answers.

    >>> from dihedral import make_family, train
    >>> predictor = train(make_family(40), "demo/family", epochs=2, progress=False)
    >>> 0 < evaluate(predictor).mrr < 1
    True
    """
    options: dict[str, Any] = {"device": predictor.device, "memory_mb": memory_mb, "sample": sample, "seed": seed}
    if graph is not None:
        graph = predictor.align(graph)
        options |= {"triples": graph.split(split), "also_known": np.concatenate(graph.filtered(split))}
    ranker = None
    if predictor.resolve_order(order) == "probability":
        assert predictor.calibration is not None
        ranker = Ranker(predictor.scorer, predictor.graph, predictor.calibration)
    return Evaluator(predictor.graph, split, **options)(predictor.scorer, ranker)
