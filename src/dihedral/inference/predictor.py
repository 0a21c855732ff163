"""The predictor: a trained model with its names and known facts; what a person holds in hand."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor

from dihedral.engine.scratch import Scratch
from dihedral.errors import DihedralError, check_triples, close_matches
from dihedral.evaluation.ranking import MEMORY_MB, best_answers, score_all, tile_rows
from dihedral.graph import Graph, KnownAnswers
from dihedral.graph.patterns import RuleCounter
from dihedral.graph.steps import SIDES, Side
from dihedral.graph.triples import SPLITS, Triples
from dihedral.inference.calibration import MIN_VALID, Calibration, fit_calibration, measure_calibration
from dihedral.inference.paths import WIDTH, beam_search, both_ways, path_queries, read_steps
from dihedral.models import Model
from dihedral.runtime.device import choose_device
from dihedral.storage.card import write_card
from dihedral.storage.export import export_model
from dihedral.storage.folder import Dtype, StoredModel, load_model, save_model

FEW_QUESTIONS, MANY_FACTS = 4, 1_000_000  # looking through the facts takes less time than an index of them
Known = Literal["include", "exclude"]
Among = str | Sequence[str] | None  # "range", or names of entities


class Prediction(NamedTuple):
    """A triple with its score; `known` says whether the graph holds it already."""

    head: str
    relation: str
    tail: str
    score: float
    known: bool
    probability: float | None = None  # where the model was calibrated (`dihedral.inference.calibration`)


class Similar(NamedTuple):
    """An entity whose vector points the same way."""

    entity: str
    similarity: float  # cosine


class Judgement(NamedTuple):
    """Whether a triple is called true, and how likely it is."""

    head: str
    relation: str
    tail: str
    true: bool
    probability: float


class PathAnswer(NamedTuple):
    """Where a path leads; `through` holds the entities between, where the search went step by step."""

    entity: str
    score: float
    through: tuple[str, ...]


class Predictor:
    """Scores, predicts, saves and loads.

    >>> from dihedral import make_family, train
    >>> predictor = train(make_family(40), "demo/family", epochs=2, progress=False)
    >>> len(predictor.predict(head="man_0000", relation="spouse", top=3))
    3
    """

    def __init__(
        self,
        model: Model,
        graph: Graph,
        *,
        recipe: dict[str, Any] | None = None,
        metrics: dict[str, Any] | None = None,
        latents: dict[str, Tensor] | None = None,
    ) -> None:
        self.model = model
        self.graph = graph
        self.recipe = recipe or {}
        self.metrics = metrics or {}
        self.latents = latents
        self.operators = model.relations.exact().detach()

    def __repr__(self) -> str:
        return f"Predictor({self.model.relations.kind}, 2L={self.model.dimension}, {self.graph!r})"

    @property
    def device(self) -> torch.device:
        return self.model.entities.device

    @cached_property
    def candidates(self) -> Tensor:
        """The table that queries are multiplied with: [N, width]."""
        return self.model.candidates().detach()

    @cached_property
    def known(self) -> dict[Side, KnownAnswers]:
        graph = self.graph
        return {
            side: KnownAnswers.build(graph.known, side, graph.num_relations, graph.num_entities).to(self.device)
            for side in SIDES
        }

    def known_answers(self, side: Side, anchors: Tensor, relations: Tensor) -> tuple[Tensor, Tensor]:
        """The known answers of a batch of questions, flat: (row in the batch, answer).

        A few questions to a large graph are answered by looking through its facts, until `known` is worked out.
        """
        graph = self.graph
        if "known" in self.__dict__ or len(anchors) > FEW_QUESTIONS or graph.num_triples < MANY_FACTS:
            return self.known[side].of(anchors, relations)
        place, asked = 0 if side == "tail" else 2, anchors.cpu().numpy()
        parts = [graph.split(split) for split in SPLITS]
        facts = np.concatenate([part[np.isin(part[:, place], asked)] for part in parts])
        found = KnownAnswers.build(facts, side, graph.num_relations, graph.num_entities).to(self.device)
        return found.of(anchors, relations)

    @cached_property
    def calibration(self) -> Calibration | None:
        """The curves from scores to probabilities, if they were fitted (`calibrate`)."""
        found = self.metrics.get("calibration")
        try:
            return Calibration.from_dict(found["curves"], self.graph.num_relations) if found else None
        except (KeyError, TypeError, ValueError, RuntimeError) as error:
            raise DihedralError(f"the model's probabilities are damaged: {error!r:.200}; fit them again") from None

    def calibrate(self, *, seed: int = 0) -> None:
        """Fit probabilities and thresholds on valid, and measure them on test; they are saved with the model."""
        calibration = fit_calibration(self, seed)
        if calibration is None:
            raise DihedralError(
                f"the graph has {len(self.graph.valid)} valid triples; probabilities need {MIN_VALID} or more"
            )
        measured = {split: measure_calibration(self, calibration, split, seed + 1) for split in ("valid", "test")}
        self.__dict__.pop("calibration", None)
        self.metrics["calibration"] = {"curves": calibration.to_dict(), **measured}

    @cached_property
    def steps(self) -> KnownAnswers:
        """Where each relation and each inverse leads from an entity, by the facts of training."""
        graph = self.graph
        return both_ways(graph.train, graph.num_entities, graph.num_relations).to(self.device)

    @cached_property
    def rule_counter(self) -> RuleCounter:
        """Counts of single rules in the facts of training."""
        graph = self.graph
        return RuleCounter(graph.train, graph.num_entities, graph.num_relations)

    def align(self, graph: Graph) -> Graph:
        """Another graph's triples in this model's numbering; a name the model never saw is an error."""
        if graph.entities == self.graph.entities and graph.relations == self.graph.relations:
            return graph

        def renumber(triples: Triples) -> Triples:
            return np.stack([entity[triples[:, 0]], relation[triples[:, 1]], entity[triples[:, 2]]], axis=1)

        for own, other in ((self.graph.entities, graph.entities), (self.graph.relations, graph.relations)):
            unknown = other.without(own)
            if unknown:
                raise DihedralError(
                    f"the model does not know {len(unknown)} of the {len(other)} {own.kind} names of {graph.name!r}, "
                    f"such as {unknown[0]!r}{close_matches(unknown[0], own)}"
                )
        entity = self.graph.entities.ids(list(graph.entities))
        relation = self.graph.relations.ids(list(graph.relations))
        train, valid, test = (renumber(graph.split(split)) for split in SPLITS)
        return Graph(self.graph.entities, self.graph.relations, train, valid, test, graph.name, graph.notes)

    def score(self, head: str, relation: str, tail: str) -> float:
        """φ(h, r, t) = hᵀ R t."""
        ids = [self.graph.entities.id(head), self.graph.relations.id(relation), self.graph.entities.id(tail)]
        return float(self.model.score(torch.tensor([ids], device=self.device), self.operators)[0])

    def predict(
        self,
        *,
        head: str | None = None,
        relation: str | None = None,
        tail: str | None = None,
        top: int = 10,
        known: Known = "include",
        among: Among = None,
    ) -> list[Prediction]:
        """The best completions of a triple of which two parts are given, best first.

        known: "include" marks facts the graph already holds, "exclude" leaves them out.
        among: "range" answers only with entities that training has in that place of the relation; a list of
        names, such as `members("isa", "Virus")`, only with those.
        """
        if top < 1:
            raise DihedralError(f"top is {top}; ask for at least 1 prediction")
        if known not in ("include", "exclude"):
            raise DihedralError(f"known is {known!r}; choose include or exclude")
        given = [part for part in (head, relation, tail) if part is not None]
        if len(given) != 2:
            raise DihedralError(f"{len(given)} of head, relation and tail are given; give two, the third is predicted")
        if relation is None:
            assert head is not None and tail is not None
            if among is not None:
                raise DihedralError("among limits entities, but the relation is asked for; leave it out")
            return self._predict_relation(head, tail, top, known)
        side: Side = "tail" if head is not None else "head"
        anchor = head if head is not None else tail
        assert anchor is not None
        allowed = self.allowed(among, self.graph.relations.id(relation), side)
        return self.predict_many(side, [anchor], [relation], top=top, known=known, allowed=allowed)[0]

    def predict_many(
        self,
        side: Side,
        anchors: Sequence[str],
        relations: Sequence[str],
        *,
        top: int = 10,
        known: Known = "include",
        allowed: Tensor | None = None,
    ) -> list[list[Prediction]]:
        """The same for many questions (anchor, relation, ?) or (?, relation, anchor) at once, in one product.

        >>> from dihedral import make_family, train
        >>> predictor = train(make_family(40), "demo/family", epochs=2, progress=False)
        >>> found = predictor.predict_many("tail", ["man_0000", "man_0001"], ["spouse", "child"], top=3)
        >>> [len(each) for each in found]
        [3, 3]
        """
        if len(anchors) != len(relations):
            raise DihedralError(
                f"{len(anchors)} entities and {len(relations)} relations are given; give as many of both"
            )
        names, kinds = self.graph.entities, self.graph.relations
        questions = [torch.from_numpy(names.ids(anchors)), torch.from_numpy(kinds.ids(relations))]
        anchor_ids, relation_ids = (ids.long().to(self.device) for ids in questions)
        ids, scores = self.top(anchor_ids, relation_ids, side, top, known=known, allowed=allowed)
        row, answer = self.known_answers(side, anchor_ids, relation_ids)
        place = torch.arange(len(ids), device=self.device)[:, None] * len(names)  # a number for each (question, entity)
        is_known = torch.isin(place + ids, row * len(names) + answer)
        likely = self._likely(scores, relation_ids[:, None].expand_as(scores))
        return [
            [
                Prediction(names[a], kinds[r], names[i], score, fact, p)  # names in full, if asked for by a prefix
                if side == "tail"
                else Prediction(names[i], kinds[r], names[a], score, fact, p)
                for i, score, fact, p in zip(*found, strict=True)
                if score > float("-inf")
            ]
            for a, r, *found in zip(
                anchor_ids.tolist(),
                relation_ids.tolist(),
                ids.tolist(),
                scores.tolist(),
                is_known.tolist(),
                likely,
                strict=True,
            )
        ]

    def _likely(self, scores: Tensor, relations: Tensor) -> list[Any]:
        """Probabilities of scores [...], or nothing in their place where the model is not calibrated."""
        if self.calibration is None:
            return np.full(tuple(scores.shape), None).tolist()
        return self.calibration.probabilities(scores, relations).tolist()

    def members(self, relation: str, entity: str) -> list[str]:
        """The heads of (?, relation, entity) that the graph knows: the members of a type, say."""
        anchor = torch.tensor([self.graph.entities.id(entity)], device=self.device)
        which = torch.tensor([self.graph.relations.id(relation)], device=self.device)
        return [self.graph.entities[i] for i in self.known_answers("head", anchor, which)[1].tolist()]

    def allowed(self, among: Among, relation: int, side: Side) -> Tensor | None:
        """Which entities may answer: a mask [N], or nothing where all may."""
        if among is None:
            return None
        if isinstance(among, str):
            if among != "range":
                raise DihedralError(f"among is {among!r}; choose 'range' or give a list of entities")
            facts = self.graph.train[self.graph.train[:, 1] == relation]
            ids = np.unique(facts[:, 2 if side == "tail" else 0])
        else:
            ids = self.graph.entities.ids(list(among))
        mask = torch.zeros(self.graph.num_entities, dtype=torch.bool, device=self.device)
        mask[torch.from_numpy(np.asarray(ids, dtype=np.int64)).to(self.device)] = True
        return mask

    def similar(self, entity: str, *, top: int = 10) -> list[Similar]:
        """The entities whose vectors point most nearly the same way."""
        if top < 1:
            raise DihedralError(f"top is {top}; ask for at least 1 entity")
        vectors = self.model.entities.detach()
        own = self.graph.entities.id(entity)
        cosines = torch.nn.functional.cosine_similarity(vectors, vectors[[own]])
        cosines[own] = -2.0  # itself comes last
        best = cosines.topk(min(top, len(cosines) - 1))
        names = self.graph.entities
        return [Similar(names[i], value) for i, value in zip(best.indices.tolist(), best.values.tolist(), strict=True)]

    def classify(self, triples: Sequence[tuple[str, str, str]]) -> list[Judgement]:
        """True or false, by a threshold for each relation that was fitted on valid."""
        calibration = self.calibration
        if calibration is None:
            raise DihedralError("this model has no thresholds; call calibrate() first")
        entities, relations = self.graph.entities, self.graph.relations
        check_triples(triples)
        numbers = [[entities.id(h), relations.id(r), entities.id(t)] for h, r, t in triples]
        ids = torch.tensor(numbers, dtype=torch.int64).view(-1, 3)
        with torch.no_grad():
            scores = self.model.score(ids.to(self.device), self.operators).cpu()
        likely = calibration.probabilities(scores, ids[:, 1])
        true = likely >= calibration.threshold[ids[:, 1]]
        return [Judgement(h, r, t, bool(call), p)
                for (h, r, t), call, p in zip(triples, true.tolist(), likely.tolist(), strict=True)]  # fmt: skip

    @torch.no_grad()
    def top(
        self,
        anchors: Tensor,
        relations: Tensor,
        side: Side,
        count: int = 10,
        *,
        known: Known = "include",
        allowed: Tensor | None = None,
        memory_mb: int = MEMORY_MB,
    ) -> tuple[Tensor, Tensor]:
        """The best answers of many questions at once, by number: ids and scores, each [questions, count].

        With known="exclude", known answers have the score -inf and come last; so do entities outside the
        mask `allowed` [N].
        """
        if side not in SIDES:
            raise DihedralError(f"side is {side!r}; choose head or tail")
        if known not in ("include", "exclude"):
            raise DihedralError(f"known is {known!r}; choose include or exclude")
        if count < 1:
            raise DihedralError(f"count is {count}; ask for at least 1 answer")
        candidates, shard = self.candidates, self.model.shard
        count = min(count, shard.num_rows)
        ids, values = [], []
        rows_at_once, scratch = tile_rows(self.model, memory_mb), Scratch()
        for anchor, relation in zip(anchors.split(rows_at_once), relations.split(rows_at_once), strict=True):
            scores = score_all(self.model.queries(anchor, relation, side, self.operators), candidates, scratch)
            if known == "exclude":
                row, answer = self.known_answers(side, anchor, relation)
                place, answer = shard.find(answer)
                scores[row[place], answer] = float("-inf")
            if allowed is not None:
                scores[:, ~allowed[shard.ids(allowed.device)]] = float("-inf")
            best, its_scores = shard.best(*best_answers(scores, min(count, len(candidates))), count)
            ids.append(best)
            values.append(its_scores)
        return torch.cat(ids), torch.cat(values)

    def query(
        self,
        start: str,
        via: Sequence[str],
        *,
        top: int = 10,
        mode: Literal["product", "beam"] = "product",
        width: int = WIDTH,
    ) -> list[PathAnswer]:
        """Where relations lead from an entity, the best answers first; `~name` walks a relation backwards.

        mode: "product" multiplies the relations and asks once for the whole path; "beam" goes step by step,
        takes the facts of training for sure, keeps the `width` likeliest entities after each step, and scores are
        log-probabilities.
        """
        if mode not in ("product", "beam"):
            raise DihedralError(f"mode is {mode!r}; choose product or beam")
        for name, value in (("top", top), ("width", width)):
            if value < 1:
                raise DihedralError(f"{name} is {value}; it must be 1 or more")
        names = self.graph.entities
        anchors = torch.tensor([names.id(start)], device=self.device)
        steps = torch.tensor([read_steps(via, self.graph.relations)], device=self.device)
        beam = None
        if mode == "product":
            scores = path_queries(self.model, self.operators, anchors, steps) @ self.candidates.T
        else:
            beam = beam_search(
                self.model, self.operators, self.candidates, anchors, steps, facts=self.steps, width=width
            )
            scores = beam.scores
        values, ids = scores[0].topk(min(top, scores.shape[1]))
        return [
            PathAnswer(names[i], value, tuple(names[m] for m in beam.through(0, i)) if beam else ())
            for i, value in zip(ids.tolist(), values.tolist(), strict=True)
        ]

    def _predict_relation(self, head: str, tail: str, top: int, known: Known) -> list[Prediction]:
        graph = self.graph
        head_id, tail_id = graph.entities.id(head), graph.entities.id(tail)
        head, tail = graph.entities[head_id], graph.entities[tail_id]
        relations = torch.arange(graph.num_relations, device=self.device)
        triples = torch.stack([torch.full_like(relations, head_id), relations, torch.full_like(relations, tail_id)], 1)
        scores = self.model.score(triples, self.operators)
        row, answer = self.known["tail"].of(triples[:, 0], relations)
        is_known = torch.zeros(graph.num_relations, dtype=torch.bool, device=self.device)
        is_known[row[answer == tail_id]] = True
        order = scores.argsort(descending=True)
        if known == "exclude":
            order = order[~is_known[order]]
        return [
            Prediction(head, graph.relations[i], tail, float(scores[i]), bool(is_known[i]), p)
            for i, p in zip(order[:top].tolist(), self._likely(scores[order[:top]], order[:top]), strict=True)
        ]

    def save(
        self,
        folder: str | Path,
        *,
        dtype: Dtype = "float32",
        shard_mb: float | None = None,
        latents: bool = False,
        overwrite: bool = False,
    ) -> None:
        """Write a model folder with a card for people; `latents` keeps the training parameters behind the codes."""
        if latents and self.latents is None:
            raise DihedralError("this predictor holds no training latents to save")
        stored = StoredModel(self.model, self.graph, self.recipe, self.metrics, self.latents if latents else None)
        save_model(Path(folder), stored, dtype=dtype, shard_mb=shard_mb, overwrite=overwrite)
        write_card(Path(folder), self.model, self.graph, self.recipe, self.metrics)

    def export(self, path: str | Path) -> list[Path]:
        """Entity vectors and relation codes for other programs: .npz, .parquet, or .txt as word2vec has it.

        Returns the files written; Parquet and text put relations beside, into NAME.relations.*.
        """
        return export_model(Path(path), self.model, self.graph)


def load(folder: str | Path, *, device: str | torch.device = "cpu") -> Predictor:
    """Open a model folder."""
    stored = load_model(Path(folder), device=choose_device(device))
    return Predictor(stored.model, stored.graph, recipe=stored.recipe, metrics=stored.metrics, latents=stored.latents)
