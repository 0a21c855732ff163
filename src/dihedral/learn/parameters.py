"""The parameters that a run trains: their optimisers, their average over epochs, and the best ones on valid so far."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import torch
from torch import Tensor

from dihedral.engine.adagrad import Adagrad, RowGradients
from dihedral.learn.checkpoint import RunFolder
from dihedral.models import Model, restore_relations
from dihedral.objectives.recipe import Recipe

LARGE_TABLE = 1 << 29  # numbers: 2 GiB
BY_ENTITY_LR = ("entities", "relations.log_scales")


class Parameters:
    """The trained parameters of a model, by name, with an Adagrad optimiser for each."""

    def __init__(self, model: Model, recipe: Recipe, relation_rows: Tensor | None, sums: Mapping[str, Tensor]) -> None:
        """
        relation_rows: bool: the rows of relation parameters to train; None trains all.
        sums: of Adagrad, by the name of the parameter; those that are missing start at 0.
        """
        self.model, self.recipe = model, recipe
        self.relation_rows = None if relation_rows is None else relation_rows.to(model.entities.device)
        self.trains_relations = relation_rows is None or bool(relation_rows.any())
        self.optimisers = {
            name: Adagrad(parameter, recipe.entity_lr if name in BY_ENTITY_LR else recipe.relation_lr)
            for name, parameter in model.named_parameters()
            if name == "entities" or self.trains_relations
        }
        for name in sums.keys() & self.optimisers.keys():
            self.optimisers[name].sum.copy_(sums[name])
        self.average: dict[str, Tensor] = {}  # of the parameters at the ends of epochs
        if recipe.averaging:
            self.average = {name: torch.zeros_like(each.sum) for name, each in self.optimisers.items()}
        self.best: dict[str, Tensor] | None = None

    def step_entities(self, gradient: RowGradients | Tensor, rows: Tensor | None) -> None:
        """Train entities with a gradient; rows: bool [N]: those to train, None trains all."""
        optimiser = self.optimisers["entities"]
        if isinstance(gradient, Tensor):
            optimiser.step(gradient if rows is None else masked(gradient, rows))
        else:
            optimiser.step_rows(gradient if rows is None else gradient.only(rows))

    def step_relations(self, operators: Tensor, gradient: Tensor) -> None:
        """Train relations, if they are trained, with the gradient of the loss by their operators."""
        if not self.trains_relations:
            return
        names, parameters = zip(*self.model.relations.named_parameters(), strict=True)
        gradients = torch.autograd.grad(operators, parameters, gradient)
        for name, found in zip(names, gradients, strict=True):
            kept = found if self.relation_rows is None else masked(found, self.relation_rows)
            self.optimisers[f"relations.{name}"].step(kept)

    # --- averages, and the best parameters -------------------------------------------------------

    def update_average(self, epochs: int) -> None:
        """Include the parameters after this many epochs; the first have weight 1, so there is no bias towards 0."""
        decay = self.recipe.averaging
        for name, average in self.average.items():
            average.lerp_(self.optimisers[name].parameter, (1 - decay) / (1 - decay**epochs))

    def set(self, values: Mapping[str, Tensor]) -> None:
        """Continue with other values of parameters, such as `average` or `best`."""
        for name, tensor in values.items():
            self.optimisers[name].parameter.copy_(tensor)

    @contextmanager
    def averaged(self) -> Iterator[None]:
        """Use the averaged parameters, if there are any, in place of the trained ones."""
        trained = {name: self.optimisers[name].parameter.clone() for name in self.average}
        self.set(self.average)
        try:
            yield
        finally:
            self.set(trained)

    def keep_as_best(self) -> None:
        device = self._device_of_best
        self.best = {name: each.parameter.to(device, copy=True) for name, each in self.optimisers.items()}

    @property
    def _device_of_best(self) -> torch.device:
        """Where the best parameters are kept: a GPU that holds a large table has no memory for a second one."""
        large = self.model.entities.numel() > LARGE_TABLE and self.model.shard.is_single
        return torch.device("cpu") if large else self.model.entities.device

    def best_model(self) -> tuple[Model, dict[str, Tensor]]:
        """The model to keep, with the relations as they are stored, and the latent parameters that they come from."""
        self.set(self.best or self.average)
        relations = self.model.relations
        latents = {name: parameter.detach().clone() for name, parameter in relations.named_parameters()}
        stored = {name: tensor.clone() for name, tensor in relations.stored().items()}
        kept = restore_relations(
            self.recipe.model, stored, self.model.num_relations, self.recipe.dimension, relations.settings()
        )
        model = Model(self.model.entities.detach(), kept.to(self.model.entities.device), self.model.shard)
        return model.requires_grad_(False), latents

    # --- checkpoints -----------------------------------------------------------------------------

    def tensors(self) -> dict[str, Tensor]:
        """All tensors of a checkpoint but the best parameters."""
        found: dict[str, Tensor] = {name: each.parameter for name, each in self.optimisers.items()}
        found |= {f"adagrad.{name}": each.sum for name, each in self.optimisers.items()}
        return found | {f"average.{name}": average for name, average in self.average.items()}

    def stored(self, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
        """Tensors as a checkpoint stores them: rows of entities as parts of the complete table."""
        shard = self.model.shard
        return tensors | {name: shard.stored(each) for name, each in tensors.items() if name.endswith("entities")}

    def restore(
        self, folder: RunFolder, name: str, tensors: dict[str, Tensor], generator: Tensor | None = None
    ) -> None:
        """Fill tensors, and the state of a generator, from one of the folders of a checkpoint."""
        stored = self.stored(tensors)
        folder.fill(name, stored if generator is None else stored | {"generator": generator})
        for key, tensor in tensors.items():
            if key.endswith("entities"):
                self.model.shard.restore(tensor, stored[key])

    def restore_best(self, folder: RunFolder) -> None:
        self.keep_as_best()
        assert self.best is not None
        self.restore(folder, folder.best, self.best)


def masked(gradient: Tensor, rows: Tensor) -> Tensor:
    """A gradient with zeros in the rows that are not in a mask; Adagrad leaves those as they are."""
    return gradient * rows.view(-1, *[1] * (gradient.ndim - 1))
