"""Hyper-parameter search with Optuna: TPE proposes settings, the median rule prunes trials, valid MRR selects.

The study is a SQLite file in the folder of the search. Several processes can work on it, and a later search in the
same folder resumes it. The settings of a trial depend only on the seed and the trials that finished before it. A
search with one worker that is killed and resumed therefore runs the same trials as an uninterrupted one.
"""

from __future__ import annotations

import json
import multiprocessing
import signal
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from dihedral.errors import DihedralError, TrainingError, check_seed
from dihedral.graph import Graph
from dihedral.io.files import make_folder, write_json
from dihedral.io.locks import lock_folder
from dihedral.learn.identity import find_difference, run_identity
from dihedral.learn.interrupts import catch_interrupt, on_interrupt
from dihedral.learn.loop import Callback, Event, Trainer
from dihedral.models import MODELS
from dihedral.objectives.recipe import Recipe, write_recipe
from dihedral.runtime.device import choose_device
from dihedral.tune.grid import Choices, Row, check_lr, check_valid, with_both_lr

Space = dict[str, list[Any] | tuple[float, float]]
"""The values to search per setting: a list holds choices, a pair the bounds of a log-uniform range."""

RANDOM_TRIALS = 6  # TPE needs some results to start from
TRIALS_BEFORE_PRUNING = 4
POLL_SECONDS = 0.5


@dataclass(frozen=True)
class Search:
    """The data, recipe, space and folder of a search."""

    graph: Graph
    recipe: Recipe
    space: Space
    folder: Path
    seed: int = 0
    device: str = "auto"

    @property
    def best(self) -> Path:
        """The file with the recipe of the best trial."""
        return self.folder / "best.toml"

    def identity(self) -> dict[str, Any]:
        """What must be the same for a search to continue."""
        identity = run_identity(self.recipe, self.seed, self.graph.fingerprint) | {"space": self.space}
        return json.loads(json.dumps(identity))


def default_space(recipe: Recipe) -> Space:
    """Return a small search space around a recipe.

    >>> default_space(Recipe(model="distmult", objective="softmax"))["dimension"]
    [100, 200, 400]
    """
    around: Callable[[float, float], tuple[float, float]] = lambda value, factor: (value / factor, value * factor)  # noqa: E731
    space: Space = {
        "dimension": [max(2, recipe.dimension // 4 * 2), recipe.dimension, 2 * recipe.dimension],
        "regulariser": sorted({"l2", "n3", recipe.regulariser} - {"none"}),
        "regulariser_weight": around(recipe.regulariser_weight or 0.01, 10),
        "entity_lr": around(recipe.entity_lr, 3),
        "relation_lr": around(recipe.relation_lr, 3),
        "batch_size": [max(1, recipe.batch_size // 2), recipe.batch_size, 2 * recipe.batch_size],
    }
    space["epochs"] = [recipe.epochs, 2 * recipe.epochs]
    model = MODELS[recipe.model]
    if recipe.objective == "softmax" and model.is_bilinear:
        space["dropout"] = sorted({0.0, 0.1, 0.2, 0.4, recipe.dropout})
    if recipe.model in ("dihedral-gumbel", "dihedral-ste"):
        space["model"] = ["dihedral-gumbel", "dihedral-ste"]
        space["levels"] = sorted({"1", "1, 1/2, 1/4, 0", recipe.levels})
    if model.uses_temperature:
        space["K"] = sorted({4, 6, 8, recipe.K})
        space["cooling"] = around(recipe.cooling or 0.01, 3)
    return space


def make_space(recipe: Recipe, choices: Choices, fixed: Sequence[str] = ()) -> Space:
    """Return the default space, with `choices` replacing its values and without the fixed settings.

    choices: values per setting, as strings or in the setting's type; also `lr` for both entity_lr and relation_lr.
    """
    if "seed" in choices:
        raise DihedralError("seed is among the choices; a search by trials uses one seed: use --grid to search seeds")
    check_lr(choices, "the choices have")
    space = {key: values for key, values in default_space(recipe).items() if key not in fixed}
    for key, values in choices.items():
        read = [recipe.replace(**with_both_lr(_rounded({key: value}))).to_dict()[_name(key)] for value in values]
        space[key] = list(dict.fromkeys(read))
    if "lr" in choices:
        space = {key: values for key, values in space.items() if key not in ("entity_lr", "relation_lr")}
    return space


def search(
    task: Search,
    *,
    trials: int | None = None,
    minutes: float | None = None,
    workers: int = 1,
    callback: Callback | None = None,
    on_tick: Callable[[list[Row]], None] | None = None,
) -> list[Row]:
    """Search until the study has `trials` finished trials or `minutes` have passed; return the rows, best first.

    The recipe of the best trial is written to `best.toml` in the folder, even if Ctrl-C ends the search.

    minutes: no trial starts after this time.
    workers: concurrent training processes; with more than one, guard the script with `if __name__ == "__main__"`.
    callback: called with the events of the runs in this process.
    on_tick: called with the rows of all trials when they may have changed.
    """
    check_seed(task.seed)
    choose_device(task.device)
    if trials is None and minutes is None:
        raise DihedralError("a search needs a limit: give trials or minutes")
    for name, value in (("trials", trials), ("minutes", minutes), ("workers", workers)):
        if value is not None and value <= 0:
            raise DihedralError(f"{name} is {value}; it must be more than 0")
    check_valid(task.graph)
    if task.recipe.validate_every == 0:
        raise DihedralError("validate_every is 0; a search selects settings by valid MRR, so it must be 1 or more")
    with _clear_storage_errors(task), _taking_part(task) as alone:
        study = open_study(task)
        _begin(study, task, alone)
        # unlike wall-clock time, the monotonic clock cannot be set, and all processes of a machine share it
        deadline = time.monotonic() + 60 * minutes if minutes is not None else float("inf")
        left = trials - len(_finished(study)) if trials is not None else 2**31 - 1
        tick = lambda: on_tick(trial_rows(study)) if on_tick else None  # noqa: E731
        tick()
        try:
            if workers == 1:
                # a flag, because the database may swallow an exception while it cleans up
                with catch_interrupt() as stop:
                    tickets = multiprocessing.Value("i", left)
                    work(task, study, tickets, stop, deadline, callback=callback, on_trial=tick)
                if stop.is_set():
                    raise KeyboardInterrupt
            else:
                _run_workers(task, min(workers, max(0, left)), left, deadline, tick)
        finally:
            rows = trial_rows(study)
            write_json(task.folder / "trials.json", {"trials": rows})
            if rows and rows[0]["state"] == "complete":
                write_recipe(Recipe.from_dict(rows[0]["recipe"]), task.best)
    return rows


@contextmanager
def _clear_storage_errors(task: Search) -> Iterator[None]:
    """Turn a full disk, a read-only folder or a damaged file into a one-sentence error."""
    optuna = _optuna()
    from sqlalchemy.exc import SQLAlchemyError

    try:
        yield
    except (optuna.exceptions.StorageInternalError, SQLAlchemyError) as error:
        causes = (getattr(found, "orig", None) for found in (error, error.__cause__))
        reason = str(next((cause for cause in causes if cause), error)).splitlines()[0]
        raise TrainingError(
            f"the study in {str(task.folder)!r} cannot be used: {reason}; finished trials are kept: "
            "fix this, then resume with the same command"
        ) from None


@contextmanager
def _taking_part(task: Search) -> Iterator[bool]:
    """Hold a share of the folder's lock; yields whether no other process works on the study."""
    make_folder(task.folder)
    with lock_folder(task.folder, shared=True) as alone:
        yield alone


def open_study(task: Search) -> Any:
    """Open the study in the folder of a search, or create it."""
    optuna = _optuna()
    make_folder(task.folder)
    with _clear_storage_errors(task):
        return optuna.create_study(
            study_name="dihedral",
            storage=optuna.storages.RDBStorage(
                f"sqlite:///{task.folder / 'study.db'}", engine_kwargs={"connect_args": {"timeout": 60}}
            ),
            direction="maximize",
            load_if_exists=True,
            pruner=optuna.pruners.MedianPruner(TRIALS_BEFORE_PRUNING, n_warmup_steps=task.recipe.epochs // 4),
        )


def _begin(study: Any, task: Search, alone: bool) -> None:
    """Refuse a study of another search; the first trial of a new one is the recipe itself.

    alone: no other process works on the study, so trials that still run were killed.
    """
    identity = task.identity()
    if part := find_difference(study.user_attrs.get("identity", identity), identity):
        raise DihedralError(
            f"folder {str(task.folder)!r} holds a search with another {part}; give the same one, or another folder"
        )
    study.set_user_attr("identity", identity)
    states = _optuna().trial.TrialState
    for killed in study.get_trials(deepcopy=False, states=(states.RUNNING,)) if alone else ():
        study.tell(killed.number, state=states.FAIL)
    if not study.get_trials(deepcopy=False, states=(states.COMPLETE, states.PRUNED, states.WAITING)):
        settings = {key: getattr(task.recipe, _name(key)) for key in task.space}
        study.enqueue_trial({key: value for key, value in settings.items() if _holds(task.space[key], value)})


def work(
    task: Search,
    study: Any,
    tickets: Any,
    stop: Any,
    deadline: float,
    *,
    worker: int = 0,
    callback: Callback | None = None,
    on_trial: Callable[[], object] = lambda: None,
) -> None:
    """Train one trial per remaining ticket, until the deadline or until `stop` is set."""
    optuna = _optuna()
    states = optuna.trial.TrialState
    while time.monotonic() < deadline and not stop.is_set() and _take(tickets):
        # workers draw different settings, and a killed trial is drawn again
        seed = (1_000_003 * task.seed + 1_009 * worker + len(_finished(study))) % 2**32
        study.sampler = optuna.samplers.TPESampler(n_startup_trials=RANDOM_TRIALS, seed=seed, constant_liar=True)
        trial = study.ask(_distributions(task.space))
        try:
            value, interrupted = _attempt(task, study, trial, stop, callback)
        except optuna.TrialPruned:
            study.tell(trial, state=states.PRUNED)
        except DihedralError as error:  # divergence or conflicting settings: pruning teaches the sampler to avoid them
            trial.set_user_attr("failed", str(error))
            study.tell(trial, state=states.PRUNED)
        except KeyboardInterrupt:
            study.tell(trial, state=states.FAIL)
            study.enqueue_trial(trial.params)  # the first trial after resuming
            raise
        else:
            study.tell(trial, value)
            if interrupted:
                raise KeyboardInterrupt
        on_trial()


def _attempt(task: Search, study: Any, trial: Any, stop: Any, callback: Callback | None) -> tuple[float, bool]:
    """Train one trial; return its best valid MRR and whether Ctrl-C arrived in its last epoch."""
    optuna = _optuna()
    for other in _finished(study):
        if other.params == trial.params:
            trial.set_user_attr("same_as", other.number)
            if other.value is None or other.state == optuna.trial.TrialState.PRUNED:
                raise optuna.TrialPruned
            return other.value, False
    # a searched model may ignore some searched settings
    recipe = task.recipe.adapt(**with_both_lr(_rounded(trial.params)))
    about = f"trial {trial.number} of a search on {task.graph.name} around {task.recipe.name}, seed {task.seed}"
    trial.set_user_attr("recipe", recipe.replace(name=f"{task.graph.name}-{trial.number}", about=about).to_dict())
    started = time.perf_counter()

    def on_event(event: Event) -> None:
        if callback:
            callback(event)
        if stop.is_set() or _orphaned():
            raise KeyboardInterrupt
        if event["event"] == "epoch" and "valid_mrr" in event:
            trial.report(event["valid_mrr"], event["epoch"])
            if event["epoch"] < event["epochs"] and trial.should_prune():
                raise optuna.TrialPruned

    trainer = Trainer(task.graph, recipe, seed=task.seed, device=choose_device(task.device), callback=on_event)
    try:
        trainer.run()
    finally:
        trial.set_user_attr("epochs", trainer.state.epoch)
        trial.set_user_attr("best_epoch", trainer.state.best_epoch)
        trial.set_user_attr("seconds", round(time.perf_counter() - started, 2))
    return trainer.state.best_mrr, trainer.interrupted


def trial_rows(study: Any) -> list[Row]:
    """Return one row per trained trial: complete trials by valid MRR, best first, then pruned and failed ones."""
    rows = []
    for trial in _finished(study):
        if "same_as" in trial.user_attrs:
            continue
        reached = max(trial.intermediate_values.values(), default=None)
        row = {"trial": trial.number, "state": trial.state.name.lower(), "changes": _rounded(trial.params)}
        row["valid_mrr"] = trial.value if row["state"] == "complete" else reached
        rows.append(row | trial.user_attrs | ({"state": "failed"} if "failed" in trial.user_attrs else {}))
    return sorted(rows, key=lambda row: (row["state"] != "complete", -(row["valid_mrr"] or 0.0)))


# --- processes --------------------------------------------------------------------------------------


def _run_workers(task: Search, workers: int, left: int, deadline: float, tick: Callable[[], object]) -> None:
    """Start workers that share one count of remaining trials; Ctrl-C stops each at its next event."""
    context = multiprocessing.get_context("spawn")  # threads and CUDA do not survive a fork
    tickets, stop = context.Value("i", left), context.Event()
    threads = max(1, torch.get_num_threads() // max(1, workers))
    processes = [
        context.Process(target=_worker, args=(number, task, tickets, stop, deadline, threads), daemon=True)
        for number in range(workers)
    ]
    try:
        with on_interrupt(signal.SIG_IGN):  # the processes inherit this: the parent handles Ctrl-C, even in imports
            for process in processes:
                process.start()
        with catch_interrupt() as interrupted:
            while any(process.is_alive() for process in processes):
                if interrupted.wait(POLL_SECONDS):
                    raise KeyboardInterrupt
                tick()
    finally:
        stop.set()
        for process in processes:
            if process.pid is not None:  # None if an earlier process failed to start
                process.join()
    if failed := [process.exitcode for process in processes if process.exitcode]:
        raise TrainingError(
            f"{len(failed)} of {workers} workers exited with code {failed[0]}; finished trials are kept"
        )


def _worker(number: int, task: Search, tickets: Any, stop: Any, deadline: float, threads: int) -> None:
    torch.set_num_threads(threads)
    try:
        with _taking_part(task):
            work(task, open_study(task), tickets, stop, deadline, worker=number)
    except KeyboardInterrupt:
        return


def _orphaned() -> bool:
    """Whether this process is a worker whose parent was killed."""
    parent = multiprocessing.parent_process()
    return parent is not None and not parent.is_alive()


def _take(tickets: Any) -> bool:
    with tickets.get_lock():
        tickets.value -= 1
        return tickets.value >= 0


# --- settings ---------------------------------------------------------------------------------------


def _rounded(params: Mapping[str, Any]) -> dict[str, Any]:
    """Round to three significant digits, which are precise enough and easy to read."""
    return {key: float(f"{value:.3g}") if isinstance(value, float) else value for key, value in params.items()}


def _name(key: str) -> str:
    return "entity_lr" if key == "lr" else key


def _holds(values: list[Any] | tuple[float, float], value: Any) -> bool:
    return value in values if isinstance(values, list) else values[0] <= value <= values[1]


def _distributions(space: Space) -> dict[str, Any]:
    distributions = _optuna().distributions
    return {
        key: distributions.CategoricalDistribution(values)
        if isinstance(values, list)
        else distributions.FloatDistribution(*values, log=True)
        for key, values in space.items()
    }


def _finished(study: Any) -> list[Any]:
    states = _optuna().trial.TrialState
    return study.get_trials(deepcopy=False, states=(states.COMPLETE, states.PRUNED))


def _optuna() -> Any:
    try:
        import optuna
    except ModuleNotFoundError:
        raise DihedralError("a search needs optuna: pip install 'dihedral[tune]'") from None
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    return optuna
