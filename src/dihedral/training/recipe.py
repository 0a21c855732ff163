"""Recipes: every setting of a training run in one frozen object, read from TOML."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import math
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any, get_type_hints

from dihedral.errors import DihedralError, close_matches
from dihedral.io.files import atomic_path
from dihedral.models import MODELS

OBJECTIVES = ("logistic", "softmax")
REGULARISERS = ("none", "l2", "n3", "dura")
PRECISIONS = ("half", "tf32", "float32")


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """How a model is built and trained.

    >>> Recipe(model="dihedral-ste", dimension=200).replace(epochs="5").epochs
    5
    """

    name: str = "unnamed"
    about: str = ""
    """What this recipe is for, and where it leaves the paper."""

    # the model
    model: str = "dihedral-gumbel"
    K: int = 4
    """The dihedral group D_K."""
    dimension: int = 200
    """2L, the real numbers an entity has."""
    entity_init: float = 0.1
    """Entities start as N(0, entity_init²)."""
    relation_init: float = 1.0
    """Spread of the relation parameters at the start (TransE wants less: 0.1)."""
    temperature: float = 3.0
    """τ₀ of the Gumbel-softmax; τ = max(floor, τ₀ exp(-cooling · epoch))."""
    temperature_floor: float = 0.5
    cooling: float = 0.001
    relation_scale: bool = False
    """One learned factor a relation, its temperature: R stays in D_K up to scale (DihEdral models)."""
    hard: bool = False
    """Gumbel: apply the arg-max of each draw, with the gradient of the soft weights."""

    # the objective
    objective: str = "logistic"
    """logistic: Eq. 2 with sampled negatives; softmax: cross-entropy over all entities, both sides."""
    negatives: int = 10
    """Sampled negatives a positive (logistic)."""
    share_negatives: int = 0
    """Positives that share one set of negatives, for one matrix product; 0 draws each its own (logistic)."""
    adversarial: float = 0.0
    """Temperature of self-adversarial weights on negatives; 0 weights all alike (logistic)."""
    skew_probability: float = 0.0
    """Chance of the extra negative (t, r, h) for a definitely skew-symmetric relation (logistic)."""
    component_weight: float = 0.0
    """Weight of the per-component loss of the Case Studies (logistic)."""
    relation_weight: float = 0.0
    """Weight of a third question, (head, ?, tail), among all relations (softmax, models of 2x2 blocks)."""
    paths: float = 0.0
    """Random walks to train on beside the edges, as a share of the batch at most 1 (softmax, models of 2x2 blocks)."""
    path_length: int = 2
    """Steps of the longest walks; there are as many of each length from 2."""
    dropout: float = 0.0
    """Chance that an entry of a query is set to 0 in training (softmax)."""
    regulariser: str = "l2"
    """none, l2, n3 (Lacroix et al., 2018) or dura (Zhang et al., 2020), which equals l2 for orthogonal relations."""
    regulariser_weight: float = 0.0

    precision: str = "half"
    """Products over all entities on CUDA: half, tf32 or float32; a CPU always uses float32 (softmax)."""

    # the optimiser: Adagrad
    batch_size: int = 1024
    epochs: int = 100
    entity_lr: float = 0.1
    relation_lr: float = 0.1
    averaging: float = 0.0
    """Keep an exponential average of the parameters at the ends of epochs, with this decay; 0 keeps the last."""

    # selection on valid
    validate_every: int = 10
    """Epochs between validations; 0 trains to the end without looking."""
    validate_on: int = 0
    """Triples of valid, drawn once with the seed, that a validation ranks against all entities; 0 ranks all."""
    patience: int = 0
    """Validations without a better MRR before training stops; 0 never stops early."""

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            object.__setattr__(self, field.name, _read(field.name, getattr(self, field.name)))
        _one_of("model", self.model, MODELS)
        _one_of("objective", self.objective, OBJECTIVES)
        _one_of("regulariser", self.regulariser, REGULARISERS)
        _one_of("precision", self.precision, PRECISIONS)
        positive = ("K", "dimension", "negatives", "batch_size", "epochs", "temperature", "temperature_floor")
        for name in (*positive, "entity_init", "entity_lr", "relation_lr"):
            if not getattr(self, name) > 0:
                raise DihedralError(f"{name} is {getattr(self, name)}; it must be more than 0")
        not_negative = (
            "relation_init",
            "cooling",
            "skew_probability",
            "component_weight",
            "regulariser_weight",
            "dropout",
            "paths",
        )
        counts = ("share_negatives", "validate_every", "validate_on", "patience")
        for name in (*not_negative, *counts, "adversarial", "relation_weight", "averaging"):
            if not getattr(self, name) >= 0:
                raise DihedralError(f"{name} is {getattr(self, name)}; it must be 0 or more")
        if self.K > 128:
            raise DihedralError(f"K is {self.K}; codes are stored as bytes, so K is at most 128")
        if self.dimension % 2:
            raise DihedralError(f"dimension is {self.dimension}; it is 2L, so it must be even")
        for name in ("dropout", "averaging"):
            if getattr(self, name) >= 1:
                raise DihedralError(f"{name} is {getattr(self, name)}; it must be less than 1")
        if self.path_length not in (2, 3):
            raise DihedralError(f"path_length is {self.path_length}; walks have 2 or 3 steps")
        if self.paths > 1:
            raise DihedralError(
                f"paths is {self.paths}; walks continue edges of the batch, so their share is at most 1"
            )
        if self.skew_probability > 1:
            raise DihedralError(f"skew_probability is {self.skew_probability}; a chance is at most 1")
        if self.model.endswith("-ste") and self.K not in (4, 6):
            raise DihedralError(
                f"K is {self.K} with model {self.model!r}; the sign parametrisation exists for K = 4 and 6, "
                "use dihedral-gumbel or dihedral-argmax for others"
            )
        if self.hard and not self.model.endswith("-gumbel"):
            raise DihedralError(f"hard is true with model {self.model!r}; it belongs to the Gumbel models")
        if self.share_negatives and self.component_weight:
            raise DihedralError("component_weight needs negatives of a positive's own: set share_negatives = 0")
        for name in ("relation_weight", "dropout", "paths"):
            if self.objective == "logistic" and getattr(self, name):
                raise DihedralError(
                    f"{name} is {getattr(self, name)} with objective 'logistic'; it belongs to 'softmax'"
                )
        if self.objective == "logistic" and self.regulariser == "dura":
            raise DihedralError("regulariser is 'dura' with objective 'logistic'; it belongs to 'softmax'")
        for name in ("skew_probability", "component_weight", "share_negatives", "adversarial"):
            if self.objective == "softmax" and getattr(self, name):
                raise DihedralError(
                    f"{name} is {getattr(self, name)} with objective 'softmax'; it belongs to sampled negatives: "
                    "use objective = 'logistic'"
                )

    def replace(self, **changes: Any) -> Recipe:
        """A copy with other settings; text is read as the setting's type."""
        return dataclasses.replace(self, **_known(changes))

    def changed(self, settings: Mapping[str, Any]) -> Recipe:
        """A copy with other settings that says so in `about`."""
        if not settings:
            return self
        new = self.replace(**settings)
        told = ", ".join(f"{key} = {getattr(new, key)}" for key in settings if key != "about")
        return (
            new if "about" in settings or not told else new.replace(about=f"{new.about}; here with {told}".lstrip("; "))
        )

    def to_dict(self) -> dict[str, Any]:
        return dataclasses.asdict(self)

    @classmethod
    def from_dict(cls, settings: Mapping[str, Any]) -> Recipe:
        return cls(**_known(settings))


_TYPES: dict[str, type] = dict(get_type_hints(Recipe))


def _known(settings: Mapping[str, Any]) -> dict[str, Any]:
    """The settings, if all of them exist."""
    for key in settings:
        if key not in _TYPES:
            raise DihedralError(f"recipe setting {key!r} does not exist{close_matches(key, _TYPES)}")
    return dict(settings)


def _one_of(key: str, value: str, choices: Any) -> None:
    if value not in choices:
        raise DihedralError(f"{key} is {value!r}; choose one of {', '.join(choices)}{close_matches(value, choices)}")


def _read(key: str, value: Any) -> Any:
    """A setting's value in its type; text, as from a command line, is read."""
    kind = _TYPES[key]
    if kind is str and isinstance(value, str):
        return value
    if isinstance(value, str):
        text = value.strip().lower()
        if kind is bool and text in ("true", "false"):
            return text == "true"
        with contextlib.suppress(ValueError):
            value = kind(value) if kind is not bool else value
    fits = isinstance(value, bool) if kind is bool else isinstance(value, (int, kind)) and not isinstance(value, bool)
    if kind is str or not fits or (kind is float and not math.isfinite(value)):
        raise DihedralError(f"{key} is {value!r}; it must be {_KIND_NAMES[kind]}")
    return kind(value)


_KIND_NAMES = {int: "a whole number", float: "a number", bool: "true or false", str: "text"}


def load_recipe(source: str | Path | Recipe) -> Recipe:
    """A recipe by name (`paper/wn18rr-d4-ste`), from a TOML file, or as it is."""
    if isinstance(source, Recipe):
        return source
    path = Path(source)
    if path.suffix == ".toml":
        if not path.is_file():
            raise DihedralError(f"recipe file {str(source)!r} does not exist")
        return _parse(path.read_bytes(), path.stem, str(source))
    known = recipe_names()
    if str(source) not in known:
        raise DihedralError(
            f"recipe {str(source)!r} is unknown{close_matches(str(source), known)} "
            "(`dihedral recipes` lists them; a file must end in .toml)"
        )
    return _parse(_folder().joinpath(f"{source}.toml").read_bytes(), str(source), str(source))


def write_recipe(recipe: Recipe, path: Path) -> None:
    """A recipe as a TOML file, with every setting: defaults may change."""
    # numbers, booleans and text are written alike in JSON and TOML
    lines = [f"{key} = {json.dumps(value, ensure_ascii=False)}\n" for key, value in recipe.to_dict().items()]
    with atomic_path(path) as partial:
        partial.write_text("".join(lines), encoding="utf-8")


def recipe_names() -> list[str]:
    """The recipes that come with the library."""
    return sorted(
        f"{group.name}/{file.name.removesuffix('.toml')}"
        for group in _folder().iterdir()
        if group.is_dir()
        for file in group.iterdir()
        if file.name.endswith(".toml")
    )


def _folder() -> Any:
    return resources.files("dihedral") / "recipes"


def _parse(text: bytes, name: str, where: str) -> Recipe:
    try:
        settings = tomllib.loads(text.decode("utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise DihedralError(f"recipe {where!r} is not TOML: {error}") from None
    return Recipe.from_dict({"name": name, **settings})
