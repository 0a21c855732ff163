"""Training: the loop, checkpoints, and the recipe for a graph if none is given."""

from dihedral.learn.defaults import choose_recipe
from dihedral.learn.loop import Interrupted
from dihedral.learn.trainer import Trainer
from dihedral.objectives.recipe import Recipe, load_recipe, recipe_names

__all__ = ["Interrupted", "Recipe", "Trainer", "choose_recipe", "load_recipe", "recipe_names"]
