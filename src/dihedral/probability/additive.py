"""A small additive model of probabilities: one curve per feature, one offset per relation.

    z = b + b_r + Σ_f curve_f(x_f),    probability = curve(z)

The curves of the features are piecewise linear. They are fitted together by penalised logistic regression, to the exact
optimum, so that the result does not depend on the number of threads; all but the last `free` ones never fall. The last
curve is fitted on predictions for examples that the model has not seen (cross-fitting), in bins, by isotonic
regression; so a probability is the share of true examples among similar ones.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

Values = NDArray[np.float64]
KNOTS = 4  # quantiles of the true examples where a curve may bend, besides some of all examples
ITERATIONS, PRECISION = 100, 1e-9  # of Newton's method; the gain expected of another step, relative to the loss
RIDGE, RELATION_RIDGE = 0.3, 0.2
FOLDS = 5
FIRST_BIN = 40  # examples in the bin with the highest z
CHUNK = 1 << 13  # examples at a time
DIGITS = 9  # of z: examples that differ by less are equal


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
        pairs = zip(self.knots, self.heights, strict=True)
        curves = [{"knots": knots.tolist(), "heights": heights.tolist()} for knots, heights in pairs]
        named = {"offsets": self.offsets, "z": self.z, "probability": self.probability}
        return {"curves": curves} | {name: values.tolist() for name, values in named.items()}

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
    free: int = 0,
) -> tuple[AdditiveModel, Values]:
    """The model, and the value z of each example from a model that has not seen it.

    growth: how much larger each bin of the last curve is than the one above it. Use more than 1 if few examples are
    true, so that those with a high probability have small bins.
    """
    knots, examples = _examples(features, relations, truth, free)
    weights = _minimise(examples)
    fold = np.random.default_rng(seed).integers(FOLDS, size=len(truth))
    unseen = np.zeros(len(truth))
    for number in range(FOLDS):
        part = _minimise(examples.of(fold != number), start=weights)
        unseen[fold == number] = examples.of(fold == number).logits(part)
    unseen = unseen.round(DIGITS)
    z, probability = _last_curve(unseen, truth, growth)
    return replace(_model(knots, examples, weights, num_relations), z=z, probability=probability), unseen


def fit_curves(
    features: NDArray[np.float32],
    relations: NDArray[np.int64],
    truth: NDArray[np.bool_],
    num_relations: int,
    *,
    free: int = 0,
) -> AdditiveModel:
    """The model without the last curve."""
    knots, examples = _examples(features, relations, truth, free)
    return _model(knots, examples, _minimise(examples), num_relations)


@dataclass(frozen=True, eq=False)
class _Examples:
    """What a fit needs: the loss is that of logits = ramps · slopes + base + offset of the group."""

    ramps: Values  # [n, width]; the last column is 1
    groups: NDArray[np.int64]  # [n]: places among the relations present
    truth: NDArray[np.bool_]  # [n]
    present: NDArray[np.int64]
    rising: NDArray[np.bool_]  # [width + len(present)]: weights that must not be negative

    def of(self, chosen: NDArray[np.bool_]) -> _Examples:
        return replace(self, ramps=self.ramps[chosen], groups=self.groups[chosen], truth=self.truth[chosen])

    def logits(self, weights: Values) -> Values:
        width = self.ramps.shape[1]
        z: Values = self.ramps @ weights[:width] + weights[width:][self.groups]
        return z


def _examples(
    features: NDArray[np.float32], relations: NDArray[np.int64], truth: NDArray[np.bool_], free: int
) -> tuple[list[Values], _Examples]:
    knots = [_knots(column, truth) for column in features.T]
    ramps = [_ramps(column, each) for column, each in zip(features.T, knots, strict=True)]
    present, groups = np.unique(relations, return_inverse=True)
    rising = np.zeros(sum(each.shape[1] for each in ramps) + 1 + len(present), bool)
    rising[: sum(each.shape[1] for each in ramps[: len(ramps) - free])] = True
    return knots, _Examples(np.concatenate([*ramps, np.ones((len(truth), 1))], axis=1), groups, truth, present, rising)


def _model(knots: list[Values], examples: _Examples, weights: Values, num_relations: int) -> AdditiveModel:
    width, ends = examples.ramps.shape[1], np.cumsum([len(each) - 1 for each in knots])
    heights = [np.concatenate([[0.0], np.cumsum(each)]) for each in np.split(weights[: width - 1], ends[:-1])]
    offsets = np.full(num_relations, weights[width - 1])
    offsets[examples.present] += weights[width:]
    return AdditiveModel(knots, heights, offsets, np.zeros(0), np.zeros(0))


def _minimise(examples: _Examples, start: Values | None = None) -> Values:
    """The weights with the least penalised logistic loss.

    Newton's method; weights that must not be negative and would become so are held at 0 (a projected Newton method).
    """
    width, count = examples.ramps.shape[1], len(examples.present)
    penalty = np.concatenate([np.full(width - 1, RIDGE), [1e-6], np.full(count, RELATION_RIDGE)])

    def loss(z: Values, weights: Values) -> float:
        return float((np.logaddexp(0, z) - z * examples.truth).sum() + 0.5 * (penalty * weights**2).sum())

    if start is None:
        share = float(examples.truth.mean().clip(1e-6, 1 - 1e-6))
        start = np.zeros(width + count)
        start[width - 1] = np.log(share / (1 - share))
    weights, z = start, examples.logits(start)
    value = loss(z, weights)
    for _ in range(ITERATIONS):
        likely = 1 / (1 + np.exp(-z))
        error, spread = likely - examples.truth, likely * (1 - likely)
        gradient = penalty * weights
        gradient[:width] += examples.ramps.T @ error
        gradient[width:] += np.bincount(examples.groups, error, count)
        held = examples.rising & (weights <= 0) & (gradient > 0)
        step = _newton_step(examples, spread, penalty, gradient, ~held[:width])
        if -gradient @ step <= PRECISION * value:
            break
        scale, lower = 1.0, np.inf
        while not lower <= value and scale > 1e-8:
            moved = weights + scale * step
            moved[examples.rising] = moved[examples.rising].clip(min=0)
            z = examples.logits(moved)
            lower, scale = loss(z, moved), scale / 2
        weights, value = moved, lower
    return weights


def _newton_step(
    examples: _Examples, spread: Values, penalty: Values, gradient: Values, kept: NDArray[np.bool_]
) -> Values:
    """-H⁻¹ · gradient, where the weights of ramps that are not kept do not move.

    H = [[dense, crossᵀ], [cross, diagonal]]: the groups are eliminated first, because each example has one.
    """
    width, count = examples.ramps.shape[1], len(examples.present)
    dense, cross = np.diag(penalty[:width]), np.zeros((count, width))
    for first in range(0, len(spread), CHUNK):
        here = slice(first, first + CHUNK)
        weighted = examples.ramps[here] * spread[here, None]
        dense += weighted.T @ examples.ramps[here]
        order = np.argsort(examples.groups[here], kind="stable")
        groups, starts = np.unique(examples.groups[here][order], return_index=True)
        cross[groups] += np.add.reduceat(weighted[order], starts)
    diagonal = np.bincount(examples.groups, spread, count) + penalty[width:]
    dense, cross = dense[np.ix_(kept, kept)], cross[:, kept]
    step = np.zeros(width + count)
    right = cross.T @ (gradient[width:] / diagonal) - gradient[:width][kept]
    first_part = np.linalg.solve(dense - (cross.T / diagonal) @ cross, right)
    step[:width][kept] = first_part
    step[width:] = -(gradient[width:] + cross @ first_part) / diagonal
    return step


def _knots(column: NDArray[np.float32], truth: NDArray[np.bool_]) -> Values:
    """Where the curve of a feature may bend: at quantiles of all examples and of the true ones."""
    places = np.linspace(0, 1, KNOTS)
    found = np.concatenate([np.quantile(column[truth], places), np.quantile(column, [0, 0.5, 0.9, 0.99, 1])])
    knots = np.unique(found.astype(np.float64).round(6))
    return knots if len(knots) > 1 else np.array([knots[0], knots[0] + 1.0])


def _ramps(column: NDArray[np.float32], knots: Values) -> Values:
    """[n, knots - 1]: how far along each piece of the curve a value lies, from 0 to 1."""
    pieces = (column[:, None] - knots[None, :-1]) / np.diff(knots)
    ramps: Values = pieces.clip(0, 1)
    return ramps


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
