"""Entities in two dimensions, for a map: the principal components of their vectors, or UMAP where it is installed."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any, Literal, NamedTuple, get_args

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from dihedral.errors import DihedralError

Method = Literal["pca", "umap"]


class Projection(NamedTuple):
    """Points [n, 2], scaled so that the largest coordinate is 1 or -1.

    variance: the share of the variance of the vectors that each axis holds; empty for UMAP, whose axes mean nothing.
    """

    points: NDArray[np.float32]
    variance: tuple[float, ...]


def available_methods() -> list[Method]:
    return [method for method in get_args(Method) if method == "pca" or find_spec("umap") is not None]


@torch.no_grad()
def project(vectors: Tensor, method: Method = "pca", *, seed: int = 0) -> Projection:
    """Two coordinates for each row of `vectors` [n, d]. The same vectors give the same points."""
    if method not in available_methods():
        raise DihedralError(f"method is {method!r}, which needs the package umap-learn; install it, or use 'pca'")
    centred = vectors.float().cpu()
    centred = centred - centred.mean(dim=0)
    points, variance = _pca(centred) if method == "pca" else (_umap(centred, seed), ())
    return Projection((points / max(float(np.abs(points).max(initial=0)), 1e-12)).astype(np.float32), variance)


def _pca(centred: Tensor) -> tuple[NDArray[Any], tuple[float, ...]]:
    """The eigenvectors of the covariance [d, d]; d is a few hundred, so this is exact and takes less than a second."""
    values, axes = torch.linalg.eigh((centred.T @ centred).double())
    values, axes = values.flip(0).clamp(min=0), axes.flip(1)[:, :2]
    axes = axes * axes.gather(0, axes.abs().argmax(dim=0, keepdim=True)).sign()  # the sign is free; this one is fixed
    points = torch.zeros(len(centred), 2)
    points[:, : axes.shape[1]] = centred @ axes.float()
    total = float(values.sum()) or 1.0
    return points.numpy(), tuple(float(value) / total for value in values[:2])


def _umap(centred: Tensor, seed: int) -> NDArray[Any]:
    import umap

    points: NDArray[Any] = umap.UMAP(n_components=2, metric="cosine", random_state=seed).fit_transform(centred.numpy())
    return points - points.mean(axis=0)
