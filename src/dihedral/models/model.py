"""The contract of every model: score = ⟨query, candidate⟩, of a relation operator and of rows of the entity table.

φ(h, r, t) = hᵀ R t: the query for tails is Rᵀ h, the query for heads is R t.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Container
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from dihedral.engine.blocks import block_queries, with_transposes
from dihedral.errors import DihedralError
from dihedral.graph.steps import Side
from dihedral.runtime.distributed import Shard


class Relations(nn.Module, ABC):
    """The relation operator of a model: its parameters and its action on entity vectors."""

    kind: ClassVar[str]  # the model's name
    is_bilinear: ClassVar[bool] = True  # φ = hᵀ R t
    is_block: ClassVar[bool] = False  # R is block diagonal with 2x2 blocks
    is_discrete: ClassVar[bool] = False  # blocks are elements of D_K
    is_gradable: ClassVar[bool] = False  # blocks may be graded elements
    allowed_k: ClassVar[Container[int] | None] = None  # None: the model has no K
    can_be_reciprocal: ClassVar[bool] = False  # may have a second operator per relation, for heads
    uses_temperature: ClassVar[bool] = False
    default_init: ClassVar[float] = 1.0  # spread of the initial parameters

    is_reciprocal: bool = False  # has R more operators: heads are the tails of the reciprocal relation

    def __init__(self, num_relations: int, dimension: int) -> None:
        super().__init__()
        if dimension < 2 or dimension % 2:
            raise DihedralError(f"dimension is {dimension}; it is 2L, an even number of 2 or more")
        self.num_relations = num_relations
        self.dimension = dimension

    @abstractmethod
    def operators(
        self, which: Tensor | None = None, generator: torch.Generator | None = None, temperature: float | Tensor = 1.0
    ) -> Tensor:
        """The operators that training applies, one row per relation (all, or those in `which`); differentiable."""

    def exact(self) -> Tensor:
        """The operators that evaluation applies, without noise or relaxation."""
        return self.operators()

    @abstractmethod
    def queries(self, operators: Tensor, index: Tensor, entities: Tensor, side: Side) -> Tensor:
        """Queries [batch, width] from entity rows [batch, 2L] and the operator rows operators[index]."""

    def candidates(self, entities: Tensor) -> Tensor:
        """Entity rows [..., 2L] as candidates [..., width]; by default the rows themselves."""
        return entities

    def stored(self) -> dict[str, Tensor]:
        """The tensors that a saved model holds."""
        return {name: parameter.detach() for name, parameter in self.named_parameters()}

    def settings(self) -> dict[str, int | str]:
        """The other values needed to rebuild the operator."""
        return {}


class WeightedRelations(Relations):
    """Relations whose parameters are one tensor of free weights [R, …]; by default these are the operators."""

    def __init__(
        self, num_relations: int, dimension: int, *, init: float | None = None, generator: torch.Generator | None = None
    ) -> None:
        super().__init__(num_relations, dimension)
        self.weights = nn.Parameter(self.draw(self.default_init if init is None else init, generator))

    @abstractmethod
    def draw(self, init: float, generator: torch.Generator | None) -> Tensor:
        """The initial weights, with spread `init`."""

    def operators(self, which: Tensor | None = None, generator: Any = None, temperature: Any = 1.0) -> Tensor:
        return self.weights if which is None else self.weights[which]


class BlockRelations(Relations):
    """Block-diagonal relations with 2x2 blocks, such as the paper's own.

    An operator row is [4, L]: the entries a, b, c, d of each block [[a, b], [c, d]]. An entity row is [2L]: the L
    first coordinates of its components, then the L second ones.
    """

    is_block = True

    def queries(self, operators: Tensor, index: Tensor, entities: Tensor, side: Side) -> Tensor:
        if self.is_reciprocal and side == "head":
            return block_queries(operators, index + len(operators) // 2, entities, True)
        return block_queries(operators, index, entities, side == "tail")  # Rᵀ h, or R t

    def step_operators(self, operators: Tensor) -> Tensor:
        """The operators [2R, 4, L] of all signed steps: each query is the tail query of its step."""
        return operators if self.is_reciprocal else with_transposes(operators)

    @staticmethod
    def relation_scores(operators: Tensor, head: Tensor, tail: Tensor) -> Tensor:
        """φ(h, r, t) for every relation: [batch, R] from rows [batch, 2L], as one product with all operators."""
        (hx, hy), (tx, ty) = head.chunk(2, dim=-1), tail.chunk(2, dim=-1)
        pairs = torch.cat([hx * tx, hx * ty, hy * tx, hy * ty], dim=-1)  # [batch, 4L], as a, b, c, d
        return pairs @ operators.flatten(1).T


class Model(nn.Module):
    """An entity table, of which several processes hold the rows of their `shard`, and a relation operator."""

    def __init__(self, entities: Tensor, relations: Relations, shard: Shard | None = None) -> None:
        super().__init__()
        self.entities = nn.Parameter(entities)  # [N, 2L], or this process's rows of it
        self.relations = relations
        self.shard = shard or Shard(len(entities))

    @property
    def num_entities(self) -> int:
        return self.shard.num_rows

    @property
    def num_relations(self) -> int:
        return self.relations.num_relations

    @property
    def dimension(self) -> int:
        return self.entities.shape[1]

    @property
    def codes(self) -> Tensor | None:
        """The discrete relations uint8 [R, L] of a DihEdral model; None for the others."""
        codes = getattr(self.relations, "codes", None)
        return codes if isinstance(codes, Tensor) else None
