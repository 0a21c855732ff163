"""dihedral: link prediction on knowledge graphs whose relations are readable algebra.

Every relation is a row of elements of the dihedral group D_K (DihEdral, Xu & Li, ACL 2019).
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # threads that wait must not take the cores of others; before torch

from dihedral.errors import DihedralError
from dihedral.evaluation import Evaluation, Evaluator, evaluate
from dihedral.graph import Graph, load_graph, make_family
from dihedral.group import DihedralGroup
from dihedral.inference.completion import complete, missing_facts
from dihedral.inference.folding import fold_in
from dihedral.inference.predictor import Prediction, Predictor, load
from dihedral.interpretation import algebra, explain, find_rules
from dihedral.monoid import GradedMonoid
from dihedral.runtime.environment import package_version
from dihedral.training import Recipe, load_recipe, train

__version__ = package_version()

__all__ = [
    "DihedralError",
    "DihedralGroup",
    "Evaluation",
    "Evaluator",
    "GradedMonoid",
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
