"""`dihedral train`: train a model from data and a recipe; `dihedral recipes`: list the built-in recipes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer

from dihedral.cli.options import Columns, Data, Device, Json, Labels, Language, Seed, Settings, Threads, Verbose, Wide
from dihedral.cli.output import (
    console,
    detail,
    metric_rows,
    notes,
    print_found,
    print_json,
    print_metrics,
    read_data,
    remark,
)
from dihedral.errors import DihedralError
from dihedral.graph import Graph
from dihedral.graph.labels import count_labels
from dihedral.learn import Interrupted, Recipe, choose_recipe, load_recipe, recipe_names
from dihedral.learn.defaults import DEFAULT_MINUTES, best_recipe
from dihedral.learn.estimates import duration, seconds_per_epoch
from dihedral.learn.loggers import Logger, MLflowLogger, TensorBoardLogger
from dihedral.predict.predictor import Predictor
from dihedral.predict.train import train
from dihedral.runtime.device import choose_device
from dihedral.runtime.distributed import rank, world_size
from dihedral.store.manifest import holds_model

RecipeOption = Annotated[
    str | None,
    typer.Option(help="A recipe (see `dihedral recipes`) or a TOML file; by default chosen by the graph's size."),
]
Minutes = Annotated[
    float | None,
    typer.Option(
        help=f"Stop training after this time; by default {DEFAULT_MINUTES:.0f} without a recipe, no limit with one."
    ),
]
Compare = Annotated[bool, typer.Option("--compare", help="Also train ComplEx with the same settings, and compare.")]
KeepOptimiser = Annotated[
    bool, typer.Option("--keep-optimiser", help="Also store the optimiser's state, for `dihedral update`.")
]
Mlflow = Annotated[
    str | None, typer.Option(metavar="EXPERIMENT", help="Log to an MLflow experiment (at MLFLOW_TRACKING_URI).")
]


def train_command(
    data: Data,
    out: Annotated[Path, typer.Option(help="The folder of the model.")],
    recipe: RecipeOption = None,
    set_: Settings = None,
    seed: Seed = 0,
    split_seed: Annotated[int, typer.Option(help="Random seed for splitting a single file 80/10/10.")] = 0,
    device: Device = "auto",
    threads: Threads = None,
    minutes: Minutes = None,
    compare: Compare = False,
    resume: Annotated[bool, typer.Option("--resume", help="Resume from the last checkpoint in OUT.")] = False,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Start over: replace what is in OUT.")] = False,
    dtype: Annotated[str, typer.Option(help="Stored type of entity vectors: float32 or float16.")] = "float32",
    shard_mb: Annotated[float | None, typer.Option(help="Store entity vectors in files of this many MB.")] = None,
    keep_latents: Annotated[bool, typer.Option("--keep-latents", help="Also store the training parameters.")] = False,
    keep_optimiser: KeepOptimiser = False,
    checkpoint_minutes: Annotated[float, typer.Option(help="Minutes between checkpoints; 0: every epoch.")] = 1.0,
    tensorboard: Annotated[Path | None, typer.Option(help="Write TensorBoard logs to this folder.")] = None,
    mlflow: Mlflow = None,
    columns: Columns = None,
    labels: Labels = None,
    language: Language = "en",
    verbose: Verbose = False,
    json: Json = False,
) -> None:
    """Train a model and evaluate it on valid and test.

    Example: dihedral train umls --recipe demo/umls --out out/umls --set epochs=40

    Example with several processes: torchrun --nproc-per-node 4 -m dihedral train umls --out out/umls
    """
    if compare and world_size() > 1:
        raise DihedralError(f"--compare trains two models in one process; this run has {world_size()} processes")
    console.quiet = notes.quiet = rank() > 0  # only rank zero prints
    settings = parse_settings(set_ or [])
    # an invalid recipe fails before data are read
    named = load_recipe(recipe).changed(settings) if recipe is not None else None
    graph = read_data(data, columns, split_seed, labels=labels, language=language)
    if labels is not None:
        remark(f"labels: {count_labels(graph.entities, graph.relations)}")
    if named is None:
        minutes = DEFAULT_MINUTES if minutes is None else minutes
    chosen = named or choose_for(graph, settings, device, minutes)
    remark(f"training on {len(graph.train):,} facts of {graph.num_entities:,} entities, seed {seed}")
    detail(f"{graph!r}, recipe {chosen.name}")
    finished = resume and holds_model(out) and not overwrite
    with ExitStack() as stack, resumable(out):
        loggers = [stack.enter_context(logger) for logger in _loggers(tensorboard, mlflow)]
        predictor = train(
            graph, chosen, seed=seed, device=device, out=out, resume=resume, overwrite=overwrite,
            checkpoint_minutes=checkpoint_minutes, keep_latents=keep_latents, dtype=dtype, shard_mb=shard_mb,
            keep_optimiser=keep_optimiser, minutes=minutes, callback=loggers,
        )  # fmt: skip
    baseline = chosen.adapt(model="complex") if compare else None
    other = train(graph, baseline, seed=seed, device=device, minutes=minutes) if baseline else None
    if rank() == 0:
        _report(predictor, other, out, finished, json)


@contextmanager
def resumable(out: Path) -> Iterator[None]:
    """After Ctrl-C, say how to resume."""
    try:
        yield
    except Interrupted:
        remark(f"interrupted; a checkpoint is in {out / 'training'}: resume with the same command and --resume")
        raise typer.Exit(1) from None


def _loggers(tensorboard: Path | None, mlflow: str | None) -> list[Logger]:
    if rank() > 0:
        return []
    loggers: list[Logger] = [TensorBoardLogger(tensorboard)] if tensorboard is not None else []
    return loggers + ([MLflowLogger(mlflow)] if mlflow is not None else [])


def _report(predictor: Predictor, other: Predictor | None, out: Path, finished: bool, json: bool) -> None:
    metrics = predictor.metrics
    if finished:
        remark(f"{out} already holds this run, complete; nothing was trained")
    if json:
        print_json({"out": str(out), **metrics, **({"complex": other.metrics} if other else {})})
        return
    for split in ("valid", "test"):
        if split in metrics:
            print_metrics(f"{split}, filtered", metric_rows(metrics[split]))
    if "test" in metrics:
        first, ten = (100 * metrics["test"]["both"][name] for name in ("hits@1", "hits@10"))
        remark(f"the right answer is first for {first:.0f} % of the test questions, and among ten for {ten:.0f} %")
    if not finished:
        remark(f"wrote the model to {out} (best epoch {metrics['best_epoch']} of {metrics['epochs']}{_ended(metrics)})")
    if other is not None and "test" in metrics:
        mrr, theirs = (each["test"]["both"]["mrr"] for each in (metrics, other.metrics))
        remark(
            f"ComplEx with the same settings has a test MRR of {theirs:.4f}, this model {mrr:.4f}: "
            f"relations that can be read cost {theirs - mrr:+.4f}"
        )


def _ended(metrics: Mapping[str, Any]) -> str:
    """Why training ended before its last epoch."""
    reasons = {"minutes": "the time was up: --minutes gives more", "patience": "valid MRR no longer improved"}
    reason = reasons.get(metrics.get("stopped_by", ""))
    return f"; {reason}" if reason else ""


def choose_for(graph: Graph, settings: Mapping[str, Any], device: str, minutes: float | None = None) -> Recipe:
    """Choose a recipe for a graph, and print it together with a tuned alternative, if any.

    minutes: the time for training, which is announced.
    """
    chosen = choose_recipe(graph, settings, minutes=minutes, device=choose_device(device))
    tuned = best_recipe(graph)
    remark("settings chosen for a graph of this size" + (f" (tuned but slower: --recipe {tuned})" if tuned else ""))
    detail(f"no --recipe: {chosen.about}")
    if minutes is not None:
        _announce_time(graph, chosen, device, minutes)
    return chosen


def _announce_time(graph: Graph, recipe: Recipe, device: str, minutes: float) -> None:
    seconds = seconds_per_epoch(graph, recipe, choose_device(device))
    if seconds is None:
        return
    epochs = f"{recipe.epochs} epochs take about {duration(seconds * recipe.epochs)} here"
    limit = f"; training ends after {duration(60 * minutes)}, or earlier if valid MRR stops improving"
    remark(epochs + (limit if seconds * recipe.epochs > 60 * minutes else ", or less if valid MRR stops improving"))


def parse_settings(settings: list[str]) -> dict[str, str]:
    """Parse KEY=VALUE strings."""
    parsed = {}
    for setting in settings:
        key, equals, value = setting.partition("=")
        if not equals:
            raise DihedralError(f"--set got {setting!r}; write KEY=VALUE, such as epochs=40")
        parsed[key.strip()] = value.strip()
    return parsed


def recipes_command(
    name: Annotated[str | None, typer.Argument(help="The recipe or TOML file to show.")] = None,
    wide: Wide = False,
    json: Json = False,
) -> None:
    """List the built-in recipes, or show all settings of one.

    Example: dihedral recipes paper/wn18rr-d4-ste
    """
    if name is not None:
        settings = load_recipe(name).to_dict()
        print_found(json, [settings], ["setting", "value"], [[key, str(value)] for key, value in settings.items()])
        return
    found = [load_recipe(each) for each in recipe_names()]
    rows = [[r.name, r.model, r.K, r.dimension, r.objective, r.epochs] for r in found]
    header = ["recipe", "model", "K", "2L", "objective", "epochs"]
    print_found(json, [recipe.to_dict() for recipe in found], header, rows)
