"""The recipe for a graph if none is given: by its size and the time to train, but not by the speed of the device."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Collection, Mapping
from typing import Any

import torch

from dihedral.engine import compiled
from dihedral.graph import Graph
from dihedral.objectives.recipe import Recipe, applicable, recipe_names

DEFAULT_MINUTES = 10.0  # of training
SPARSE = 3.0  # triples per entity: WN18RR has 2 and needs small batches and a strong regulariser
DENSE = 6.0  # triples per entity, from which paths of three steps lead everywhere
SMALL = 50_000  # triples
FEW = 100  # triples, from which steps and gates cannot be learned
PATH_SPEED = {"cpu": 60_000, "cuda": 150_000}  # triples times steps of paths that there is time for in a minute
OF_EMBEDDINGS = {"model", "dimension", "objective", "regulariser"}  # of the settings that path models have too
LEVELS = "1, 1/2, 1/4, 0"
MAX_EPOCHS = 100
MIN_EPOCHS = 30  # that the time must suffice for
CPU_SPEED, GPU_SPEED = 6e10, 2e13  # operations per second of the products; of a CPU, on two cores
SMALL_PRODUCTS = 1e8  # batch · entities · dimensions of a step's softmax
CANDIDATES = 1000  # entities of a sampled softmax besides those of the batch
MIN_ANSWERS = 2.5  # per distinct question; with fewer, grouped questions save little and lose accuracy
APART = {"objective", "paths", "relation_weight", "regularise_relations", "group_questions"}  # need single facts


def choose_recipe(
    graph: Graph, settings: Mapping[str, Any] | None = None, *, searched: Collection[str] = (),
    minutes: float | None = None, device: str | torch.device = "cpu",
) -> Recipe:  # fmt: skip
    """A recipe that suits the graph and can be trained in the given time, by default 10 minutes.

    settings: replace single settings; those of embeddings, such as a model, ask for one, and objective "paths" for a
    path model. searched: settings that will be replaced. The `about` of the recipe gives the reasons.

    >>> from dihedral.graph import make_family
    >>> family = make_family(40)
    >>> choose_recipe(family).objective, choose_recipe(family, {"model": "dihedral-gumbel"}).objective
    ('paths', 'softmax')
    """
    triples, density = len(graph.train), len(graph.train) / max(1, graph.num_entities)
    path_recipe, settings, device = _path_recipe(density), settings or {}, torch.device(device).type
    minutes = minutes or DEFAULT_MINUTES
    of_paths = applicable(path_recipe.to_dict()).keys() - OF_EMBEDDINGS
    is_possible = device == "cuda" or (device == "cpu" and compiled.available())
    affordable = minutes * PATH_SPEED[device] if is_possible else 0
    is_small = triples >= FEW and triples * path_recipe.steps <= affordable and {*settings, *searched} <= of_paths
    if settings.get("objective", "paths" if is_small else "") == "paths":
        return path_recipe.changed(settings)
    speed = CPU_SPEED if device == "cpu" else GPU_SPEED
    # the entities times dimensions that there is time for: a softmax takes 12 operations for each and for each triple
    products = 60 * minutes * speed / (MIN_EPOCHS * 12 * max(1, triples))
    dimension = 400 if products >= 400 * min(graph.num_entities, CANDIDATES) else 200
    recipe = Recipe(name="by size", model="dihedral-gumbel", dimension=dimension, relation_lr=1.0, epochs=MAX_EPOCHS)
    if products < dimension * min(graph.num_entities, CANDIDATES):
        recipe = recipe.replace(cooling=0.02, regulariser_weight=0.1 if density < SPARSE else 0.01, patience=3)
        return _finished(recipe, settings, f"{triples:,} triples leave no time for a softmax over many entities")
    sizes = (32, 64, 128) if density < SPARSE else (32, 64, 128, 256, 512)
    recipe = recipe.replace(
        objective="softmax", entity_init=0.01, cooling=0.05, validate_every=5, patience=3,
        batch_size=min(sizes, key=lambda size: abs(size - triples / 50)),
        candidates=0 if products >= dimension * graph.num_entities else CANDIDATES,
    )  # fmt: skip
    if density < SPARSE:
        recipe = recipe.replace(regulariser="l2", regulariser_weight=0.5, averaging=0.8)
        why = f"small batches and strong L2 for {density:.1f} triples per entity"
    else:
        weight = 0.05 if triples < SMALL else 0.1
        recipe = recipe.replace(levels=LEVELS, relation_scale=True, dropout=0.2, averaging=0.9)
        recipe = recipe.replace(regulariser="dura", regulariser_weight=weight)
        why = f"DURA {weight} for {density:.1f} triples per entity"
        answers, apart = answers_per_question(graph), APART & settings.keys()
        if answers >= MIN_ANSWERS and speed == CPU_SPEED and not apart:  # a GPU is slower with groups
            size = 2 * recipe.batch_size
            recipe = recipe.replace(group_questions=True, batch_size=size, entity_lr=0.2, relation_lr=2.0, patience=5)
            why = f"{why}, grouped questions for {answers:.1f} answers per question"
    return _finished(recipe, settings, why)


def _path_recipe(density: float) -> Recipe:
    """Longer paths where entities have fewer triples: fewer entities are near, and answers further away."""
    steps = 5 if density < SPARSE else 4 if density < DENSE else 3
    return Recipe(
        name="by size", model="dihedral-argmax", K=8, relation_init=0.5, dimension=32, objective="paths", steps=steps,
        update="gate", relation_lr=0.005, batch_size=32, epochs=10, facts_per_epoch=5000, averaging=0.7,
        validate_every=1, validate_on=1500,
        about=f"path model of D8, 2L = 32, paths of up to {steps} steps for {density:.1f} triples per entity",
    )  # fmt: skip


def in_words(recipe: Recipe, show: Callable[[str, str], str]) -> str:
    """What was chosen to be trained, and the setting that asks for the other kind, as `show` writes it."""
    kind = f"an embedding (a path model: {show('objective', 'paths')})"
    if recipe.objective == "paths":
        kind = f"a path model (an embedding: {show('model', 'dihedral-gumbel')})"
    return f"settings for this graph and these options: {kind}"


def answers_per_question(graph: Graph) -> float:
    """The facts of each distinct question about the graph, in both directions, on average."""
    return 2 * len(graph.train) / max(1, len(graph.train_index.keys))


def num_threads(recipe: Recipe, graph: Graph, device: torch.device) -> int | None:
    """1 if the products of a step are so small that threads would mostly wait for each other; None: no limit."""
    entities = min(graph.num_entities, recipe.candidates + 2 * recipe.batch_size if recipe.candidates else math.inf)
    products = recipe.batch_size * entities * recipe.dimension
    products /= answers_per_question(graph) if recipe.group_questions else 1
    is_small = device.type == "cpu" and recipe.objective == "softmax" and products < SMALL_PRODUCTS
    return 1 if is_small else None


def best_recipe(graph: Graph, chosen: Recipe) -> str | None:
    """The tuned recipe of the same kind for a benchmark of this name, if there is one, or that for graded elements."""
    pattern = r"paths/{}$" if chosen.objective == "paths" else r"best/{}-d\d"
    tuned = [name for name in recipe_names() if re.match(pattern.format(re.escape(graph.name.lower())), name)]
    return max(tuned, key=lambda name: name.endswith("-graded"), default=None)


def _finished(recipe: Recipe, settings: Mapping[str, Any], why: str) -> Recipe:
    """The recipe with its reasons, and with settings of the user."""
    recipe = recipe.replace(model=settings.get("model", recipe.model))
    graded = "graded " if recipe.levels != "1" else ""
    model = f"{graded}D{recipe.K}-Gumbel" if recipe.model == "dihedral-gumbel" else recipe.model
    over = "logistic loss" if recipe.objective == "logistic" else "full softmax"
    over = f"softmax over a sample of {recipe.candidates:,} entities" if recipe.candidates else over
    factor = ", a learned factor per relation" if recipe.relation_scale else ""
    about = (
        f"{model}{factor}, 2L = {recipe.dimension}, {over}, batches of {recipe.batch_size}, "
        f"at most {recipe.epochs} epochs: {why}"
    )
    return recipe.replace(about=about).changed(settings)
