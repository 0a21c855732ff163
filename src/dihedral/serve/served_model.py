"""A served model: the predictor, with tables that are computed once and then only looked up."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cached_property, partial
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch
from pydantic import BaseModel

import dihedral as dh
from dihedral.ask.asking import Answers, plan_query, read_query
from dihedral.ask.query_plan import below
from dihedral.ask.tree import Query, check_size
from dihedral.errors import DihedralError, close_names
from dihedral.graph.name_search import NameSearch
from dihedral.graph.steps import SIDES
from dihedral.graph.types import Members, types_of
from dihedral.interpretation import Algebra, MinedRule
from dihedral.io.jsonl import read_lines
from dihedral.learn.checkpoint import RunFolder
from dihedral.predict.completion import missing_facts
from dihedral.predict.reviewing import Proposal, fact_of
from dihedral.serve.schemas import MAX_ATOMS, MAX_TOP, MapResponse, ModelResponse, RelationSummary
from dihedral.store.folder import describe
from dihedral.store.graph_files import load_words
from dihedral.store.reviews import Reviews

MAX_COMPARED = 5000  # names compared with an unknown name: an invalid request must stay cheap
MAX_RULES = 200  # per kind
MAX_VALUES = 50_000_000  # per query: about 1 GB
Response = TypeVar("Response", bound=BaseModel)
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

    def __init__(self, name: str, folder: Path) -> None:
        self.name, self.folder = name, folder
        self.predictor = dh.load(folder)
        self.graph = graph = self.predictor.graph
        self.has_labels = any(names.labels is not None for names in (graph.entities, graph.relations))
        self.reviews = Reviews(folder)
        self.proposals: dict[tuple[str | None, str | None, int | None], list[Proposal]] = {}  # to review, by search
        self.relation_summaries: dict[int, RelationSummary] = {}  # by id; every page needs them
        self.maps: dict[str, MapResponse] = {}  # the maps of entities, by method
        self.rules: list[MinedRule] | None = None  # None until they are mined
        index = graph.index
        is_loop = index.loops & (index.steps < graph.num_relations)  # such a fact has two edges
        loops = torch.bincount(index.sources[is_loop], minlength=graph.num_entities)
        self.num_facts = (index.degrees - loops).numpy()  # by entity
        self.busiest: list[int] = np.argsort(-self.num_facts, kind="stable")[:MAX_TOP].tolist()
        self.fact_counts = np.bincount(graph.known[:, 1], minlength=graph.num_relations)
        by_facts = np.argsort(-self.fact_counts, kind="stable").astype(np.int32)
        self.entity_search = NameSearch(graph.entities, graph.by_degree, load_words(folder))
        self.relation_search = NameSearch(graph.relations, by_facts)
        for search in (self.entity_search, self.relation_search):
            search.names.unknown_name = partial(_unknown_name, search)  # type: ignore[method-assign]
        self.entity_search.search("a", 1)  # imports and maps what the first request would wait for
        is_discrete = self.predictor.trained.relations.is_discrete
        self.algebra: Algebra | None = dh.algebra(self.predictor) if is_discrete else None
        self.description = describe(folder)  # read once: another model may be saved there later
        self.curve = read_lines(RunFolder(folder).log)  # one row per epoch, if logged
        self.predictor.known.index, graph.train_index, self.predictor.scorer.rows()  # not in the first request

    def full_names(self, head: str, relation: str, tail: str) -> tuple[str, str, str]:
        """A triple with full names instead of labels or prefixes."""
        (names,) = self.graph.names_of(self.predictor.triple_ids([(head, relation, tail)]).cpu().numpy())
        return names

    def labelled(self, response: Response) -> Response:
        """A response with the name of the model and the labels of all names in it, unless it has them already."""
        if isinstance(response, ModelResponse) and not response.model:
            response.model, response.labels = self.name, self.graph.labels_in(response)
        return response

    def need_algebra(self) -> Algebra:
        """The algebra; an error for a model without group elements."""
        if self.algebra is None:
            kind = self.predictor.trained.relations.kind
            raise DihedralError(f"model {self.name!r} is a {kind!r} model without group elements; use a DihEdral model")
        return self.algebra

    @cached_property
    def types(self) -> Members:
        """The entities of each type."""
        return types_of(self.graph)

    def mined_rules(self) -> list[MinedRule]:
        """All rules mined from the model; the first call takes seconds for a large graph."""
        if self.rules is None:
            self.need_algebra()
            self.rules = dh.find_rules(self.predictor, top=MAX_RULES)
        return self.rules

    def ask(self, query: str | dict[str, Any] | Query, top: int | None, **options: Any) -> tuple[Query, Answers]:
        """A query of several facts, and its answers; an error if it needs too much work or memory."""
        query = read_query(query, self.graph.entities.prefixes)
        if query.limit is not None and query.limit > MAX_TOP:
            raise DihedralError(f"the limit of the query is {query.limit}; the server gives at most {MAX_TOP} answers")
        if (count := check_size(query.where)) > MAX_ATOMS:
            raise DihedralError(f"the query has {count} facts; the server takes at most {MAX_ATOMS}")
        planned = plan_query(query, self.graph)
        steps, size = len(set(below(planned.plan))), self.graph.num_entities
        if steps * size > MAX_VALUES:
            raise DihedralError(
                f"the query has {steps} steps over {size:,} entities, and the limit is {MAX_VALUES:,} values; "
                "use fewer facts and unions, or the command line"
            )
        (found,) = self.predictor.ask_many([planned], top=top, **options)
        return query, found

    def missing(self, relation: str | None, among: str, **limits: Any) -> list[dict[str, Any]]:
        """The most likely facts missing from the graph, of one relation or of all."""
        self.check_cost(relation, among)
        relations, rejected = [relation] if relation else (), self.reviews.facts("reject")
        found = missing_facts(self.predictor, relations=relations, among=among, exclude=rejected, **limits)
        accepted = set(self.reviews.facts("accept"))
        return [row | {"decision": "accept" if fact_of(row) in accepted else None} for row in found.to_pylist()]

    def check_cost(self, relation: str | None, among: str = "signature") -> None:
        """Raise an error if missing facts need too much work, or if the relation is unknown."""
        wanted = range(self.graph.num_relations) if relation is None else [self.graph.relations.id(relation)]
        scores = 0
        for number in wanted:
            heads, tails = (len(self.predictor.candidates(among, number, side)) for side in SIDES)
            scores += 2 * heads * tails
        if scores > MAX_SCORES:
            other = "name a relation" if relation is None else "use the command line"
            raise DihedralError(f"missing facts need {scores:,} scores here, but the limit is {MAX_SCORES:,}; {other}")


def _unknown_name(search: NameSearch, name: str) -> UnknownNameError:
    """An error that suggests names and labels: of all, or of those near it in the sorted order or with its words."""
    names, wanted = search.names, name[:200]
    similar = lambda: (*names.similar(wanted, MAX_COMPARED), *(names[i] for i in search.search(wanted, 3)))  # noqa: E731
    return UnknownNameError(names.kind, name, similar)


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
        models[name] = ServedModel(name, Path(folder))
    if not models:
        raise DihedralError("no model is given; name at least one model folder")
    return models
