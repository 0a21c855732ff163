"""The training loop: epochs, validation, early stopping, checkpoints and resuming, for any kind of model.

All random numbers of an epoch come from one generator seeded by (seed, epoch), so a resumed run is bit-identical (on a
CPU). Several processes draw the same, and synchronise in the objective, in sums of steps, and for common decisions.
"""

from __future__ import annotations

import math
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from dihedral.engine import compiled
from dihedral.errors import DihedralError, TrainingError, check_seed
from dihedral.evaluation import Evaluator
from dihedral.graph import Graph
from dihedral.io.files import make_folder
from dihedral.io.jsonl import append_line, write_lines
from dihedral.learn.checkpoint import Identity, RunFolder, RunState, run_identity
from dihedral.learn.defaults import num_threads
from dihedral.objectives.recipe import Recipe
from dihedral.runtime.distributed import Shard, any_rank
from dihedral.runtime.threads import at_most
from dihedral.scoring.scorer import Scorer
from dihedral.store.trained import TrainedModel

Event = dict[str, Any]
Callback = Callable[[Event], None]
"""Called with {"event": "start" | "step" | "epoch" | "end" | "measured", …}; an exception from it ends the run."""

LARGE_TABLE = 1 << 29  # numbers: 2 GiB; a GPU that holds a larger table has no memory for a second one


class Parameters:
    """The trained parameters of a model, by name; the tensors share memory with the model."""

    def __init__(self, values: dict[str, Tensor], averaging: float) -> None:
        """averaging: the decay of the average; 0 keeps none."""
        self.values, self.decay = values, averaging
        self.average = {name: torch.zeros_like(tensor) for name, tensor in values.items()} if averaging else {}
        self.best: dict[str, Tensor] | None = None

    def update_average(self, epochs: int) -> None:
        """Include the parameters after this many epochs; the first have weight 1, so there is no bias towards 0."""
        for name, average in self.average.items():
            average.lerp_(self.values[name], (1 - self.decay) / (1 - self.decay**epochs))

    def set(self, values: Mapping[str, Tensor]) -> None:
        """Continue with other values of parameters, such as `average` or `best`."""
        for name, tensor in values.items():
            self.values[name].copy_(tensor)

    @contextmanager
    def averaged(self) -> Iterator[None]:
        """Use the averaged parameters, if there are any, in place of the trained ones."""
        trained = {name: self.values[name].clone() for name in self.average}
        self.set(self.average)
        try:
            yield
        finally:
            self.set(trained)

    def keep_as_best(self) -> None:
        self.best = {
            name: tensor.to("cpu" if tensor.numel() > LARGE_TABLE else tensor.device, copy=True)
            for name, tensor in self.values.items()
        }

    def tensors(self) -> dict[str, Tensor]:
        """The tensors of a checkpoint but the best parameters."""
        return self.values | {f"average.{name}": average for name, average in self.average.items()}


class Run:
    """One run: its recipe, its folder and how far it has come. A subclass has the model and says what a step does."""

    parameters: Parameters
    triples: Tensor  # [n, 3]: what the next epoch trains on
    questions: Tensor | None = None  # [Q]: what it goes through instead, in as many steps
    shard: Shard  # the entities of this process
    uses_kernels = False  # steps run on the compiled kernels, which need torch's threads
    epoch_size: int | None = None  # triples of an epoch, drawn at random; None is all

    def __init__(
        self,
        graph: Graph,
        recipe: Recipe,
        *,
        seed: int = 0,
        device: str | torch.device = "cpu",
        out: Path | None = None,
        checkpoint_minutes: float = 1.0,
        minutes: float | None = None,
        callback: Callback | None = None,
    ) -> None:
        """
        out: folder of the run's checkpoints and log.
        minutes: limit on the time of the run; after the first, no epoch starts that would end later.
        """
        self.graph, self.recipe, self.seed, self.device = graph, recipe, check_seed(seed), torch.device(device)
        self.clock, self.out_of_time = Clock(checkpoint_minutes, minutes), False
        self.folder = RunFolder(out, self.device) if out is not None else None
        self.callback = callback or (lambda event: None)
        self.state, self.interrupted = RunState(), False
        self.requests = torch.zeros(2, device=self.device)  # to stop and to save; positive if any rank asks for it
        self.generator = torch.Generator(self.device)
        self._epoch_generator: Tensor | None = None  # the generator's state after the last step of an unfinished epoch
        self.evaluator: Evaluator | None = None
        if recipe.validate_every and len(graph.valid):
            self.evaluator = Evaluator(graph, "valid", device=self.device, sample=recipe.validate_on, seed=seed)

    # --- what a kind of model adds -------------------------------------------------------------

    def train_on(self, batch: Tensor) -> Tensor:
        """Train on a batch [B, 3], or on some of `questions`, with random numbers of `generator`; returns its loss."""
        raise NotImplementedError

    def scorer(self) -> Scorer:
        """The model as it is now, for a validation."""
        raise NotImplementedError

    def result(self) -> TrainedModel:
        """The model to keep: the best on valid, or the last."""
        raise NotImplementedError

    def tensors(self) -> dict[str, Tensor]:
        """What a checkpoint holds besides the best parameters; tables of entities have names that end in "entities"."""
        return self.parameters.tensors()

    def begin_epoch(self) -> None:
        """Called before the first step of an epoch."""

    def epoch_values(self) -> dict[str, float]:
        """More values for the event of an epoch."""
        return {}

    # --- the run -------------------------------------------------------------------------------

    def run(self) -> None:
        """Train until a limit or Ctrl-C; `interrupted` says that it came in the last epoch: start no other run."""
        if self.folder is not None and self.shard.rank == 0:
            make_folder(self.folder.folder)
            write_lines(self.folder.log, self.state.history)  # after a resume it ends where the checkpoint does
        about = {"graph": self.graph.name, "seed": self.seed, "recipe": self.recipe.to_dict()}
        self.callback({"event": "start", "epoch": self.state.epoch, "epochs": self.recipe.epochs, **about})
        self.clock.begin(self.state.seconds - self.state.limited_from)
        with at_most(num_threads(self.recipe, self.graph, self.device)), catch_interrupt() as interrupted:
            while not self.stopped_by:
                if not self.run_epoch(interrupted):
                    self.save_checkpoint()
                    raise Interrupted
                if any_rank(self.clock.is_due(), self.device):
                    self.save_checkpoint()
            if self.out_of_time:
                self.state.limited_from = self.state.seconds
            if self.out_of_time or self.state.seconds >= self.clock.checkpoint_seconds:
                self.save_checkpoint()  # the model has yet to be evaluated and written
        self.interrupted = interrupted.is_set()
        self.callback({"event": "end", "epoch": self.state.epoch})

    @property
    def stopped_by(self) -> str | None:
        """The limit that ends the run: epochs, minutes or patience; None if it goes on."""
        if self.state.epoch >= self.recipe.epochs:
            return "epochs"
        if self.out_of_time:
            return "minutes"
        return "patience" if 0 < self.recipe.patience <= self.state.validations_since_best else None

    def run_epoch(self, interrupted: threading.Event | None = None) -> bool:
        """Train one epoch, or the rest of one, and validate if it is due; False if stopped within the epoch."""
        state = self.state
        interrupted = interrupted or threading.Event()
        started = time.perf_counter()
        with _without_denormals(), compiled.own_threads() if self.uses_kernels else nullcontext():
            loss = self._steps(interrupted)
        state.seconds += (seconds := time.perf_counter() - started)
        if loss is None:
            return False
        if not math.isfinite(loss):
            kept = "; the last checkpoint is kept" if self.folder and self.folder.checkpoint.exists() else ""
            raise TrainingError(
                f"the loss became {loss} in epoch {state.epoch + 1}{kept}: "
                "try a smaller entity_lr or relation_lr, or a smaller entity_init"
            )
        state.epoch, state.step, state.loss_sum = state.epoch + 1, 0, 0.0
        self.parameters.update_average(state.epoch)
        self.out_of_time = any_rank(self.clock.is_up(seconds), self.device)
        self._report_epoch(loss, seconds)
        return not any_rank(interrupted.is_set(), self.device) or state.epoch >= self.recipe.epochs

    def _report_epoch(self, loss: float, seconds: float) -> None:
        """Validate if it is due, and put the epoch into the history, the log and an event."""
        state, recipe = self.state, self.recipe
        row: Event = {"epoch": state.epoch, "loss": loss, "seconds": round(seconds, 4)}
        row["triples_per_second"] = round((self.epoch_size or len(self.triples)) / seconds)
        is_last = state.epoch == recipe.epochs or self.out_of_time
        if self.evaluator is not None and (state.epoch % recipe.validate_every == 0 or is_last):
            row["valid_mrr"] = self._validate(self.evaluator)
        state.history.append(row)
        if self.folder is not None and self.shard.rank == 0:
            append_line(self.folder.log, row)
        best = {"best_mrr": state.best_mrr}
        self.callback({"event": "epoch", "epochs": recipe.epochs, **best, **row, **self.epoch_values()})

    def _validate(self, evaluator: Evaluator) -> float:
        """The MRR on valid of the averaged parameters, which are kept if they are the best so far."""
        state = self.state
        with self.parameters.averaged():
            mrr = self.shard.agreed(evaluator(self.scorer()).mrr, self.device)
            state.validations_since_best += 1
            if mrr > state.best_mrr:
                state.best_mrr, state.best_epoch, state.validations_since_best = mrr, state.epoch, 0
                self.parameters.keep_as_best()
        return mrr

    def _steps(self, interrupted: threading.Event) -> float | None:
        """The steps of an epoch that are left; returns the epoch's mean loss, or None if stopped within it."""
        state = self.state
        generator = self.generator.manual_seed(self.seed * 1_000_003 + state.epoch)
        items, size = self.triples, self.recipe.batch_size
        if self.questions is not None:
            steps = math.ceil(len(self.triples) / size)
            items, size = self.questions, math.ceil(len(self.questions) / steps)
        order = torch.randperm(len(items), generator=generator, device=self.device)[: self.epoch_size]
        if state.step and self._epoch_generator is not None:
            generator.set_state(self._epoch_generator)
        batches = order.split(size)
        self.begin_epoch()
        wide = torch.float32 if self.device.type == "mps" else torch.float64
        loss_sum = torch.tensor(state.loss_sum, dtype=wide, device=self.device)
        for number in range(state.step, len(batches)):
            if not self.shard.is_single:
                self.requests.copy_(torch.tensor([interrupted.is_set(), self.clock.is_due(within_epoch=True)]))
            loss_sum += self.train_on(items[batches[number]])
            self.callback({"event": "step", "epoch": state.epoch, "step": number + 1, "steps": len(batches)})
            stop, save = self._requests(interrupted, number)
            if (stop or save) and number + 1 < len(batches):
                state.step, state.loss_sum = number + 1, float(loss_sum)
                self._epoch_generator = generator.get_state()
                if stop:
                    return None
                self.save_checkpoint()
        return float(loss_sum) / len(batches)

    def _requests(self, interrupted: threading.Event, step: int) -> tuple[bool, bool]:
        """Whether to stop and whether to save after a step; a request of any rank counts, so that all do the same."""
        if self.shard.is_single:
            return interrupted.is_set(), self.folder is not None and self.clock.is_due(within_epoch=True)
        if self.device.type != "cpu" and step % 16:  # reading the requests waits for the device
            return False, False
        stop, save = self.requests.tolist()
        return stop > 0, save > 0

    # --- checkpoints ---------------------------------------------------------------------------

    @property
    def identity(self) -> Identity:
        return run_identity(self.recipe, self.seed, self.graph.fingerprint)

    def save_checkpoint(self) -> None:
        """Write the best model so far, if it is new, then the checkpoint that refers to it."""
        if self.folder is None:
            return
        self.clock.saved = time.monotonic()
        self.state.device = self.device.type
        tensors = self.tensors()
        if self.state.step and self._epoch_generator is not None:
            tensors["generator"] = self._epoch_generator
        self.folder.save(self.state, tensors, self.parameters.best, self.identity, self.shard)

    def resume(self) -> None:
        """Restore the last checkpoint, written by any number of processes."""
        if self.folder is None:
            raise DihedralError("there is no output folder to resume from; give one with `out`")
        self.state = self.folder.load(self.identity)
        if self.recipe.epochs < self.state.epoch:
            epochs = f"epochs is {self.recipe.epochs}, but the checkpoint has {self.state.epoch}"
            raise DihedralError(f"{epochs}; resume with more, or start over with --overwrite")
        if self.state.step and self.state.device != self.device.type:
            raise DihedralError(
                f"this run stopped within an epoch on {self.state.device}, and {self.device.type} draws other random "
                f"numbers; resume with --device {self.state.device}"
            )
        tensors = self.tensors()
        if self.state.step:
            tensors["generator"] = self._epoch_generator = self.generator.get_state()
        if self.state.best_epoch >= 0:
            self.parameters.keep_as_best()
        self.folder.fill(self.state, tensors, self.parameters.best, self.shard)


class Clock:
    """The time of a run, from `begin`: when a checkpoint is due, and when the time is up."""

    def __init__(self, checkpoint_minutes: float, minutes: float | None) -> None:
        if checkpoint_minutes < 0:
            raise DihedralError(f"checkpoint_minutes is {checkpoint_minutes}; it must be 0 or more")
        if minutes is not None and not minutes > 0:
            raise DihedralError(f"minutes is {minutes}; it must be more than 0")
        self.checkpoint_seconds = 60 * checkpoint_minutes
        self.limit = math.inf if minutes is None else 60 * minutes
        self.deadline = math.inf
        self.saved = time.monotonic()  # when the last checkpoint was written

    def begin(self, seconds_before: float) -> None:
        """Start the run, or continue one that has taken some time already."""
        self.saved = time.monotonic()
        self.deadline = self.saved + self.limit - seconds_before

    def is_due(self, *, within_epoch: bool = False) -> bool:
        """Whether a checkpoint is due; with 0 minutes there is one after each epoch, and none within it."""
        is_late = time.monotonic() - self.saved >= self.checkpoint_seconds
        return is_late and not (within_epoch and not self.checkpoint_seconds)

    @property
    def share(self) -> float:
        """The share of the time that has passed; 0 without a limit."""
        return 1 - (self.deadline - time.monotonic()) / self.limit if self.limit < math.inf else 0.0

    def is_up(self, seconds: float) -> bool:
        """Whether the time does not suffice for work of some seconds."""
        return time.monotonic() + seconds > self.deadline


@contextmanager
def announcing(callback: Callback | Sequence[Callback], progress: bool) -> Iterator[Callback]:
    """A function that passes events to one or several callbacks and, if wanted, to the progress display."""
    callbacks: list[Callback] = [callback] if callable(callback) else list(callback)
    with ExitStack() as stack:
        if progress:
            from dihedral.learn.loggers import show_progress  # which loads rich

            callbacks.append(stack.enter_context(show_progress()))

        def announce(event: Event) -> None:
            for each in callbacks:
                each(event)

        yield announce


class Interrupted(KeyboardInterrupt):
    """Training was stopped by Ctrl-C, after a checkpoint was written if there is a folder."""


@contextmanager
def catch_interrupt() -> Iterator[threading.Event]:
    """Turn the first Ctrl-C into a flag, so that no step is cut short; a second one stops at once."""
    flag, previous = threading.Event(), signal.getsignal(signal.SIGINT) or signal.SIG_DFL  # None: not set by Python

    def stop(*_: Any) -> None:
        flag.set()
        signal.signal(signal.SIGINT, previous)

    with on_interrupt(stop):
        yield flag


@contextmanager
def on_interrupt(handler: Any) -> Iterator[None]:
    """Handle Ctrl-C by `handler`; only the main thread can."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    previous = signal.signal(signal.SIGINT, handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, previous)


@contextmanager
def _without_denormals() -> Iterator[None]:
    """Flush denormal numbers to zero: CPUs are about ten times slower with them."""
    smallest = torch.tensor(5e-324, dtype=torch.float64)
    before = bool(smallest * 1.0 == 0)
    torch.set_flush_denormal(True)
    try:
        yield
    finally:
        torch.set_flush_denormal(before)
