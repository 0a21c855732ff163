"""Training: recipes, the loop, checkpoints, and `train`, which turns a graph into a predictor."""

from dihedral.training.defaults import choose_recipe
from dihedral.training.interrupts import Interrupted
from dihedral.training.loop import Trainer
from dihedral.training.recipe import Recipe, load_recipe, recipe_names
from dihedral.training.train import train

__all__ = ["Interrupted", "Recipe", "Trainer", "choose_recipe", "load_recipe", "recipe_names", "train"]
