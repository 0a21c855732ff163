"""A trained model with everything that its folder holds, and the history of its updates."""

from __future__ import annotations

from dataclasses import KW_ONLY, asdict, dataclass, field
from functools import cached_property
from typing import Any

import torch

from dihedral.errors import DihedralError
from dihedral.graph.triples import Graph
from dihedral.io.files import read_record
from dihedral.models import Model, Relations
from dihedral.objectives.recipe import Recipe
from dihedral.probability.calibration import Calibration
from dihedral.scoring.embedding import EmbeddingScorer, need_embeddings
from dihedral.scoring.path_scorer import PathScorer
from dihedral.scoring.scorer import Scorer

NOT_CALIBRATED = "it was not calibrated; call calibrate()"


@dataclass(frozen=True, kw_only=True)
class Version:
    """A model after an update, or as it was trained (version 0). It holds no hash: facts can be guessed from one."""

    version: int
    parent: int | None = None
    time: str = ""  # of the update, in UTC
    facts: int  # for training
    entities: int | None = None  # in the graph; older folders have the numbers of version 0 only
    relations: int | None = None
    added: int = 0  # facts
    removed: int = 0
    new_entities: int = 0
    new_relations: int = 0
    known_already: int = 0  # facts to add that the graph held
    trained_again: bool = False  # this is a new model
    epochs: int = 0  # of training it, or new relations
    train_seconds: float = 0.0
    valid_mrr: float | None = None  # if it was measured
    test_mrr: float | None = None


@dataclass(frozen=True)
class History:
    """All versions of a model in their order; empty if it was never updated."""

    versions: tuple[Version, ...] = ()

    @property
    def latest(self) -> Version:
        return self.versions[-1]

    @property
    def since_training(self) -> tuple[Version, ...]:
        """The version of the last training, and those after it."""
        return self.versions[max((i for i, each in enumerate(self.versions) if each.trained_again), default=0) :]

    @property
    def names_at_split(self) -> tuple[int, int] | None:
        """The numbers of entities and relations when valid was drawn; None if that is not recorded."""
        first = self.versions[0] if self.versions else None
        if first is None or first.entities is None or first.relations is None:
            return None
        return first.entities, first.relations

    def to_dict(self) -> dict[str, Any]:
        return {"versions": [asdict(each) for each in self.versions]}

    @classmethod
    def from_dict(cls, content: Any) -> History:
        """The history that a file holds, checked."""
        try:
            return cls(tuple(read_record(Version, each) for each in content["versions"]))
        except (KeyError, TypeError) as error:
            raise DihedralError(f"the model's versions are damaged: {error}; copy the folder again") from None


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

    @cached_property
    def scorer(self) -> Scorer:
        return EmbeddingScorer(self.source) if isinstance(self.source, Model) else self.source

    @property
    def model(self) -> Model:
        """The entity vectors and relations; an error if the model has no vectors."""
        return need_embeddings(self.scorer, "this").model

    @property
    def relations(self) -> Relations:
        """The operators of the relations, which every kind of model has."""
        return self.scorer.model.relations if isinstance(self.scorer, PathScorer) else self.model.relations

    @property
    def device(self) -> torch.device:
        return self.scorer.device
