"""DihEdral: relations as rows of elements of D_K, trained by Gumbel-softmax or straight-through signs.

The classes with "Relations" in their name train; what they find are the codes. A stored model is
`CodeRelations`: nothing but the codes.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from dihedral.errors import DihedralError
from dihedral.group import DihedralGroup
from dihedral.models.model import BlockRelations


def element_blocks(K: int, dtype: torch.dtype = torch.float32, device: Any = None) -> Tensor:
    """The matrices of Eq. 1 as block entries: [2K, 4]."""
    return torch.as_tensor(DihedralGroup(K).matrices.reshape(-1, 4), dtype=dtype, device=device)


class DiscreteRelations(BlockRelations):
    """What all parametrisations of D_K share: codes, and operators that follow from the codes."""

    def __init__(self, num_relations: int, dimension: int, K: int, scaled: bool = False) -> None:
        super().__init__(num_relations, dimension)
        if not 1 <= K <= 128:
            raise DihedralError(f"K is {K}; codes are stored as bytes, so K must be between 1 and 128")
        self.K = K
        self.group = DihedralGroup(K)
        self.register_buffer("blocks", element_blocks(K), persistent=False)  # [2K, 4]
        self.blocks: Tensor
        self.log_scales = nn.Parameter(torch.zeros(num_relations)) if scaled else None

    @property
    def codes(self) -> Tensor:
        """Element ids, uint8 [R, L]."""
        raise AttributeError("codes")

    @property
    def scales(self) -> Tensor | None:
        """The factor of each relation [R], where the model has them."""
        return None if self.log_scales is None else self.log_scales.detach().exp()

    def scaled(self, operators: Tensor, which: Tensor | None) -> Tensor:
        """Operators [R, 4, L] times the factors of their relations."""
        if self.log_scales is None:
            return operators
        return operators * (self.log_scales if which is None else self.log_scales[which]).exp()[:, None, None]

    def elements(self) -> Tensor:
        """The blocks of the codes alone, without a relation's factor: [R, 4, L]."""
        return self.blocks[self.codes.long()].transpose(1, 2).contiguous()

    def exact(self) -> Tensor:
        operators = self.elements()
        return operators if self.scales is None else operators * self.scales[:, None, None]

    def stored(self) -> dict[str, Tensor]:
        return {"codes": self.codes} | ({} if self.scales is None else {"scales": self.scales})

    def settings(self) -> dict[str, int | str]:
        return {"K": self.K}


class CodeRelations(DiscreteRelations):
    """Relations that are already found: fixed codes, as stored models hold them."""

    kind = "dihedral"

    def __init__(self, codes: Tensor, K: int, scales: Tensor | None = None) -> None:
        super().__init__(codes.shape[0], 2 * codes.shape[1], K)
        wrong = codes[(codes.long() < 0) | (codes.long() >= 2 * K)]
        if wrong.numel():
            raise DihedralError(f"codes hold the element {int(wrong[0])}; D_{K} has ids 0 to {2 * K - 1}")
        self.register_buffer("fixed_codes", codes.to(torch.uint8))
        self.fixed_codes: Tensor
        self.register_buffer("fixed_scales", scales)
        self.fixed_scales: Tensor | None

    @property
    def codes(self) -> Tensor:
        return self.fixed_codes

    @property
    def scales(self) -> Tensor | None:
        return self.fixed_scales

    def operators(self, which: Tensor | None = None, generator: Any = None, temperature: Any = 1.0) -> Tensor:
        exact = self.exact()
        return exact if which is None else exact[which]


class GumbelRelations(DiscreteRelations):
    """D_K-Gumbel: R⁽ˡ⁾ = Σ_k c_k D_k with c drawn by Gumbel-softmax from logits s (Eq. 3).

    hard: apply the arg-max of the draw and pass the gradient through the soft weights.
    rotations_only: the cyclic subgroup, the paper's ablation of reflections.
    """

    kind = "dihedral-gumbel"

    def __init__(
        self,
        num_relations: int,
        dimension: int,
        K: int,
        *,
        init: float = 1.0,
        hard: bool = False,
        rotations_only: bool = False,
        scaled: bool = False,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__(num_relations, dimension, K, scaled)
        self.hard = hard
        choices = K if rotations_only else 2 * K
        logits = torch.randn(num_relations, choices, dimension // 2, generator=generator) * init
        self.logits = nn.Parameter(logits)  # [R, 2K, L]

    @property
    def codes(self) -> Tensor:
        return self.logits.detach().argmax(dim=1).to(torch.uint8)

    def operators(
        self, which: Tensor | None = None, generator: torch.Generator | None = None, temperature: float | Tensor = 1.0
    ) -> Tensor:
        logits = self.logits if which is None else self.logits[which]
        weights = torch.softmax((logits + gumbel_noise(logits, generator)) / temperature, dim=1)
        if self.hard:
            weights = straight_through_argmax(weights)
        return self.scaled(torch.einsum("rkl,kb->rbl", weights, self.blocks[: logits.shape[1]]), which)


class ArgmaxRelations(GumbelRelations):
    """Straight-through arg-max for any K: one-hot forwards, the softmax's gradient backwards."""

    kind = "dihedral-argmax"

    def operators(
        self, which: Tensor | None = None, generator: torch.Generator | None = None, temperature: float | Tensor = 1.0
    ) -> Tensor:
        logits = self.logits if which is None else self.logits[which]
        weights = straight_through_argmax(torch.softmax(logits / temperature, dim=1))
        return self.scaled(torch.einsum("rkl,kb->rbl", weights, self.blocks[: logits.shape[1]]), which)


class SignRelations(DiscreteRelations):
    """D_K-STE for K = 4 and 6: blocks built from signs of real latents, gradients straight through.

    R⁽ˡ⁾ = [[λ, -αγ], [γ, αλ]] with λ and γ from the binary variables x, y (and z where K = 6) and
    the reflection indicator α.
    """

    kind = "dihedral-ste"

    def __init__(
        self,
        num_relations: int,
        dimension: int,
        K: int,
        *,
        init: float = 1.0,
        rotations_only: bool = False,
        scaled: bool = False,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__(num_relations, dimension, K, scaled)
        if K not in (4, 6):
            raise DihedralError(f"K is {K}; the sign parametrisation exists for K = 4 and 6, use gumbel or argmax")
        self.rotations_only = rotations_only
        variables = 3 if K == 4 else 4  # α, x, y and for K = 6 also z
        latents = torch.randn(num_relations, variables, dimension // 2, generator=generator) * init
        self.latents = nn.Parameter(latents)  # [R, 3 or 4, L]

    @property
    def codes(self) -> Tensor:
        with torch.no_grad():
            a, _, c, d = self.operators().unbind(1)  # λ = a, γ = c, α = d/λ where λ is not 0
            turn = torch.round(torch.atan2(c, a) * self.K / (2 * math.pi)).long() % self.K
            reflects = (
                sign(self.latents[:, 0]) < 0 if not self.rotations_only else torch.zeros_like(d, dtype=torch.bool)
            )
            return (turn + self.K * reflects).to(torch.uint8)

    def operators(self, which: Tensor | None = None, generator: Any = None, temperature: Any = 1.0) -> Tensor:
        latents = self.latents if which is None else self.latents[which]
        alpha, x, y, *z = sign(latents).unbind(1)
        if self.rotations_only:
            alpha = torch.ones_like(alpha)
        if self.K == 4:
            lam, gamma = (x + y) / 2, (x - y) / 2
        else:
            lam, gamma = y * (3 - x) / 4, z[0] * (x + 1) * math.sqrt(3) / 4
        return self.scaled(torch.stack([lam, -alpha * gamma, gamma, alpha * lam], dim=1), which)


class OrthogonalRelations(BlockRelations):
    """Continuous O(2): any angle, and a reflection indicator by its sign; the ablation of discreteness."""

    kind = "orthogonal"

    def __init__(self, num_relations: int, dimension: int, *, generator: torch.Generator | None = None) -> None:
        super().__init__(num_relations, dimension)
        shape = num_relations, dimension // 2
        self.angles = nn.Parameter(torch.rand(shape, generator=generator) * 2 * math.pi)
        self.reflection = nn.Parameter(torch.randn(shape, generator=generator))

    def operators(self, which: Any = None, generator: Any = None, temperature: Any = 1.0) -> Tensor:
        which = slice(None) if which is None else which
        angles, reflection = self.angles[which], self.reflection[which]
        lam, gamma, alpha = angles.cos(), angles.sin(), sign(reflection)
        return torch.stack([lam, -alpha * gamma, gamma, alpha * lam], dim=1)


class _Sign(torch.autograd.Function):
    """sign(b) with sign(0) = +1 forwards, the identity backwards (identity STE)."""

    @staticmethod
    def forward(ctx: Any, real: Tensor) -> Tensor:
        return torch.where(real >= 0, 1.0, -1.0).to(real.dtype)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Tensor:
        return gradients[0]


def sign(real: Tensor) -> Tensor:
    """Binary variables from real ones; the gradient passes unchanged."""
    result: Tensor = _Sign.apply(real)
    return result


def gumbel_noise(like: Tensor, generator: torch.Generator | None) -> Tensor:
    """q = -log(-log u), u uniform on (0, 1)."""
    exponential = torch.empty_like(like).exponential_(generator=generator)  # -log u
    return -exponential.clamp_(min=torch.finfo(like.dtype).tiny).log_()


def straight_through_argmax(weights: Tensor) -> Tensor:
    """One-hot of the largest weight forwards, the gradient of the weights backwards; weights [R, 2K, L]."""
    hard = torch.zeros_like(weights).scatter_(1, weights.argmax(dim=1, keepdim=True), 1.0)
    return hard + (weights - weights.detach())  # the bracket is exactly 0


def temperature_at(epoch: int, start: float, floor: float, rate: float) -> float:
    """τ = max(floor, start · exp(-rate · epoch))."""
    return max(floor, start * float(np.exp(-rate * epoch)))
