"""A trained model with everything that its folder holds: training makes it, and the Predictor answers from it."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass, field
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from dihedral.graph.triples import Graph
from dihedral.models import Model
from dihedral.objectives.recipe import Recipe
from dihedral.probability.calibration import Calibration
from dihedral.scoring.embedding import EmbeddingScorer, need_embeddings
from dihedral.scoring.scorer import Scorer
from dihedral.store.history import History

NOT_CALIBRATED = "it was not calibrated; call calibrate()"


@dataclass(eq=False)
class TrainedModel:
    """A model, the graph that it was trained on, how it was trained, and what was measured."""

    source: Model | Scorer  # a model with entity vectors, or the scorer of another kind of model
    graph: Graph
    _: KW_ONLY
    recipe: Recipe | None = None
    metrics: dict[str, Any] = field(default_factory=dict)
    calibration: Calibration | None = None
    why_not_calibrated: str = NOT_CALIBRATED  # if there is no calibration
    history: History = field(default_factory=History)
    latents: dict[str, Tensor] | None = None  # the training parameters behind the relations
    optimiser: dict[str, Tensor] | None = None  # the sums of Adagrad of the relations, by the name of the parameter

    @cached_property
    def scorer(self) -> Scorer:
        return EmbeddingScorer(self.source) if isinstance(self.source, Model) else self.source

    @property
    def embeddings(self) -> EmbeddingScorer:
        """The scorer of entity vectors; an error if the model has none."""
        return need_embeddings(self.scorer, "this")

    @property
    def model(self) -> Model:
        """The entity vectors and relations; an error if the model has no vectors."""
        return self.embeddings.model

    @property
    def device(self) -> torch.device:
        return self.scorer.device
