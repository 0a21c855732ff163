"""The map of entities: their vectors in two dimensions, with types and numbers of facts; computed once per model."""

from __future__ import annotations

from weakref import WeakKeyDictionary

import numpy as np
import torch

from dihedral.graph import Graph
from dihedral.graph.types import types_of
from dihedral.scoring.embedding import need_embeddings
from dihedral.serve.projection import Method, available_methods, project
from dihedral.serve.schemas import MapResponse, MapType
from dihedral.serve.served_model import ServedModel

MAX_POINTS: dict[Method, int] = {"pca": 50_000, "umap": 10_000}  # UMAP takes minutes for more
MAX_TYPES = 8  # with a colour of their own

# The references are weak, so that a replaced model is freed.
_maps: WeakKeyDictionary[ServedModel, dict[Method, MapResponse]] = WeakKeyDictionary()


def entity_map(served: ServedModel, method: Method) -> MapResponse:
    """The entities with the most facts, as many as a map holds, in two dimensions."""
    maps = _maps.setdefault(served, {})
    if method not in maps:
        maps[method] = _compute(served, method)
    return maps[method]


def _compute(served: ServedModel, method: Method) -> MapResponse:
    graph = served.graph
    drawn = graph.by_degree[: MAX_POINTS[method]].astype(np.int64)
    vectors = need_embeddings(served.predictor.scorer, "a map of entities").entities
    found = project(vectors[torch.from_numpy(drawn).to(vectors.device)], method)
    largest = list(types_of(graph).items())[:MAX_TYPES]
    places = np.full(graph.num_entities, -1)  # of each entity in the list of types; of several, the smallest counts
    for place, (_, members) in enumerate(largest):
        places[members] = place
    counts = np.bincount(places[drawn] + 1, minlength=len(largest) + 1)[1:].tolist()
    shown = [MapType(name=name, entities=count) for (name, _), count in zip(largest, counts, strict=True)]
    points = found.points.astype(np.float64).round(4)
    names = {graph.entities[i]: _label(graph, i) for i in drawn.tolist()}
    types_labels = graph.labels_in([each.name for each in shown])
    return MapResponse(
        model=served.name,
        labels={name: label for name, label in names.items() if label} | types_labels,
        method=method,
        methods=available_methods(),
        total=graph.num_entities,
        variance=list(found.variance),
        names=list(names),
        x=points[:, 0].tolist(),
        y=points[:, 1].tolist(),
        facts=served.num_facts[drawn].tolist(),
        types=shown,
        type=places[drawn].tolist(),
    )


def _label(graph: Graph, entity: int) -> str:
    return "" if graph.entities.labels is None else graph.entities.labels.label(entity)
