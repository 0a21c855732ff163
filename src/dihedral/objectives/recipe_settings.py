"""The settings of a recipe as keyword arguments, so that editors complete them; a test compares both lists."""

from __future__ import annotations

from typing import TypedDict


class RecipeSettings(TypedDict, total=False):
    """Settings of `Recipe`; those that are left out keep their values."""

    name: str
    about: str
    model: str
    K: int
    levels: str
    dimension: int
    entity_init: float
    relation_init: float
    temperature: float
    temperature_floor: float
    cooling: float
    relation_scale: bool
    reciprocal: bool
    objective: str
    negatives: int
    share_negatives: int
    skew_probability: float
    component_weight: float
    relation_weight: float
    paths: float
    path_length: int
    composition_weight: float
    candidates: int
    dropout: float
    regulariser: str
    regulariser_weight: float
    regularise_negatives: bool
    regularise_relations: bool
    precision: str
    batch_size: int
    epochs: int
    entity_lr: float
    relation_lr: float
    averaging: float
    validate_every: int
    validate_on: int
    patience: int
