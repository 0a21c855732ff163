"""dihedral: link prediction on knowledge graphs whose relations are readable algebra.

Every relation is a row of elements of the dihedral group D_K (DihEdral, Xu & Li, ACL 2019).
"""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version

from dihedral.algebra import algebra, explain, find_rules
from dihedral.completion import complete, missing_facts
from dihedral.errors import DihedralError
from dihedral.evaluation import Evaluation, Evaluator
from dihedral.evaluation.ranking import MEMORY_MB
from dihedral.folding import fold_in
from dihedral.graph import Graph, load_graph, make_family
from dihedral.group import DihedralGroup
from dihedral.predictor import Prediction, Predictor, load
from dihedral.training import Recipe, load_recipe, train

try:
    __version__ = version("dihedral")
except PackageNotFoundError:  # run from a source tree that is not installed
    __version__ = "0+unknown"

__all__ = [
    "DihedralError",
    "DihedralGroup",
    "Evaluation",
    "Evaluator",
    "Graph",
    "Prediction",
    "Predictor",
    "Recipe",
    "algebra",
    "complete",
    "evaluate",
    "explain",
    "find_rules",
    "fold_in",
    "load",
    "load_graph",
    "load_recipe",
    "make_family",
    "missing_facts",
    "train",
]


def evaluate(
    predictor: Predictor,
    graph: Graph | None = None,
    *,
    split: str = "test",
    memory_mb: int = MEMORY_MB,
    sample: int = 0,
    seed: int = 0,
) -> Evaluation:
    """Filtered ranking of one split of a graph, by default the one the model was trained on.

    sample: rank only so many triples, drawn with `seed`, against all entities; `standard_errors` says how sure the
    result is. 0 ranks all.

    Known answers are those of the model's own graph and of the other one. "Seen" entities are those
    of the model's training.

    >>> predictor = train(make_family(40), "demo/family", epochs=2, progress=False)
    >>> 0 < evaluate(predictor).mrr < 1
    True
    """
    own = predictor.graph
    other = own if graph is None else predictor.align(graph)
    evaluator = Evaluator(
        own,
        split,
        triples=None if graph is None else other.split(split),
        also_known=None if graph is None else other.known,
        device=predictor.device,
        memory_mb=memory_mb,
        sample=sample,
        seed=seed,
    )
    return evaluator(predictor.model)
