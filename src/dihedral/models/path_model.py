"""Path models: no entity vectors; an answer is a sum over the paths that reach it of products of their elements.

A question is an entity u and a step q. Its vector e_q starts at u. Then, T times, every edge sends the state of its
source along its step s, which applies the step's element and a gate:

    x_t(v) = α_t x_{t-1}(v) + β_t [v = u] e_q + d(v)^-c_t Σ_{v' -s→ v} n^-f_t γ_t(q, s) D_sᵀ x_{t-1}(v')

where d(v) is the degree of v plus 1, and n the number of entities to which s leads from v'. So x_T(v) is a sum over all
paths from u to v of up to T steps: of products of gates times products of elements, applied to e_q. The score of v
reads its components x⁽ˡ⁾ by weights of the question:

    b_q + Σ_l (⟨w_q⁽ˡ⁾, x⁽ˡ⁾⟩ + ω_q⁽ˡ⁾ ‖x⁽ˡ⁾‖) / √(1 + ‖x⁽ˡ⁾‖)

Entities that no path reaches have the score 0. α, β, c and f have a value per component.

In a gated model the components that reach an entity also rescale each other: x⁽ˡ⁾ is multiplied by
1 + z⁽ˡ⁾/(1 + |z⁽ˡ⁾|), where z = W_t y + V_t e_q, and y holds all components, shrunk to the length ‖x‖^¼, and these
lengths. Its answers are then no longer sums over paths.
"""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch import Tensor, nn

from dihedral.engine.path_engine import PathQuestions, PathWeights
from dihedral.errors import DihedralError
from dihedral.models.dihedral import CodeRelations, DiscreteRelations
from dihedral.models.model import BlockRelations

MAX_STEPS = 64
MAX_GATE = 2.0  # of a message; gates start near 1
READING_INIT = 0.2  # spread of the weights that read a state


class PathModel(nn.Module):
    """The relations of 2x2 blocks, and what a question does with them."""

    def __init__(
        self,
        relations: BlockRelations,
        num_steps: int,
        *,
        gated: bool = False,
        generator: torch.Generator | None = None,
    ) -> None:
        """gated: the components that reach an entity rescale each other."""
        super().__init__()
        self.relations, self.num_steps = relations, num_steps
        steps, width = 2 * relations.num_relations, relations.dimension

        def draw(*shape: int, spread: float = 1.0) -> nn.Parameter:
            found = torch.empty(shape)  # on meta (`restored`) only that: arithmetic there imports torch's compiler
            return nn.Parameter(found if found.is_meta else found.normal_(generator=generator).mul_(spread))

        self.vectors = draw(steps, width)  # e_q
        self.gate_weights = draw(num_steps, steps * width // 2, width, spread=width**-0.5)
        self.gate_bias = nn.Parameter(torch.zeros(num_steps, steps * width // 2))
        start = torch.tensor([1.0, 1.0, 0.5, 0.0])  # α, β, c, f
        self.shared = nn.Parameter(torch.empty(4, num_steps, width // 2).copy_(start[:, None, None]))
        self.mixing, self.rescaling = None, None
        if gated:
            self.mixing = nn.Parameter(torch.zeros(num_steps, 3 * width // 2, width // 2))
            self.rescaling = nn.Parameter(torch.zeros(num_steps, width // 2, width))
        self.reading = draw(steps, 3, width // 2, spread=READING_INIT)  # w and ω
        self.bias = nn.Parameter(torch.zeros(steps))

    @property
    def num_relations(self) -> int:
        return self.relations.num_relations

    def gates(self, steps: Tensor) -> Tensor:
        """γ_t(q, s) for questions of steps [U]: [U, T, 2R, L], from a linear map of the question vector."""
        found = torch.einsum("uw,tgw->utg", self.vectors[steps], self.gate_weights) + self.gate_bias
        return MAX_GATE * torch.sigmoid(found).unflatten(-1, (2 * self.num_relations, -1))

    def weights(
        self, entities: Tensor, steps: Tensor, operators: Tensor | None = None
    ) -> tuple[PathQuestions, PathWeights]:
        """What questions (entities [B], steps [B]) apply; operators: those of a training step instead of the exact."""
        distinct, which = torch.unique(steps, return_inverse=True)
        L = self.relations.dimension // 2
        mixing, rescaling = self.vectors.new_empty(0, 3 * L, L), self.vectors.new_empty(len(distinct), 0, L)
        if self.mixing is not None:
            mixing = self.mixing
            rescaling = torch.einsum("uw,tlw->utl", self.vectors[distinct], self.rescaling)
        operators = self.relations.exact() if operators is None else operators
        return PathQuestions(entities, steps, which), PathWeights(
            blocks=self.relations.step_operators(operators),
            shared=self.shared,
            gates=self.gates(distinct),
            mixing=mixing,
            rescaling=rescaling,
            vectors=self.vectors[steps],
            reading=self.reading[steps],
            bias=self.bias[steps],
        )

    def with_codes(self) -> PathModel:
        """The same model with fixed elements, as it is stored."""
        found = copy.deepcopy(self)
        if isinstance(self.relations, DiscreteRelations):
            codes = self.relations.codes
            found.relations = CodeRelations(codes, self.relations.K, grades=self.relations.grades).to(codes.device)
        return found

    def stored(self) -> dict[str, Tensor]:
        """The tensors besides those of the relations."""
        return {name: each.detach() for name, each in self.named_parameters() if not name.startswith("relations.")}

    @classmethod
    def restored(cls, relations: BlockRelations, num_steps: Any, tensors: dict[str, Tensor]) -> PathModel:
        """A stored model; neither the number of steps nor the tensors are trusted."""
        if type(num_steps) is not int or not 0 < num_steps <= MAX_STEPS:
            raise DihedralError(f"the path model has {num_steps!r:.80} steps; it must have 1 to {MAX_STEPS}")
        with torch.device("meta"):  # shapes only, before memory for so many numbers is allocated
            model = cls(relations, num_steps, gated="mixing" in tensors)
        wanted = model.stored()
        for name, each in wanted.items():
            found = tensors.get(name)
            if found is None or found.shape != each.shape or found.dtype != each.dtype:
                raise DihedralError(f"{name!r} of the path model is not float32 {list(each.shape)}")
            if not torch.isfinite(found).all():
                raise DihedralError(f"{name!r} of the path model holds NaN or infinity; it must hold numbers")
        model.load_state_dict({name: tensors[name] for name in wanted}, strict=False, assign=True)
        return model
