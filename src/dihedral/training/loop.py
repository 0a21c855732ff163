"""The training loop: epochs, validation, early stopping, checkpoints, and a way to stop and go on.

Everything random in an epoch comes from one generator seeded by (seed, epoch), whose state a
checkpoint holds; a resumed run is therefore bit-identical to one that was never stopped (on CPU).

Of several processes (`dihedral.runtime.distributed`) each runs this loop on its rows of the entity table, with the same
numbers drawn; they meet in the objective, where a step is summed up, and wherever one of them decides.
"""

from __future__ import annotations

import math
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from dihedral.engine import compiled
from dihedral.engine.adagrad import Adagrad
from dihedral.engine.cuda import CapturedStep
from dihedral.errors import DihedralError, TrainingError, check_seed
from dihedral.evaluation import Evaluator
from dihedral.graph import Graph
from dihedral.inference.scorer import Scorer
from dihedral.models import Model, build_model, restore_relations
from dihedral.models.dihedral import temperature_at
from dihedral.models.model import BlockRelations
from dihedral.objectives.logistic import LogisticLoss, SoftmaxLoss, definitely_skew
from dihedral.objectives.sharded import ShardedLogisticLoss
from dihedral.objectives.walks import Walks
from dihedral.runtime.distributed import any_rank, equal_on_all_ranks
from dihedral.training.checkpoint import RunFolder, RunState
from dihedral.training.recipe import Recipe

Event = dict[str, Any]
Callback = Callable[[Event], None]
"""Called with {"event": "start" | "step" | "epoch" | "end" | "measured", …}; what it raises ends the run."""

LARGE_TABLE = 1 << 29  # numbers: 2 GiB
STEPS_BEFORE_CAPTURE = 3  # kernels compile and allocators warm up on these
ALONE = ("component_weight", "adversarial")  # need all negatives of a question in one place
NOT_IDENTITY = (  # may change on a resume
    "name", "about", "precision", "epochs", "validate_every", "patience",
)  # fmt: skip


class Interrupted(KeyboardInterrupt):
    """Training was stopped by Ctrl-C after writing a checkpoint (where there is a folder for one)."""


class Trainer:
    """One run: a model, its optimisers and how far it is."""

    def __init__(
        self,
        graph: Graph,
        recipe: Recipe,
        *,
        seed: int = 0,
        device: str | torch.device = "cpu",
        out: Path | None = None,
        checkpoint_minutes: float = 1.0,
        callback: Callback | None = None,
        reference: bool = False,
    ) -> None:
        """reference: train on the short, slow paths that the fast ones are checked against."""
        self.reference = reference
        self.graph, self.recipe, self.seed = graph, recipe, check_seed(seed)
        self.device = torch.device(device)
        self.folder = RunFolder(out, self.device) if out is not None else None
        if checkpoint_minutes < 0:
            raise DihedralError(f"checkpoint_minutes is {checkpoint_minutes}; it must be 0 or more")
        self.checkpoint_seconds = 60 * checkpoint_minutes
        self.callback = callback or (lambda event: None)
        self.state = RunState()
        self.interrupted = False
        self.pending_flags = torch.zeros(2, device=self.device)  # to stop, to save: more than 0 where a process has one
        self.last_saved = time.monotonic()
        self._resumed_generator: Tensor | None = None  # its state in the middle of an epoch
        model = build_model(
            recipe.model,
            graph.num_entities,
            graph.num_relations,
            dimension=recipe.dimension,
            K=recipe.K,
            entity_init=recipe.entity_init,
            relation_init=recipe.relation_init,
            hard=recipe.hard,
            scaled=recipe.relation_scale,
            seed=seed,
        )
        self.model = model.to(self.device)
        self.shard = model.shard
        if not self.shard.is_single:
            if reference:
                raise DihedralError(f"reference is True with {self.shard.world} processes; the references are for one")
            for setting in ALONE:
                if getattr(recipe, setting):
                    raise DihedralError(
                        f"{setting} is {getattr(recipe, setting)}, which several processes cannot train with; "
                        "set it to 0 or use one process"
                    )
        for setting in ("component_weight", "relation_weight", "paths"):
            if getattr(recipe, setting) and not isinstance(model.relations, BlockRelations):
                raise DihedralError(f"{setting} needs a model of 2x2 blocks; {recipe.model!r} has none")
        self.triples = torch.from_numpy(graph.train).to(self.device).long()
        by_entity_lr = ("entities", "relations.log_scales")
        self.optimisers = {
            name: Adagrad(parameter, recipe.entity_lr if name in by_entity_lr else recipe.relation_lr)
            for name, parameter in self.model.named_parameters()
        }
        self.average: dict[str, Tensor] = {}  # of the parameters at the ends of epochs
        if recipe.averaging:
            self.average = {name: torch.zeros_like(optimiser.sum) for name, optimiser in self.optimisers.items()}
        self.generator = torch.Generator(self.device)
        self.temperature = torch.ones((), device=self.device)
        self.captured: CapturedStep | None = None
        self.plain_steps = 0
        self.objective = self._objective()
        self.best: dict[str, Tensor] | None = None
        self.evaluator: Evaluator | None = None
        if recipe.validate_every and len(graph.valid):
            self.evaluator = Evaluator(graph, "valid", device=self.device, sample=recipe.validate_on, seed=seed)

    def _objective(self) -> LogisticLoss | SoftmaxLoss:
        relations = self.model.relations
        if self.recipe.objective == "softmax":
            walks = None
            if self.recipe.paths:
                walks = Walks.build(self.graph.train, self.graph.num_entities, self.graph.num_relations, self.device)
            return SoftmaxLoss(self.recipe, relations, walks, shard=self.shard, reference=self.reference)
        skew = None
        if self.recipe.skew_probability:
            skew = definitely_skew(self.graph.train, self.graph.num_entities, self.graph.num_relations)
            skew = skew.to(self.device)
        arguments = self.recipe, relations, self.graph.num_entities, skew
        if not self.shard.is_single:
            return ShardedLogisticLoss(*arguments, shard=self.shard, reference=self.reference)
        return LogisticLoss(*arguments, reference=self.reference)

    # --- one step ------------------------------------------------------------------------------

    def train_on(self, batch: Tensor) -> Tensor:
        """Train on a batch [B, 3]; on CUDA, full batches replay a recorded step after a few plain ones."""
        alone = self.shard.is_single and not self.reference
        if self.device.type != "cuda" or not alone or len(batch) < self.recipe.batch_size:
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
        if self.device.type == "cpu" and not (
            self.recipe.relation_weight or self.recipe.paths
        ):  # only the relations in use
            which, index = torch.unique(batch[:, 1], return_inverse=True)
        else:  # all of them: no waiting for how many there are
            which, index = None, batch[:, 1]
        operators = relations.operators(which, self.generator, self.temperature)
        found = self.objective(self.model.entities.detach(), operators, index, batch, self.generator)
        names, parameters = zip(*relations.named_parameters(), strict=True)
        sums = self.shard.begin_sums([found.operators, found.loss, self.pending_flags])
        if isinstance(found.entities, Tensor):
            self.optimisers["entities"].step(found.entities)
        else:
            self.optimisers["entities"].step_rows(found.entities)
        operator_gradient, loss, self.pending_flags = sums()
        gradients = torch.autograd.grad(operators, parameters, operator_gradient)
        for name, gradient in zip(names, gradients, strict=True):
            self.optimisers[f"relations.{name}"].step(gradient)
        return loss

    # --- the run -------------------------------------------------------------------------------

    def run(self) -> None:
        """Train until the recipe's last epoch, an early stop, or Ctrl-C.

        Ctrl-C in the last epoch leaves a whole run; `interrupted` then says so to those who have more runs in mind.
        """
        if self.folder is not None and self.shard.rank == 0:
            self.folder.create()
            self.folder.write_log(self.state.history)
        about = {"graph": self.graph.name, "seed": self.seed, "recipe": self.recipe.to_dict()}
        self.callback({"event": "start", "epoch": self.state.epoch, "epochs": self.recipe.epochs, **about})
        self.last_saved = time.monotonic()
        with catch_interrupt() as interrupted:
            while self.state.epoch < self.recipe.epochs and not self._out_of_patience():
                done = self.run_epoch(interrupted)
                if not done:
                    self.save_checkpoint()
                    raise Interrupted
                if any_rank(time.monotonic() - self.last_saved >= self.checkpoint_seconds, self.device):
                    self.save_checkpoint()
            self.save_checkpoint()  # the model is still to be measured and written
            self.interrupted = interrupted.is_set()
        self.callback({"event": "end", "epoch": self.state.epoch})

    def _out_of_patience(self) -> bool:
        return 0 < self.recipe.patience <= self.state.validations_since_best

    def run_epoch(self, interrupted: threading.Event | None = None) -> bool:
        """Train one epoch, or the rest of one, and validate if it is time; False when stopped in the middle."""
        progress, recipe = self.state, self.recipe
        interrupted = interrupted or threading.Event()
        started = time.perf_counter()
        ours = self.objective.compiled and self.device.type == "cpu"
        threads = compiled.own_threads() if ours else nullcontext()
        with _without_denormals(), threads:
            loss = self._steps(interrupted)
        seconds = time.perf_counter() - started
        progress.seconds += seconds
        if loss is None:
            return False
        if not math.isfinite(loss):
            kept = "; the last checkpoint is kept" if self.folder and self.folder.checkpoint.exists() else ""
            raise TrainingError(
                f"the loss became {loss} in epoch {progress.epoch + 1}{kept}: "
                "try a smaller entity_lr or relation_lr, or a smaller entity_init"
            )
        progress.epoch, progress.step, progress.loss_sum = progress.epoch + 1, 0, 0.0
        self._update_average()
        row: Event = {"epoch": progress.epoch, "loss": loss, "seconds": round(seconds, 4)}
        row["triples_per_second"] = round(len(self.triples) / seconds)
        if self.evaluator is not None and (
            progress.epoch % recipe.validate_every == 0 or progress.epoch == recipe.epochs
        ):
            row["valid_mrr"] = self._validate()
        progress.history.append(row)
        if self.folder is not None and self.shard.rank == 0:
            self.folder.append_log(row)
        event = {"event": "epoch", "epochs": recipe.epochs, "best_mrr": progress.best_mrr, **row}
        if recipe.model.endswith("-gumbel"):
            event["temperature"] = self._temperature(progress.epoch - 1)
        self.callback(event)
        return not any_rank(interrupted.is_set(), self.device) or progress.epoch >= recipe.epochs

    def _steps(self, interrupted: threading.Event) -> float | None:
        """All steps of an epoch, or the rest of them: the mean loss; None when stopped in the middle."""
        progress, recipe = self.state, self.recipe
        generator = self.generator.manual_seed(self.seed * 1_000_003 + progress.epoch)
        order = torch.randperm(len(self.triples), generator=generator, device=self.device)
        if not equal_on_all_ranks(order[:1000]):
            raise TrainingError("processes draw different numbers on their devices; use devices of one kind")
        if progress.step and self._resumed_generator is not None:
            generator.set_state(self._resumed_generator)
        batches = order.split(recipe.batch_size)
        self.temperature.fill_(self._temperature(progress.epoch))
        wide = torch.float32 if self.device.type == "mps" else torch.float64
        loss_sum = torch.tensor(progress.loss_sum, dtype=wide, device=self.device)
        for number in range(progress.step, len(batches)):
            if not self.shard.is_single:
                self.pending_flags.copy_(torch.tensor([interrupted.is_set(), self._due()]))
            loss_sum += self.train_on(self.triples[batches[number]])
            self.callback({"event": "step", "epoch": progress.epoch, "step": number + 1, "steps": len(batches)})
            stop, save = self._pending_flags(interrupted, number)
            if (stop or save) and number + 1 < len(batches):
                progress.step, progress.loss_sum = number + 1, float(loss_sum)
                self._resumed_generator = generator.get_state()
                if stop:
                    return None
                self.save_checkpoint()
        return float(loss_sum) / len(batches)

    def _due(self) -> bool:
        """Whether it is time for a checkpoint, also within an epoch; with 0 minutes there is one after each epoch."""
        return 0 < self.checkpoint_seconds <= time.monotonic() - self.last_saved

    def _pending_flags(self, interrupted: threading.Event, step: int) -> tuple[bool, bool]:
        """Whether to stop and whether to save after a step: what any process wants, so that all do the same."""
        if self.shard.is_single:
            return interrupted.is_set(), self.folder is not None and self._due()
        if self.device.type != "cpu" and step % 16:  # to look means to wait for the device
            return False, False
        stop, save = self.pending_flags.tolist()
        return stop > 0, save > 0

    def _temperature(self, epoch: int) -> float:
        recipe = self.recipe
        return temperature_at(epoch, recipe.temperature, recipe.temperature_floor, recipe.cooling)

    def _validate(self) -> float:
        assert self.evaluator is not None
        with self.averaged():
            mrr = self.evaluator(Scorer(self.model)).mrr
            if mrr > self.state.best_mrr:
                self.state.best_mrr, self.state.best_epoch = mrr, self.state.epoch
                self.state.validations_since_best = 0
                self.best = {
                    name: tensor.detach().to(self._place_of_best, copy=True)
                    for name, tensor in self.model.named_parameters()
                }
            else:
                self.state.validations_since_best += 1
        return mrr

    @property
    def _place_of_best(self) -> torch.device:
        """A device that one table fills has no room for two."""
        large = self.model.entities.numel() > LARGE_TABLE and self.shard.is_single
        return torch.device("cpu") if large else self.device

    def _update_average(self) -> None:
        decay = self.recipe.averaging
        for name, average in self.average.items():  # the first epoch's weight is 1: no bias to zero
            average.lerp_(self.optimisers[name].parameter, (1 - decay) / (1 - decay**self.state.epoch))

    @contextmanager
    def averaged(self) -> Iterator[None]:
        """The averaged parameters in the model's place, where there is an average."""
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
        """The same as a checkpoint has them: rows of entities as parts of the whole table."""
        return {
            name: self.shard.stored(tensor) if name.endswith("entities") else tensor for name, tensor in tensors.items()
        }

    def save_checkpoint(self) -> None:
        """Write the best model so far, if it is new, and then the checkpoint that names it."""
        if self.folder is None:
            return
        self.last_saved = time.monotonic()
        self.state.device = self.device.type
        if self.best is not None and not self.folder.has_best(self.state.best_epoch):
            self.folder.save_best(self.state.best_epoch, self._stored(self.best))
        tensors = self._stored(self._state())
        if self.state.step and self._resumed_generator is not None:
            tensors["generator"] = self._resumed_generator
        self.folder.save(self.state, tensors, identity(self.recipe, self.seed, self.graph))

    def resume(self) -> None:
        """Go back to the last checkpoint, of however many processes."""
        if self.folder is None:
            raise DihedralError("there is no output folder to resume from; give one with `out`")
        self.state = self.folder.load(identity(self.recipe, self.seed, self.graph))
        if self.state.step and self.state.device != self.device.type:
            raise DihedralError(
                f"this run stopped within an epoch on {self.state.device}, whose random numbers "
                f"{self.device.type} does not have; go on with --device {self.state.device}"
            )
        tensors = self._stored(self._state())
        if self.state.step:
            tensors["generator"] = self._resumed_generator = self.generator.get_state()
        self.folder.fill(tensors)
        self._restore(self._state(), tensors)
        if self.state.best_epoch >= 0:
            self.best = {
                name: torch.empty_like(optimiser.parameter, device=self._place_of_best)
                for name, optimiser in self.optimisers.items()
            }
            tensors = self._stored(self.best)
            self.folder.fill_best(self.state.best_epoch, tensors)
            self._restore(self.best, tensors)

    def _restore(self, tensors: dict[str, Tensor], stored: dict[str, Tensor]) -> None:
        for name, tensor in tensors.items():
            if name.endswith("entities"):
                self.shard.restore(tensor, stored[name])

    def best_model(self) -> tuple[Model, dict[str, Tensor]]:
        """The model to keep, reduced to what is stored, and the training parameters behind it."""
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


def identity(recipe: Recipe, seed: int, graph: Graph) -> dict[str, Any]:
    """What must be the same for a resume to make sense."""
    settings = {key: value for key, value in recipe.to_dict().items() if key not in NOT_IDENTITY}
    return {"recipe": settings, "seed": seed, "data": graph.fingerprint}


@contextmanager
def catch_interrupt() -> Iterator[threading.Event]:
    """Turn the first Ctrl-C into a flag, so that a step is never cut in half; a second one stops at once."""
    flag = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield flag
        return

    def stop(*_: Any) -> None:
        flag.set()
        signal.signal(signal.SIGINT, previous)

    previous = signal.signal(signal.SIGINT, stop)
    try:
        yield flag
    finally:
        signal.signal(signal.SIGINT, previous)


@contextmanager
def _without_denormals() -> Iterator[None]:
    """Numbers too near zero become zero: CPUs are tenfold slower with them."""
    smallest = torch.tensor(5e-324, dtype=torch.float64)
    before = bool(smallest * 1.0 == 0)
    torch.set_flush_denormal(True)
    try:
        yield
    finally:
        torch.set_flush_denormal(before)
