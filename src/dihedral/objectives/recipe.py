"""Recipes: every setting of a training run in one frozen object, read from TOML."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import sys
import tomllib
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any, NamedTuple, get_type_hints

from dihedral.elements.group import parse_levels
from dihedral.errors import DihedralError, close_matches
from dihedral.io.files import write_text
from dihedral.models import MODELS
from dihedral.models.dihedral import check_group
from dihedral.objectives.regularisers import REGULARISERS

OBJECTIVES = ("logistic", "softmax", "paths")
PRECISIONS = ("half", "tf32", "float32")
BUILT_IN = resources.files("dihedral") / "recipes"

Settings = Mapping[str, Any]


class Condition(NamedTuple):
    """When a setting applies: a test on the value of another setting."""

    on: str
    holds: Callable[[Any], bool]
    text: str


def _equal(on: str, value: Any) -> Condition:
    return Condition(on, lambda found: found == value, f"{on} {value!r}")


def _models(attribute: str, text: str) -> Condition:
    names = ", ".join(name for name, model in MODELS.items() if getattr(model, attribute))
    return Condition("model", lambda name: getattr(MODELS[name], attribute), f"{text} ({names})")


LOGISTIC, SOFTMAX, PATHS = (_equal("objective", name) for name in OBJECTIVES)
L2, N3 = _equal("regulariser", "l2"), _equal("regulariser", "n3")
VECTORS = Condition("objective", lambda name: name != "paths", "objectives 'logistic' and 'softmax'")
REGULARISED = Condition("regulariser", lambda name: name != "none", "regularisers other than 'none'")
WALKS = Condition("paths", lambda paths: paths > 0, "paths more than 0")
OWN_NEGATIVES = Condition("share_negatives", lambda count: count == 0, "share_negatives = 0")
ONE_OPERATOR = Condition("reciprocal", lambda is_reciprocal: not is_reciprocal, "reciprocal = false")
GROUP = _models("is_discrete", "models over D_K")
GRADABLE = _models("is_gradable", "models that choose among elements")
RECIPROCAL = _models("can_be_reciprocal", "baselines of 2x2 blocks")
TEMPERATURE = _models("uses_temperature", "models with a temperature")
BILINEAR = _models("is_bilinear", "bilinear models")
BLOCKS = _models("is_block", "models of 2x2 blocks")

RANGES: dict[str, Callable[[Any], bool]] = {
    "more than 0": lambda value: value > 0,
    "0 or more": lambda value: value >= 0,
    "less than 1": lambda value: value < 1,
    "at most 1": lambda value: value <= 1,
    "2 or 3": lambda value: value in (2, 3),
    "even, because it is 2L": lambda value: value % 2 == 0,
}
POSITIVE, NOT_NEGATIVE, LESS_THAN_1, AT_MOST_1, TWO_OR_THREE, EVEN = RANGES


def setting(
    default: Any, help: str, *ranges: str, when: Collection[Condition] = (), choices: Collection[str] = ()
) -> Any:
    """A field of a recipe: its default, what it does, its range, when it applies, and the values to choose from."""
    return dataclasses.field(
        default=default, metadata={"help": help, "ranges": ranges, "when": tuple(when), "choices": tuple(choices)}
    )


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """How a model is built and trained.

    Settings that the model or the objective ignores are refused unless they have their default value.

    >>> Recipe(model="dihedral-ste", dimension=200).replace(epochs="5").epochs
    5
    """

    name: str = setting("unnamed", "Name of the recipe.")
    about: str = setting("", "What the recipe is for, and where it departs from the paper.")

    # the model
    model: str = setting("dihedral-gumbel", "The model.", choices=MODELS)
    K: int = setting(4, "The dihedral group D_K.", POSITIVE, when=[GROUP])
    levels: str = setting(
        "1", 'Sizes of elements, separated by commas: 1, 1/2, 1/4, … and 0. "1" is D_K; others give graded elements.',
        when=[GRADABLE],
    )  # fmt: skip
    dimension: int = setting(200, "2L, the number of real values per entity.", POSITIVE, EVEN)
    entity_init: float = setting(0.1, "Entities are initialised as N(0, entity_init²).", POSITIVE, when=[VECTORS])
    steps: int = setting(4, "Steps of the longest paths.", POSITIVE, when=[PATHS])
    update: str = setting(
        "linear", "How states are updated. linear: they are sums over paths of products of elements; gate: the "
        "components that reach an entity also rescale each other.", choices=("linear", "gate"), when=[PATHS],
    )  # fmt: skip
    relation_init: float = setting(
        None, "Spread of the initial relation parameters; by default 0.1 for transe, 0.5 for dihedral-projection, "
        "1 for the others.", NOT_NEGATIVE,
    )  # fmt: skip
    temperature: float = setting(
        3.0, "τ₀ of the softmax over group elements; τ = max(temperature_floor, τ₀ exp(-cooling · epoch)).",
        POSITIVE, when=[TEMPERATURE, VECTORS],
    )  # fmt: skip
    temperature_floor: float = setting(0.5, "The lowest temperature.", POSITIVE, when=[TEMPERATURE, VECTORS])
    cooling: float = setting(0.001, "Rate at which the temperature decays.", NOT_NEGATIVE, when=[TEMPERATURE, VECTORS])
    relation_scale: bool = setting(
        False, "Learn one factor per relation: R is in D_K up to scale.", when=[GROUP, VECTORS]
    )
    reciprocal: bool = setting(
        False, "Learn a second operator per relation, which asks for heads (Lacroix et al., 2018).",
        when=[RECIPROCAL, VECTORS],
    )  # fmt: skip

    # the objective
    objective: str = setting(
        "logistic", "logistic: Eq. 2 with sampled negatives; softmax: cross-entropy over all entities, both sides; "
        "paths: the same for a path model, which has no entity vectors.", choices=OBJECTIVES,
    )  # fmt: skip
    negatives: int = setting(10, "Sampled negatives per positive.", POSITIVE, when=[LOGISTIC])
    share_negatives: int = setting(
        0, "Positives that share one set of negatives, for one matrix product; 0 draws a set for each.",
        NOT_NEGATIVE, when=[LOGISTIC],
    )  # fmt: skip
    skew_probability: float = setting(
        0.0, "Probability of the extra negative (t, r, h) for a definitely skew-symmetric relation.",
        NOT_NEGATIVE, AT_MOST_1, when=[LOGISTIC],
    )  # fmt: skip
    component_weight: float = setting(
        0.0, "Weight of the per-component loss of the Case Studies.",
        NOT_NEGATIVE, when=[LOGISTIC, BLOCKS, OWN_NEGATIVES],
    )  # fmt: skip
    relation_weight: float = setting(
        0.0, "Weight of a third question, (head, ?, tail), among all relations.", NOT_NEGATIVE, when=[SOFTMAX, BLOCKS]
    )
    paths: float = setting(
        0.0, "Random walks to train on in addition to the edges, as a fraction of the batch.",
        NOT_NEGATIVE, AT_MOST_1, when=[SOFTMAX, BLOCKS, ONE_OPERATOR],
    )  # fmt: skip
    path_length: int = setting(
        2, "Steps of the longest walks, 2 or 3; there are equally many walks of each length from 2.",
        TWO_OR_THREE, when=[WALKS],
    )  # fmt: skip
    composition_weight: float = setting(
        0.0, "Weight of the composition loss: products of operators become similar to the relations that they imply.",
        NOT_NEGATIVE, when=[WALKS],
    )  # fmt: skip
    candidates: int = setting(
        0, "Entities of a step's softmax besides the answers of its batch, drawn at random and weighted for those left "
        "out; 0 uses all entities.", NOT_NEGATIVE, when=[SOFTMAX],
    )  # fmt: skip
    group_questions: bool = setting(
        False, "Ask each distinct question of the training facts once per epoch, with all of its answers, in as many "
        "steps as before. A fact has the same weight, and there are fewer products.",
        when=[SOFTMAX, _equal("paths", 0.0), _equal("relation_weight", 0.0), _equal("regularise_relations", False)],
    )  # fmt: skip
    dropout: float = setting(
        0.0, "Probability that an entry of a query is set to 0 in training.",
        NOT_NEGATIVE, LESS_THAN_1, when=[SOFTMAX, BILINEAR],
    )  # fmt: skip
    without_pair: bool = setting(
        False, "All edges between the entities of a fact leave the graph when it is asked for, not only the fact.",
        when=[PATHS],
    )  # fmt: skip
    regulariser: str = setting(
        None, "none, l2, n3 (Lacroix et al., 2018) or dura (Zhang et al., 2020; objective 'softmax', bilinear models); "
        "by default l2 if regulariser_weight is more than 0, otherwise none.", choices=REGULARISERS,
    )  # fmt: skip
    regulariser_weight: float = setting(
        0.0, "λ, the weight of the regulariser; 0 means regulariser 'none'.", NOT_NEGATIVE, when=[REGULARISED, VECTORS]
    )
    regularise_negatives: bool = setting(
        False, "Apply l2 to the entities of the negative triples too, another reading of the paper's λ.",
        when=[L2, LOGISTIC, OWN_NEGATIVES],
    )  # fmt: skip
    regularise_relations: bool = setting(
        False, "Apply n3 to the relations as well as to the entities.", when=[N3, SOFTMAX, RECIPROCAL]
    )
    precision: str = setting(
        "half", "Precision of the products over all entities on CUDA; a CPU always uses float32.",
        when=[SOFTMAX], choices=PRECISIONS,
    )  # fmt: skip

    # the optimiser: Adagrad, and Adam for paths
    batch_size: int = setting(1024, "Triples per step.", POSITIVE)
    epochs: int = setting(100, "Passes over the training triples.", POSITIVE)
    facts_per_epoch: int = setting(
        0, "Facts of an epoch, drawn at random; 0 trains on all in each.", NOT_NEGATIVE, when=[PATHS]
    )
    entity_lr: float = setting(
        0.1, "Learning rate of the entities and of the factors of relation_scale.", POSITIVE, when=[VECTORS]
    )
    relation_lr: float = setting(0.1, "Learning rate of the other relation parameters.", POSITIVE)
    averaging: float = setting(
        0.0, "Decay of an exponential average of the parameters at the end of each epoch; 0 keeps the last ones.",
        NOT_NEGATIVE, LESS_THAN_1,
    )  # fmt: skip

    # selection on valid
    validate_every: int = setting(10, "Epochs between validations; 0 never validates.", NOT_NEGATIVE)
    validate_on: int = setting(
        0, "Valid triples, drawn once with the seed, that a validation ranks; 0 ranks all.", NOT_NEGATIVE
    )
    patience: int = setting(
        0, "Validations without a better MRR before training stops; 0 never stops early.", NOT_NEGATIVE
    )

    def __post_init__(self) -> None:
        settings = _resolved({name: getattr(self, name) for name in _FIELDS})
        for name, condition in _unmet(settings):
            raise DihedralError(
                f"{name} is {settings[name]!r} with {condition.on} {settings[condition.on]!r}; it applies only to "
                f"{condition.text}: remove {name} or change {condition.on}"
            )
        for name, field in _FIELDS.items():
            for allowed in field.metadata["ranges"]:
                if not RANGES[allowed](settings[name]):
                    raise DihedralError(f"{name} is {settings[name]}; it must be {allowed}")
        check_group(MODELS[settings["model"]], settings["K"])
        if settings["objective"] == "paths" and not BLOCKS.holds(settings["model"]):
            raise DihedralError(f"model is {settings['model']!r} with objective 'paths'; choose one of {BLOCKS.text}")
        parse_levels(settings["levels"])
        if not settings["regulariser_weight"]:
            settings["regulariser"] = "none"
        for name, value in settings.items():
            object.__setattr__(self, name, value)

    def replace(self, **changes: Any) -> Recipe:
        """A copy with other settings, parsed if they are text; others that no longer apply get their defaults."""
        return Recipe(**self._applicable(changes, reset=_FIELDS.keys() - changes.keys()))

    def adapt(self, **changes: Any) -> Recipe:
        """Like `replace`, but settings among `changes` that do not apply also fall back to their defaults."""
        return Recipe(**self._applicable(changes, reset=_FIELDS.keys()))

    def _applicable(self, changes: Settings, reset: Collection[str]) -> dict[str, Any]:
        """This recipe's settings with `changes`, where those in `reset` have their default if they do not apply."""
        settings = self.to_dict() | _known(changes)
        if "relation_init" not in changes and self.relation_init == MODELS[self.model].default_init:
            settings["relation_init"] = None
        if "regulariser" not in changes and self.regulariser == "none":
            settings["regulariser"] = None
        settings = _resolved(settings)
        while drop := [name for name, _ in _unmet(settings) if name in reset]:
            settings = _resolved(settings | {name: _FIELDS[name].default for name in drop})
        return settings

    def changed(self, settings: Settings) -> Recipe:
        """A copy with other settings that are listed in `about`."""
        if not settings:
            return self
        new = self.replace(**settings)
        listed = ", ".join(f"{key} = {getattr(new, key)}" for key in settings if key != "about")
        if "about" in settings or not listed:
            return new
        return new.replace(about=f"{new.about}; here with {listed}".lstrip("; "))

    def to_dict(self) -> dict[str, Any]:
        return dataclasses.asdict(self)

    @classmethod
    def from_dict(cls, settings: Settings) -> Recipe:
        return cls(**_known(settings))

    @classmethod
    def from_stored(cls, settings: Settings) -> Recipe | None:
        """The recipe of a stored model without settings of other versions; None if it has none or cannot be read."""
        known = {name: value for name, value in settings.items() if name in _FIELDS}
        try:
            return cls(**known) if known else None
        except DihedralError:
            return None


_FIELDS = {field.name: field for field in dataclasses.fields(Recipe)}
_TYPES: dict[str, type] = dict(get_type_hints(Recipe))


def _known(settings: Settings) -> dict[str, Any]:
    """The settings, if all of them exist."""
    for key in settings:
        if key == "lr":
            raise DihedralError("recipe setting 'lr' does not exist; set entity_lr and relation_lr")
        if key not in _FIELDS:
            raise DihedralError(f"recipe setting {key!r} does not exist{close_matches(key, _FIELDS)}")
    return dict(settings)


def _resolved(settings: Settings) -> dict[str, Any]:
    """The settings in their types, with known choices, and with the defaults that depend on other settings."""
    read: dict[str, Any] = {
        name: value if value is None and _FIELDS[name].default is None else _read(name, value)
        for name, value in settings.items()
    }
    if read["regulariser"] is None:
        read["regulariser"] = "l2" if read["regulariser_weight"] else "none"
    for name, field in _FIELDS.items():
        if (choices := field.metadata["choices"]) and read[name] not in choices:
            offered = f"{', '.join(choices)}{close_matches(read[name], choices)}"
            raise DihedralError(f"{name} is {read[name]!r}; choose one of {offered}")
    if read["relation_init"] is None:
        read["relation_init"] = MODELS[read["model"]].default_init
    return read


def applicable(settings: Settings) -> dict[str, Any]:
    """The settings that the model and the objective do not ignore."""

    def holds(condition: Condition) -> bool:
        return condition.holds(settings.get(condition.on, _FIELDS[condition.on].default))

    when = {name: field.metadata["when"] for name, field in _FIELDS.items()}
    return {name: value for name, value in settings.items() if all(map(holds, when.get(name, ())))}


def _unmet(settings: Settings) -> list[tuple[str, Condition]]:
    """Settings that differ from their default although they do not apply, each with the first condition not met."""
    found = []
    for name, field in _FIELDS.items():
        conditions = field.metadata["when"] if settings[name] != field.default else ()
        if name == "regulariser" and settings[name] == "dura":
            conditions = (SOFTMAX, BILINEAR)
        found += [(name, condition) for condition in conditions if not condition.holds(settings[condition.on])][:1]
    return found


def _read(name: str, value: Any) -> Any:
    """A value in the setting's type; text, as from a command line, is parsed."""
    kind = _TYPES[name]
    if isinstance(value, str) and kind is not str:
        with contextlib.suppress(ValueError, KeyError):
            value = {"true": True, "false": False}[value.strip().lower()] if kind is bool else kind(value)
    fits = isinstance(value, (int, float) if kind is float else kind) and isinstance(value, bool) == (kind is bool)
    if not fits or (kind is float and not abs(value) <= sys.float_info.max):
        names = {int: "a whole number", float: "a number", bool: "true or false", str: "text"}
        raise DihedralError(f"{name} is {value!r:.80}; it must be {names[kind]}")
    return kind(value)


def load_recipe(source: str | Path | Recipe) -> Recipe:
    """A recipe by name (`paper/wn18rr-d4-ste`) or from a TOML file; a Recipe is returned as it is."""
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
    return _parse(BUILT_IN.joinpath(f"{source}.toml").read_bytes(), str(source), str(source))


def write_recipe(recipe: Recipe, path: Path) -> None:
    """Write a recipe as a TOML file with every setting, because defaults may change."""
    # numbers, booleans and strings have the same syntax in JSON and TOML
    lines = [f"{key} = {json.dumps(value, ensure_ascii=False)}\n" for key, value in recipe.to_dict().items()]
    write_text(path, "".join(lines))


def recipe_names() -> list[str]:
    """The names of the recipes that come with the library."""
    files = [f"{group.name}/{file.name}" for group in BUILT_IN.iterdir() if group.is_dir() for file in group.iterdir()]
    return sorted(name.removesuffix(".toml") for name in files if name.endswith(".toml"))


def _parse(text: bytes, name: str, where: str) -> Recipe:
    try:
        settings = tomllib.loads(text.decode("utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise DihedralError(f"recipe {where!r} is not TOML: {error}") from None
    return Recipe.from_dict({"name": name, **settings})
