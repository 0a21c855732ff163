"""A model as a server holds it: the predictor, and what is worked out once and then only looked up."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

import dihedral as dh
from dihedral.errors import DihedralError, close_names
from dihedral.graph.prefixes import expand
from dihedral.graph.vocabulary import Vocabulary
from dihedral.inference.completion import missing_facts
from dihedral.inference.paths import INVERSE
from dihedral.inference.predictor import Predictor
from dihedral.interpretation import Algebra, MinedRule, Row
from dihedral.io.jsonl import read_lines
from dihedral.serving.entities import FactIndex, index_names
from dihedral.serving.messages import MAX_TOP
from dihedral.storage.folder import describe
from dihedral.training.checkpoint import RunFolder

MAX_COMPARED = 300  # names that a misspelt one is compared with: a wrong question must stay cheap
MAX_RULES = 200  # of each kind
MAX_SCORES = 1_500_000_000  # that a request for missing facts may take: half a minute of one core at 2L = 200


class UnknownNameError(DihedralError):
    """A name that the model, or the server, does not have; `suggestions` are close ones."""

    def __init__(self, kind: str, name: str, names: Iterable[str], hint: str = "") -> None:
        super().__init__(f"{kind} {name!r:.200} is not known{hint}")
        self.suggestions = close_names(name[:200], names)


class ServedModel:
    """One model under a name."""

    def __init__(self, name: str, predictor: Predictor, folder: Path | None = None) -> None:
        self.name = name
        self.predictor = predictor
        self.graph = predictor.graph
        self.folder = folder
        self.index = index_names(self.graph.entities)
        self.facts = FactIndex(self.graph)
        self.busiest: list[int] = np.argsort(-self.facts.counts, kind="stable")[:MAX_TOP].tolist()
        self.fact_counts = np.bincount(self.graph.known[:, 1], minlength=self.graph.num_relations)
        self.algebra: Algebra | None = dh.algebra(predictor) if predictor.model.codes is not None else None
        self.description = self._describe()
        self.curve = self._read_curve()
        predictor.known.index, predictor.train_index, predictor.scorer.candidates  # noqa: B018  before the first question

    def check_entity(self, name: str) -> int:
        """The number of an entity."""
        names = self.graph.entities
        if not _has(names, name):  # the vocabulary's own error compares with all names, which takes too long here
            alike = [*self.index.search(name[:200], 3), *self.index.around(name[:200], MAX_COMPARED)]
            raise UnknownNameError("entity", name, [names[i] for i in alike])
        return names.id(name)

    def check_relation(self, name: str) -> int:
        """The number of a relation."""
        names = self.graph.relations
        if not _has(names, name):
            raise UnknownNameError("relation", name, names)
        return names.id(name)

    def read_step(self, step: str) -> tuple[str, bool]:
        """The relation of a step, and whether it is walked backwards; a relation may itself be called `~name`."""
        names = self.graph.relations
        back = step.startswith(INVERSE) and step not in names
        return names[self.check_relation(step.removeprefix(INVERSE) if back else step)], back

    def search(self, text: str, limit: int) -> list[int]:
        """The numbers of entities whose names begin with or hold a text; `ex:a` is also read as its namespace and a."""
        full = expand(text, self.graph.entities.prefixes)
        found = self.index.search(full, limit)
        if full != text:
            found += [number for number in self.index.search(text, limit) if number not in found]
        return found[:limit]

    @property
    def prefixes(self) -> dict[str, str]:
        return self.graph.relations.prefixes | self.graph.entities.prefixes

    def rows(self) -> Algebra:
        """The algebra; a model without group elements has none."""
        if self.algebra is None:
            kind = self.predictor.model.relations.kind
            raise DihedralError(f"model {self.name!r} is a {kind!r} model without group elements; ask a DihEdral model")
        return self.algebra

    def product(self, steps: list[str]) -> Row:
        """The product of relations and inverses, in order."""
        a = self.rows()
        rows = [~a[name] if back else a[name] for name, back in map(self.read_step, steps)]
        whole = rows[0]
        for row in rows[1:]:
            whole = whole @ row
        return whole

    @cached_property
    def inverse_shares(self) -> np.ndarray[Any, np.dtype[np.float32]]:
        """How far the inverse of each relation agrees with each: [R, R]."""
        a = self.rows()
        return a.agreements(a.group.inverse(a.codes), np.arange(len(a))[:, None])

    @cached_property
    def rules(self) -> list[MinedRule]:
        """All rules that the model believes in; seconds of work for a large graph."""
        self.rows()
        return dh.find_rules(self.predictor, top=MAX_RULES)

    @cached_property
    def heads(self) -> np.ndarray[Any, np.dtype[np.int64]]:
        """How many entities are heads of each relation in training: [R]."""
        pairs = np.unique(self.graph.train[:, :2], axis=0)
        return np.bincount(pairs[:, 1], minlength=self.graph.num_relations)

    def missing(self, relation: str | None, top: int) -> list[dict[str, Any]]:
        """The likeliest facts that the graph lacks, of one relation or of all."""
        numbers = slice(None) if relation is None else self.check_relation(relation)
        scores = int(self.heads[numbers].sum()) * self.graph.num_entities
        if scores > MAX_SCORES:
            other = "name a relation" if relation is None else "use `dihedral complete`"
            raise DihedralError(f"missing facts here take {scores:,} scores, a request at most {MAX_SCORES:,}; {other}")
        found = missing_facts(self.predictor, relations=[relation] if relation else (), top=top, among="range")
        return found.to_pylist()

    def _describe(self) -> dict[str, Any]:
        """What the folder says of the model, its settings, recipe, metrics; later it may hold another one."""
        if self.folder is not None:
            return describe(self.folder)
        relations, graph = self.predictor.model.relations, self.graph
        return {
            "model": relations.kind, "settings": relations.settings(), "entities": graph.num_entities,
            "relations": graph.num_relations, "dimension": relations.dimension, "graph": graph.name,
            "recipe": self.predictor.recipe, "metrics": self.predictor.metrics,
        }  # fmt: skip

    def _read_curve(self) -> list[dict[str, Any]]:
        """The log of the training run, one row per epoch, if the folder has it."""
        return read_lines(RunFolder(self.folder).log) if self.folder is not None else []


def _has(names: Vocabulary, name: str) -> bool:
    return name in names or expand(name, names.prefixes) in names


def open_model(name: str, folder: Path) -> ServedModel:
    return ServedModel(name, dh.load(folder), folder)


def read_models(folders: list[str]) -> dict[str, ServedModel]:
    """Models from `name=DIR` or `DIR`, which is called after its folder."""
    models: dict[str, ServedModel] = {}
    for text in folders:
        name, equals, folder = text.partition("=")
        if not equals or Path(text).exists():
            name, folder = Path(text).resolve().name, text
        if not name:
            raise DihedralError(f"model {text!r} has no name; write name=DIR or DIR")
        if name in models:
            raise DihedralError(f"two models are called {name!r}; give them names: name=DIR")
        models[name] = open_model(name, Path(folder))
    if not models:
        raise DihedralError("no model is given; name at least one model folder")
    return models
