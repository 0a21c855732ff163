"""The objective that a recipe describes."""

from __future__ import annotations

from dihedral.errors import DihedralError
from dihedral.graph import Graph
from dihedral.models import Model
from dihedral.objectives.base import Objective
from dihedral.objectives.composition_loss import Compositions
from dihedral.objectives.logistic import LogisticLoss
from dihedral.objectives.negatives import SkewNegatives
from dihedral.objectives.recipe import Recipe
from dihedral.objectives.regularisers import make_regulariser
from dihedral.objectives.softmax import SoftmaxLoss
from dihedral.objectives.walks import Walks


def build_objective(recipe: Recipe, model: Model, graph: Graph) -> Objective:
    """The objective of a recipe."""
    shard, device, relations = model.shard, model.entities.device, model.relations
    for name in ("component_weight", "regularise_negatives", "candidates"):  # they need all negatives in one place
        if not shard.is_single and getattr(recipe, name):
            raise DihedralError(
                f"{name} is {getattr(recipe, name)} with {shard.world} processes; leave it out or use one process"
            )
    regulariser = make_regulariser(recipe.regulariser, recipe.regulariser_weight, recipe.regularise_relations)
    if recipe.objective == "softmax":
        return SoftmaxLoss(
            relations,
            relation_weight=recipe.relation_weight,
            walks=Walks.build(graph, device) if recipe.paths else None,
            paths=recipe.paths,
            path_length=recipe.path_length,
            compositions=Compositions.build(graph, device) if recipe.composition_weight else None,
            composition_weight=recipe.composition_weight,
            candidates=recipe.candidates,
            dropout=recipe.dropout,
            regulariser=regulariser,
            precision=recipe.precision,
            shard=shard,
        )
    skew = SkewNegatives.build(graph.train_index, recipe.skew_probability, device) if recipe.skew_probability else None
    return LogisticLoss(
        relations,
        graph.num_entities,
        negatives=recipe.negatives,
        share_negatives=recipe.share_negatives,
        component_weight=recipe.component_weight,
        skew=skew,
        regulariser=regulariser,
        regularise_negatives=recipe.regularise_negatives,
        shard=shard,
    )
