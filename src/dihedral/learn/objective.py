"""The objective that a recipe describes."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from dihedral.errors import DihedralError
from dihedral.graph import Graph
from dihedral.models import Model
from dihedral.objectives.base import Objective
from dihedral.objectives.composition_loss import Compositions
from dihedral.objectives.logistic import LogisticLoss
from dihedral.objectives.negatives import SkewNegatives
from dihedral.objectives.recipe import Recipe
from dihedral.objectives.regularisers import make_regulariser
from dihedral.objectives.sharded import ShardedLogisticLoss
from dihedral.objectives.softmax import SoftmaxLoss
from dihedral.objectives.walks import Walks


def build_objective(recipe: Recipe, model: Model, graph: Graph) -> Objective:
    """The objective of a recipe, with the recipe's settings of the same names."""
    shard, device, relations = model.shard, model.entities.device, model.relations
    for name in ("component_weight", "regularise_negatives", "candidates"):  # they need all negatives in one place
        if not shard.is_single and getattr(recipe, name):
            raise DihedralError(
                f"{name} is {getattr(recipe, name)} with {shard.world} processes; leave it out or use one process"
            )
    kind = SoftmaxLoss if recipe.objective == "softmax" else LogisticLoss
    settings = recipe.to_dict()
    options: dict[str, Any] = {field.name: settings[field.name] for field in fields(kind) if field.name in settings}
    options["regulariser"] = make_regulariser(
        recipe.regulariser, recipe.regulariser_weight, recipe.regularise_relations
    )
    if recipe.objective == "softmax":
        options["walks"] = Walks.build(graph, device) if recipe.paths else None
        options["compositions"] = Compositions.build(graph, device) if recipe.composition_weight else None
        return SoftmaxLoss(relations, shard=shard, **options)
    if recipe.skew_probability:
        options["skew"] = SkewNegatives.build(graph.train_index, recipe.skew_probability, device)
    if shard.is_single:
        return LogisticLoss(relations, graph.num_entities, **options)
    return ShardedLogisticLoss(relations, graph.num_entities, shard=shard, **options)
