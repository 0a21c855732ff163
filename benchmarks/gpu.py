"""Speed on one CUDA device: `python -m benchmarks.gpu [--only NAME …]`.

Checks the fast paths against the reference, then measures epochs, ranking, memory, and growth with the problem size.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np
import torch

import dihedral as dh
from benchmarks.record import RESULTS, save, seconds
from dihedral import reference
from dihedral.engine.adagrad import Adagrad, RowGradients
from dihedral.engine.cross_entropy import tiled_cross_entropy
from dihedral.evaluation import Evaluator
from dihedral.learn.trainer import Trainer
from dihedral.models.baselines import ComplEx
from dihedral.objectives.recipe import Recipe

DEVICE = "cuda"


def check() -> dict[str, Any]:
    """Relative errors of the CUDA paths compared with float64 autograd or torch.optim.Adagrad."""
    torch.manual_seed(0)
    found = {}

    def error(got: torch.Tensor, wanted: torch.Tensor) -> float:
        return float((got.double().cpu() - wanted.double().cpu()).norm() / wanted.double().cpu().norm())

    for name, size, tile_mb in (("rows", 5003, 256), ("one row tile of several", 5003, 8), ("entities", 90_001, 16)):
        queries, candidates = torch.randn(1024, 200), torch.randn(size, 200) * 0.2
        targets = torch.randint(size, (1024,))
        exact = [part.double().requires_grad_() for part in (queries, candidates)]
        loss = reference.cross_entropy(exact[0] @ exact[1].T, targets) * len(targets)
        wanted = [loss, *torch.autograd.grad(loss, exact)]
        for precision in ("half", "tf32", "float32"):
            got = tiled_cross_entropy(
                queries.cuda(), candidates.cuda(), targets.cuda(), precision=precision, tile_mb=tile_mb
            )
            found[f"softmax {name} {precision}"] = [error(g, w) for g, w in zip(got, wanted, strict=True)]
    for tail in (True, False):
        operators, entities = torch.randn(7, 4, 300), torch.randn(1000, 600)
        index, gradient = torch.randint(7, (1000,)), torch.randn(1000, 600)
        results = []
        for device in ("cpu", DEVICE):
            parts = [part.to(device).requires_grad_() for part in (operators, entities)]
            query = ComplEx(7, 600).queries(parts[0], index.to(device), parts[1], "tail" if tail else "head")
            results.append([query.detach(), *torch.autograd.grad(query, parts, gradient.to(device))])
        found[f"block queries, {'tail' if tail else 'head'}"] = [error(g, w) for w, g in zip(*results, strict=True)]
    for width in (200, 1500):
        table = torch.randn(3000, width)
        ours, theirs = Adagrad(table.clone().cuda(), 0.1), table.clone().requires_grad_()
        optimiser = torch.optim.Adagrad([theirs], lr=0.1)
        dense = Adagrad(table.clone().cuda(), 0.1)
        for _ in range(3):
            uses = RowGradients(
                torch.randint(3000, (5000,)), torch.randn(700, width), torch.randint(700, (5000,)), torch.randn(5000)
            )
            theirs.grad = uses.dense(3000)
            optimiser.step()
            ours.step_rows(RowGradients(*(part.cuda() for part in vars(uses).values())))
            dense.step(theirs.grad.cuda())
        found[f"adagrad rows, width {width}"] = error(ours.parameter, theirs.detach())
        found[f"adagrad dense, width {width}"] = error(dense.parameter, theirs.detach())
    return found


def matmul_rate() -> float:
    """The measured rate of a large float16 product, in TFLOP/s."""
    a, b = (torch.randn(8192, 8192, device=DEVICE, dtype=torch.float16) for _ in range(2))
    return 2 * 8192**3 / seconds(lambda: a @ b, repeats=20, warmup=5) / 1e12


def epoch_seconds(graph: dh.Graph, recipe: Recipe, epochs: int = 6) -> float:
    """The median epoch, excluding the first, which compiles kernels and captures the step."""
    times: list[float] = []
    trainer = Trainer(
        graph,
        recipe.replace(epochs=epochs, validate_every=0),
        device=DEVICE,
        callback=lambda event: times.append(event["seconds"]) if event["event"] == "epoch" else None,
    )
    trainer.run()
    return float(np.median(times[1:]))


def softmax_recipe(dimension: int, **settings: Any) -> Recipe:
    return Recipe(
        model="dihedral-ste", dimension=dimension, objective="softmax", regulariser="n3", regulariser_weight=0.1,
        entity_init=0.01,
    ).replace(**settings)  # fmt: skip


def epochs() -> list[dict[str, Any]]:
    rate = matmul_rate()
    rows = []
    for name, dimension in (("wn18rr", 600), ("fb15k-237", 600), ("fb15k", 1000)):
        graph = dh.load_graph(name)
        flops = 2 * 2 * 3 * len(graph.train) * graph.num_entities * dimension
        for model in ("dihedral-ste", "dihedral-gumbel", "complex"):
            for precision in ("half", "tf32") if model == "dihedral-ste" else ("half",):
                time = epoch_seconds(graph, softmax_recipe(dimension, model=model, precision=precision))
                rows.append(
                    {
                        "what": "full softmax",
                        "graph": graph.name,
                        "model": model,
                        "dimension": dimension,
                        "precision": precision,
                        "seconds": time,
                        "share_of_matmul_rate": flops / time / 1e12 / rate,
                    }
                )
                print(rows[-1], flush=True)
    for name, dimension in (("wn18rr", 200), ("fb15k-237", 200)):
        graph = dh.load_graph(name)
        for model in ("dihedral-ste", "dihedral-gumbel"):
            recipe = Recipe(model=model, dimension=dimension, negatives=10, regulariser_weight=0.1)
            rows.append(
                {
                    "what": "sampled, 10 negatives",
                    "graph": graph.name,
                    "model": model,
                    "dimension": dimension,
                    "seconds": epoch_seconds(graph, recipe),
                }
            )
            print(rows[-1], flush=True)
    return [{"matmul_tflops": rate}, *rows]


def grouped() -> list[dict[str, Any]]:
    """Epochs with one question per fact and side, and with distinct questions that have all of their answers."""
    rows = []
    for name in ("fb15k-237", "fb15k"):
        graph = dh.load_graph(name)
        for group, size in ((False, 1000), (True, 1000), (True, 4000)):
            recipe = softmax_recipe(600, group_questions=group, batch_size=size)
            rows.append(
                {"graph": graph.name, "dimension": 600, "group_questions": group, "batch_size": size,
                 "seconds": epoch_seconds(graph, recipe)}
            )  # fmt: skip
            print(rows[-1], flush=True)
    return rows


def ranking() -> list[dict[str, Any]]:
    rows = []
    for name in ("wn18rr", "fb15k-237", "fb15k"):
        graph = dh.load_graph(name)
        trainer = Trainer(graph, softmax_recipe(600, validate_every=0), device=DEVICE)
        evaluator = Evaluator(graph, "test", device=DEVICE)
        time = seconds(lambda e=evaluator, t=trainer: e(t.model))
        rows.append({"what": "filtered ranking of test", "graph": graph.name, "dimension": 600, "seconds": time})
        print(rows[-1], flush=True)
    return rows


def random_graph(entities: int, relations: int, triples: int) -> dh.Graph:
    rng = np.random.default_rng(0)
    train = np.stack([rng.integers(n, size=triples, dtype=np.int32) for n in (entities, relations, entities)], axis=1)
    empty = np.empty((0, 3), np.int32)
    names: Any = (range(entities), range(relations))  # names are not needed to train
    return dh.Graph(*names, train, empty, empty, "random")


def step_cost(graph: dh.Graph, recipe: Recipe, steps: int = 30) -> dict[str, float]:
    """Seconds per step, and peak memory in addition to parameters, gradients and optimiser state."""
    torch.cuda.empty_cache()
    trainer = Trainer(graph, recipe.replace(validate_every=0), device=DEVICE)
    batches = trainer.triples[: recipe.batch_size * 16].split(recipe.batch_size)
    for batch in batches[:5]:
        trainer.train_on(batch)
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    position = iter(range(10**9))
    time = seconds(lambda: trainer.train_on(batches[next(position) % len(batches)]), repeats=steps)
    table = trainer.model.entities
    held = 4 * table.numel() * (3 if recipe.objective == "softmax" else 2)
    held += 8 * sum(p.numel() for p in trainer.model.relations.parameters())
    peak = max(torch.cuda.max_memory_allocated(), torch.cuda.memory_reserved())
    return {"seconds_a_step": time, "extra_gib": (peak - held) / 2**30}


def growth() -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []

    def measure(graph: dh.Graph, recipe: Recipe, **point: Any) -> None:
        rows.append({"objective": recipe.objective, **point, **step_cost(graph, recipe)})
        print(rows[-1], flush=True)
        torch.cuda.empty_cache()

    for entities in (10_000, 100_000, 1_000_000, 5_000_000):
        graph = random_graph(entities, 100, 200_000)
        measure(graph, softmax_recipe(256), entities=entities, dimension=256)
        measure(graph, Recipe(model="dihedral-ste", dimension=256), entities=entities, dimension=256, negatives=10)
    graph = random_graph(40_000, 100, 200_000)
    for dimension in (64, 256, 1024, 2048):
        measure(graph, softmax_recipe(dimension), entities=40_000, dimension=dimension)
        measure(graph, Recipe(model="dihedral-ste", dimension=dimension), entities=40_000, dimension=dimension,
                negatives=10)  # fmt: skip
    for negatives in (1, 10, 100, 1000):
        recipe = Recipe(model="dihedral-ste", dimension=256, negatives=negatives)
        measure(graph, recipe, entities=40_000, dimension=256, negatives=negatives)
        shared = recipe.replace(share_negatives=256)
        measure(graph, shared, entities=40_000, dimension=256, negatives=negatives, share_negatives=256)
    return rows


PARTS = {"check": check, "epochs": epochs, "grouped": grouped, "ranking": ranking, "growth": growth}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", nargs="*", choices=list(PARTS), default=list(PARTS))
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args()
    content: dict[str, Any] = {}
    for name in options.only:
        content[name] = PARTS[name]()
        print(name, content[name] if name == "check" else "done", flush=True)
        save("gpu-engine", content, options.out)


if __name__ == "__main__":
    main()
