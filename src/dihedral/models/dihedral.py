"""DihEdral: relations as rows of elements of D_K, graded with levels other than 1, whose codes training finds."""

from __future__ import annotations

import math
from collections.abc import Container
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor, nn

from dihedral.elements.group import GradedMonoid, levels_text
from dihedral.errors import DihedralError
from dihedral.models.model import BlockRelations, Relations


def check_group(model: type[Relations], K: int) -> None:
    """Refuse a K that the model does not support."""
    if model.allowed_k is None or K in model.allowed_k:
        return
    if isinstance(model.allowed_k, range):
        raise DihedralError(f"K is {K!r:.80}; codes are stored as bytes, so K must be 1 to {model.allowed_k[-1]}")
    raise DihedralError(
        f"K is {K!r:.80} with model {model.kind!r}; the sign parametrisation exists for K = 4 and 6: "
        "choose one of these, or model dihedral-gumbel, dihedral-argmax or dihedral-projection"
    )


class DiscreteRelations(BlockRelations):
    """What all parametrisations of D_K share: codes, and their operators. scaled: learn a factor per relation."""

    is_discrete = True
    allowed_k: ClassVar[Container[int] | None] = range(1, 129)  # codes are stored as bytes
    rotations_only: ClassVar[bool] = False  # the cyclic subgroup: the paper's ablation of reflections

    def __init__(
        self,
        num_relations: int,
        dimension: int,
        K: int,
        *,
        init: float = 1.0,
        scaled: bool = False,
        grades: tuple[float, ...] = (0,),
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__(num_relations, dimension)
        check_group(type(self), K)
        self.K = K
        self.grades = grades
        self.monoid = GradedMonoid(K)
        self.max_grade = int(max(grade for grade in grades if math.isfinite(grade)))
        blocks = torch.as_tensor(self.monoid.matrices(self.max_grade).reshape(-1, 4), dtype=torch.float32)
        self.register_buffer("blocks", blocks, persistent=False)
        self.blocks: Tensor  # entries a, b, c, d of the elements by id; the last one is zero: [n + 1, 4]
        self.log_scales = nn.Parameter(torch.zeros(num_relations)) if scaled else None
        self.draw(init, generator)

    def draw(self, init: float, generator: torch.Generator | None) -> None:
        """Create the parameters that training finds the codes with, with spread `init`."""

    @property
    def codes(self) -> Tensor:
        """Element ids [R, L], of type `code_dtype`."""
        raise AttributeError("codes")

    @property
    def scales(self) -> Tensor | None:
        """The factor of each relation [R], if the model has factors."""
        return None if self.log_scales is None else self.log_scales.detach().exp()

    def scaled(self, operators: Tensor, which: Tensor | None) -> Tensor:
        """Operators [R, 4, L] times the factors of their relations."""
        if self.log_scales is None:
            return operators
        return operators * (self.log_scales if which is None else self.log_scales[which]).exp()[:, None, None]

    def exact(self) -> Tensor:
        operators = self.blocks[self.codes.long()].transpose(1, 2).contiguous()  # of the codes: [R, 4, L]
        return operators if self.scales is None else operators * self.scales[:, None, None]

    def stored(self) -> dict[str, Tensor]:
        return {"codes": self.codes} | ({} if self.scales is None else {"scales": self.scales})

    @property
    def element_names(self) -> list[str]:
        """The names of the elements by id; that of zero, id -1, comes last in a graded model."""
        return self.monoid.names(self.max_grade) if self.is_graded else self.monoid.group.names

    @property
    def is_graded(self) -> bool:
        return self.grades != (0,)

    @property
    def code_dtype(self) -> torch.dtype:
        """uint8 in D_K; a signed type for graded elements, which have the id -1 for zero."""
        dtype = self.monoid.dtype(self.max_grade) if self.is_graded else self.monoid.group.dtype
        return torch.from_numpy(np.empty(0, dtype)).dtype

    def settings(self) -> dict[str, int | str]:
        return {"K": self.K} | ({"levels": levels_text(self.grades)} if self.is_graded else {})


class CodeRelations(DiscreteRelations):
    """Fixed codes, as stored models hold them."""

    kind = "dihedral"
    is_gradable = True

    def __init__(self, codes: Tensor, K: int, scales: Tensor | None = None, grades: tuple[float, ...] = (0,)) -> None:
        super().__init__(codes.shape[0], 2 * codes.shape[1], K, grades=grades)
        allowed = torch.from_numpy(self.monoid.elements(grades)).to(codes.device)
        wrong = codes[~torch.isin(codes.long(), allowed)]
        if wrong.numel():
            own = (
                f"D_{K} has ids 0 to {2 * K - 1}" if grades == (0,) else f"levels {levels_text(grades)} do not have it"
            )
            raise DihedralError(f"codes hold the element {int(wrong[0])}; {own}")
        self.register_buffer("fixed_codes", codes.to(self.code_dtype))
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
    """D_K-Gumbel: R⁽ˡ⁾ = Σ_k c_k D_k with c drawn by Gumbel-softmax from logits s (Eq. 3)."""

    kind = "dihedral-gumbel"
    is_gradable = True
    uses_temperature = True

    def draw(self, init: float, generator: torch.Generator | None) -> None:
        ids = self.monoid.elements(self.grades)
        if self.rotations_only:
            ids = ids[self.monoid.group.is_rotation(self.monoid.group_part(ids))]
        self.register_buffer("choices", torch.from_numpy(ids).to(self.code_dtype), persistent=False)
        self.choices: Tensor  # element ids [choices]
        self.register_buffer("choice_blocks", self.blocks[ids], persistent=False)
        self.choice_blocks: Tensor  # [choices, 4]
        shape = self.num_relations, len(ids), self.dimension // 2
        self.logits = nn.Parameter(torch.randn(shape, generator=generator) * init)  # [R, choices, L]

    @property
    def codes(self) -> Tensor:
        return self.choices[self.logits.detach().argmax(dim=1)]

    def operators(
        self, which: Tensor | None = None, generator: torch.Generator | None = None, temperature: float | Tensor = 1.0
    ) -> Tensor:
        logits = self.logits if which is None else self.logits[which]
        weights = self.choose(logits, generator, temperature)
        return self.scaled(torch.einsum("rkl,kb->rbl", weights, self.choice_blocks), which)

    def choose(self, logits: Tensor, generator: torch.Generator | None, temperature: float | Tensor) -> Tensor:
        """Weights of the elements [R, choices, L]."""
        return torch.softmax((logits + gumbel_noise(logits, generator)) / temperature, dim=1)


class ArgmaxRelations(GumbelRelations):
    """Straight-through arg-max for any K: one-hot in the forward pass, the softmax's gradient in the backward pass."""

    kind = "dihedral-argmax"

    def choose(self, logits: Tensor, generator: torch.Generator | None, temperature: float | Tensor) -> Tensor:
        return straight_through_argmax(torch.softmax(logits / temperature, dim=1))


class CyclicGumbelRelations(GumbelRelations):
    """Gumbel-softmax over the rotations of D_K."""

    kind = "cyclic-gumbel"
    rotations_only = True


class CyclicArgmaxRelations(ArgmaxRelations):
    """Straight-through arg-max over the rotations of D_K."""

    kind = "cyclic-argmax"
    rotations_only = True


class SignRelations(DiscreteRelations):
    """D_K-STE for K = 4 and 6: blocks built from signs of real latents, with a straight-through estimator.

    R⁽ˡ⁾ = [[λ, -αγ], [γ, αλ]], where α is the reflection indicator and λ = cos θ and γ = sin θ follow from the binary
    variables x, y and, for K = 6, z:

        K = 4: λ = (x + y) / 2, γ = (x - y) / 2     K = 6: λ = y (3 - x) / 4, γ = z (x + 1) √3 / 4

         x   y    λ   γ     θ                        x   y   z    λ     γ     θ
         +   +    1   0    0°                        -   +   ±    1     0    0°
         +   -    0   1   90°                        +   +   +    ½   √3/2  60°
         -   -   -1   0  180°                        +   -   +   -½   √3/2 120°
         -   +    0  -1  270°                        -   -   ±   -1     0  180°
                                                     +   -   -   -½  -√3/2 240°
                                                     +   +   -    ½  -√3/2 300°
    """

    kind = "dihedral-ste"
    allowed_k = (4, 6)

    def draw(self, init: float, generator: torch.Generator | None) -> None:
        shape = self.num_relations, 3 if self.K == 4 else 4, self.dimension // 2  # α, x, y and for K = 6 also z
        self.latents = nn.Parameter(torch.randn(shape, generator=generator) * init)

    @property
    def codes(self) -> Tensor:
        with torch.no_grad():
            lam, _, gamma, _ = self.operators().unbind(1)
            turn = torch.round(torch.atan2(gamma, lam) * self.K / (2 * math.pi)).long() % self.K
            reflects = torch.zeros_like(turn) if self.rotations_only else sign(self.latents[:, 0]) < 0
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


class CyclicSignRelations(SignRelations):
    """The rotations of D_K by signs."""

    kind = "cyclic-ste"
    rotations_only = True


class ProjectionRelations(DiscreteRelations):
    """R⁽ˡ⁾ is the element nearest to M⁽ˡ⁾ in the forward pass; the gradient of R⁽ˡ⁾ is that of M⁽ˡ⁾."""

    kind = "dihedral-projection"
    is_gradable = True
    default_init = 0.5  # half of the size of an element: codes still change easily

    def draw(self, init: float, generator: torch.Generator | None) -> None:
        shape = self.num_relations, 4, self.dimension // 2
        self.matrices = nn.Parameter(torch.randn(shape, generator=generator) * init)  # M as a, b, c, d: [R, 4, L]
        sizes = torch.tensor([2.0**-grade for grade in self.grades])
        self.register_buffer("sizes", sizes, persistent=False)
        self.sizes: Tensor  # the levels, descending [levels]
        starts = torch.tensor([-1 if math.isinf(grade) else 2 * self.K * int(grade) for grade in self.grades])
        self.register_buffer("starts", starts, persistent=False)
        self.starts: Tensor  # the first id of each level, -1 for zero [levels]

    @property
    def codes(self) -> Tensor:
        return self.nearest(self.matrices)

    @torch.no_grad()
    def nearest(self, matrices: Tensor) -> Tensor:
        """The ids [R, L] of the elements nearest to matrices [R, 4, L] in the Frobenius norm.

        ‖M - s D_g‖² = ‖M‖² - 2s ⟨M, D_g⟩ + 2s², so the best g has the largest ⟨M, D_g⟩ for every size s, and the best
        size is the one nearest to half of it. A rotation by θ has ⟨M, D⟩ = (a + d) cos θ + (c - b) sin θ, a reflection
        (a - d) cos θ + (b + c) sin θ.
        """
        a, b, c, d = matrices.unbind(1)
        rotation, size = self._turn(a + d, c - b)
        reflection, other = self._turn(a - d, b + c)
        part = torch.where(other > size, self.K + reflection, rotation)
        distance = (torch.maximum(size, other)[..., None] - self.sizes).abs()
        start = self.starts[distance.argmin(dim=-1)]
        return torch.where(start < 0, start, start + part).to(self.code_dtype)

    def _turn(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        """The m that maximises p = x cos θ + y sin θ for θ = 2πm/K, and p / 2."""
        step = 2 * math.pi / self.K
        turn = torch.round(torch.atan2(y, x) / step)
        return turn.long() % self.K, (x * torch.cos(turn * step) + y * torch.sin(turn * step)) / 2

    def operators(self, which: Tensor | None = None, generator: Any = None, temperature: Any = 1.0) -> Tensor:
        matrices = self.matrices if which is None else self.matrices[which]
        elements = self.blocks[self.nearest(matrices).long()].transpose(1, 2)
        # the difference is exactly 0
        return self.scaled(elements + (matrices - matrices.detach()), which)


class OrthogonalRelations(BlockRelations):
    """Continuous O(2), the ablation of discreteness: a uniform angle, and a reflection by the sign of a latent."""

    kind = "orthogonal"

    def __init__(
        self, num_relations: int, dimension: int, *, init: float = 1.0, generator: torch.Generator | None = None
    ) -> None:
        super().__init__(num_relations, dimension)
        shape = num_relations, dimension // 2
        self.angles = nn.Parameter(torch.rand(shape, generator=generator) * 2 * math.pi)
        self.reflection = nn.Parameter(torch.randn(shape, generator=generator) * init)

    def operators(self, which: Any = None, generator: Any = None, temperature: Any = 1.0) -> Tensor:
        which = slice(None) if which is None else which
        angles, reflection = self.angles[which], self.reflection[which]
        lam, gamma, alpha = angles.cos(), angles.sin(), sign(reflection)
        return torch.stack([lam, -alpha * gamma, gamma, alpha * lam], dim=1)


PARAMETRISATIONS: tuple[type[BlockRelations], ...] = (
    GumbelRelations, SignRelations, ArgmaxRelations, ProjectionRelations, CyclicGumbelRelations, CyclicArgmaxRelations,
    CyclicSignRelations, OrthogonalRelations,
)  # fmt: skip


def sign(real: Tensor) -> Tensor:
    """Binary variables from real ones, sign(0) = +1; the gradient passes through unchanged (straight-through)."""
    return torch.where(real >= 0, 1.0, -1.0).to(real.dtype) + (real - real.detach())  # the difference is exactly 0


def gumbel_noise(like: Tensor, generator: torch.Generator | np.random.Generator | None) -> Tensor:
    """q = -log(-log u), u uniform on (0, 1); on a CPU, a generator of numpy is faster."""
    if isinstance(generator, np.random.Generator):
        exponential = torch.from_numpy(generator.standard_exponential(like.shape, np.float32))
    else:
        exponential = torch.empty_like(like).exponential_(generator=generator)  # -log u
    return -exponential.clamp_(min=torch.finfo(like.dtype).tiny).log_()


def straight_through_argmax(weights: Tensor) -> Tensor:
    """One-hot of the largest weight, with the gradient of the weights; weights [R, 2K, L]."""
    one_hot = torch.zeros_like(weights).scatter_(1, weights.argmax(dim=1, keepdim=True), 1.0)
    return one_hot + (weights - weights.detach())  # the difference is exactly 0


def temperature_at(epoch: int, start: float, floor: float, rate: float) -> float:
    """τ = max(floor, start · exp(-rate · epoch))."""
    return max(floor, start * float(np.exp(-rate * epoch)))
