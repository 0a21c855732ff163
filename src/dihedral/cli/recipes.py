"""`dihedral recipes`: list the built-in recipes, or show one."""

from __future__ import annotations

from typing import Annotated

import typer

from dihedral.cli.options import Json, Wide
from dihedral.cli.output import print_found
from dihedral.learn import load_recipe, recipe_names


def command(
    name: Annotated[str | None, typer.Argument(help="The recipe or TOML file to show.")] = None,
    wide: Wide = False,
    json: Json = False,
) -> None:
    """List the built-in recipes, or show all settings of one.

    Example: dihedral recipes paper/wn18rr-d4-ste
    """
    if name is not None:
        settings = load_recipe(name).to_dict()
        print_found(json, [settings], ["setting", "value"], [[key, str(value)] for key, value in settings.items()])
        return
    found = [load_recipe(each) for each in recipe_names()]
    rows = [[r.name, r.model, r.K, r.dimension, r.objective, r.epochs] for r in found]
    header = ["recipe", "model", "K", "2L", "objective", "epochs"]
    print_found(json, [recipe.to_dict() for recipe in found], header, rows)
