"""The predictor: names on top of a scorer, with the known facts of the graph."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from dihedral.ask.asking import Answer, Answers, AnyQuery, CertainFacts, find_answers, plan_query
from dihedral.ask.messages import Semantics, Transitions
from dihedral.errors import DihedralError, check_triples
from dihedral.graph import Graph, KnownAnswers, load_graph
from dihedral.graph.changes import with_relations_of
from dihedral.graph.patterns import Reversals, find_reversals
from dihedral.graph.signatures import Signatures
from dihedral.graph.steps import SIDES, Side, inverse_ids, question_steps
from dihedral.graph.triples import SPLITS
from dihedral.io.display import table
from dihedral.learn.finish import fit_probabilities, use_reviews
from dihedral.models import Model
from dihedral.predict.results import Results
from dihedral.probability.calibration import Calibration
from dihedral.probability.evidence import CountedRules, Evidence
from dihedral.probability.ordering import POOL, as_triples, by_probability
from dihedral.runtime import interruption
from dihedral.runtime.device import choose_device
from dihedral.scoring.embedding import EmbeddingScorer, need_embeddings
from dihedral.scoring.path_scorer import PathScorer
from dihedral.scoring.questions import CANDIDATES, ORDERS, Among, Known, Order, check_options, missing_part
from dihedral.store.folder import Dtype, load_model, save_model
from dihedral.store.reviews import Reviews
from dihedral.store.trained import TrainedModel
from dihedral.store.vector_files import export_model
from dihedral.update.update import update

NO_RULES = CountedRules.none()
MAX_PROFILE = 256  # steps that entities without vectors are compared by
MAX_PAIRS = 1 << 18  # triples of (head, ?, tail) that are scored at a time


class Prediction(NamedTuple):
    """A triple with its score; `known` says whether any split of the graph holds it."""

    head: str
    relation: str
    tail: str
    score: float
    known: bool
    probability: float | None = None  # that it holds, as if it were not known; None if the model is not calibrated


class Similar(NamedTuple):
    """An entity with a similar vector, or with facts of similar relations."""

    entity: str
    similarity: float  # cosine


class Judgement(NamedTuple):
    """Whether a triple is classified as true, and its probability if true and false are equally likely."""

    head: str
    relation: str
    tail: str
    true: bool
    probability: float


class Predictor:
    """A trained model that answers questions by name.

    >>> from dihedral import make_family, train
    >>> predictor = train(make_family(40), "demo/family", epochs=2, progress=False)
    >>> len(predictor.predict(head="man_0000", relation="spouse", top=3))
    3
    """

    def __init__(self, trained: TrainedModel) -> None:
        self.trained = trained
        self.graph, self.scorer, self.device = trained.graph, trained.scorer, trained.device
        self.recipe = trained.recipe  # how the model was trained; None if that is not recorded
        self.metrics, self.history = trained.metrics, trained.history
        self.known = KnownAnswers(self.graph, self.device)
        self._evidence: Evidence | None = None

    def __repr__(self) -> str:
        return f"Predictor({self._kind}, {self.graph!r})"

    @property
    def _kind(self) -> str:
        if not isinstance(self.scorer, EmbeddingScorer):
            if isinstance(self.scorer, PathScorer):
                model = self.scorer.model
                return f"path model of {model.relations.kind}, {model.num_steps} steps, 2L={model.relations.dimension}"
            return type(self.scorer).__name__
        return f"{self.model.relations.kind}, 2L={self.model.dimension}"

    def _repr_html_(self) -> str:
        rows = [[split, *(self.metrics[split]["both"][key] for key in ("mrr", "hits@1", "hits@10"))]
                for split in ("valid", "test") if split in self.metrics]  # fmt: skip
        measured = table(("", "MRR", "Hits@1", "Hits@10"), rows, f"model: {self._kind}")
        return measured + self.graph._repr_html_()

    @property
    def model(self) -> Model:
        """The entity vectors and relations; an error if the model has no vectors."""
        return self.trained.model

    # --- names and ids -------------------------------------------------------------------------

    def triple_ids(self, triples: Sequence[tuple[str, str, str]]) -> Tensor:
        """Named triples as ids: int64 [n, 3]."""
        check_triples(triples)
        entities, relations = self.graph.entities, self.graph.relations
        ids = [[entities.id(head), relations.id(relation), entities.id(tail)] for head, relation, tail in triples]
        return torch.tensor(ids, dtype=torch.int64, device=self.device).view(-1, 3)

    def question_ids(self, side: Side, anchors: Sequence[str], relations: Sequence[str]) -> tuple[Tensor, Tensor]:
        """Named questions (anchor, relation, ?) or (?, relation, anchor) as entities [n] and steps [n]."""
        if side not in SIDES:
            raise DihedralError(f"side is {side!r}; choose head or tail")
        if len(anchors) != len(relations):
            raise DihedralError(f"{len(anchors)} entities and {len(relations)} relations are given; give as many")
        entities = torch.from_numpy(self.graph.entities.ids(anchors)).long().to(self.device)
        ids = torch.from_numpy(self.graph.relations.ids(relations)).long().to(self.device)
        return entities, question_steps(ids, side, self.graph.num_relations)

    def candidates(self, among: Among, relation: int, side: Side) -> Tensor:
        """The entities that may answer a question about a relation, in order; `predict` says what `among` means."""
        step = inverse_ids(question_steps(relation, side, self.graph.num_relations), self.graph.num_relations)
        if among is None or among == "all":
            return torch.arange(self.graph.num_entities)
        if not isinstance(among, str):
            return torch.from_numpy(self.graph.entities.ids(list(among))).long().unique()
        if among == "range":
            return self.graph.index.members(step).long()
        if among == "signature":
            return torch.from_numpy(self.signatures.candidates(step))
        raise DihedralError(f"among is {among!r}; choose {', '.join(CANDIDATES)}, or give a list of entities")

    @cached_property
    def signatures(self) -> Signatures:
        """Which entities fit which side of which relation, by the facts of train and valid."""
        return Signatures(self.graph.evidence_index)

    @cached_property
    def reversals(self) -> Reversals:
        """How often the training pairs of relations are held reversed."""
        return find_reversals(self.graph.train_index)

    def allowed(self, among: Among, relation: str, side: Side) -> Tensor | None:
        """The same as a mask [N] on the model's device; None if all may answer."""
        number = self.graph.relations.id(relation)
        if among is None or among == "all":
            return None
        mask = torch.zeros(self.graph.num_entities, dtype=torch.bool)
        mask[self.candidates(among, number, side)] = True
        return mask.to(self.device)

    def members(self, relation: str, entity: str) -> list[str]:
        """The known heads of (?, relation, entity), such as the members of a type."""
        _, members = self.known(*self.question_ids("head", [entity], [relation]))
        return [self.graph.entities[i] for i in members.tolist()]

    def align(self, graph: Graph) -> Graph:
        """Another graph's triples with this model's ids; a name that the model does not know is an error."""
        if graph.entities == self.graph.entities and graph.relations == self.graph.relations:
            return graph
        entity = self.graph.entities.ids(list(graph.entities))
        relation = self.graph.relations.ids(list(graph.relations))
        columns = (graph.split(split).T for split in SPLITS)
        train, valid, test = (np.stack([entity[h], relation[r], entity[t]], axis=1) for h, r, t in columns)
        return Graph(self.graph.entities, self.graph.relations, train, valid, test, graph.name, graph.notes)

    # --- predictions ---------------------------------------------------------------------------

    def score(self, head: str, relation: str, tail: str) -> float:
        """φ(h, r, t) = hᵀRt; of a path model, that of the tail as an answer to (head, relation, ?).

        A path model gives the head another score as an answer to (?, relation, tail), which lists of heads show. A
        known fact is scored without itself here, but in a list with all that the graph holds.
        """
        return float(self.scorer.score(self.triple_ids([(head, relation, tail)]))[0])

    def predict(
        self,
        *,
        head: str | None = None,
        relation: str | None = None,
        tail: str | None = None,
        top: int = 10,
        known: Known = "include",
        among: Among = None,
        order: Order = "auto",
    ) -> Results[Prediction]:
        """The best completions of a triple, best first. Give two of head, relation and tail.

        known: "include" marks facts that the graph holds, "exclude" leaves them out.
        order: "probability" or "score"; "auto" is the one that ranked the valid triples better.
        among: "signature" answers only with entities whose facts fit that side of the relation, "range" only with those
        that a known fact has there, a list of names, such as `members("isa", "Virus")`, only with those; "all" or None
        do not limit the answers.
        """
        part = missing_part(head, relation, tail)
        check_options(top, known, among=among, part=part, order=order)
        if part == "relation":
            return self.predict_relations([str(head)], [str(tail)], top=top, known=known)[0]
        anchors, relations = [str(head if part == "tail" else tail)], [str(relation)]
        allowed = self.allowed(among, relations[0], part)
        return self.predict_many(part, anchors, relations, top=top, known=known, allowed=allowed, order=order)[0]

    def predict_many(
        self,
        side: Side,
        anchors: Sequence[str],
        relations: Sequence[str],
        *,
        top: int = 10,
        known: Known = "include",
        allowed: Tensor | None = None,
        order: Order = "auto",
    ) -> list[Results[Prediction]]:
        """The same for many questions (anchor, relation, ?) or (?, relation, anchor) at once, in one product.

        >>> from dihedral import make_family, train
        >>> predictor = train(make_family(40), "demo/family", epochs=2, progress=False)
        >>> found = predictor.predict_many("tail", ["man_0000", "man_0001"], ["spouse", "child"], top=3)
        >>> [len(each) for each in found]
        [3, 3]
        """
        check_options(top, known, order=order)
        entities, steps = self.question_ids(side, anchors, relations)
        ids, scores, likely = self._best_answers(side, entities, steps, top, known, allowed, order)
        row, answer = self.known(entities, steps)
        count = self.graph.num_entities
        place = torch.arange(len(ids), device=self.device)[:, None] * count  # one number per (question, entity)
        is_known = torch.isin(place + ids, row * count + answer)
        triples = as_triples(side, entities, steps % self.graph.num_relations, ids).cpu().numpy()
        found = []
        for each, *columns in zip(triples, scores.tolist(), is_known.tolist(), likely, strict=True):
            rows = zip(self.graph.names_of(each), *columns, strict=True)  # full names, even if asked by prefix
            answers = (Prediction(*triple, *about) for triple, *about in rows if about[0] > float("-inf"))
            found.append(Results(answers, self.graph))
        return found

    def _best_answers(
        self, side: Side, entities: Tensor, steps: Tensor, top: int, known: Known, allowed: Tensor | None, order: Order
    ) -> tuple[Tensor, Tensor, list[list[float | None]]]:
        """The best answers of questions (entities [n], steps [n]): ids [n, k], scores [n, k] and probabilities.

        If fewer than k entities may answer, the rest have a score of -inf.
        """
        chosen = self.resolve_order(order)
        exclude = self.known if known == "exclude" else None
        pool = top if chosen == "score" else max(top, POOL)
        ids, scores = self.scorer.top(entities, steps, pool, exclude=exclude, allowed=allowed)
        if self.calibration is None:
            return ids, scores, np.full(tuple(scores.shape), None).tolist()
        triples = as_triples(side, entities, steps % self.graph.num_relations, ids)
        places, likely = by_probability(self.calibration, self.evidence, triples, scores)
        if chosen == "score":
            return ids, scores, likely.tolist()
        places = places[:, :top]
        here = places.to(self.device)
        return ids.gather(1, here), scores.gather(1, here), np.take_along_axis(likely, places.numpy(), 1).tolist()

    def resolve_order(self, order: str) -> Order:
        """Whether answers are ordered by probability or by score; an error if that is not possible."""
        if order not in ORDERS:
            raise DihedralError(f"order is {order!r:.80}; choose {', '.join(ORDERS)}")
        if order == "probability" and self.calibration is None:
            raise DihedralError(f"order is 'probability', but this model has none: {self.why_not_calibrated}")
        better = self.calibration.order if self.calibration else "score"
        return better if order == "auto" else "probability" if order == "probability" else "score"

    def predict_relations(
        self, heads: Sequence[str], tails: Sequence[str], *, top: int = 10, known: Known = "include"
    ) -> list[Results[Prediction]]:
        """The best relations of many pairs (head, ?, tail), best first."""
        check_options(top, known)
        ids = (torch.from_numpy(self.graph.entities.ids(names)).long().to(self.device) for names in (heads, tails))
        count, parts = self.graph.num_relations, []
        for pairs in torch.stack([*ids], 1).split(max(1, MAX_PAIRS // count)):
            interruption.check()
            which = torch.arange(count, device=self.device).repeat(len(pairs))
            head, tail = pairs.repeat_interleave(count, 0).unbind(1)
            triples = torch.stack([head, which, tail], 1)
            scores, is_known = self.scorer.score(triples), self.known.contains(*triples.unbind(1))
            if known == "exclude":
                scores = scores.masked_fill(is_known, float("-inf"))
            best, order = scores.view(-1, count).sort(descending=True)
            order = (order + torch.arange(len(pairs), device=self.device)[:, None] * count)[:, :top]
            parts.append((triples[order], best[:, :top], is_known[order]))
        triples, scores, is_known = (torch.cat(each) for each in zip(*parts, strict=True))
        listed = scores > float("-inf")
        likely = iter(self.probabilities(triples[listed], scores[listed]))
        names = self.graph.names_of(triples[listed].cpu().numpy())
        columns = names, scores[listed].tolist(), is_known[listed].tolist(), likely
        found = (Prediction(*triple, *values) for triple, *values in zip(*columns, strict=True))
        return [Results(islice(found, number), self.graph) for number in listed.sum(1).tolist()]

    def ask(self, query: AnyQuery, **options: Any) -> Results[Answer]:
        """The answers of a query of several facts, the best first.

        query: SPARQL (`ask.sparql`), a `Query`, or the content of its JSON form. `ask_many` has the options.
        """
        return Results(self.ask_many([query], **options)[0].answers, self.graph)

    def ask_many(
        self,
        queries: Sequence[AnyQuery],
        *,
        top: int | None = None,
        known: Known = "include",
        facts: CertainFacts = "all",
        **semantics: Any,
    ) -> list[Answers]:
        """The answers of many queries, and how each was found; what queries share is computed once.

        top: number of answers; by default the query's own limit, or 10.
        known: "exclude" leaves out answers that known facts alone give.
        facts: the facts that are certain: "all" that the graph holds, or those of "train".
        semantics: conjunction, ways, width, share and floor of `ask.messages.Semantics`.
        """
        if facts not in ("all", "train"):
            raise DihedralError(f"facts is {facts!r:.80}; choose all or train")
        check_options(1 if top is None else top, known)
        train = self.graph.train_index.to(self.device)
        found = find_answers(
            self.graph,
            Transitions(self.scorer, self.known.index if facts == "all" else train, train),
            [plan_query(query, self.graph) for query in queries],
            top=top,
            known=known,
            semantics=Semantics(**semantics),
            calibration=self.calibration,
            fact_probabilities=self.probabilities,
        )
        return list(found)

    @cached_property
    def entity_vectors(self) -> Tensor:
        """The vectors [N, n] of entities; without any in the model, how many facts they have of each step, log(1 + n).

        Steps that few entities have count more, and of more than `MAX_PROFILE` steps those of most entities count.
        """
        if isinstance(self.scorer, EmbeddingScorer):
            return self.scorer.entities
        index, entities = self.graph.train_index, torch.arange(self.graph.num_entities)
        members = index.member_counts
        steps = members.topk(min(MAX_PROFILE, len(members))).indices
        counts = torch.stack([index.counts(entities, step.expand_as(entities)) for step in steps], 1)
        return counts.log1p() * (len(entities) / members[steps].clamp(min=1)).log1p()

    def similar(self, entity: str, *, top: int = 10) -> Results[Similar]:
        """The entities whose vectors (`entity_vectors`) have the highest cosine with that of an entity."""
        if top < 1:
            raise DihedralError(f"top is {top}; ask for at least 1 entity")
        vectors = self.entity_vectors
        own = self.graph.entities.id(entity)
        cosines = torch.nn.functional.cosine_similarity(vectors, vectors[[own]])
        cosines[own] = -2.0  # itself comes last
        best = cosines.topk(min(top, len(cosines) - 1))
        names = self.graph.entities
        pairs = zip(best.indices.tolist(), best.values.tolist(), strict=True)
        return Results((Similar(names[i], value) for i, value in pairs), self.graph)

    def update(self, *, add: Any = None, remove: Any = None, **options: Any) -> Predictor:
        """A predictor of the changed graph: facts to add and to remove (`update.update`, with its options).

        >>> from dihedral import make_family, train
        >>> predictor = train(make_family(40), "demo/family", epochs=2, progress=False)
        >>> grown = predictor.update(add=[("zoe", "sibling", "man_0001")])
        >>> grown.graph.num_entities - predictor.graph.num_entities
        1
        """
        return Predictor(update(self.trained, add=add, remove=remove, **options))

    def with_graph(self, graph: Any) -> Predictor:
        """The same path model, which answers from the facts of another graph; its entities may all be new.

        graph: anything that `load_graph` reads; paths follow its training facts, which are all of a single file. Its
        relations must be the model's. Probabilities were fitted on the model's own graph and do not apply.
        """
        if not isinstance(self.scorer, PathScorer):
            raise DihedralError("this model has vectors for the entities of its own graph only; give a path model")
        other = with_relations_of(load_graph(graph, valid=0.0, test=0.0), self.graph.relations)
        scorer = PathScorer(self.scorer.model, other.train_index)
        reason = "they were fitted on another graph; call calibrate()"
        return Predictor(TrainedModel(scorer, other, recipe=self.recipe, why_not_calibrated=reason))

    # --- probabilities -------------------------------------------------------------------------

    @property
    def calibration(self) -> Calibration | None:
        """The models of probabilities, and what was measured; None if they were not fitted."""
        return self.trained.calibration

    @property
    def why_not_calibrated(self) -> str:
        """Why the model has no probabilities."""
        return self.trained.why_not_calibrated

    def calibrate(self, *, seed: int = 0) -> None:
        """Fit probabilities on valid; they are saved with the model."""
        fit_probabilities(self.trained, seed)

    def use_reviews(self, reviews: Reviews) -> None:
        """Correct the probabilities by what reviewers decided (`probability.corrections`); saved with the model."""
        use_reviews(self.trained, reviews)

    @property
    def evidence(self) -> Evidence:
        """What the model and known facts say about a proposed fact; rules only if the model is calibrated."""
        rules = self.calibration.rules if self.calibration else NO_RULES
        if self._evidence is None or self._evidence.rules is not rules:  # it was calibrated since
            self._evidence = Evidence(self.scorer, self.graph.evidence_index, rules, self.signatures)
        return self._evidence

    def probabilities(self, triples: Tensor, scores: Tensor | None = None) -> list[Any]:
        """Probabilities of triples [n, 3] as proposals, or None for each if the model is not calibrated."""
        if self.calibration is None:
            return [None] * len(triples)
        return self.calibration.estimate(self.evidence, triples.cpu(), scores)[0].tolist()

    def classify(self, triples: Sequence[tuple[str, str, str]]) -> Results[Judgement]:
        """True or false for each triple; a known fact is judged as if it were not known."""
        calibration = self.calibration
        if calibration is None:
            raise DihedralError(f"this model has no probabilities: {self.why_not_calibrated}")
        ids = self.triple_ids(triples).cpu()
        likely, _ = calibration.estimate(self.evidence, ids, judge=True)
        named = self.graph.names_of(ids.numpy())
        judged = (Judgement(*triple, p >= 0.5, p) for triple, p in zip(named, likely.tolist(), strict=True))
        return Results(judged, self.graph)

    # --- files ---------------------------------------------------------------------------------

    def save(
        self, folder: str | Path, *, dtype: Dtype = "float32", shard_mb: float | None = None, overwrite: bool = False
    ) -> None:
        """Write a model folder with a model card."""
        save_model(Path(folder), self.trained, dtype=dtype, shard_mb=shard_mb, overwrite=overwrite)

    def export(self, path: str | Path) -> list[Path]:
        """Write entity vectors and relation codes for other programs: .npz, .parquet, or .txt (word2vec).

        Returns the files written. Parquet and text put relations into NAME.relations.* next to the file.
        """
        return export_model(Path(path), need_embeddings(self.scorer, "an export").model, self.graph)


def load(folder: str | Path, *, graph: Any = None, device: str | torch.device = "cpu") -> Predictor:
    """Open a model folder; graph: another graph for a path model to answer from (`Predictor.with_graph`)."""
    predictor = Predictor(load_model(Path(folder), device=choose_device(device)))
    return predictor if graph is None else predictor.with_graph(graph)
