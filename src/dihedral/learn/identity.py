"""Whether two runs are the same: recipe, seed, data and the model to start from."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from dihedral.objectives.recipe import Recipe

Identity = dict[str, Any]
MAY_CHANGE_ON_RESUME = ("precision", "epochs", "validate_every", "patience")


def run_identity(recipe: Recipe | Mapping[str, Any], seed: int, data: str, start: str | None = None) -> Identity:
    """What determines a run: the settings without name and about, the seed, and the graph's fingerprint.

    recipe: a Recipe or the settings of one; settings that are missing have their defaults.
    start: the digest of the model that an update starts from; None in a run from scratch.
    """
    recipe = recipe if isinstance(recipe, Recipe) else Recipe.from_dict(recipe)
    settings = {key: value for key, value in recipe.to_dict().items() if key not in ("name", "about")}
    return {"start": start, "recipe": settings, "seed": seed, "data": data}


def find_difference(found: Identity, wanted: Identity, ignore: Collection[str] = ()) -> str | None:
    """The first part of `wanted` that differs in `found`, such as "seed" or "recipe (K)"; None if there is none.

    ignore: settings that may differ.
    """
    for part, value in wanted.items():
        if part != "recipe":
            if found.get(part) != value:
                return part
            continue
        for key in value:
            if key not in ignore and found[part].get(key) != value[key]:
                return f"recipe ({key})"
    return None
