"""dihedral: link prediction on knowledge graphs whose relations are readable algebra.

Every relation is a row of elements of the dihedral group D_K (DihEdral, Xu & Li, ACL 2019).
"""

from __future__ import annotations

import os
from importlib import import_module
from typing import TYPE_CHECKING, Any

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # threads that wait must not take the cores of others; before torch

from dihedral.version import package_version

if TYPE_CHECKING:
    from dihedral.errors import DihedralError
    from dihedral.evaluation import Evaluation, Evaluator, evaluate
    from dihedral.graph import Graph, load_graph, make_family
    from dihedral.group import DihedralGroup
    from dihedral.inference.completion import complete, missing_facts
    from dihedral.inference.folding import fold_in
    from dihedral.inference.predictor import Prediction, Predictor, load
    from dihedral.interpretation import algebra, explain, find_rules
    from dihedral.monoid import GradedMonoid
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

_MODULES = {
    "DihedralError": "errors",
    "DihedralGroup": "group",
    "Evaluation": "evaluation",
    "Evaluator": "evaluation",
    "GradedMonoid": "monoid",
    "Graph": "graph",
    "Prediction": "inference.predictor",
    "Predictor": "inference.predictor",
    "Recipe": "training",
    "algebra": "interpretation",
    "complete": "inference.completion",
    "evaluate": "evaluation",
    "explain": "interpretation",
    "find_rules": "interpretation",
    "fold_in": "inference.folding",
    "load": "inference.predictor",
    "load_graph": "graph",
    "load_recipe": "training",
    "make_family": "graph",
    "missing_facts": "inference.completion",
    "train": "training",
}
_PACKAGES = ("evaluation", "graph", "inference", "interpretation", "models", "storage", "training")


def __getattr__(name: str) -> Any:
    """Import what is used on first use: torch takes seconds, and `dihedral --help` does not need it."""
    if name in _PACKAGES:
        return import_module(f"dihedral.{name}")
    if name not in _MODULES:
        raise AttributeError(f"module 'dihedral' has no attribute {name!r}")
    value = getattr(import_module(f"dihedral.{_MODULES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, *_PACKAGES})
