"""The map of entities: principal components or UMAP of their vectors, with types and numbers of facts."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Annotated, Any, Literal, get_args

import numpy as np
import torch
from fastapi import APIRouter, Query
from numpy.typing import NDArray
from torch import Tensor

from dihedral.errors import DihedralError
from dihedral.serve import schemas
from dihedral.serve.routes.common import ERROR_RESPONSES, endpoint
from dihedral.serve.served_model import ServedModel

Method = Literal["pca", "umap"]
MAX_POINTS: dict[Method, int] = {"pca": 50_000, "umap": 10_000}  # UMAP takes minutes for more
MAX_TYPES = 8  # with a colour of their own


router = APIRouter(prefix="/v1", tags=["entities"], responses=ERROR_RESPONSES)


@endpoint(router, "/map", queue=lambda _, method: "heavy" if method == "pca" else "slow")
def map_(
    served: ServedModel,
    method: Annotated[Method, Query(description="umap: only where umap-learn is installed.")] = "pca",
) -> schemas.MapResponse:
    """The entities with the most facts in two dimensions, at most 50,000; the first request computes them."""
    if method not in served.maps:
        served.maps[method] = _compute(served, method)
    return served.maps[method]


def _compute(served: ServedModel, method: Method) -> schemas.MapResponse:
    graph = served.graph
    drawn = graph.by_degree[: MAX_POINTS[method]].astype(np.int64)
    vectors = served.predictor.entity_vectors
    coordinates, variance = project(vectors[torch.from_numpy(drawn).to(vectors.device)], method)
    largest = list(served.types.items())[:MAX_TYPES]
    places = np.full(graph.num_entities, -1)  # the type of each entity: of several, the smallest
    for place, (_, members) in enumerate(largest):
        places[members] = place
    counts = np.bincount(places[drawn] + 1, minlength=len(largest) + 1)[1:].tolist()
    types = [schemas.TypeSummary(name=name, entities=count) for (name, _), count in zip(largest, counts, strict=True)]
    points = coordinates.astype(np.float64).round(4)
    response = schemas.MapResponse(
        method=method,
        methods=available_methods(),
        total=graph.num_entities,
        variance=list(variance),
        names=[graph.entities[i] for i in drawn.tolist()],
        x=points[:, 0].tolist(),
        y=points[:, 1].tolist(),
        facts=served.num_facts[drawn].tolist(),
        types=types,
        type=places[drawn].tolist(),
    )
    served.labelled(response)  # once, not for every request
    return response


def available_methods() -> list[Method]:
    return [method for method in get_args(Method) if method == "pca" or find_spec("umap") is not None]


@torch.no_grad()
def project(vectors: Tensor, method: Method = "pca") -> tuple[NDArray[np.float32], tuple[float, ...]]:
    """Points [n, 2] for vectors [n, d], the largest coordinate 1 or -1, and the share of the variance of each axis.

    The axes of UMAP mean nothing and have no shares. The same vectors give the same points.
    """
    if method not in available_methods():
        raise DihedralError(f"method is {method!r}, which needs the package umap-learn; install it, or use 'pca'")
    centred = vectors.float().cpu()
    centred = centred - centred.mean(dim=0)
    points, variance = _pca(centred) if method == "pca" else (_umap(centred), ())
    return (points / max(float(np.abs(points).max(initial=0)), 1e-12)).astype(np.float32), variance


def _pca(centred: Tensor) -> tuple[NDArray[Any], tuple[float, ...]]:
    """The eigenvectors of the covariance [d, d]; d is a few hundred, so this is exact and takes less than a second."""
    values, axes = torch.linalg.eigh((centred.T @ centred).double())
    values, axes = values.flip(0).clamp(min=0), axes.flip(1)[:, :2]
    axes = axes * axes.gather(0, axes.abs().argmax(dim=0, keepdim=True)).sign()  # the sign is free; this one is fixed
    points = torch.zeros(len(centred), 2)
    points[:, : axes.shape[1]] = centred @ axes.float()
    total = float(values.sum()) or 1.0
    return points.numpy(), tuple(float(value) / total for value in values[:2])


def _umap(centred: Tensor) -> NDArray[Any]:
    import umap

    points: NDArray[Any] = umap.UMAP(n_components=2, metric="cosine", random_state=0).fit_transform(centred.numpy())
    return points - points.mean(axis=0)
