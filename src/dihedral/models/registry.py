"""Models by name: build a new one, or restore the relations of a stored one."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from dihedral.elements.group import parse_levels
from dihedral.errors import DihedralError, close_matches
from dihedral.models.baselines import BASELINES
from dihedral.models.dihedral import PARAMETRISATIONS, CodeRelations
from dihedral.models.model import Model, Relations
from dihedral.runtime.distributed import Shard

PIECE_ROWS = 1 << 16  # rows of the entity table that are drawn at a time

MODELS: dict[str, type[Relations]] = {model.kind: model for model in (*PARAMETRISATIONS, *BASELINES)}
"""The models that can be trained, by name."""

STORED_MODELS: dict[str, type[Relations]] = MODELS | {CodeRelations.kind: CodeRelations}
"""The models that a folder can hold, by the name in its manifest."""


def build_model(
    name: str,
    num_entities: int,
    num_relations: int,
    *,
    dimension: int,
    entity_init: float = 0.1,
    seed: int = 0,
    **options: Any,
) -> Model:
    """Build and initialise a model; with several processes, each gets its rows of the entity table.

    dimension: 2L, the number of real values per entity. entity_init: entities are initialised as N(0, entity_init²).
    options: those of `build_relations`.

    >>> build_model("dihedral-ste", 5, 2, dimension=6).codes.shape
    torch.Size([2, 3])
    """
    generator = torch.Generator().manual_seed(seed)
    relations = build_relations(name, num_relations, dimension, generator=generator, **options)
    shard = Shard.mine(num_entities)
    return Model(_normal_rows(shard, dimension, generator).mul_(entity_init), relations, shard)


def build_relations(
    name: str,
    num_relations: int,
    dimension: int,
    *,
    generator: torch.Generator,
    K: int = 4,
    relation_init: float | None = None,
    scaled: bool = False,
    levels: str = "1",
    reciprocal: bool = False,
) -> Any:
    """The relations of a new model, of the class that has this name.

    relation_init: spread of the parameters; the default depends on the model. scaled: learn one factor per relation.
    levels: the sizes of group elements, such as "1, 1/2, 0". An option that the model does not have is an error.
    """
    if name not in MODELS:
        raise DihedralError(
            f"model {name!r} is unknown; choose one of {', '.join(MODELS)}{close_matches(name, MODELS)}"
        )
    model: Any = MODELS[name]
    options: dict[str, Any] = {"init": model.default_init if relation_init is None else relation_init}
    for option, given, passed, allowed in (
        ("levels", levels != "1", {"grades": parse_levels(levels)}, model.is_gradable),
        ("scaled", scaled, {"K": K, "scaled": scaled}, model.is_discrete),
        ("reciprocal", reciprocal, {"reciprocal": reciprocal}, model.can_be_reciprocal),
    ):
        if given and not allowed:
            raise DihedralError(f"model {name!r} has no {option}; leave it out or choose another model")
        options |= passed if allowed else {}
    return model(num_relations, dimension, generator=generator, **options)


def _normal_rows(shard: Shard, dimension: int, generator: torch.Generator) -> Tensor:
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
    kind: str, tensors: dict[str, Tensor], num_relations: int, dimension: int, settings: dict[str, Any]
) -> Relations:
    """The relation operator of a stored model; the tensors are not trusted."""
    if "codes" in tensors:
        grades = parse_levels(settings.get("levels", "1"))
        codes, scales = tensors["codes"], tensors.get("scales")
        types = torch.uint8, torch.int8, torch.int16, torch.int32
        _check_shape("codes", codes, (num_relations, dimension // 2), types)
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


def _check_shape(name: str, tensor: Tensor, shape: tuple[int, ...], dtypes: tuple[torch.dtype, ...]) -> None:
    if tuple(tensor.shape) != shape or tensor.dtype not in dtypes:
        types = " or ".join(str(dtype).removeprefix("torch.") for dtype in dtypes)
        found = f"{str(tensor.dtype).removeprefix('torch.')} {list(tensor.shape)}"
        raise DihedralError(f"{name} are {found}; expected {types} {list(shape)}")
