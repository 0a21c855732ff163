"""Models by name: build a new one, or restore the relations of a stored one."""

from __future__ import annotations

from typing import Any

import torch

from dihedral.elements.group import parse_levels
from dihedral.errors import DihedralError, close_matches
from dihedral.models.bilinear import RESCAL, Analogy, ComplEx, DistMult, HolE, SimplE
from dihedral.models.dihedral import (
    ArgmaxRelations,
    CodeRelations,
    CyclicGumbelRelations,
    CyclicSignRelations,
    GumbelRelations,
    OrthogonalRelations,
    SignRelations,
)
from dihedral.models.model import Model, Relations
from dihedral.models.nearest_element import ProjectionRelations
from dihedral.models.translation import TransE
from dihedral.runtime.distributed import Shard

PIECE_ROWS = 1 << 16  # rows of the entity table that are drawn at a time

MODELS: dict[str, type[Relations]] = {
    model.kind: model
    for model in (
        GumbelRelations, SignRelations, ArgmaxRelations, ProjectionRelations, CyclicGumbelRelations,
        CyclicSignRelations, OrthogonalRelations, DistMult, ComplEx, Analogy, SimplE, HolE, RESCAL, TransE,
    )
}  # fmt: skip
"""The models that can be trained, by name."""

STORED_MODELS: dict[str, type[Relations]] = MODELS | {CodeRelations.kind: CodeRelations}
"""The models that a folder can hold, by the name in its manifest."""


def build_model(
    name: str,
    num_entities: int,
    num_relations: int,
    *,
    dimension: int,
    K: int = 4,
    entity_init: float = 0.1,
    relation_init: float | None = None,
    scaled: bool = False,
    levels: str = "1",
    reciprocal: bool = False,
    seed: int = 0,
) -> Model:
    """Build and initialise a model; with several processes, each gets its rows of the entity table.

    dimension: 2L, the number of real values per entity.
    K: the group D_K, for the DihEdral models.
    entity_init: entities are initialised as N(0, entity_init²).
    relation_init: spread of the relation parameters; the default depends on the model.
    scaled: learn one factor per relation, for the DihEdral models.
    levels: the sizes of group elements, such as "1, 1/2, 0", for the models that choose among elements.

    >>> build_model("dihedral-ste", 5, 2, dimension=6).codes.shape
    torch.Size([2, 3])
    """
    if name not in MODELS:
        raise DihedralError(
            f"model {name!r} is unknown; choose one of {', '.join(MODELS)}{close_matches(name, MODELS)}"
        )
    model: Any = MODELS[name]
    options: dict[str, Any] = {"init": model.default_init if relation_init is None else relation_init}
    if model.is_discrete:
        options |= {"K": K, "scaled": scaled}
        if model.is_gradable:
            options["grades"] = parse_levels(levels)
    if levels != "1" and not model.is_gradable:
        raise DihedralError(f"levels is {levels!r:.80}; it is for models that choose among elements, not {name!r}")
    if reciprocal:
        if not model.can_be_reciprocal:
            raise DihedralError(f"reciprocal is True; it is for baselines of 2x2 blocks, which {name!r} is not")
        options["reciprocal"] = True
    if scaled and not model.is_discrete:
        raise DihedralError(f"scaled is True; it is for DihEdral models, and {name!r} already has free weights")
    generator = torch.Generator().manual_seed(seed)
    relations = model(num_relations, dimension, generator=generator, **options)
    shard = Shard.mine(num_entities)
    return Model(_normal_rows(shard, dimension, generator).mul_(entity_init), relations, shard)


def _normal_rows(shard: Shard, dimension: int, generator: torch.Generator) -> torch.Tensor:
    """This process's rows of a table of normal numbers; every process draws the complete table, so all agree on it."""
    table = torch.empty(shard.stop - shard.start, dimension)
    pieces = max(1, shard.num_rows // PIECE_ROWS)  # the last piece takes the rest: torch draws 16 numbers at a time
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
    """The relation operator of a stored model; the tensors are not trusted."""
    if "codes" in tensors:
        grades = parse_levels(settings.get("levels", "1"))
        codes, scales = tensors["codes"], tensors.get("scales")
        _check_shape(
            "codes", codes, (num_relations, dimension // 2), (torch.uint8, torch.int8, torch.int16, torch.int32)
        )
        if scales is not None:
            _check_shape("scales", scales, (num_relations,), (torch.float32,))
            if not torch.isfinite(scales).all():
                raise DihedralError("scales hold NaN or infinity; they must be numbers")
        if others := tensors.keys() - {"codes", "scales"}:
            raise DihedralError(f"relations hold {min(others)!r:.80}; expected codes and scales")
        return CodeRelations(codes, settings["K"], scales, grades)
    model: Any = MODELS[kind]
    options = {"reciprocal": True} if settings.get("reciprocal") else {}
    with torch.device("meta"):  # shapes only: the numbers of the manifest may ask for more memory than there is
        expected = model(num_relations, dimension, **options).state_dict()
    if tensors.keys() != expected.keys():
        raise DihedralError(f"relations hold {sorted(tensors)!r:.80}; expected {', '.join(expected)}")
    for name, wanted in expected.items():
        _check_shape(name, tensors[name], tuple(wanted.shape), (wanted.dtype,))
    relations: Relations = model(num_relations, dimension, **options)
    relations.load_state_dict(tensors)
    return relations


def _check_shape(name: str, tensor: torch.Tensor, shape: tuple[int, ...], dtypes: tuple[torch.dtype, ...]) -> None:
    if tuple(tensor.shape) != shape or tensor.dtype not in dtypes:
        types = " or ".join(str(dtype).removeprefix("torch.") for dtype in dtypes)
        found = f"{str(tensor.dtype).removeprefix('torch.')} {list(tensor.shape)}"
        raise DihedralError(f"{name} are {found}; expected {types} {list(shape)}")
