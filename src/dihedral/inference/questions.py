"""Questions: triples with one part missing, and which answers may be given."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from dihedral.errors import DihedralError
from dihedral.graph import Graph
from dihedral.graph.steps import inverse_ids

Part = Literal["head", "relation", "tail"]
PARTS: tuple[Part, ...] = ("head", "relation", "tail")
Question = tuple[str | None, str | None, str | None]
Known = Literal["include", "exclude"]
Among = str | Sequence[str] | None  # "range", or names of entities


def missing_part(head: str | None, relation: str | None, tail: str | None) -> Part:
    """The part that is asked for; exactly two of the three must be given."""
    missing = [part for part, value in zip(PARTS, (head, relation, tail), strict=True) if value is None]
    given = len(PARTS) - len(missing)
    if given != 2:
        raise DihedralError(f"{given} of head, relation and tail are given; give two, the third is predicted")
    return missing[0]


def check_options(top: int, known: str, *, among: Among = None, part: Part = "tail") -> None:
    """The options that all questions share."""
    if top < 1:
        raise DihedralError(f"top is {top}; ask for at least 1 answer")
    if known not in ("include", "exclude"):
        raise DihedralError(f"known is {known!r}; choose include or exclude")
    if part == "relation" and among is not None:
        raise DihedralError("among limits entities, but the relation is asked for; leave it out")


def allowed_entities(graph: Graph, among: Among, step: int) -> Tensor | None:
    """The entities that may answer a step, as a mask [N]; None if all may.

    "range" allows those that the step leads to in training; a list of names allows those.
    """
    if among is None:
        return None
    if not isinstance(among, str):
        ids = torch.from_numpy(graph.entities.ids(list(among)).astype(np.int64))
    elif among == "range":
        ids = graph.train_index.members(inverse_ids(step, graph.num_relations))
    else:
        raise DihedralError(f"among is {among!r}; choose 'range' or give a list of entities")
    mask = torch.zeros(graph.num_entities, dtype=torch.bool)
    mask[ids] = True
    return mask
