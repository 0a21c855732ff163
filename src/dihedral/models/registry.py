"""Models: an entity table and a relation operator, built by name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from dihedral.errors import DihedralError, close_matches
from dihedral.models.bilinear import RESCAL, Analogy, ComplEx, DistMult, HolE, SimplE
from dihedral.models.dihedral import (
    ArgmaxRelations,
    CodeRelations,
    GumbelRelations,
    OrthogonalRelations,
    SignRelations,
)
from dihedral.models.model import Model, Relations, Side
from dihedral.models.translation import TransE
from dihedral.runtime.distributed import Shard

__all__ = ["MODELS", "Model", "Relations", "Side", "build_model", "restore_relations"]

PIECE_ROWS = 1 << 16  # of the entity table, drawn at a time

MODELS: dict[str, tuple[Callable[..., Relations], dict[str, Any]]] = {
    "dihedral-gumbel": (GumbelRelations, {}),
    "dihedral-ste": (SignRelations, {}),
    "dihedral-argmax": (ArgmaxRelations, {}),
    "cyclic-gumbel": (GumbelRelations, {"rotations_only": True}),
    "cyclic-ste": (SignRelations, {"rotations_only": True}),
    "orthogonal": (OrthogonalRelations, {}),
    "distmult": (DistMult, {}),
    "complex": (ComplEx, {}),
    "analogy": (Analogy, {}),
    "simple": (SimplE, {}),
    "hole": (HolE, {}),
    "rescal": (RESCAL, {}),
    "transe": (TransE, {}),
}
"""Every model by name: its relation operator, and the settings that the name fixes."""


def build_model(
    name: str,
    num_entities: int,
    num_relations: int,
    *,
    dimension: int,
    K: int = 4,
    entity_init: float = 0.1,
    relation_init: float | None = None,
    hard: bool = False,
    scaled: bool = False,
    seed: int = 0,
) -> Model:
    """A freshly initialised model; of several processes each gets its rows of the entity table.

    dimension: 2L, the real numbers an entity has.
    K: the group D_K, for the DihEdral models.
    entity_init: entities start as N(0, entity_init²).
    scaled: one learned factor a relation, for the DihEdral models.
    relation_init: spread of the relation parameters; each model has its own default.

    >>> build_model("dihedral-ste", 5, 2, dimension=6).codes.shape
    torch.Size([2, 3])
    """
    if name not in MODELS:
        raise DihedralError(
            f"model {name!r} is unknown; choose one of {', '.join(MODELS)}{close_matches(name, MODELS)}"
        )
    build, fixed = MODELS[name]
    options = dict(fixed)
    if name.startswith(("dihedral", "cyclic")):
        options |= {"K": K, "scaled": scaled}
    elif scaled:
        raise DihedralError(f"relation_scale is for DihEdral models; {name!r} has free weights already")
    if name.endswith("-gumbel"):
        options["hard"] = hard
    if relation_init is not None and name != "orthogonal":
        options["init"] = relation_init
    generator = torch.Generator().manual_seed(seed)
    relations = build(num_relations, dimension, generator=generator, **options)
    shard = Shard.mine(num_entities)
    return Model(_normal_rows(shard, dimension, generator).mul_(entity_init), relations, shard)


def _normal_rows(shard: Shard, dimension: int, generator: torch.Generator) -> torch.Tensor:
    """This process's rows of a table of normal numbers, all of which are drawn: the table does not depend on it."""
    table = torch.empty(shard.stop - shard.start, dimension)
    pieces = max(1, shard.num_rows // PIECE_ROWS)  # the last one takes the rest: torch draws 16 numbers at a time
    for number in range(pieces):
        start = number * PIECE_ROWS
        stop = shard.num_rows if number == pieces - 1 else start + PIECE_ROWS
        piece = torch.randn(stop - start, dimension, generator=generator)
        here, place = shard.find(torch.arange(start, stop))
        table[place] = piece[here]
    return table


def restore_relations(
    kind: str, tensors: dict[str, torch.Tensor], num_relations: int, dimension: int, settings: dict[str, Any]
) -> Relations:
    """The relation operator of a stored model."""
    if "codes" in tensors:
        return CodeRelations(tensors["codes"], settings["K"], tensors.get("scales"))
    build, fixed = MODELS[kind]
    relations = build(num_relations, dimension, **fixed)
    relations.load_state_dict(tensors)
    return relations
