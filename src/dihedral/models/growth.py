"""More relations: a trainable operator in which the relations of a stored model keep their values."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from dihedral.models.dihedral import DiscreteRelations
from dihedral.models.model import Relations
from dihedral.models.registry import build_model


def known_rows(relations: Relations, count: int) -> Tensor:
    """The rows of the parameters that the first `count` relations have: bool [rows]."""
    rows = torch.arange(relations.num_relations) < count
    return rows.repeat(2) if relations.is_reciprocal else rows


def grow(stored: Relations, num_relations: int, options: dict[str, Any], seed: int = 0) -> Relations:
    """Trainable relations, the first of which are those of a stored model.

    options: the name of the model and its other settings, as for `build_model`.
    """
    grown = build_model(num_entities=1, num_relations=num_relations, seed=seed, **options).relations
    if isinstance(grown, DiscreteRelations):
        assert isinstance(stored, DiscreteRelations)
        grown.keep(stored.codes, stored.scales)
    else:
        tensors = stored.stored()
        for name, parameter in grown.named_parameters():
            parameter.data[known_rows(grown, stored.num_relations)] = tensors[name].to(
                parameter.device, parameter.dtype
            )
    return grown


def joined(old: dict[str, Tensor], new: dict[str, Tensor], known: Tensor) -> dict[str, Tensor]:
    """The stored tensors of grown relations, with exactly the old values in the rows of known relations."""
    result = {}
    for name, tensor in new.items():
        result[name] = tensor.clone()
        result[name][known.to(tensor.device)] = old[name].to(tensor.device, tensor.dtype)
    return result
