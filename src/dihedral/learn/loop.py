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
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor

from dihedral.engine import compiled
from dihedral.engine.adagrad import Adagrad, RowGradients
from dihedral.engine.cuda import CapturedStep
from dihedral.errors import DihedralError, TrainingError, check_seed
from dihedral.evaluation import Evaluator
from dihedral.graph import Graph
from dihedral.graph.triples import Triples
from dihedral.io.files import make_folder
from dihedral.io.jsonl import append_line, write_lines
from dihedral.learn.checkpoint import RunFolder, RunState
from dihedral.learn.identity import Identity, run_identity
from dihedral.learn.interrupts import Interrupted, catch_interrupt
from dihedral.learn.objective import build_objective
from dihedral.models import Model, Relations, build_model, restore_relations
from dihedral.models.dihedral import temperature_at
from dihedral.objectives.base import Gradients
from dihedral.objectives.recipe import Recipe
from dihedral.runtime.distributed import any_rank, equal_on_all_ranks
from dihedral.scoring.embedding import EmbeddingScorer

Event = dict[str, Any]
Callback = Callable[[Event], None]
"""Called with {"event": "start" | "step" | "epoch" | "end" | "measured", …}; an exception from it ends the run."""

LARGE_TABLE = 1 << 29  # numbers: 2 GiB
STEPS_BEFORE_CAPTURE = 3  # kernels compile and allocators warm up in these
MIN_CAPTURED = 100  # full batches that repay the time of a capture


class ExtraGradient(Protocol):
    """What the rows of entities learn from, besides the facts of a phase."""

    def added_to(
        self, found: Gradients, relations: Relations, table: Tensor, num_facts: int, generator: torch.Generator
    ) -> RowGradients | Tensor:
        """The gradients of entities of a step, with those of this; num_facts: of the phase."""


@dataclass(frozen=True, eq=False)
class Phase:
    """A part of a run that continues with a part of a model."""

    rows: Tensor  # bool [N]: the entities to train
    triples: Triples  # the facts to train on
    epochs: int
    others: ExtraGradient | None = None  # what the rows learn from the other facts


@dataclass(frozen=True, eq=False)
class Start:
    """Where a run starts that continues with a part of a model; everything else keeps its values, bit by bit."""

    model: Model
    phases: tuple[Phase, ...]  # at least one; each starts from the averages of the one before
    relation_rows: Tensor | None  # bool: the rows of relation parameters to train; None trains no relation
    sums: dict[str, Tensor]  # of Adagrad, by the name of the parameter; those that are missing start at 0
    digest: Callable[[], str] = str  # of the model and the change; a checkpoint of another is not resumed

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
        self.graph, self.recipe, self.seed = graph, recipe, check_seed(seed)
        self.device = torch.device(device)
        if checkpoint_minutes < 0:
            raise DihedralError(f"checkpoint_minutes is {checkpoint_minutes}; it must be 0 or more")
        self.checkpoint_seconds = 60 * checkpoint_minutes
        if minutes is not None and not minutes > 0:
            raise DihedralError(f"minutes is {minutes}; it must be more than 0")
        self.seconds_limit = math.inf if minutes is None else 60 * minutes
        self.deadline, self.out_of_time = math.inf, False
        self.folder = RunFolder(out, self.device) if out is not None else None
        self.callback = callback or (lambda event: None)
        self.state = RunState()
        self.interrupted = False
        self.requests = torch.zeros(2, device=self.device)  # to stop and to save; positive if any rank asks for it
        self.last_saved = time.monotonic()
        self._epoch_generator: Tensor | None = None  # the generator's state after the last step of an unfinished epoch
        self.generator = torch.Generator(self.device)
        self.temperature = torch.ones((), device=self.device)
        self.start = start
        self._build_model()
        self._begin_phase()
        self.objective = build_objective(recipe, self.model, graph)
        self.best: dict[str, Tensor] | None = None
        self.evaluator: Evaluator | None = None
        if recipe.validate_every and len(graph.valid):
            self.evaluator = Evaluator(graph, "valid", device=self.device, sample=recipe.validate_on, seed=seed)

    def _build_model(self) -> None:
        """The model, an optimiser per parameter, and the averages of the parameters."""
        recipe, size = self.recipe, (self.graph.num_entities, self.graph.num_relations)
        options: dict[str, Any] = {"dimension": recipe.dimension, "K": recipe.K, "scaled": recipe.relation_scale}
        options |= {"entity_init": recipe.entity_init, "relation_init": recipe.relation_init, "levels": recipe.levels}
        options["reciprocal"] = recipe.reciprocal
        start = self.start
        model = build_model(recipe.model, *size, seed=self.seed, **options) if start is None else start.model
        self.model, self.shard = model.to(self.device).requires_grad_(), model.shard
        by_entity_lr = ("entities", "relations.log_scales")
        self.optimisers = {
            name: Adagrad(parameter, recipe.entity_lr if name in by_entity_lr else recipe.relation_lr)
            for name, parameter in self.model.named_parameters()
            if start is None or name == "entities" or start.relation_rows is not None
        }
        self.relation_rows: Tensor | None = None  # mask of what is trained; None: everything
        if start is not None:
            if start.relation_rows is not None:
                self.relation_rows = start.relation_rows.to(self.device)
            for name, total in start.sums.items():
                if name in self.optimisers:
                    self.optimisers[name].sum.copy_(total)
        self.average: dict[str, Tensor] = {}  # of the parameters at the ends of epochs
        if recipe.averaging:
            self.average = {name: torch.zeros_like(optimiser.sum) for name, optimiser in self.optimisers.items()}

    def _begin_phase(self) -> None:
        """What the next epochs train: everything, or a phase of an update."""
        self.captured: CapturedStep | None = None
        self.plain_steps, self.first_epoch = 0, 0
        self.rows: Tensor | None = None  # mask of the entities that are trained; None: all
        self.others: ExtraGradient | None = None
        triples, epochs = self.graph.train, self.recipe.epochs
        if self.start is not None:
            phase, self.first_epoch = self.start.phase_at(self.state.epoch)
            self.rows, self.others, triples = phase.rows.to(self.device), phase.others, phase.triples
            epochs = phase.epochs
        self.num_full_batches = epochs * (len(triples) // self.recipe.batch_size)
        self.triples = torch.from_numpy(triples).to(self.device).long()

    # --- one step ------------------------------------------------------------------------------

    def train_on(self, batch: Tensor) -> Tensor:
        """Train on a batch [B, 3]; on CUDA, full batches replay a captured step after a few plain ones."""
        capturable = self.device.type == "cuda" and self.shard.is_single
        capturable = capturable and self.num_full_batches >= MIN_CAPTURED
        capturable = capturable and not self.recipe.candidates  # the size of a sample varies
        if not capturable or len(batch) < self.recipe.batch_size:
            return self.step(batch)
        if self.captured is None:
            self.plain_steps += 1
            if self.plain_steps <= STEPS_BEFORE_CAPTURE:
                return self.step(batch)
            self.captured = CapturedStep(self.step, batch, self.generator)
        return self.captured(batch)

    def step(self, batch: Tensor) -> Tensor:
        """One plain step on a batch [B, 3]; returns its loss."""
        relations = self.model.relations
        needs_all = self.recipe.relation_weight or self.recipe.paths
        if self.device.type == "cpu" and not needs_all:
            which, index = torch.unique(batch[:, 1], return_inverse=True)
        else:  # on a GPU, counting the relations in use would wait for the device
            which, index = None, batch[:, 1]
        operators = relations.operators(which, self.generator, self.temperature)
        found = self.objective(self.model.entities.detach(), operators, index, batch, self.generator)
        sums = self.shard.begin_sums([found.operators, found.loss, self.requests])
        uses = found.entities
        if self.others is not None:
            table, count = self.model.entities.detach(), len(self.triples)
            uses = self.others.added_to(found, relations, table, count, self.generator)
        if isinstance(uses, Tensor):
            self.optimisers["entities"].step(uses if self.rows is None else masked(uses, self.rows))
        else:
            self.optimisers["entities"].step_rows(uses if self.rows is None else uses.only(self.rows))
        operator_gradient, loss, self.requests = sums()
        if len(self.optimisers) > 1:  # relations are trained too
            names, parameters = zip(*relations.named_parameters(), strict=True)
            gradients = torch.autograd.grad(operators, parameters, operator_gradient)
            for name, gradient in zip(names, gradients, strict=True):
                kept = gradient if self.relation_rows is None else masked(gradient, self.relation_rows)
                self.optimisers[f"relations.{name}"].step(kept)
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
        self.last_saved = time.monotonic()
        self.deadline = self.last_saved + self.seconds_limit - self.state.seconds
        with catch_interrupt() as interrupted:
            while not self.stopped_by:
                if not self.run_epoch(interrupted):
                    self.save_checkpoint()
                    raise Interrupted
                if any_rank(time.monotonic() - self.last_saved >= self.checkpoint_seconds, self.device):
                    self.save_checkpoint()
            if self.state.seconds >= self.checkpoint_seconds:
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
        state, recipe = self.state, self.recipe
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
        self._update_average()
        self.out_of_time = any_rank(time.monotonic() + seconds > self.deadline, self.device)
        self._report_epoch(loss, seconds)
        if self.start is not None and self.start.phase_at(state.epoch)[1] > self.first_epoch:
            for name, average in self.average.items():
                self.optimisers[name].parameter.copy_(average)
            self._begin_phase()
        return not any_rank(interrupted.is_set(), self.device) or state.epoch >= recipe.epochs

    def _report_epoch(self, loss: float, seconds: float) -> None:
        """Validate if it is due, and put the epoch into the history, the log and an event."""
        state, recipe = self.state, self.recipe
        row: Event = {"epoch": state.epoch, "loss": loss, "seconds": round(seconds, 4)}
        row["triples_per_second"] = round(len(self.triples) / seconds)
        is_last = state.epoch == recipe.epochs or self.out_of_time
        if self.evaluator is not None and (state.epoch % recipe.validate_every == 0 or is_last):
            row["valid_mrr"] = self._validate()
        state.history.append(row)
        if self.folder is not None and self.shard.rank == 0:
            append_line(self.folder.log, row)
        event = {"event": "epoch", "epochs": recipe.epochs, "best_mrr": state.best_mrr, **row}
        if self.model.relations.uses_temperature:
            event["temperature"] = self._temperature(state.epoch - 1)
        self.callback(event)

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
                self.requests.copy_(torch.tensor([interrupted.is_set(), self._due()]))
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

    def _due(self) -> bool:
        """Whether a checkpoint is due, also within an epoch; with 0 minutes there is one after each epoch."""
        return 0 < self.checkpoint_seconds <= time.monotonic() - self.last_saved

    def _requests(self, interrupted: threading.Event, step: int) -> tuple[bool, bool]:
        """Whether to stop and whether to save after a step; a request of any rank counts, so that all do the same."""
        if self.shard.is_single:
            return interrupted.is_set(), self.folder is not None and self._due()
        if self.device.type != "cpu" and step % 16:  # reading the requests waits for the device
            return False, False
        stop, save = self.requests.tolist()
        return stop > 0, save > 0

    def _temperature(self, epoch: int) -> float:
        recipe = self.recipe
        return temperature_at(epoch - self.first_epoch, recipe.temperature, recipe.temperature_floor, recipe.cooling)

    def _validate(self) -> float:
        assert self.evaluator is not None
        state, device = self.state, self._device_of_best
        with self.averaged():
            mrr = self.evaluator(EmbeddingScorer(self.model)).mrr
            state.validations_since_best += 1
            if mrr > state.best_mrr:
                state.best_mrr, state.best_epoch, state.validations_since_best = mrr, state.epoch, 0
                self.best = {name: each.parameter.to(device, copy=True) for name, each in self.optimisers.items()}
        return mrr

    @property
    def _device_of_best(self) -> torch.device:
        """Where the best parameters are kept: a GPU that holds a large table has no memory for a second one."""
        large = self.model.entities.numel() > LARGE_TABLE and self.shard.is_single
        return torch.device("cpu") if large else self.device

    def _update_average(self) -> None:
        decay, epochs = self.recipe.averaging, self.state.epoch - self.first_epoch
        for name, average in self.average.items():  # the first epoch has weight 1: no bias towards zero
            average.lerp_(self.optimisers[name].parameter, (1 - decay) / (1 - decay**epochs))

    @contextmanager
    def averaged(self) -> Iterator[None]:
        """Use the averaged parameters, if there are any, in place of the trained ones."""
        trained = {name: self.optimisers[name].parameter.clone() for name in self.average}
        for name, average in self.average.items():
            self.optimisers[name].parameter.copy_(average)
        try:
            yield
        finally:
            for name, tensor in trained.items():
                self.optimisers[name].parameter.copy_(tensor)

    # --- state ---------------------------------------------------------------------------------

    def _state(self) -> dict[str, Tensor]:
        """All tensors of the run."""
        tensors = {name: optimiser.parameter for name, optimiser in self.optimisers.items()}
        tensors |= {f"adagrad.{name}": optimiser.sum for name, optimiser in self.optimisers.items()}
        return tensors | {f"average.{name}": average for name, average in self.average.items()}

    def _stored(self, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
        """The tensors as a checkpoint stores them: rows of entities as parts of the complete table."""
        parts = {name: self.shard.stored(tensor) for name, tensor in tensors.items() if name.endswith("entities")}
        return tensors | parts

    @property
    def identity(self) -> Identity:
        start = self.start.digest() if self.start is not None else None
        return run_identity(self.recipe, self.seed, self.graph.fingerprint, start)

    def save_checkpoint(self) -> None:
        """Write the best model so far, if it is new, then the checkpoint that refers to it."""
        if self.folder is None:
            return
        self.last_saved = time.monotonic()
        self.state.device = self.device.type
        if self.best is not None and not self.folder.has_best(self.state.best_epoch):
            self.folder.save_best(self.state.best_epoch, self._stored(self.best))
        tensors = self._stored(self._state())
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
        tensors = self._stored(self._state())
        if self.state.step:
            tensors["generator"] = self._epoch_generator = self.generator.get_state()
        self.folder.fill(self.folder.state, tensors)
        self._restore(self._state(), tensors)
        if self.state.best_epoch >= 0:
            device = self._device_of_best
            self.best = {name: torch.empty_like(each.sum, device=device) for name, each in self.optimisers.items()}
            tensors = self._stored(self.best)
            self.folder.fill(self.folder.best, tensors)
            self._restore(self.best, tensors)

    def _restore(self, tensors: dict[str, Tensor], stored: dict[str, Tensor]) -> None:
        for name, tensor in tensors.items():
            if name.endswith("entities"):
                self.shard.restore(tensor, stored[name])

    def best_model(self) -> tuple[Model, dict[str, Tensor]]:
        """The model to keep, with the relations as they are stored, and the latent parameters that they come from."""
        for name, tensor in (self.best or self.average).items():
            self.optimisers[name].parameter.copy_(tensor)
        relations = self.model.relations
        latents = {name: parameter.detach().clone() for name, parameter in relations.named_parameters()}
        stored = {name: tensor.clone() for name, tensor in relations.stored().items()}
        kept = restore_relations(
            self.recipe.model, stored, self.graph.num_relations, self.recipe.dimension, relations.settings()
        )
        model = Model(self.model.entities.detach(), kept.to(self.device), self.shard)
        return model.requires_grad_(False), latents


def masked(gradient: Tensor, rows: Tensor) -> Tensor:
    """A gradient with zeros in the rows that are not in a mask; Adagrad leaves those as they are."""
    return gradient * rows.view(-1, *[1] * (gradient.ndim - 1))


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
