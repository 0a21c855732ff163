"""Compositions r₁ · r₂ ⇒ r₃ read from the codes alone: no entity vector is used and nothing in the graph is counted.

The similarity of the product R₁R₂ and R₃ is the cosine of their matrices, tr(R₁R₂R₃ᵀ) / (‖R₁R₂‖ ‖R₃‖).

If r₃ is r₁ or r₂, the trace is the same for r₁ · r₂ and r₂ · r₁: tr(R₁R₂R₁ᵀ) = Σ_l s_l(R₁)² tr R₂⁽ˡ⁾ = tr(R₂R₁R₁ᵀ).
The codes cannot tell the order of such a body, whatever the model.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from dihedral.elements.monoid import GradedMonoid
from dihedral.engine.blocks import block_product, with_transposes
from dihedral.graph.steps import inverse_ids
from dihedral.runtime import interruption

Codes = NDArray[np.integer]


class Composition(NamedTuple):
    """Step ids of a body, a head relation, and the similarity of the product to it."""

    first: int
    second: int
    head: int
    similarity: float


@torch.no_grad()
def best_compositions(codes: Codes, K: int, top: int, *, inverses: bool = True) -> list[Composition]:
    """The `top` rules with the most similar products, best first, from codes [R, L].

    inverses: bodies may walk relations backwards. Bodies r · ~r, which lead back to their start, are left out.
    """
    count = len(codes)
    operators, sizes = _blocks(codes, K)
    heads, steps = operators.flatten(1), with_transposes(operators) if inverses else operators
    squares = sizes.square()
    norms = squares.sum(1).sqrt().clamp(min=1e-30)  # ‖R_c‖, all norms divided by √2
    pairs = (squares @ squares.T).sqrt().clamp(min=1e-30).repeat(1, len(steps) // count)  # ‖R_a R_b‖
    best, rules = torch.zeros(0), torch.zeros((0, 3), dtype=torch.long)
    for first in range(len(steps)):
        interruption.check()
        products = block_product(steps[first], steps).flatten(1)  # R_a R_b: [steps, 4L]
        similarity = products @ heads.T / 2 / pairs[first % count][:, None] / norms  # [b, c]
        if inverses:
            similarity[inverse_ids(first, count)] = -2.0  # below any cosine
        threshold = float(best[-1]) if len(best) == top else -1.5
        found = (similarity > threshold).nonzero()
        best = torch.cat([best, similarity[found[:, 0], found[:, 1]]])
        rules = torch.cat([rules, torch.cat([torch.full_like(found[:, :1], first), found], dim=1)])
        order = best.argsort(descending=True, stable=True)[:top]
        best, rules = best[order], rules[order]
    return [Composition(*rule) for rule in zip(*rules.T.tolist(), best.tolist(), strict=True)]


def _blocks(codes: Codes, K: int) -> tuple[Tensor, Tensor]:
    """Block entries [R, 4, L] and sizes [R, L]."""
    monoid = GradedMonoid(K)
    sizes = torch.from_numpy(monoid.sizes(codes)).float()
    parts = torch.from_numpy(monoid.group.matrices.reshape(-1, 4)).float()[
        torch.from_numpy(monoid.group_part(codes)).long()
    ]
    return (parts * sizes[..., None]).transpose(1, 2).contiguous(), sizes
