"""Compositions r₁ · r₂ ⇒ r₃ read from the codes alone: no entity vector is used and nothing in the graph is counted.

The similarity of the product R₁R₂ and R₃ is the cosine of their matrices, tr(R₁R₂R₃ᵀ) / (‖R₁R₂‖ ‖R₃‖). A trace does not
change if its factors are rotated or all transposed, so two tables of traces hold those of all bodies with inverses:

    tr(R_a R_b R_cᵀ)  is the trace of  a · b ⇒ c,  ~a · c ⇒ b  and  c · ~b ⇒ a
    tr(R_a R_b R_c)   is the trace of  ~c · ~b ⇒ a

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
    forwards, backwards = with_transposes(operators).flatten(1).chunk(2)
    squares = sizes.square()
    norms = squares.sum(1).sqrt().clamp(min=1e-30)  # ‖R_a‖, all norms divided by √2
    pairs = (squares @ squares.T).sqrt().clamp(min=1e-30)  # ‖R_a R_b‖
    best = _Best(top, count)
    steps = torch.arange(count)
    b, c = steps[:, None].expand(count, count), steps.expand(count, count)
    for number in range(count):
        a = torch.full_like(b, number)
        products = block_product(operators[number], operators).flatten(1)  # R_a R_b: [R, 4L]
        traces = products @ forwards.T / 2  # of R_a R_b R_cᵀ: [b, c]
        best.add(traces / pairs[number][:, None] / norms, a, b, c)
        if inverses:
            best.add(traces / norms[:, None] / pairs[number], a + count, c, b)
            best.add(traces / pairs / norms[number], c, b + count, a)
            # of R_a R_b R_c: its rotations have the same trace, so a is the smallest of the three
            rest = slice(number, None)
            traces = products[rest] @ backwards[rest].T / 2
            i, j, k = (each[rest, rest] for each in (a, b, c))
            best.add(traces / pairs[rest, rest] / norms[number], k + count, j + count, i)
            best.add(traces / pairs[number, rest] / norms[rest, None], i + count, k + count, j)
            best.add(traces / pairs[number, rest, None] / norms[rest], j + count, i + count, k)
    return best.sorted()


class _Best:
    """The rules with the highest similarities seen so far."""

    def __init__(self, top: int, num_relations: int) -> None:
        self.top, self.num_relations = top, num_relations
        self.rules: dict[tuple[int, ...], Composition] = {}
        self.threshold = -2.0

    def add(self, similarities: Tensor, first: Tensor, second: Tensor, head: Tensor) -> None:
        """Rules with their similarities, as equally shaped tables."""
        above = similarities > self.threshold
        if int(above.sum()) > 2 * self.top:
            above &= similarities >= similarities[above].topk(self.top).values[-1]
        columns = (each[above].tolist() for each in (first, second, head, similarities))
        for rule in map(Composition, *columns):
            if inverse_ids(rule.first, self.num_relations) != rule.second:
                self.rules[rule[:3]] = rule
        if len(self.rules) > 4 * self.top:
            kept = self.sorted()
            self.rules, self.threshold = {rule[:3]: rule for rule in kept}, kept[-1].similarity

    def sorted(self) -> list[Composition]:
        return sorted(self.rules.values(), key=lambda rule: (-rule.similarity, rule))[: self.top]


def _blocks(codes: Codes, K: int) -> tuple[Tensor, Tensor]:
    """Block entries [R, 4, L] and sizes [R, L]."""
    monoid = GradedMonoid(K)
    sizes = torch.from_numpy(monoid.sizes(codes)).float()
    parts = torch.from_numpy(monoid.group.matrices.reshape(-1, 4)).float()[
        torch.from_numpy(monoid.group_part(codes)).long()
    ]
    return (parts * sizes[..., None]).transpose(1, 2).contiguous(), sizes
