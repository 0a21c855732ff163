"""The recipe for a graph if none is given: chosen by the graph's size, based on the searches in results/."""

from __future__ import annotations

from dihedral.graph import Graph
from dihedral.training.recipe import Recipe, recipe_names

MAX_ENTITIES = 50_000  # beyond this a softmax over all entities is too slow; sampled negatives are nearly as good
SPARSE = 3.0  # triples per entity: WN18RR has 2 and needs small batches and a strong regulariser
SMALL = 50_000  # triples: 200 dimensions suffice
SHOWN = 300_000  # training examples over all epochs of a small graph
PRODUCTS, STEP = 4e10, 0.002  # operations per second of a CPU core in full softmax; overhead of a step in seconds


def choose_recipe(graph: Graph, model: str = "dihedral-gumbel") -> Recipe:
    """A recipe that suits the size of the graph; its `about` gives the reasons. Settings suit D4-Gumbel best.

    >>> from dihedral.graph import make_family
    >>> choose_recipe(make_family(40)).objective
    'softmax'
    """
    triples, density = len(graph.train), len(graph.train) / max(1, graph.num_entities)
    epochs = 5 * round(min(100, max(25, SHOWN / max(1, triples))) / 5)
    recipe = Recipe(name="by size", model="dihedral-gumbel", dimension=200, relation_lr=1.0, epochs=epochs)
    sparse = density < SPARSE
    if graph.num_entities > MAX_ENTITIES:
        weight = 0.1 if sparse else 0.01
        recipe = recipe.replace(cooling=0.02, regulariser_weight=weight, epochs=100, patience=3)
        why = f"{recipe.negatives} sampled negatives for more than {MAX_ENTITIES:,} entities"
        why += f", L2 {weight} for {density:.1f} triples per entity"
        return _for_model(recipe, model, why)
    recipe = recipe.replace(
        objective="softmax",
        dimension=200 if triples < SMALL else 400,
        entity_init=0.01,
        cooling=0.05,
        averaging=0.8,
        batch_size=_power_of_two(triples / 50, max_size=128 if sparse else 1024),
        validate_every=5,
        patience=4,
    )
    if sparse:
        recipe = recipe.replace(regulariser="l2", regulariser_weight=0.5)
        why = f"small batches and strong L2 for {density:.1f} triples per entity"
    else:
        weight = 0.05 if triples < SMALL else 0.1
        recipe = recipe.replace(regulariser="dura", regulariser_weight=weight, relation_scale=True)
        why = f"DURA {weight} for {density:.1f} triples per entity"
    work = 12 * graph.num_entities * recipe.dimension / PRODUCTS + STEP / recipe.batch_size  # seconds per triple
    seconds = triples * epochs * work
    return _for_model(recipe, model, f"{why}; about {_duration(seconds)} on one CPU core")


def best_recipe(graph: Graph) -> str | None:
    """The tuned recipe for a benchmark of this name, if there is one; of several, that for graded elements."""
    tuned = [name for name in recipe_names() if name.startswith(f"best/{graph.name.lower()}-d")]
    return max(tuned, key=lambda name: name.endswith("-graded"), default=None)


def _for_model(recipe: Recipe, model: str, why: str) -> Recipe:
    recipe = recipe.replace(model=model)
    return recipe.replace(about=_summary(recipe, why))


def _summary(recipe: Recipe, why: str) -> str:
    model = f"D{recipe.K}-Gumbel" if recipe.model == "dihedral-gumbel" else recipe.model
    over = "full softmax" if recipe.objective == "softmax" else "logistic loss"
    factor = ", a learned factor per relation" if recipe.relation_scale else ""
    return (
        f"{model}{factor}, 2L = {recipe.dimension}, {over}, batches of {recipe.batch_size}, "
        f"{recipe.epochs} epochs: {why}"
    )


def _power_of_two(size: float, max_size: int) -> int:
    """The nearest power of two, from 32 to `max_size`.

    >>> [_power_of_two(size, 1024) for size in (1, 104, 470, 5000)]
    [32, 128, 512, 1024]
    """
    return min((2**i for i in range(5, max_size.bit_length())), key=lambda power: abs(power - size))


def _duration(seconds: float) -> str:
    if seconds < 100:
        return f"{max(1, round(seconds))} s"
    return f"{seconds / 60:.0f} minutes" if seconds < 2 * 3600 else f"{seconds / 3600:.0f} hours"
