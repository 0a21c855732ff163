"""Link prediction on knowledge graphs whose relations are rows of elements of dihedral groups (Xu & Li, ACL 2019)."""

from __future__ import annotations

import os
from importlib import import_module, metadata
from typing import TYPE_CHECKING, Any

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # threads that wait must not take the cores of others; before torch

if TYPE_CHECKING:
    from dihedral.elements.group import DihedralGroup, GradedMonoid
    from dihedral.errors import DihedralError
    from dihedral.evaluation import Evaluation, Evaluator
    from dihedral.graph import Graph, load_graph, make_family
    from dihedral.interpretation import algebra, explain, find_rules
    from dihedral.objectives.recipe import Recipe, load_recipe
    from dihedral.predict.completion import complete, missing_facts
    from dihedral.predict.evaluate import evaluate
    from dihedral.predict.predictor import Prediction, Predictor, load
    from dihedral.predict.train import train
    from dihedral.store.trained import TrainedModel

try:
    __version__ = metadata.version("dihedral")
except metadata.PackageNotFoundError:  # a source tree that is not installed
    __version__ = "0+unknown"

__all__ = [
    "DihedralError", "DihedralGroup", "Evaluation", "Evaluator", "GradedMonoid", "Graph", "Prediction", "Predictor",
    "Recipe", "TrainedModel", "algebra", "complete", "evaluate", "explain", "find_rules", "load", "load_graph",
    "load_recipe", "make_family", "missing_facts", "train",
]  # fmt: skip

_NAMES = {
    "elements.group": "DihedralGroup GradedMonoid",
    "errors": "DihedralError",
    "evaluation": "Evaluation Evaluator",
    "graph": "Graph load_graph make_family",
    "interpretation": "algebra explain find_rules",
    "objectives.recipe": "Recipe load_recipe",
    "predict.completion": "complete missing_facts",
    "predict.evaluate": "evaluate",
    "predict.predictor": "Prediction Predictor load",
    "predict.train": "train",
    "store.trained": "TrainedModel",
}
_MODULES = {name: module for module, names in _NAMES.items() for name in names.split()}
_PACKAGES = ("evaluation", "graph", "interpretation", "learn", "models", "predict", "store")


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
