"""The training loop: epochs, validation, early stopping, checkpoints and resuming.

All random numbers of an epoch come from one generator seeded by (seed, epoch). A checkpoint holds its state, so a
resumed run is bit-identical to an uninterrupted one (on CPU).

With several processes (`dihedral.runtime.distributed`), each runs this loop on its rows of the entity table and draws
the same random numbers. They synchronise in the objective, in the sums of each step, and for common decisions.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from dihedral.engine import compiled
from dihedral.engine.adagrad import RowGradients
from dihedral.engine.cuda import CapturedStep
from dihedral.errors import DihedralError, TrainingError, check_seed
from dihedral.evaluation import Evaluator
from dihedral.graph import Graph
from dihedral.graph.triples import Triples
from dihedral.io.files import make_folder
from dihedral.io.jsonl import append_line, write_lines
from dihedral.learn.checkpoint import RunFolder, RunState
from dihedral.learn.clock import Clock
from dihedral.learn.identity import Identity, run_identity
from dihedral.learn.interrupts import Interrupted, catch_interrupt
from dihedral.learn.objective import build_objective
from dihedral.learn.parameters import Parameters
from dihedral.models import Model, Relations, build_model
from dihedral.models.dihedral import temperature_at
from dihedral.objectives.recipe import Recipe
from dihedral.runtime.distributed import any_rank, equal_on_all_ranks
from dihedral.scoring.embedding import EmbeddingScorer

Event = dict[str, Any]
Callback = Callable[[Event], None]
"""Called with {"event": "start" | "step" | "epoch" | "end" | "measured", …}; an exception from it ends the run."""

STEPS_BEFORE_CAPTURE = 3  # kernels compile and allocators warm up in these
MIN_CAPTURED = 100  # full batches that repay the time of a capture


class ExtraGradient(Protocol):
    """What some rows of entities learn from, besides the facts of a phase."""

    @property
    def rows(self) -> Tensor:
        """int64 [n]: the entities."""

    def gradient(self, relations: Relations, table: Tensor, generator: torch.Generator) -> Tensor:
        """The gradient [n, 2L] of a loss that is a sum over facts, for one step of a phase."""


@dataclass(frozen=True, eq=False)
class Phase:
    """Epochs of a run that train the same rows on the same facts."""

    facts: Triples
    epochs: int
    rows: NDArray[np.bool_] | None = None  # [N]: the entities to train; None trains all
    extra: ExtraGradient | None = None

    def __bool__(self) -> bool:
        return len(self.facts) > 0


@dataclass(frozen=True, eq=False)
class Start:
    """The model that a run starts from, and what the run trains; everything else keeps its values, bit by bit."""

    model: Model
    phases: tuple[Phase, ...]  # at least one; each starts from the averages of the one before
    relation_rows: Tensor | None = None  # bool: the rows of relation parameters to train; None trains all
    sums: Mapping[str, Tensor] = field(default_factory=dict)  # of Adagrad, by parameter; those missing start at 0
    digest: Callable[[], str | None] = lambda: None  # a checkpoint with another digest is not resumed

    @classmethod
    def new(cls, graph: Graph, recipe: Recipe, seed: int) -> Start:
        """A new model, of which everything is trained on all facts."""
        model = build_model(
            recipe.model, graph.num_entities, graph.num_relations, seed=seed, dimension=recipe.dimension, K=recipe.K,
            scaled=recipe.relation_scale, entity_init=recipe.entity_init, relation_init=recipe.relation_init,
            levels=recipe.levels, reciprocal=recipe.reciprocal,
        )  # fmt: skip
        return cls(model, (Phase(graph.train, recipe.epochs),))

    def phase_at(self, epoch: int) -> tuple[Phase, int]:
        """The phase of an epoch, and the first epoch of that phase."""
        first = 0
        for phase in self.phases[:-1]:
            if epoch < first + phase.epochs:
                return phase, first
            first += phase.epochs
        return self.phases[-1], first


class Trainer:
    """One run: a model, its optimisers and the state of its training."""

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
        start: Start | None = None,
    ) -> None:
        """Build the model, the optimisers and the objective.

        out: folder of the run's checkpoints and log.
        minutes: limit on the time of the run; after the first, no epoch starts that would end later.
        start: continue with a part of a model instead of training a new one.
        """
        self.graph, self.recipe, self.seed, self.device = graph, recipe, check_seed(seed), torch.device(device)
        self.clock, self.out_of_time = Clock(checkpoint_minutes, minutes), False
        self.folder = RunFolder(out, self.device) if out is not None else None
        self.callback = callback or (lambda event: None)
        self.state, self.interrupted = RunState(), False
        self.requests = torch.zeros(2, device=self.device)  # to stop and to save; positive if any rank asks for it
        self.generator = torch.Generator(self.device)
        self._epoch_generator: Tensor | None = None  # the generator's state after the last step of an unfinished epoch
        self.temperature = torch.ones((), device=self.device)
        self.start = start or Start.new(graph, recipe, seed)
        self.model = self.start.model.to(self.device).requires_grad_()
        self.shard = self.model.shard
        self.parameters = Parameters(self.model, recipe, self.start.relation_rows, self.start.sums)
        self._begin_phase()
        self.objective = build_objective(recipe, self.model, graph)
        self.evaluator: Evaluator | None = None
        if recipe.validate_every and len(graph.valid):
            self.evaluator = Evaluator(graph, "valid", device=self.device, sample=recipe.validate_on, seed=seed)

    def _begin_phase(self) -> None:
        """Prepare what the next epochs train."""
        self.phase, self.first_epoch = self.start.phase_at(self.state.epoch)
        self.rows = None if self.phase.rows is None else torch.from_numpy(self.phase.rows).to(self.device)
        self.triples = torch.from_numpy(self.phase.facts).to(self.device).long()
        full_batches = self.phase.epochs * (len(self.triples) // self.recipe.batch_size)
        self.captured: CapturedStep | None = None
        self.steps_before_capture = math.inf  # steps that are not captured, of all that could be
        capturable = self.device.type == "cuda" and self.shard.is_single and full_batches >= MIN_CAPTURED
        if capturable and not self.recipe.candidates:  # the size of a sample varies
            self.steps_before_capture = STEPS_BEFORE_CAPTURE

    # --- one step ------------------------------------------------------------------------------

    def train_on(self, batch: Tensor) -> Tensor:
        """Train on a batch [B, 3]; on CUDA, full batches replay a captured step after a few plain ones."""
        if len(batch) < self.recipe.batch_size or self.steps_before_capture > 0:
            self.steps_before_capture -= len(batch) == self.recipe.batch_size
            return self.step(batch)
        self.captured = self.captured or CapturedStep(self.step, batch, self.generator)
        return self.captured(batch)

    def step(self, batch: Tensor) -> Tensor:
        """One plain step on a batch [B, 3]; returns its loss."""
        relations, table = self.model.relations, self.model.entities.detach()
        needs_all = self.recipe.relation_weight or self.recipe.paths
        if self.device.type == "cpu" and not needs_all:
            which, index = torch.unique(batch[:, 1], return_inverse=True)
        else:  # on a GPU, counting the relations in use would wait for the device
            which, index = None, batch[:, 1]
        operators = relations.operators(which, self.generator, self.temperature)
        found = self.objective(table, operators, index, batch, self.generator)
        sums = self.shard.begin_sums([found.operators, found.loss, self.requests])
        entities = found.entities
        if (extra := self.phase.extra) is not None:
            slopes = extra.gradient(relations, table, self.generator) / len(self.triples)
            if isinstance(entities, Tensor):
                entities.index_add_(0, extra.rows, slopes)
            else:
                entities = entities.joined(RowGradients(extra.rows, slopes))
        self.parameters.step_entities(entities, self.rows)
        operator_gradient, loss, self.requests = sums()
        self.parameters.step_relations(operators, operator_gradient)
        return loss

    # --- the run -------------------------------------------------------------------------------

    def run(self) -> None:
        """Train until the recipe's last epoch, an early stop, or Ctrl-C.

        Ctrl-C in the last epoch still completes the run; `interrupted` then tells the caller not to start another one.
        """
        if self.folder is not None and self.shard.rank == 0:
            make_folder(self.folder.folder)
            write_lines(self.folder.log, self.state.history)  # after a resume it ends where the checkpoint does
        about = {"graph": self.graph.name, "seed": self.seed, "recipe": self.recipe.to_dict()}
        self.callback({"event": "start", "epoch": self.state.epoch, "epochs": self.recipe.epochs, **about})
        self.clock.begin(self.state.seconds)
        with catch_interrupt() as interrupted:
            while not self.stopped_by:
                if not self.run_epoch(interrupted):
                    self.save_checkpoint()
                    raise Interrupted
                if any_rank(self.clock.is_due(), self.device):
                    self.save_checkpoint()
            if self.state.seconds >= self.clock.checkpoint_seconds:
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
        uses_kernels = self.objective.compiled and self.device.type == "cpu"
        with _without_denormals(), compiled.own_threads() if uses_kernels else nullcontext():
            loss = self._steps(interrupted)
        seconds = time.perf_counter() - started
        state.seconds += seconds
        if loss is None:
            return False
        if not math.isfinite(loss):
            kept = "; the last checkpoint is kept" if self.folder and self.folder.checkpoint.exists() else ""
            raise TrainingError(
                f"the loss became {loss} in epoch {state.epoch + 1}{kept}: "
                "try a smaller entity_lr or relation_lr, or a smaller entity_init"
            )
        state.epoch, state.step, state.loss_sum = state.epoch + 1, 0, 0.0
        self.parameters.update_average(state.epoch - self.first_epoch)
        self.out_of_time = any_rank(self.clock.is_up(seconds), self.device)
        self._report_epoch(loss, seconds)
        if self.start.phase_at(state.epoch)[1] > self.first_epoch:
            self.parameters.set(self.parameters.average)
            self._begin_phase()
        return not any_rank(interrupted.is_set(), self.device) or state.epoch >= self.recipe.epochs

    def _report_epoch(self, loss: float, seconds: float) -> None:
        """Validate if it is due, and put the epoch into the history, the log and an event."""
        state, recipe = self.state, self.recipe
        row: Event = {"epoch": state.epoch, "loss": loss, "seconds": round(seconds, 4)}
        row["triples_per_second"] = round(len(self.triples) / seconds)
        is_last = state.epoch == recipe.epochs or self.out_of_time
        if self.evaluator is not None and (state.epoch % recipe.validate_every == 0 or is_last):
            row["valid_mrr"] = self._validate(self.evaluator)
        state.history.append(row)
        if self.folder is not None and self.shard.rank == 0:
            append_line(self.folder.log, row)
        event = {"event": "epoch", "epochs": recipe.epochs, "best_mrr": state.best_mrr, **row}
        if self.model.relations.uses_temperature:
            event["temperature"] = self._temperature(state.epoch - 1)
        self.callback(event)

    def _validate(self, evaluator: Evaluator) -> float:
        """The MRR on valid of the averaged parameters, which are kept if they are the best so far."""
        state = self.state
        with self.parameters.averaged():
            mrr = evaluator(EmbeddingScorer(self.model)).mrr
            state.validations_since_best += 1
            if mrr > state.best_mrr:
                state.best_mrr, state.best_epoch, state.validations_since_best = mrr, state.epoch, 0
                self.parameters.keep_as_best()
        return mrr

    def _steps(self, interrupted: threading.Event) -> float | None:
        """The steps of an epoch that are left; returns the epoch's mean loss, or None if stopped within it."""
        state = self.state
        generator = self.generator.manual_seed(self.seed * 1_000_003 + state.epoch)
        order = torch.randperm(len(self.triples), generator=generator, device=self.device)
        if not equal_on_all_ranks(order[:1000]):
            raise TrainingError("the processes draw different random numbers; use the same kind of device for all")
        if state.step and self._epoch_generator is not None:
            generator.set_state(self._epoch_generator)
        batches = order.split(self.recipe.batch_size)
        self.temperature.fill_(self._temperature(state.epoch))
        wide = torch.float32 if self.device.type == "mps" else torch.float64
        loss_sum = torch.tensor(state.loss_sum, dtype=wide, device=self.device)
        for number in range(state.step, len(batches)):
            if not self.shard.is_single:
                self.requests.copy_(torch.tensor([interrupted.is_set(), self.clock.is_due(within_epoch=True)]))
            loss_sum += self.train_on(self.triples[batches[number]])
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

    def _temperature(self, epoch: int) -> float:
        recipe = self.recipe
        return temperature_at(epoch - self.first_epoch, recipe.temperature, recipe.temperature_floor, recipe.cooling)

    # --- state ---------------------------------------------------------------------------------

    @property
    def identity(self) -> Identity:
        return run_identity(self.recipe, self.seed, self.graph.fingerprint, self.start.digest())

    def save_checkpoint(self) -> None:
        """Write the best model so far, if it is new, then the checkpoint that refers to it."""
        if self.folder is None:
            return
        self.clock.saved = time.monotonic()
        self.state.device = self.device.type
        best = self.parameters.best
        if best is not None and not self.folder.has_best(self.state.best_epoch):
            self.folder.save_best(self.state.best_epoch, self.parameters.stored(best))
        tensors = self.parameters.stored(self.parameters.tensors())
        if self.state.step and self._epoch_generator is not None:
            tensors["generator"] = self._epoch_generator
        self.folder.save(self.state, tensors, self.identity)

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
        self._begin_phase()
        self._epoch_generator = self.generator.get_state() if self.state.step else None
        self.parameters.restore(self.folder, self.folder.state, self.parameters.tensors(), self._epoch_generator)
        if self.state.best_epoch >= 0:
            self.parameters.restore_best(self.folder)


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
