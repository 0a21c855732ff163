"""A synthetic graph of the size of Wikidata5M: `python -m benchmarks.scale [--device cuda] [--only PART …]`.

Parts: softmax and sampled (epochs at full size), ranking and top (answers over all entities), growth (cost against
entities, triples and dimension). `--processes 1 2 4` measures scaling over processes on smaller graphs instead. Results
go to results/scale.json. `python -m benchmarks.pages --charts` shows them.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import torch

from benchmarks.record import RESULTS, environment, save, seconds
from dihedral.engine import compiled
from dihedral.evaluation import Evaluator
from dihedral.graph import Graph
from dihedral.graph.triples import SPLITS
from dihedral.graph.vocabulary import Vocabulary
from dihedral.learn.trainer import Trainer
from dihedral.objectives.recipe import Recipe, write_recipe
from dihedral.predict.predictor import Predictor
from dihedral.store.trained import TrainedModel

ENTITIES, RELATIONS, TRIPLES, TEST = 4_594_485, 822, 20_614_279, 5_163  # of Wikidata5M, transductive split
DIMENSION = 256
RANKED = 5000
WARMUP_STEPS = 8  # compile the kernels and capture the step
SOFTMAX = Recipe(model="dihedral-ste", dimension=DIMENSION, objective="softmax", batch_size=16384, regulariser="none",
                 entity_init=0.05, validate_every=0)  # fmt: skip
SAMPLED = SOFTMAX.replace(objective="logistic", batch_size=65536, negatives=1024, share_negatives=1024)
Rows = list[dict[str, Any]]


# --- the graph -------------------------------------------------------------------------------------


def generate(entities: int, relations: int, triples: int, held_out: int = TEST, seed: int = 0) -> Graph:
    """Distinct random triples with the skew of a real graph.

    Tails and relations follow Zipf's law with exponent 1 (ranks are log-uniform): at full size the most frequent tail
    has 4.5% of the triples and the most frequent relation 10%. Heads are mildly skewed, as rank^(-1/3).
    """
    rng = np.random.default_rng(seed)
    wanted = triples + 2 * held_out
    drawn = int(1.1 * wanted)
    tail = rng.permutation(entities)[_zipf(rng, entities, drawn)]
    relation = _zipf(rng, relations, drawn)
    head = (entities * rng.random(drawn) ** 1.5).astype(np.int64)
    keys = np.unique((head * relations + relation) * entities + tail)
    if len(keys) < wanted:
        raise SystemExit(f"{entities} entities are too few for {wanted} distinct triples; reduce --triples")
    keys = rng.permutation(keys)[:wanted]
    rest, tail = np.divmod(keys, entities)
    rows = np.stack([*np.divmod(rest, relations), tail], axis=1).astype(np.int32)
    train, valid, test = np.split(rows, [triples, triples + held_out])
    return Graph(_names("Q", entities), _names("P", relations, "relation"), train, valid, test, "wikidata5m-sized")


def _zipf(rng: np.random.Generator, size: int, count: int) -> np.ndarray:
    ranks = np.exp(rng.random(count) * np.log(size + 1)).astype(np.int64) - 1
    return np.minimum(ranks, size - 1)


def _names(letter: str, count: int, kind: str = "entity") -> Vocabulary:
    numbers = pc.cast(pa.array(np.arange(count)), pa.string())
    return Vocabulary(pc.binary_join_element_wise(letter, numbers, ""), kind)


# --- measuring steps -------------------------------------------------------------------------------


def steady(trainer: Trainer, steps: int, blocks: int) -> dict[str, Any]:
    """The time of a number of steps after the warm-up, and of equal blocks of them, in the trainer's own epochs."""
    marks: list[tuple[int, float]] = []
    stop, done, passed, size = threading.Event(), 0, 0, trainer.recipe.batch_size

    def count(event: dict[str, Any]) -> None:
        nonlocal done, passed
        if event["event"] != "step":
            return
        done += 1
        passed += size if event["step"] < event["steps"] else len(trainer.triples) - size * (event["steps"] - 1)
        if done >= WARMUP_STEPS and (done - WARMUP_STEPS) % max(1, steps // blocks) == 0:
            synchronise(trainer.device)
            marks.append((passed, time.perf_counter()))
        if done >= WARMUP_STEPS + steps:
            stop.set()

    trainer.callback = count
    while not stop.is_set():
        trainer.run_epoch(stop)
    each = [(t1 - t0) / (n1 - n0) * size for (n0, t0), (n1, t1) in pairwise(marks)]
    (first, start), (last, end) = marks[0], marks[-1]
    blocks_found = {"slowest_block": max(each), "fastest_block": min(each)}
    return {"steps_measured": steps, "seconds_a_step": (end - start) / (last - first) * size, **blocks_found}


def full_epoch(trainer: Trainer) -> dict[str, Any]:
    """The time per step in the second epoch; the first compiles the kernels."""
    trainer.run_epoch()
    trainer.run_epoch()
    last = trainer.state.history[-1]
    steps = len(trainer.triples) / trainer.recipe.batch_size
    return {"steps_measured": int(np.ceil(steps)), "seconds_a_step": last["seconds"] / steps, "loss": last["loss"]}


def synchronise(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def clear(device: torch.device) -> None:
    gc.collect()
    if device.type == "cuda":
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats(device)


def peak_gib(device: torch.device) -> float | None:
    """The peak of reserved device memory, including captured steps and caches."""
    return torch.cuda.max_memory_reserved(device) / 2**30 if device.type == "cuda" else None


def cost(
    graph: Graph, recipe: Recipe, device: torch.device, steps: int | None = None, blocks: int = 1
) -> dict[str, Any]:
    """Time per step and per epoch, and memory; measures a complete epoch if `steps` is None."""
    clear(device)
    trainer = Trainer(graph, recipe, device=device)
    found = full_epoch(trainer) if steps is None else steady(trainer, steps, blocks)
    if not torch.isfinite(trainer.model.entities.detach().sum()):
        raise SystemExit("training produced values that are not finite")
    epoch = found["seconds_a_step"] * len(graph.train) / recipe.batch_size
    settings = {key: getattr(recipe, key) for key in ("model", "objective", "dimension", "batch_size", "precision")}
    if recipe.objective == "logistic":
        settings |= {"negatives": recipe.negatives, "share_negatives": recipe.share_negatives}
    return {
        "entities": graph.num_entities,
        "relations": graph.num_relations,
        "triples": len(graph.train),
        **settings,
        **found,
        "epoch_seconds": epoch,
        "triples_a_second": len(graph.train) / epoch,
        "peak_gib": peak_gib(device),
    }


# --- the parts -------------------------------------------------------------------------------------


def softmax(rows: Rows, graph: Graph, options: argparse.Namespace) -> None:
    for model, steps in (("dihedral-ste", options.steps), ("dihedral-gumbel", max(1, options.steps // 10))):
        rows.append(cost(graph, sized(SOFTMAX, options).replace(model=model), options.device, steps, blocks=10))
        flops = 3 * 2 * 2 * len(graph.train) * graph.num_entities * rows[-1]["dimension"]  # three products per side
        rows[-1]["useful_tflops"] = flops / rows[-1]["epoch_seconds"] / 1e12
        show(rows[-1])


def sampled(rows: Rows, graph: Graph, options: argparse.Namespace) -> None:
    for model in ("dihedral-ste", "dihedral-gumbel"):
        rows.append(cost(graph, sized(SAMPLED, options).replace(model=model), options.device))
        show(rows[-1])


def sized(recipe: Recipe, options: argparse.Namespace) -> Recipe:
    """The recipe with smaller batches if the graph is small."""
    size = min(recipe.batch_size, max(1, options.triples // 64))
    changes: dict[str, Any] = {"batch_size": size, "dimension": options.dimension}
    if recipe.share_negatives:
        changes |= {"share_negatives": min(size, recipe.share_negatives)}
    return recipe.replace(**changes)


def predictor(graph: Graph, options: argparse.Namespace) -> Predictor:
    trainer = Trainer(graph, sized(SAMPLED, options), device=options.device)
    return Predictor(TrainedModel(trainer.best_model(), graph))


def ranking(rows: Rows, graph: Graph, options: argparse.Namespace) -> None:
    clear(options.device)
    scorer = predictor(graph, options).trained.scorer
    started = time.perf_counter()
    evaluator = Evaluator(graph, triples=graph.test[:RANKED], device=options.device)
    prepared = time.perf_counter() - started
    for memory_mb in (256, 4096):
        evaluator.memory_mb = memory_mb
        time_taken = seconds(lambda: evaluator(scorer), repeats=3)
        rows.append({"triples_ranked": len(evaluator.triples), "entities": graph.num_entities, "memory_mb": memory_mb,
                     "dimension": scorer.model.dimension, "seconds": time_taken, "preparation_seconds": prepared,
                     "peak_gib": peak_gib(options.device)})  # fmt: skip
        show(rows[-1])


def top(rows: Rows, graph: Graph, options: argparse.Namespace) -> None:
    clear(options.device)
    scorer = predictor(graph, options).trained.scorer
    test = torch.from_numpy(graph.test).long().to(options.device)
    for at_once, memory_mb in ((1, 256), (64, 4096), (1024, 4096)):
        queries = test[:at_once]
        time_taken = seconds(lambda: scorer.top(queries[:, 0], queries[:, 1], 10, memory_mb=memory_mb))  # noqa: B023
        rows.append({"questions_at_once": len(queries), "memory_mb": memory_mb, "entities": graph.num_entities,
                     "dimension": options.dimension, "seconds": time_taken,
                     "questions_a_second": len(queries) / time_taken})  # fmt: skip
        show(rows[-1])


def growth(rows: Rows, graph: Graph, options: argparse.Namespace) -> None:
    """The cost of both objectives along each axis; rows with held_back are excluded from fitting."""
    full, triples, width = options.entities, options.triples, options.dimension
    steps = min(options.steps, 24)

    def measure(axis: str, graph: Graph, recipe: Recipe, steps: int | None = steps, **more: Any) -> None:
        rows.append({"axis": axis, **cost(graph, recipe, options.device, steps), **more})
        show(rows[-1])

    def smaller(entities: int, triples: int = triples // 8) -> Graph:
        return generate(entities, options.relations, triples, min(TEST, triples // 100))

    for share in (64, 16, 4):
        part = smaller(full // share)
        measure("entities", part, sized(SOFTMAX, options))
        measure("entities", part, sized(SAMPLED, options))
        if share != 4:
            continue
        for dimension in (width // 4, width // 2, 2 * width):
            measure("dimension", part, sized(SOFTMAX, options).replace(dimension=dimension))
            measure("dimension", part, sized(SAMPLED, options).replace(dimension=dimension))
        batch = sized(SOFTMAX, options).batch_size // 8
        measure("batch", part, sized(SOFTMAX, options).replace(batch_size=batch))
        measure("batch", part, sized(SAMPLED, options).replace(batch_size=batch, share_negatives=min(batch, 1024)))
    for share in (64, 16, 4):
        part = smaller(full // 16, triples // share)
        measure("triples", part, sized(SOFTMAX, options), steps=None)
        measure("triples", part, sized(SAMPLED, options), steps=None)
    part = smaller(full // 2)
    for recipe in (SOFTMAX, SAMPLED):
        half = sized(recipe, options)
        measure("held back", part, half.replace(batch_size=half.batch_size // 2, dimension=width // 2), held_back=True)


SMALL_SAMPLED = SAMPLED.replace(dimension=200, share_negatives=0, negatives=10, batch_size=1024, validate_every=0)
WORKLOADS: dict[str, tuple[Any, Recipe]] = {  # a dataset, or the sizes of a graph to generate
    "wn18rr, 10 negatives": ("wn18rr", SMALL_SAMPLED),
    "wn18rr, 10 negatives, large batch": ("wn18rr", SMALL_SAMPLED.replace(batch_size=8192)),
    "wn18rr, 50 negatives, large batch": ("wn18rr", SMALL_SAMPLED.replace(batch_size=8192, negatives=50)),
    "shared negatives": ((200_000, 50, 200_000), SAMPLED.replace(batch_size=8192)),
    "full softmax": ((20_000, 50, 10_000), SOFTMAX.replace(batch_size=1024)),
}


def processes(content: dict[str, Any], counts: list[int], options: argparse.Namespace) -> None:
    """Seconds per epoch with torchrun and 1, 2, … processes; on a CPU each has one thread.

    Each count is measured twice and the fastest epoch counts, because other load on the machine only adds time.
    """
    with tempfile.TemporaryDirectory() as folder:
        settings, out = Path(folder) / "recipe.toml", Path(folder) / "out"
        for name in options.workloads:
            data, recipe = WORKLOADS[name]
            if not isinstance(data, str):
                sizes, data = data, Path(folder) / name.replace(" ", "-")
                write_folder(generate(*sizes, held_out=100), data)
            write_recipe(recipe.replace(epochs=4), settings)
            best: dict[int, float] = {}
            for count in counts * 2:
                torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", count]
                train = ["dihedral", "train", data, "--recipe", settings, "--out", out, "--device", options.device.type]
                command = [*torchrun, "-m", *train, "--overwrite"]
                subprocess.run(list(map(str, command)), check=True, env={**os.environ, "OMP_NUM_THREADS": "1"},
                               stdout=subprocess.DEVNULL)  # fmt: skip
                log = (out / "training" / "log.jsonl").read_text(encoding="utf-8").splitlines()
                epochs = [json.loads(line)["seconds"] for line in log][1:]  # the first compiles the kernels
                best[count] = min([best.get(count, float("inf")), *epochs])
            content[name] = []
            for count in counts:
                row = {"processes": count, "seconds": best[count], "times": best[counts[0]] / best[count],
                       "batch_size": recipe.batch_size, "objective": recipe.objective, "dimension": recipe.dimension,
                       "compiled": compiled.available() and options.device.type == "cpu"}  # fmt: skip
                content[name].append(row)
                show({"workload": name, **row})
            save("scale-processes" + options.suffix, {"workloads": content}, options.out)


def write_folder(graph: Graph, folder: Path) -> None:
    """Write a graph as train.tsv, valid.tsv and test.tsv."""
    folder.mkdir(parents=True)
    table = graph.to_arrow()
    form = pa.csv.WriteOptions(include_header=False, delimiter="\t", quoting_style="none")
    for split in SPLITS:
        part = table.filter(pc.equal(table["split"].cast(pa.string()), split)).select(["head", "relation", "tail"])
        pa.csv.write_csv(part.cast(pa.schema([(name, pa.string()) for name in part.column_names])),
                         folder / f"{split}.tsv", form)  # fmt: skip


def show(row: dict[str, Any]) -> None:
    print({key: round(value, 5) if isinstance(value, float) else value for key, value in row.items()}, flush=True)


PARTS = {"softmax": softmax, "sampled": sampled, "ranking": ranking, "top": top, "growth": growth}


def measure(options: argparse.Namespace) -> int:
    """Run the selected parts and save each one when it ends; other parts of the record are unchanged."""
    path = options.out / "scale.json"
    content = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    content.pop("environment", None)
    started = time.perf_counter()
    graph = generate(options.entities, options.relations, options.triples, options.held_out)
    content["generation_seconds"] = time.perf_counter() - started
    print(graph, f"in {content['generation_seconds']:.1f} s", flush=True)
    failed = 0
    for name in options.only:
        started, content[name] = time.perf_counter(), []
        try:
            PARTS[name](content[name], graph, options)
        except Exception:  # noqa: BLE001 - a failed part must not stop the others
            traceback.print_exc()
            failed = 1
        finally:  # keep the measurements after Ctrl-C too
            content["made_by"] = {**content.get("made_by", {}), name: environment()["command"]}
            print(f"{name}: {time.perf_counter() - started:.0f} s", flush=True)
            save("scale", content, options.out)
    return failed


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--entities", type=int, default=ENTITIES)
    parser.add_argument("--relations", type=int, default=RELATIONS)
    parser.add_argument("--triples", type=int, default=TRIPLES)
    parser.add_argument("--dimension", type=int, default=DIMENSION)
    parser.add_argument("--steps", type=int, default=500, help="steps of full softmax to measure")
    parser.add_argument("--device", type=torch.device, default=torch.device("cuda"))
    parser.add_argument("--only", nargs="*", choices=list(PARTS), default=list(PARTS))
    parser.add_argument("--processes", type=int, nargs="*", help="only measure scaling over these process counts")
    parser.add_argument(
        "--workloads", nargs="*", choices=list(WORKLOADS), default=list(WORKLOADS), help="for --processes"
    )
    parser.add_argument("--suffix", default="", help="suffix of the record of --processes, such as -16-cores")
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args()
    options.held_out = min(TEST, options.triples // 100)
    if options.processes:
        processes({}, options.processes, options)
    else:
        sys.exit(measure(options))


if __name__ == "__main__":
    main()
