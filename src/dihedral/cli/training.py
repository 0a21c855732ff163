"""Commands that train models: `dihedral train`, `tune` and `demo`; `dihedral recipes` lists the recipes."""

from __future__ import annotations

import shlex
import time
from collections.abc import Collection, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.progress import BarColumn, TimeElapsedColumn

import dihedral as dh
from dihedral.cli import options as opt
from dihedral.cli import output
from dihedral.cli.output import detail, print_found, print_json, read_data, remark, say
from dihedral.engine.path_engine import is_compiled
from dihedral.errors import DihedralError, TrainingError
from dihedral.graph import Graph
from dihedral.graph.labels import count_labels
from dihedral.graph.patterns import Reversals, find_reversals
from dihedral.interpretation import Algebra
from dihedral.learn import Interrupted, Recipe, choose_recipe, load_recipe, recipe_names
from dihedral.learn.checkpoint import RunFolder
from dihedral.learn.defaults import DEFAULT_MINUTES, best_recipe, in_words
from dihedral.learn.loggers import Logger, MLflowLogger, TensorBoardLogger
from dihedral.predict.predictor import Predictor
from dihedral.predict.train import begun_recipe, train
from dihedral.runtime.device import choose_device
from dihedral.runtime.distributed import rank, world_size
from dihedral.store.manifest import holds_model
from dihedral.tune.space import make_space, paper_grid

if TYPE_CHECKING:
    from dihedral.tune.search import Row, Search

TRIALS = 20  # of a search without another limit
STOPPED_BY = {
    "minutes": "; the time was up: --resume --minutes 5 gives 5 more",
    "patience": "; valid MRR no longer improved",
}


def train_command(
    data: opt.Data,
    out: Annotated[Path, typer.Option(help="The folder of the model.")],
    recipe: Annotated[str | None, typer.Option(help="A recipe or a TOML file (default: by the graph's size).")] = None,
    set_: opt.Settings = None,
    seed: opt.Seed = 0,
    split_seed: Annotated[int, typer.Option(help="Random seed for splitting a single file 80/10/10.")] = 0,
    device: opt.Device = "auto",
    threads: opt.Threads = None,
    minutes: Annotated[float | None, typer.Option(help=f"Time limit ({DEFAULT_MINUTES:.0f} without a recipe).")] = None,
    compare: Annotated[bool, typer.Option("--compare", help="Also train ComplEx.")] = False,
    resume: Annotated[bool, typer.Option("--resume", help="Resume from the last checkpoint in OUT.")] = False,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Start over: replace what is in OUT.")] = False,
    dtype: Annotated[str, typer.Option(help="Stored type of entity vectors: float32 or float16.")] = "float32",
    shard_mb: Annotated[float | None, typer.Option(help="Store entity vectors in files of this many MB.")] = None,
    checkpoint_minutes: Annotated[float, typer.Option(help="Minutes between checkpoints; 0: every epoch.")] = 1.0,
    tensorboard: Annotated[Path | None, typer.Option(help="Write TensorBoard logs to this folder.")] = None,
    mlflow: Annotated[str | None, typer.Option(metavar="EXPERIMENT", help="Log to an MLflow experiment.")] = None,
    columns: opt.Columns = None,
    merge_similar: opt.MergeSimilar = False,
    skip_blank: opt.SkipBlank = False,
    labels: opt.Labels = None,
    language: opt.Language = "en",
    verbose: opt.Verbose = False,
    json: opt.Json = False,
) -> None:
    """Train a model and evaluate it on valid and test.

    Example: dihedral train umls --recipe demo/umls --out out/umls --set epochs=40

    Example with several processes: torchrun --nproc-per-node 4 -m dihedral train umls --out out/umls
    """
    if compare and world_size() > 1:
        raise DihedralError(f"--compare trains two models in one process; this run has {world_size()} processes")
    output.console.quiet = output.notes.quiet = rank() > 0  # only rank zero prints
    settings = dict(_parse("--set", set_))
    # an invalid recipe fails before data are read
    named = load_recipe(recipe).changed(settings) if recipe is not None else None
    clean: dict[str, Any] = {"merge_similar": merge_similar, "skip_blank": skip_blank}
    graph = read_data(data, columns, split_seed, labels=labels, language=language, **clean)
    if labels is not None:
        remark(f"labels: {count_labels(graph.entities, graph.relations)}")
    if named is None:
        minutes = DEFAULT_MINUTES if minutes is None else minutes
    chosen = named or choose_for(graph, settings, device, minutes, resumed=out if resume else None)
    remark(f"training on {len(graph.train):,} facts of {graph.num_entities:,} entities, seed {seed}")
    if chosen.objective == "paths" and choose_device(device).type == "cpu" and not is_compiled():
        remark("compiling the kernels for path models, once; this may take a minute or more")
    detail(f"{graph!r}, recipe {chosen.name}")
    finished = resume and holds_model(out) and not overwrite and not RunFolder(out).checkpoint.exists()
    try:
        with ExitStack() as stack:
            loggers = [stack.enter_context(logger) for logger in _loggers(tensorboard, mlflow)]
            predictor = train(
                graph, chosen, seed=seed, device=device, out=out, resume=resume, overwrite=overwrite,
                checkpoint_minutes=checkpoint_minutes, dtype=dtype, shard_mb=shard_mb,
                minutes=minutes, callback=loggers,
            )  # fmt: skip
    except Interrupted:
        remark(f"interrupted; a checkpoint is in {out / 'training'}: resume with the same command and --resume")
        raise typer.Exit(1) from None
    if chosen.objective == "paths":  # its settings do not suit an embedding
        chosen = choose_recipe(graph, {"objective": "softmax"}, minutes=minutes, device=choose_device(device))
    baseline = chosen.adapt(model="complex") if compare else None
    other = train(graph, baseline, seed=seed, device=device, minutes=minutes) if baseline else None
    if rank() == 0:
        _report(predictor, other, out, finished, json)


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
            output.print_metrics(output.filtered(split), output.metric_rows(metrics[split]))
    if "test" in metrics:
        first, ten = (100 * metrics["test"]["both"][name] for name in ("hits@1", "hits@10"))
        remark(f"the right answer is first for {first:.0f} % of the test questions, and among ten for {ten:.0f} %")
    if not finished:
        why = STOPPED_BY.get(metrics.get("stopped_by", ""), "")
        remark(f"wrote the model to {out} (best epoch {metrics['best_epoch']} of {metrics['epochs']}{why})")
    if other is not None and "test" in metrics:
        mrr, theirs = (each["test"]["both"]["mrr"] for each in (metrics, other.metrics))
        remark(
            f"ComplEx has a test MRR of {theirs:.4f}, this model {mrr:.4f}: "
            f"relations that can be read cost {theirs - mrr:+.4f}"
        )


def choose_for(
    graph: Graph, settings: Mapping[str, Any], device: str, minutes: float | None = None, *,
    resumed: Path | None = None, searched: Collection[str] = (),
) -> Recipe:  # fmt: skip
    """Choose a recipe for a graph, and print it together with a tuned alternative, if any.

    minutes: the time for training, which is announced. resumed: the folder of a run whose recipe is taken.
    searched: settings that a search will replace.
    """
    chosen = choose_recipe(graph, settings, searched=searched, minutes=minutes, device=choose_device(device))
    chosen = begun_recipe(resumed, chosen, settings) if resumed else chosen
    tuned = best_recipe(graph, chosen)
    remark(in_words(chosen, "--set {}={}".format) + (f"; tuned: --recipe {tuned}" if tuned else ""))
    detail(f"no --recipe: {chosen.about}")
    if minutes is not None:
        less = ", or less if valid MRR stops improving" if chosen.patience else ""
        remark(f"at most {chosen.epochs} epochs and {minutes:g} minutes{less}")
    return chosen


def _parse(option: str, texts: list[str] | None) -> list[tuple[str, str]]:
    """Parse KEY=VALUE strings."""
    pairs = [text.partition("=") for text in texts or []]
    for key, equals, _ in pairs:
        if not equals:
            raise DihedralError(f"{option} got {key!r}; write KEY=VALUE, such as epochs=40")
    return [(key.strip(), value.strip()) for key, _, value in pairs]


def recipes_command(
    name: Annotated[str | None, typer.Argument(help="The recipe or TOML file to show.")] = None,
    wide: opt.Wide = False,
    json: opt.Json = False,
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


def tune_command(
    data: opt.Data,
    grid: Annotated[bool, typer.Option("--grid", help="Train every combination of the choices.")] = False,
    recipe: Annotated[str | None, typer.Option(help="The recipe to start from (--grid: the paper's).")] = None,
    choose: Annotated[
        list[str] | None,
        typer.Option(metavar="KEY=V1,V2,...", help="Values to search, also of lr and, with --grid, seed; repeatable."),
    ] = None,
    set_: opt.Settings = None,
    trials: Annotated[int | None, typer.Option(help=f"Total number (default: {TRIALS} without --minutes).")] = None,
    minutes: Annotated[float | None, typer.Option(help="Start no trial after this many minutes.")] = None,
    workers: Annotated[int, typer.Option(help="Number of concurrent trials.")] = 1,
    out: Annotated[Path | None, typer.Option(help="The folder of the search (default: out/tune/DATA).")] = None,
    seed: opt.Seed = 0,
    device: opt.Device = "auto",
    top: Annotated[int, typer.Option(min=1, help="Number of rows in the table.")] = 20,
    columns: opt.Columns = None,
    merge_similar: opt.MergeSimilar = False,
    skip_blank: opt.SkipBlank = False,
    verbose: opt.Verbose = False,
    wide: opt.Wide = False,
    json: opt.Json = False,
) -> None:
    """Search settings by valid MRR; the same command resumes an interrupted search.

    Example: dihedral tune umls --trials 20 --workers 2

    Example: dihedral tune umls --grid --choose K=4,6 --choose lr=0.1,0.5 --set epochs=40
    """
    try:
        from dihedral.figures import draw_search
        from dihedral.tune.search import Search, open_study
    except ModuleNotFoundError:
        raise DihedralError("a search needs optuna: pip install 'dihedral[tune]'") from None
    settings = dict(_parse("--set", set_))
    choices: dict[str, list[Any]] = {}
    for key, values in _parse("--choose", choose):
        choices.setdefault(key, []).extend(value.strip() for value in values.split(","))
    named = load_recipe(recipe).changed(settings) if recipe is not None else None
    graph = read_data(data, columns, merge_similar=merge_similar, skip_blank=skip_blank)
    if named is None:
        of_paper = _paper_recipe(graph).changed(settings) if grid else None
        named = of_paper or choose_for(graph, settings, device, searched=choices)
    choices = choices or (paper_grid(named) if grid else {})
    space = make_space(named, choices, fixed=tuple(settings), grid=grid)
    folder = out or Path("out/tune") / (f"{graph.name}-grid" if grid else graph.name)
    task = Search(graph, named, space, folder, seed=seed, device=device, grid=grid)
    trials = TRIALS if trials is None and minutes is None and not grid else trials
    rows = _search(task, trials, minutes, workers)
    _print_rows(rows, top, json)
    remark(f"figures: {', '.join(map(str, draw_search(open_study(task), folder)))}")
    if not json:
        words = ["dihedral", "train", data, "--recipe", str(task.best)]
        words += ["--columns", columns] if columns else []
        words += ["--merge-similar"] * merge_similar + ["--skip-blank"] * skip_blank
        best_seed = rows[0]["changes"].get("seed", seed)
        words += ["--seed", str(best_seed)] if best_seed else []
        words += ["--device", device] if device != "auto" else []
        say(f"\nto train the best settings:\n{shlex.join([*words, '--out', str(folder / 'model')])}")


def _paper_recipe(graph: Graph) -> Recipe:
    """The paper's D4-Gumbel recipe for a benchmark, or the default settings."""
    name = f"paper/{graph.name.lower()}-d4-gumbel"
    return load_recipe(name) if name in recipe_names() else Recipe(name="default settings")


def _search(task: Search, trials: int | None, minutes: float | None, workers: int) -> list[Row]:
    """Search with a progress bar; after Ctrl-C, print how to resume."""
    from dihedral.tune.search import search

    remark(f"{task.graph!r}, recipe {task.recipe.name}, seed {task.seed}; searching {', '.join(task.space)}")
    columns = "{task.completed} trials", BarColumn(), "best valid MRR {task.fields[best]}", TimeElapsedColumn()
    with output.progress_bar(*columns) as bar:
        shown = bar.add_task("", total=min(trials or task.size, task.size), best="-", start=False)

        def on_tick(rows: list[Row]) -> None:
            if not bar.tasks[0].started:
                remark(f"the trials are in {task.folder}" + (f" ({len(rows)} found)" if rows else ""))
                bar.start_task(shown)
            best = rows[0]["valid_mrr"] if rows else None
            bar.update(shown, completed=len(rows), best="-" if best is None else f"{best:.4f}")

        try:
            return search(task, trials=trials, minutes=minutes, workers=workers, on_tick=on_tick)
        except KeyboardInterrupt:
            done = f"{bar.tasks[0].completed:.0f} finished trials are in {task.folder}"
            remark(f"interrupted; {done}: resume with the same command")
            raise typer.Exit(1) from None


def _print_rows(rows: list[Row], top: int, json: bool) -> None:
    """Print one line per trial, at most `top`, or all of them as JSON."""
    failed = [row for row in rows if row["state"] == "failed"]
    if not rows or rows[0]["state"] != "complete":
        reason = f"; the first of {len(failed)} errors: {failed[0]['failed']}" if failed else ""
        raise TrainingError(f"no trial completed{reason}")
    shown: list[list[Any]] = []
    for row in rows[:top]:
        settings = " ".join(f"{key}={value}" for key, value in row["changes"].items())
        seconds = f"{row.get('seconds', 0):.1f}"
        shown.append([settings, row["valid_mrr"], row["state"], row.get("best_epoch"), seconds, row["trial"]])
    print_found(json, rows, ["settings", "valid MRR", "state", "best epoch", "seconds", "trial"], shown)
    if failed:
        remark(f"{len(failed)} of {len(rows)} trials failed; the first: {failed[0]['failed']}")


def demo_command(
    out: Annotated[Path, typer.Option(help="The folder for the model and the figure.")] = Path("out/demo"),
    seed: opt.Seed = 0,
) -> None:
    """Generate the FAMILY graph, train D4-Gumbel, and show what the model learned.

    Example: dihedral demo --out out/demo
    """
    started = time.perf_counter()
    graph = dh.make_family(seed=seed)
    say(f"1. Synthetic graph: {graph!r}")
    say("2. Training D4-Gumbel: each relation becomes 200 elements of D4")
    # the extra negatives (t, r, h) keep parent and child from becoming symmetric
    predictor = dh.train(graph, "demo/family", seed=seed, out=out, overwrite=True, skew_probability=0.5)
    output.print_metrics("3. Test metrics, ranking against all people", output.metric_rows(predictor.metrics["test"]))
    algebra = dh.algebra(predictor)
    say("\n   Shares of components are shown as kappa: 0 is the chance level, 1 is all; blank is not significant.")
    _print_inverses(algebra, find_reversals(graph.train_index))
    _print_compositions(algebra)
    say("\n6. Predictions: the top three answers with their probabilities; 'held out' marks the test fact")
    for head, relation, tail in list(graph.names_of(graph.test))[:3]:
        best = predictor.predict(head=head, relation=relation, top=3)
        answers = ", ".join(f"{p.tail} ({_sure(p)}{', held out' if p.tail == tail else ''})" for p in best)
        say(f"   ({head}, {relation}, ?)  {answers}")
    say(f"\n   model: {out}")
    try:
        from dihedral.figures import draw_relations
    except ModuleNotFoundError:
        say("   (no figure: pip install 'dihedral[plots]')")
    else:
        figure = out / "relations.png"
        draw_relations(algebra, figure, title="FAMILY: what D4-Gumbel learned")
        say(f"   figure: {figure}")
    say(f"   finished in {time.perf_counter() - started:.0f} s")


def _sure(answer: dh.Prediction) -> str:
    return f"score {answer.score:.1f}" if answer.probability is None else f"{answer.probability:.0%}"


def _print_inverses(algebra: Algebra, counted: Reversals) -> None:
    rows = []
    for rule in algebra.inverse_pairs(5):
        first, second = map(algebra.names.id, rule.body)
        rows.append([" · ".join(rule.body), rule.share, float(counted.confidence[first, second])])
    title = "4. Inverses: products that are the identity"
    output.print_table(title, ["pair", "kappa", "confidence in the graph"], rows)


def _print_compositions(algebra: Algebra) -> None:
    rules = [rule for rule in algebra.compositions(60) if len({*rule.body, rule.head}) == 3][:6]
    rows = []
    for rule in rules:
        first, second = (algebra[name] for name in rule.body)
        swapped = (second @ first).agreement(algebra[rule.head]).among(rule.share.comparisons)
        rows.append([str(rule), rule.share, swapped])
    title = "\n5. Compositions: products, and swapped products, that equal a relation"
    output.print_table(title, ["product", "kappa", "swapped"], rows)
