"""A served model: the predictor, with tables that are computed once and then only looked up."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property, partial, reduce
from operator import matmul
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

import dihedral as dh
from dihedral.ask.asking import Answers, CertainFacts, PlannedQuery, read_query
from dihedral.ask.messages import WIDTH
from dihedral.ask.query_plan import below, compile_query
from dihedral.ask.tree import Query, check_size
from dihedral.errors import DihedralError, close_names
from dihedral.graph import Graph
from dihedral.graph.name_search import NameSearch
from dihedral.graph.patterns import Counts, find_reversals
from dihedral.graph.steps import SIDES, split_step
from dihedral.graph.types import Members, types_of
from dihedral.interpretation import Algebra, MinedRule, Row
from dihedral.io.jsonl import read_lines
from dihedral.learn.checkpoint import RunFolder
from dihedral.predict.completion import missing_facts
from dihedral.predict.predictor import Predictor
from dihedral.predict.reviewing import Proposal, fact_of
from dihedral.scoring.questions import Known
from dihedral.serve.schemas import MAX_ATOMS, MAX_TOP, MapResponse, ModelResponse, RelationSummary
from dihedral.store.folder import describe
from dihedral.store.graph_files import load_words
from dihedral.store.reviews import Reviews

MAX_COMPARED = 300  # names compared with an unknown name: an invalid request must stay cheap
MAX_RULES = 200  # per kind
MAX_VALUES = 50_000_000  # per query: about 1 GB
Response = TypeVar("Response", bound=ModelResponse)
SearchKey = tuple[str | None, str | None, str]  # relation, type and reviewer of a search for missing facts
MAX_SCORES = 1_500_000_000  # per request for missing facts: half a minute on one core at 2L = 200


class UnknownNameError(DihedralError):
    """Unknown entity, relation or model."""

    def __init__(self, kind: str, name: str, similar: Callable[[], Iterable[str]], hint: str = "") -> None:
        super().__init__(f"{kind} {name!r:.200} is not known{hint}")
        self.name, self.similar = name, similar

    @cached_property
    def suggestions(self) -> list[str]:
        """Similar names. They are looked for on demand, because that takes too long for the event loop."""
        return close_names(self.name[:200], self.similar())


class ServedModel:
    """A model and the name under which it is served."""

    def __init__(self, name: str, predictor: Predictor, folder: Path | None = None) -> None:
        self.name = name
        self.predictor = predictor
        self.graph = predictor.graph
        self.folder = folder
        self.reviews = None if folder is None else Reviews(folder)
        self.proposals: dict[SearchKey, list[Proposal]] = {}  # to review
        self.relation_summaries: dict[int, RelationSummary] = {}  # by id; every page needs them
        self.maps: dict[str, MapResponse] = {}  # the maps of entities, by method
        self._rules: list[MinedRule] | None = None
        self.num_facts = self.graph.index.degrees.numpy() - _count_loops(self.graph)  # facts per entity
        self.busiest: list[int] = np.argsort(-self.num_facts, kind="stable")[:MAX_TOP].tolist()
        self.fact_counts = np.bincount(self.graph.known[:, 1], minlength=self.graph.num_relations)
        words = None if folder is None else load_words(folder)
        self.entity_search = NameSearch(self.graph.entities, self.graph.by_degree, words)
        by_facts = np.argsort(-self.fact_counts, kind="stable").astype(np.int32)
        self.relation_search = NameSearch(self.graph.relations, by_facts)
        self.entity_search.search("a", 1)  # imports and maps what the first request would wait for
        self.algebra: Algebra | None = dh.algebra(predictor) if predictor.model.codes is not None else None
        self.description = self._describe()
        self.curve = [] if folder is None else read_lines(RunFolder(folder).log)  # one row per epoch, if logged
        predictor.known.index, predictor.train_index, predictor.scorer.rows()  # not in the first request

    def check_entity(self, name: str) -> int:
        """The id of an entity."""
        return _find(self.entity_search, name)

    def check_relation(self, name: str) -> int:
        """The id of a relation."""
        return _find(self.relation_search, name)

    def check_triple(self, head: str, relation: str, tail: str) -> tuple[str, str, str]:
        """The full names of a triple."""
        entities, relations = self.graph.entities, self.graph.relations
        h, t = self.check_entity(head), self.check_entity(tail)
        return entities[h], relations[self.check_relation(relation)], entities[t]

    def read_step(self, text: str) -> tuple[str, bool]:
        """The relation of a step, and whether it is walked backwards."""
        names = self.graph.relations
        relation, backwards = split_step(text, names)
        return names[self.check_relation(relation)], backwards

    @property
    def has_labels(self) -> bool:
        return any(names.labels is not None for names in (self.graph.entities, self.graph.relations))

    def labelled(self, response: Response) -> Response:
        """The same response with the labels of all names in it."""
        response.labels = self.graph.labels_in(response)
        return response

    @property
    def prefixes(self) -> dict[str, str]:
        return self.graph.relations.prefixes | self.graph.entities.prefixes

    def rows(self) -> Algebra:
        """The algebra; an error for a model without group elements."""
        if self.algebra is None:
            kind = self.predictor.model.relations.kind
            raise DihedralError(f"model {self.name!r} is a {kind!r} model without group elements; use a DihEdral model")
        return self.algebra

    def product(self, steps: list[str]) -> Row:
        """The product of relations and inverses, in order."""
        a = self.rows()
        rows = [~a[name] if back else a[name] for name, back in map(self.read_step, steps)]
        return reduce(matmul, rows)

    @cached_property
    def types(self) -> Members:
        """The entities of each type."""
        return types_of(self.graph)

    @cached_property
    def mutual(self) -> tuple[Counts, Counts]:
        """How many pairs of each relation are also held reversed, and how many pairs it has."""
        found = find_reversals(self.graph.train_index)
        return found.mutual, found.size

    @property
    def has_rules(self) -> bool:
        """Whether the rules are mined already."""
        return self._rules is not None

    @property
    def rules(self) -> list[MinedRule]:
        """All rules mined from the model; the first call takes seconds for a large graph."""
        if self._rules is None:
            self.rows()
            self._rules = dh.find_rules(self.predictor, top=MAX_RULES)
        return self._rules

    def ask(
        self, query: str | dict[str, Any] | Query, top: int | None, *, known: Known = "include",
        facts: CertainFacts = "all", conjunction: str = "product", ways: str = "noisy-or", width: int = WIDTH,
    ) -> tuple[Query, Answers]:  # fmt: skip
        """A query of several facts, and its answers; an error if it needs too much work or memory."""
        query = read_query(query, self.graph.entities.prefixes)
        if query.limit is not None and query.limit > MAX_TOP:
            raise DihedralError(f"the limit of the query is {query.limit}; the server gives at most {MAX_TOP} answers")
        if (count := check_size(query.where)) > MAX_ATOMS:
            raise DihedralError(f"the query has {count} facts; the server takes at most {MAX_ATOMS}")
        plan = compile_query(query, _Names(self.entity_search), _Names(self.relation_search))
        steps, size = len(set(below(plan))), self.graph.num_entities
        if steps * size > MAX_VALUES:
            raise DihedralError(
                f"the query has {steps} steps over {size:,} entities, and the limit is {MAX_VALUES:,} values; "
                "use fewer facts and unions, or the command line"
            )
        (found,) = self.predictor.ask_many(
            [PlannedQuery(query, plan)], top=top, known=known, facts=facts, conjunction=conjunction, ways=ways,
            width=width,
        )  # fmt: skip
        return query, found

    def missing(self, relation: str | None, top: int, among: str, min_precision: float | None) -> list[dict[str, Any]]:
        """The most likely facts missing from the graph, of one relation or of all."""
        self.check_cost(relation, among)
        found = missing_facts(
            self.predictor, relations=[relation] if relation else (), top=top, among=among, min_precision=min_precision,
            exclude=self.reviews.facts("reject") if self.reviews else (),
        )  # fmt: skip
        accepted = set(self.reviews.facts("accept")) if self.reviews else set()
        return [row | {"decision": "accept" if fact_of(row) in accepted else None} for row in found.to_pylist()]

    def check_cost(self, relation: str | None, among: str = "signature") -> None:
        """Raise an error if missing facts need too much work, or if the relation is unknown."""
        wanted = range(self.graph.num_relations) if relation is None else [self.check_relation(relation)]
        scores = 0
        for number in wanted:
            heads, tails = (len(self.predictor.candidates(among, number, side)) for side in SIDES)
            scores += 2 * heads * tails
        if scores > MAX_SCORES:
            other = "name a relation" if relation is None else "use the command line"
            raise DihedralError(f"missing facts need {scores:,} scores here, but the limit is {MAX_SCORES:,}; {other}")

    def _describe(self) -> dict[str, Any]:
        """The description in the folder, read once: another model may be saved there later."""
        if self.folder is not None:
            return describe(self.folder)
        relations, graph, recipe = self.predictor.model.relations, self.graph, self.predictor.recipe
        return {
            "model": relations.kind, "settings": relations.settings(), "entities": graph.num_entities,
            "relations": graph.num_relations, "dimension": relations.dimension, "graph": graph.name,
            "recipe": recipe.to_dict() if recipe else {}, "metrics": self.predictor.metrics,
            "calibration": {},
        }  # fmt: skip


def _count_loops(graph: Graph) -> NDArray[np.int64]:
    """The facts about each entity and itself: int64 [N]. The index has two edges for such a fact."""
    head, _, tail = (known := graph.known).T
    loops = np.unique(known[head == tail], axis=0)  # a fact may be in two splits
    return np.bincount(loops[:, 0], minlength=graph.num_entities)


def _find(search: NameSearch, name: str) -> int:
    """The id of a name or label; the vocabulary's own error compares all names, which takes too long here."""
    found = search.names.find(name)
    if found is None:
        raise UnknownNameError(search.names.kind, name, partial(_similar, search, name[:200]))
    return found


@dataclass(frozen=True)
class _Names:
    """The names of a vocabulary, for the compiler of queries."""

    search: NameSearch

    def id(self, name: str) -> int:
        return _find(self.search, name)

    def __len__(self) -> int:
        return len(self.search.names)


def _similar(search: NameSearch, wanted: str) -> list[str]:
    """Some names to compare with an unknown one: its neighbours in the sorted order, and those with its words."""
    names = search.names
    return [names[i] for i in (*names.around(wanted, MAX_COMPARED), *search.search(wanted, 3))]


def open_model(name: str, folder: Path) -> ServedModel:
    return ServedModel(name, dh.load(folder), folder)


def read_models(folders: list[str]) -> dict[str, ServedModel]:
    """Load models given as `name=DIR`, or as `DIR` with the name of the folder."""
    models: dict[str, ServedModel] = {}
    for text in folders:
        name, equals, folder = text.partition("=")
        if not equals or Path(text).exists():
            name, folder = Path(text).resolve().name, text
        if not name:
            raise DihedralError(f"model {text!r} has no name; write name=DIR or DIR")
        if name in models:
            raise DihedralError(f"two models are called {name!r}; name them with name=DIR")
        models[name] = open_model(name, Path(folder))
    if not models:
        raise DihedralError("no model is given; name at least one model folder")
    return models
