"""`dihedral train`: from data and a recipe to a model folder."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated, Any

import typer

from dihedral.cli.output import (
    Columns,
    Json,
    console,
    metric_rows,
    notes,
    print_json,
    print_metrics,
    read_data,
    remark,
)
from dihedral.errors import DihedralError
from dihedral.graph import Graph
from dihedral.runtime.distributed import rank
from dihedral.storage.folder import holds_model
from dihedral.training import Interrupted, Recipe, choose_recipe, load_recipe, train
from dihedral.training.defaults import best_recipe
from dihedral.training.loggers import Logger, MLflowLogger, TensorBoardLogger


def command(
    data: Annotated[
        str,
        typer.Argument(help="A benchmark, a folder with train/valid/test, an archive, or a file (text, Parquet, RDF)."),
    ],
    out: Annotated[Path, typer.Option(help="The folder the model is written to.")],
    recipe: Annotated[
        str | None,
        typer.Option(help="A recipe's name (see `dihedral recipes`) or a TOML file; by default chosen by size."),
    ] = None,
    set_: Annotated[list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Override a setting.")] = None,
    seed: Annotated[int, typer.Option(help="Seed of initialisation, order and sampling.")] = 0,
    split_seed: Annotated[int, typer.Option(help="Seed with which a single file is split 80/10/10.")] = 0,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda or mps.")] = "auto",
    resume: Annotated[bool, typer.Option("--resume", help="Go on from the last checkpoint in OUT.")] = False,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace a model or a run in OUT.")] = False,
    dtype: Annotated[str, typer.Option(help="Storage of entities: float32 or float16.")] = "float32",
    shard_mb: Annotated[float | None, typer.Option(help="Split the entity table into files of this size.")] = None,
    keep_latents: Annotated[bool, typer.Option("--keep-latents", help="Store training parameters too.")] = False,
    checkpoint_minutes: Annotated[float, typer.Option(help="Minutes between checkpoints; 0 is every epoch.")] = 1.0,
    tensorboard: Annotated[Path | None, typer.Option(help="Log for TensorBoard in this folder.")] = None,
    mlflow: Annotated[
        str | None, typer.Option(metavar="EXPERIMENT", help="Log in an MLflow experiment (at MLFLOW_TRACKING_URI).")
    ] = None,
    columns: Columns = None,
    json: Json = False,
) -> None:
    """Train a model and measure it on valid and test.

    Example: dihedral train umls --recipe demo/umls --out out/umls --set epochs=40

    Several GPUs or CPUs: torchrun --nproc-per-node 4 -m dihedral train umls --out out/umls
    """
    if rank() > 0:  # the first of several processes speaks for all
        console.quiet = notes.quiet = True
    settings = parse_settings(set_ or [])
    named = load_recipe(recipe).changed(settings) if recipe is not None else None  # refused before data are read
    graph = read_data(data, columns, split_seed)
    chosen = named or choose_for(graph, settings)
    remark(f"{graph!r}, recipe {chosen.name}, seed {seed}")
    finished = resume and holds_model(out) and not overwrite
    loggers: list[Logger] = []
    if rank() == 0:
        loggers += [TensorBoardLogger(tensorboard)] if tensorboard is not None else []
        loggers += [MLflowLogger(mlflow)] if mlflow is not None else []
    try:
        with ExitStack() as stack:
            predictor = train(
                graph,
                chosen,
                seed=seed,
                device=device,
                out=out,
                resume=resume,
                overwrite=overwrite,
                checkpoint_minutes=checkpoint_minutes,
                callback=[stack.enter_context(logger) for logger in loggers],
                keep_latents=keep_latents,
                dtype=dtype,
                shard_mb=shard_mb,
            )
    except Interrupted:
        remark(f"stopped; a checkpoint is in {out / 'training'}: go on with the same command and --resume")
        raise typer.Exit(1) from None
    if finished:
        remark(f"{out} holds this run already, finished; nothing was trained")
    if rank() > 0:
        return
    if json:
        print_json({"out": str(out), **predictor.metrics})
        return
    for split in ("valid", "test"):
        if split in predictor.metrics:
            print_metrics(f"{split}, filtered", metric_rows(predictor.metrics[split]))
    if not finished:
        remark(f"model written to {out} (best epoch {predictor.metrics['best_epoch']})")


def choose_for(graph: Graph, settings: Mapping[str, Any]) -> Recipe:
    """The recipe for a graph's size; says which, and whether there is a tuned one."""
    chosen = choose_recipe(graph).changed(settings)
    tuned = best_recipe(graph)
    remark(f"no --recipe: {chosen.about}" + (f" (tuned, and slower: --recipe {tuned})" if tuned else ""))
    return chosen


def parse_settings(settings: list[str]) -> dict[str, str]:
    """key=value pairs."""
    parsed = {}
    for setting in settings:
        key, equals, value = setting.partition("=")
        if not equals:
            raise DihedralError(f"--set got {setting!r}; write KEY=VALUE, such as epochs=40")
        parsed[key.strip()] = value.strip()
    return parsed
