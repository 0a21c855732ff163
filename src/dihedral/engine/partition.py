"""Candidates that are one rank's part of a partitioned table."""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor

Combine = Callable[[Tensor], Tensor]
"""Turns the log-sum-exp [B] over this rank's candidates into that over all ranks."""


def local_targets(targets: Tensor, candidates: Tensor) -> tuple[Tensor, Tensor]:
    """1 or 0 [B] for targets inside or outside these candidates, and the targets clamped to valid rows."""
    inside = (targets >= 0) & (targets < len(candidates))
    return inside.to(candidates.dtype), targets.clamp(0, len(candidates) - 1)
