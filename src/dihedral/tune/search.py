"""Hyper-parameter search with Optuna: TPE proposes settings, the median rule prunes trials, valid MRR selects.

The study is a SQLite file in the folder of the search, which a later search resumes; a grid enqueues all its trials.
Settings depend only on the seed and the trials finished before, so one worker always runs the same trials.
"""

from __future__ import annotations

import json
import multiprocessing
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import optuna
import sqlalchemy
import torch
from optuna.trial import TrialState
from sqlalchemy.exc import SQLAlchemyError

from dihedral.errors import DihedralError, TrainingError, check_seed
from dihedral.graph import Graph
from dihedral.io.files import lock_folder, make_folder, write_json
from dihedral.learn.checkpoint import find_difference, run_identity
from dihedral.learn.loop import Callback, Event, catch_interrupt, on_interrupt
from dihedral.learn.trainer import make_run
from dihedral.objectives.recipe import Recipe, write_recipe
from dihedral.runtime.device import choose_device
from dihedral.tune.space import Space, Values, combinations, with_both_lr

Row = dict[str, Any]

optuna.logging.set_verbosity(optuna.logging.ERROR)  # the rows say which trials failed
RANDOM_TRIALS = 6  # TPE needs some results to start from
TRIALS_BEFORE_PRUNING = 4
POLL_SECONDS = 0.5
LOCK_SECONDS = 60  # that a worker waits while another uses the database
NO_LIMIT = 2**31 - 1


@dataclass(frozen=True)
class Search:
    """The data, recipe, space and folder of a search. grid: train every combination of the space."""

    graph: Graph
    recipe: Recipe
    space: Space
    folder: Path
    seed: int = 0
    device: str = "auto"
    grid: bool = False

    @property
    def best(self) -> Path:
        """The file with the recipe of the best trial."""
        return self.folder / "best.toml"

    @property
    def size(self) -> int:
        """The number of trials after which nothing is left to train."""
        return len(combinations(self.space)) if self.grid else NO_LIMIT

    def identity(self) -> dict[str, Any]:
        """What must be the same for a search to continue."""
        identity = run_identity(self.recipe, self.seed, self.graph.fingerprint) | {"space": self.space}
        return json.loads(json.dumps(identity))


def search(
    task: Search,
    *,
    trials: int | None = None,
    minutes: float | None = None,
    workers: int = 1,
    callback: Callback | None = None,
    on_tick: Callable[[list[Row]], None] = lambda rows: None,
) -> list[Row]:
    """Search until the study has `trials` finished trials or `minutes` have passed; return the rows, best first.

    A grid needs no limit. The recipe of the best trial is written to `best.toml` in the folder, even if Ctrl-C ends the
    search.

    minutes: no trial starts after this time.
    workers: concurrent training processes; with more than one, guard the script with `if __name__ == "__main__"`.
    callback: called with the events of the runs in this process.
    on_tick: called with the rows of all trials when they may have changed.
    """
    _check(task, trials=trials, minutes=minutes, workers=workers)
    make_folder(task.folder)
    taken = f"folder {str(task.folder)!r} is used by another search; wait for it, or give another folder"
    with lock_folder(task.folder, taken), _clear_storage_errors(task):
        study = open_study(task)
        _begin(study, task)
        # unlike wall-clock time, the monotonic clock cannot be set, and all processes of a machine share it
        deadline = time.monotonic() + 60 * minutes if minutes is not None else float("inf")
        left = max(0, min(trials or task.size, task.size) - len(_finished(study)))
        tick = lambda: on_tick(trial_rows(study, task))  # noqa: E731
        tick()
        try:
            # a flag, because the database may swallow an exception while it cleans up
            with catch_interrupt() as stop:
                if workers == 1:
                    _work(task, study, left, deadline, stop, callback=callback, on_trial=tick)
                else:
                    _run_workers(task, min(workers, left), left, deadline, stop, tick)
            if stop.is_set():
                raise KeyboardInterrupt
        finally:
            rows = trial_rows(study, task)
            write_json(task.folder / "trials.json", {"trials": rows})
            if rows and rows[0]["state"] == "complete":
                write_recipe(Recipe.from_dict(rows[0]["recipe"]), task.best)
    return rows


def _check(task: Search, **limits: float | None) -> None:
    check_seed(task.seed)
    choose_device(task.device)
    if limits["trials"] is None and limits["minutes"] is None and not task.grid:
        raise DihedralError("a search needs a limit: give trials or minutes")
    for name, value in limits.items():
        if value is not None and value <= 0:
            raise DihedralError(f"{name} is {value}; it must be more than 0")
    if len(task.graph.valid) == 0:
        raise DihedralError(f"graph {task.graph.name!r} has no valid triples; a search selects settings by valid MRR")
    if task.recipe.validate_every == 0:
        raise DihedralError("validate_every is 0; a search selects settings by valid MRR, so it must be 1 or more")


@contextmanager
def _clear_storage_errors(task: Search) -> Iterator[None]:
    """Turn a full disk, a read-only folder or a damaged file into a one-sentence error."""
    try:
        yield
    except (optuna.exceptions.StorageInternalError, SQLAlchemyError) as error:
        reason = str(error.__cause__ or error).splitlines()[0]
        raise TrainingError(
            f"the study in {str(task.folder)!r} cannot be used: {reason}; finished trials are kept: "
            "fix this, then resume with the same command"
        ) from None


def open_study(task: Search) -> optuna.Study:
    """Open the study in the folder of a search, or create it."""
    connection = {"timeout": LOCK_SECONDS, "isolation_level": None}  # transactions begin below
    storage = optuna.storages.RDBStorage(
        f"sqlite:///{task.folder / 'study.db'}", engine_kwargs={"connect_args": connection}
    )
    # Optuna reads the state of a trial FOR UPDATE before it changes it, which SQLite ignores: without a lock before the
    # first read, two workers could find the same trial waiting, and both run it
    sqlalchemy.event.listen(storage.engine, "begin", lambda begun: begun.exec_driver_sql("BEGIN IMMEDIATE"))
    median = optuna.pruners.MedianPruner(TRIALS_BEFORE_PRUNING, n_warmup_steps=task.recipe.epochs // 4)
    return optuna.create_study(
        study_name="dihedral",
        storage=storage,
        direction="maximize",
        load_if_exists=True,
        pruner=optuna.pruners.NopPruner() if task.grid else median,
    )


def _begin(study: optuna.Study, task: Search) -> None:
    """Refuse a study of another search, and enqueue the combinations of a grid, or the recipe itself as first trial."""
    identity = task.identity()
    if part := find_difference(study.user_attrs.get("identity", identity), identity):
        raise DihedralError(
            f"folder {str(task.folder)!r} holds a search with another {part}; give the same one, or another folder"
        )
    study.set_user_attr("identity", identity)
    for killed in study.get_trials(deepcopy=False, states=(TrialState.RUNNING,)):  # the folder is locked, so none runs
        study.tell(killed.number, state=TrialState.FAIL)
    waiting = [trial.system_attrs["fixed_params"] for trial in study.get_trials(states=(TrialState.WAITING,))]
    known = waiting + [trial.params for trial in _finished(study)]
    if task.grid:
        wanted = [settings for settings in combinations(task.space) if settings not in known]
    else:
        own = task.recipe.to_dict() | {"lr": task.recipe.entity_lr}
        wanted = [] if known else [{key: own[key] for key, values in task.space.items() if _holds(values, own[key])}]
    for settings in wanted:
        study.enqueue_trial(settings)


def _work(
    task: Search,
    study: optuna.Study,
    trials: int,
    deadline: float,
    stop: threading.Event,
    *,
    worker: int = 0,
    callback: Callback | None = None,
    on_trial: Callable[[], object] = lambda: None,
) -> None:
    """Train this many trials, until the deadline or until `stop` is set."""
    for _ in range(trials):
        if stop.is_set() or time.monotonic() >= deadline:
            return
        # workers draw different settings, and a killed trial is drawn again
        seed = (1_000_003 * task.seed + 1_009 * worker + len(_finished(study))) % 2**32
        study.sampler = optuna.samplers.TPESampler(n_startup_trials=RANDOM_TRIALS, seed=seed, constant_liar=True)
        study.optimize(partial(_train_trial, task, stop, callback), n_trials=1)
        on_trial()


def _train_trial(task: Search, stop: threading.Event, callback: Callback | None, trial: optuna.Trial) -> float:
    """Train one trial and return its best valid MRR; Optuna notes interrupted trials as failed."""
    settings = with_both_lr({key: _suggest(trial, key, values) for key, values in task.space.items()})
    for other in _finished(trial.study):
        if other.params == trial.params:
            trial.set_user_attr("same_as", other.number)
            if other.state == TrialState.PRUNED:
                raise optuna.TrialPruned
            return other.value
    started = time.perf_counter()

    def on_event(event: Event) -> None:
        if callback:
            callback(event)
        parent = multiprocessing.parent_process()
        if stop.is_set() or (parent is not None and not parent.is_alive()):  # this worker's parent was killed
            raise KeyboardInterrupt
        if event["event"] == "epoch" and "valid_mrr" in event:
            trial.report(event["valid_mrr"], event["epoch"])
            if event["epoch"] < event["epochs"] and trial.should_prune():
                raise optuna.TrialPruned

    try:
        seed = settings.pop("seed", task.seed)
        recipe = task.recipe.adapt(**settings)  # a searched model may ignore some searched settings
        about = f"trial {trial.number} of a search on {task.graph.name} around {task.recipe.name}, seed {seed}"
        trial.set_user_attr("recipe", recipe.replace(name=f"{task.graph.name}-{trial.number}", about=about).to_dict())
        trainer = make_run(task.graph, recipe, seed=seed, device=choose_device(task.device), callback=on_event)
        try:
            trainer.run()
        finally:
            trial.set_user_attr("epochs", trainer.state.epoch)
            trial.set_user_attr("best_epoch", trainer.state.best_epoch)
            trial.set_user_attr("seconds", round(time.perf_counter() - started, 2))
    except DihedralError as error:  # divergence or conflicting settings: pruning teaches the sampler to avoid them
        trial.set_user_attr("failed", str(error))
        raise optuna.TrialPruned from None
    if trainer.interrupted:  # by Ctrl-C in the last epoch
        stop.set()
    return trainer.state.best_mrr


def trial_rows(study: optuna.Study, task: Search) -> list[Row]:
    """Return one row per trained trial: complete trials by valid MRR, best first, then pruned and failed ones."""
    rows = []
    for trial in _finished(study):
        if "same_as" in trial.user_attrs:
            continue
        reached = max(trial.intermediate_values.values(), default=None)
        changes = {key: _rounded(value, task.space[key]) for key, value in trial.params.items()}
        row = {"trial": trial.number, "state": trial.state.name.lower(), "changes": changes}
        row["valid_mrr"] = trial.value if row["state"] == "complete" else reached
        rows.append(row | trial.user_attrs | ({"state": "failed"} if "failed" in trial.user_attrs else {}))
    return sorted(rows, key=lambda row: (row["state"] != "complete", -(row["valid_mrr"] or 0.0)))


# --- processes --------------------------------------------------------------------------------------


def _run_workers(
    task: Search, workers: int, trials: int, deadline: float, stop: threading.Event, tick: Callable[[], object]
) -> None:
    """Divide the trials between processes. After Ctrl-C they are ended; the next search draws their trials again."""
    context = multiprocessing.get_context("spawn")  # threads and CUDA do not survive a fork
    threads = max(1, torch.get_num_threads() // max(1, workers))
    shares = [len(range(number, trials, workers)) for number in range(workers)]
    processes = [
        context.Process(target=_worker, args=(task, number, share, deadline, threads), daemon=True)
        for number, share in enumerate(shares)
    ]
    with on_interrupt(signal.SIG_IGN):  # the processes inherit this: the parent handles Ctrl-C, even in imports
        for process in processes:
            process.start()
    try:
        while any(process.is_alive() for process in processes) and not stop.wait(POLL_SECONDS):
            tick()
    finally:
        for process in processes:
            process.terminate()
            process.join()
    failed = [process.exitcode for process in processes if process.exitcode]
    if failed and not stop.is_set():
        raise TrainingError(f"{len(failed)} of {workers} workers exited with {failed[0]}; finished trials are kept")


def _worker(task: Search, number: int, trials: int, deadline: float, threads: int) -> None:
    torch.set_num_threads(threads)
    with suppress(KeyboardInterrupt):
        _work(task, open_study(task), trials, deadline, threading.Event(), worker=number)


# --- settings ---------------------------------------------------------------------------------------


def _holds(values: Values, value: Any) -> bool:
    return value in values if isinstance(values, list) else values[0] <= value <= values[1]


def _suggest(trial: optuna.Trial, key: str, values: Values) -> Any:
    if isinstance(values, list):
        return trial.suggest_categorical(key, values)
    return _rounded(trial.suggest_float(key, *values, log=True), values)


def _rounded(value: Any, values: Values) -> Any:
    """Round a value of a range to three significant digits, which are precise enough and easy to read."""
    return value if isinstance(values, list) else float(f"{value:.3g}")


def _finished(study: optuna.Study) -> list[Any]:
    return study.get_trials(deepcopy=False, states=(TrialState.COMPLETE, TrialState.PRUNED))
