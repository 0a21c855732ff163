"""Training: recipes, the loop, checkpoints, and `train`, which turns a graph into a predictor."""

from dihedral.learn.defaults import choose_recipe
from dihedral.learn.interrupts import Interrupted
from dihedral.learn.loop import Trainer
from dihedral.learn.train import train
from dihedral.objectives.recipe import Recipe, load_recipe, recipe_names

__all__ = ["Interrupted", "Recipe", "Trainer", "choose_recipe", "load_recipe", "recipe_names", "train"]
