"""A small additive model of probabilities: one rising curve per feature, one offset per relation.

    z = b + b_r + Σ_f curve_f(x_f),    probability = curve(z)

The curves of the features are piecewise linear and never fall. They are fitted together by penalised logistic
regression. The last curve is fitted on predictions for examples that the model has not seen (cross-fitting), in bins,
by isotonic regression; so a probability is the share of true examples among similar ones.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

Values = NDArray[np.float64]
KNOTS = 4  # quantiles of the true examples where a curve may bend, besides some of all examples
ITERATIONS = 60
RIDGE, RELATION_RIDGE = 0.02, 0.2
FOLDS = 5
FIRST_BIN = 40  # examples in the bin with the highest z


@dataclass(frozen=True, eq=False)
class AdditiveModel:
    """Probabilities from features [n, F] and relations [n]."""

    knots: list[Values]  # per feature, ascending
    heights: list[Values]  # the curve at its knots, starting at 0
    offsets: Values  # [R]
    z: Values  # ascending: where the last curve bends
    probability: Values  # there

    def logits(self, features: NDArray[np.float32], relations: NDArray[np.int64]) -> Values:
        total: Values = self.offsets[relations].copy()
        for column, (knots, heights) in enumerate(zip(self.knots, self.heights, strict=True)):
            total += np.interp(features[:, column], knots, heights)
        return total

    def at(self, z: Values) -> Values:
        """The last curve."""
        found: Values = np.interp(z, self.z, self.probability)
        return found

    def probabilities(self, features: NDArray[np.float32], relations: NDArray[np.int64]) -> Values:
        return self.at(self.logits(features, relations))

    def to_dict(self) -> dict[str, Any]:
        def short(values: Values) -> list[float]:
            return [float(f"{value:.6g}") for value in values.tolist()]

        curves = [{"knots": short(k), "heights": short(h)} for k, h in zip(self.knots, self.heights, strict=True)]
        named = {"offsets": self.offsets, "z": self.z, "probability": self.probability}
        return {"curves": curves} | {name: short(values) for name, values in named.items()}

    @classmethod
    def from_dict(cls, content: dict[str, Any], features: int, relations: int) -> AdditiveModel:
        knots, heights = (
            [np.array(curve[name], float) for curve in content["curves"]] for name in ("knots", "heights")
        )
        offsets, z, probability = (np.array(content[name], float) for name in ("offsets", "z", "probability"))
        if len(knots) != features or offsets.shape != (relations,) or z.shape != probability.shape or not len(z):
            raise ValueError(f"expected curves for {features} features and offsets for {relations} relations")
        curves = [*zip(knots, heights, strict=True), (z, probability)]
        if any(x.ndim != 1 or not len(x) or x.shape != y.shape or (np.diff(x) < 0).any() for x, y in curves):
            raise ValueError("expected curves with one height at each of their ascending knots")
        if not all(np.isfinite(each).all() for each in (offsets, *(part for curve in curves for part in curve))):
            raise ValueError("expected finite numbers")
        return cls(knots, heights, offsets, z, probability)


def fit_additive(
    features: NDArray[np.float32],
    relations: NDArray[np.int64],
    truth: NDArray[np.bool_],
    num_relations: int,
    *,
    seed: int = 0,
    growth: float = 1.0,
) -> tuple[AdditiveModel, Values]:
    """The model, and the probability of each example from a model that has not seen it.

    growth: how much larger each bin of the last curve is than the one above it. Use more than 1 if few examples are
    true, so that those with a high probability have small bins.
    """
    fold = np.random.default_rng(seed).integers(FOLDS, size=len(truth))
    unseen = np.zeros(len(truth))
    for number in range(FOLDS):
        mine = fold == number
        part = fit_curves(features[~mine], relations[~mine], truth[~mine], num_relations)
        unseen[mine] = part.logits(features[mine], relations[mine])
    z, probability = _last_curve(unseen, truth, growth)
    model = replace(fit_curves(features, relations, truth, num_relations), z=z, probability=probability)
    return model, model.at(unseen)


def fit_curves(
    features: NDArray[np.float32], relations: NDArray[np.int64], truth: NDArray[np.bool_], num_relations: int
) -> AdditiveModel:
    from scipy.optimize import minimize  # on first use: its import takes longer than that of this package

    knots = [_knots(column, truth) for column in features.T]
    ramps = torch.cat([_ramps(column, k) for column, k in zip(features.T, knots, strict=True)], dim=1)
    width = ramps.shape[1]
    penalty = np.concatenate([np.full(width, RIDGE), [1e-6], np.full(num_relations, RELATION_RIDGE)])
    target, which = torch.from_numpy(truth).float(), torch.from_numpy(relations)

    def loss(weights: Values) -> tuple[float, Values]:
        slopes, base, offsets = torch.from_numpy(weights).float().split([width, 1, num_relations])
        z = ramps @ slopes + (base + offsets)[which]
        error = torch.sigmoid(z) - target
        value = float((F.softplus(z) - z * target).sum(dtype=torch.float64)) + 0.5 * float((penalty * weights**2).sum())
        per_relation = torch.zeros(num_relations).index_add_(0, which, error)
        gradient = torch.cat([ramps.T @ error, error.sum()[None], per_relation]).double().numpy()
        return value, gradient + penalty * weights

    start = np.zeros(len(penalty))
    share = float(truth.mean())
    start[width] = np.log(max(share, 1e-6) / max(1 - share, 1e-6))
    bounds = [(0.0, None)] * width + [(None, None)] * (1 + num_relations)  # no curve falls
    found = minimize(loss, start, jac=True, method="L-BFGS-B", bounds=bounds, options={"maxiter": ITERATIONS}).x
    slopes = np.split(found[:width], np.cumsum([len(k) - 1 for k in knots])[:-1])
    heights = [np.concatenate([[0.0], np.cumsum(each)]) for each in slopes]
    offsets = found[width] + found[width + 1 :]
    return AdditiveModel(knots, heights, offsets, np.zeros(0), np.zeros(0))  # without the last curve


def _knots(column: NDArray[np.float32], truth: NDArray[np.bool_]) -> Values:
    """Where the curve of a feature may bend: at quantiles of all examples and of the true ones."""
    places = np.linspace(0, 1, KNOTS)
    found = np.concatenate([np.quantile(column[truth], places), np.quantile(column, [0, 0.5, 0.9, 0.99, 1])])
    knots = np.unique(found.astype(np.float64).round(6))
    return knots if len(knots) > 1 else np.array([knots[0], knots[0] + 1.0])


def _ramps(column: NDArray[np.float32], knots: Values) -> Tensor:
    """[n, knots - 1]: how far along each piece of the curve a value lies, from 0 to 1."""
    pieces = (column[:, None] - knots[None, :-1]) / np.diff(knots)
    return torch.from_numpy(pieces.clip(0, 1).astype(np.float32))


def _last_curve(z: Values, truth: NDArray[np.bool_], growth: float) -> tuple[Values, Values]:
    """A rising curve from z to the share of true examples, from bins in the order of z."""
    from scipy.optimize import isotonic_regression

    order = np.argsort(-z, kind="stable")
    edges, size = [0], float(FIRST_BIN)
    while edges[-1] < len(z):
        edges.append(min(len(z), edges[-1] + round(size)))
        size *= growth
    starts, counts = np.array(edges[:-1]), np.diff(edges)
    centres = np.add.reduceat(z[order], starts) / counts
    shares = (np.add.reduceat(truth[order].astype(float), starts) + 0.5) / (counts + 1)
    rising = isotonic_regression(shares[::-1], weights=counts[::-1]).x
    return centres[::-1], rising
