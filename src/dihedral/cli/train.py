"""`dihedral train`: train a model from data and a recipe."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated, Any

import typer

from dihedral.cli.options import Columns, Device, Json, Seed, Settings, Threads
from dihedral.cli.output import console, metric_rows, notes, print_json, print_metrics, read_data, remark
from dihedral.errors import DihedralError
from dihedral.graph import Graph
from dihedral.inference.predictor import Predictor
from dihedral.runtime.distributed import rank
from dihedral.storage.folder import holds_model
from dihedral.training import Interrupted, Recipe, choose_recipe, load_recipe, train
from dihedral.training.defaults import best_recipe
from dihedral.training.loggers import Logger, MLflowLogger, TensorBoardLogger


def command(
    data: Annotated[
        str,
        typer.Argument(
            help="A benchmark, a folder with train/valid/test, an archive, or a file (text, JSON lines, Parquet, RDF)."
        ),
    ],
    out: Annotated[Path, typer.Option(help="The folder of the model.")],
    recipe: Annotated[
        str | None,
        typer.Option(help="A recipe (see `dihedral recipes`) or a TOML file; by default chosen by the graph's size."),
    ] = None,
    set_: Settings = None,
    seed: Seed = 0,
    split_seed: Annotated[int, typer.Option(help="Random seed for splitting a single file 80/10/10.")] = 0,
    device: Device = "auto",
    threads: Threads = None,
    resume: Annotated[bool, typer.Option("--resume", help="Resume from the last checkpoint in OUT.")] = False,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Start over: replace what is in OUT.")] = False,
    dtype: Annotated[str, typer.Option(help="Stored type of entity vectors: float32 or float16.")] = "float32",
    shard_mb: Annotated[float | None, typer.Option(help="Store entity vectors in files of this many MB.")] = None,
    keep_latents: Annotated[bool, typer.Option("--keep-latents", help="Also store the training parameters.")] = False,
    checkpoint_minutes: Annotated[float, typer.Option(help="Minutes between checkpoints; 0: every epoch.")] = 1.0,
    tensorboard: Annotated[Path | None, typer.Option(help="Write TensorBoard logs to this folder.")] = None,
    mlflow: Annotated[
        str | None, typer.Option(metavar="EXPERIMENT", help="Log to an MLflow experiment (at MLFLOW_TRACKING_URI).")
    ] = None,
    columns: Columns = None,
    json: Json = False,
) -> None:
    """Train a model and evaluate it on valid and test.

    Example: dihedral train umls --recipe demo/umls --out out/umls --set epochs=40

    Example with several processes: torchrun --nproc-per-node 4 -m dihedral train umls --out out/umls
    """
    if rank() > 0:  # only rank zero prints
        console.quiet = notes.quiet = True
    settings = parse_settings(set_ or [])
    # an invalid recipe fails before data are read
    named = load_recipe(recipe).changed(settings) if recipe is not None else None
    graph = read_data(data, columns, split_seed)
    chosen = named or choose_for(graph, settings)
    remark(f"{graph!r}, recipe {chosen.name}, seed {seed}")
    finished = resume and holds_model(out) and not overwrite
    try:
        with ExitStack() as stack:
            predictor = train(
                graph, chosen, seed=seed, device=device, out=out, resume=resume, overwrite=overwrite,
                checkpoint_minutes=checkpoint_minutes, keep_latents=keep_latents, dtype=dtype, shard_mb=shard_mb,
                callback=[stack.enter_context(logger) for logger in _loggers(tensorboard, mlflow)],
            )  # fmt: skip
    except Interrupted:
        remark(f"interrupted; a checkpoint is in {out / 'training'}: resume with the same command and --resume")
        raise typer.Exit(1) from None
    if rank() == 0:
        _report(predictor, out, finished, json)


def _loggers(tensorboard: Path | None, mlflow: str | None) -> list[Logger]:
    if rank() > 0:
        return []
    loggers: list[Logger] = [TensorBoardLogger(tensorboard)] if tensorboard is not None else []
    return loggers + ([MLflowLogger(mlflow)] if mlflow is not None else [])


def _report(predictor: Predictor, out: Path, finished: bool, json: bool) -> None:
    if finished:
        remark(f"{out} already holds this run, complete; nothing was trained")
    if json:
        print_json({"out": str(out), **predictor.metrics})
        return
    for split in ("valid", "test"):
        if split in predictor.metrics:
            print_metrics(f"{split}, filtered", metric_rows(predictor.metrics[split]))
    if not finished:
        remark(f"wrote the model to {out} (best epoch {predictor.metrics['best_epoch']})")


def choose_for(graph: Graph, settings: Mapping[str, Any]) -> Recipe:
    """Choose a recipe by the size of a graph, and print it together with a tuned alternative, if any."""
    chosen = choose_recipe(graph, settings.get("model", "dihedral-gumbel")).changed(settings)
    tuned = best_recipe(graph)
    remark(f"no --recipe: {chosen.about}" + (f" (tuned but slower: --recipe {tuned})" if tuned else ""))
    return chosen


def parse_settings(settings: list[str]) -> dict[str, str]:
    """Parse KEY=VALUE strings."""
    parsed = {}
    for setting in settings:
        key, equals, value = setting.partition("=")
        if not equals:
            raise DihedralError(f"--set got {setting!r}; write KEY=VALUE, such as epochs=40")
        parsed[key.strip()] = value.strip()
    return parsed
