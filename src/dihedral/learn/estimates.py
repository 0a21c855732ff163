"""How long a run will take on this machine, from a few steps of it."""

from __future__ import annotations

import time

import torch

from dihedral.graph import Graph
from dihedral.learn.trainer import Trainer
from dihedral.objectives.recipe import Recipe
from dihedral.runtime.threads import at_most

WARM_UP, MOST_STEPS, MOST_SECONDS = 2, 20, 1.0
LARGEST = 2e8  # numbers of the entity table; a second, short-lived copy of more is not worth it
SMALL_PRODUCTS = 1e8  # batch · entities · dimensions: below this, threads mostly wait for each other


def softmax_size(recipe: Recipe, graph: Graph) -> int:
    """The entities of a step's softmax, at most."""
    sampled = recipe.candidates + 2 * recipe.batch_size
    return min(graph.num_entities, sampled) if recipe.candidates else graph.num_entities


def num_threads(recipe: Recipe, graph: Graph, device: torch.device) -> int | None:
    """1 if the products of a step are so small that threads would mostly wait for each other; None: no limit."""
    products = recipe.batch_size * softmax_size(recipe, graph) * recipe.dimension
    is_small = device.type == "cpu" and recipe.objective == "softmax" and products < SMALL_PRODUCTS
    return 1 if is_small else None


def seconds_per_epoch(graph: Graph, recipe: Recipe, device: torch.device) -> float | None:
    """The measured time of an epoch without validation; None for a graph too large to try."""
    if graph.num_entities * recipe.dimension > LARGEST or len(graph.train) == 0:
        return None
    trainer = Trainer(graph, recipe.replace(validate_every=0, averaging=0.0), device=device)
    size, taken, seconds = recipe.batch_size, 0, 0.0
    steps = -(-len(graph.train) // size)
    with at_most(num_threads(recipe, graph, device)):
        order = torch.arange(len(trainer.triples), device=device).split(size)
        while taken < WARM_UP + MOST_STEPS and seconds < MOST_SECONDS:
            started = time.perf_counter()
            float(trainer.step(trainer.triples[order[taken % steps]]))  # waits for the device
            seconds += time.perf_counter() - started if taken >= WARM_UP else 0.0
            taken += 1
    return steps * seconds / (taken - WARM_UP)


def duration(seconds: float) -> str:
    """A duration in words.

    >>> duration(4.2), duration(100), duration(10_000)
    ('4 s', '2 minutes', '3 hours')
    """
    if seconds < 90:
        return f"{max(1, round(seconds))} s"
    return f"{seconds / 60:.0f} minutes" if seconds < 2 * 3600 else f"{seconds / 3600:.0f} hours"
