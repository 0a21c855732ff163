"""The predictor: a trained model with its names and known facts; what a person holds in hand."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor

from dihedral.device import choose_device
from dihedral.engine.scratch import Scratch
from dihedral.errors import DihedralError
from dihedral.evaluation.ranking import MEMORY_MB, best_answers, score_all, tile_rows
from dihedral.graph import Graph, KnownAnswers
from dihedral.graph.known import SIDES, Side
from dihedral.graph.patterns import RuleCounter
from dihedral.graph.triples import SPLITS, Triples
from dihedral.models import Model
from dihedral.paths import WIDTH, beam_search, both_ways, path_queries, read_steps
from dihedral.storage import Dtype, StoredModel, load_model, save_model

Known = Literal["include", "exclude"]


class Prediction(NamedTuple):
    """A triple with its score; `known` says whether the graph holds it already."""

    head: str
    relation: str
    tail: str
    score: float
    known: bool


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
    ) -> list[Prediction]:
        """The best completions of a triple of which two parts are given, best first.

        known: "include" marks facts the graph already holds, "exclude" leaves them out.
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
            return self._predict_relation(head, tail, top, known)
        side: Side = "tail" if head is not None else "head"
        anchor = head if head is not None else tail
        assert anchor is not None
        return self.predict_many(side, [anchor], [relation], top=top, known=known)[0]

    def predict_many(
        self, side: Side, anchors: Sequence[str], relations: Sequence[str], *, top: int = 10, known: Known = "include"
    ) -> list[list[Prediction]]:
        """The same for many questions (anchor, relation, ?) or (?, relation, anchor) at once, in one product.

        >>> from dihedral import make_family, train
        >>> predictor = train(make_family(40), "demo/family", epochs=2, progress=False)
        >>> found = predictor.predict_many("tail", ["man_0000", "man_0001"], ["spouse", "child"], top=3)
        >>> [len(each) for each in found]
        [3, 3]
        """
        names = self.graph.entities
        questions = [torch.from_numpy(names.ids(anchors)), torch.from_numpy(self.graph.relations.ids(relations))]
        anchor_ids, relation_ids = (ids.long().to(self.device) for ids in questions)
        ids, scores = self.top(anchor_ids, relation_ids, side, top, known=known)
        row, answer = self.known[side].of(anchor_ids, relation_ids)
        place = torch.arange(len(ids), device=self.device)[:, None] * len(names)  # a number for each (question, entity)
        is_known = torch.isin(place + ids, row * len(names) + answer)
        return [
            [
                Prediction(anchor, relation, names[i], score, fact)
                if side == "tail"
                else Prediction(names[i], relation, anchor, score, fact)
                for i, score, fact in zip(*found, strict=True)
                if score > float("-inf")
            ]
            for anchor, relation, *found in zip(
                anchors, relations, ids.tolist(), scores.tolist(), is_known.tolist(), strict=True
            )
        ]

    @torch.no_grad()
    def top(
        self,
        anchors: Tensor,
        relations: Tensor,
        side: Side,
        count: int = 10,
        *,
        known: Known = "include",
        memory_mb: int = MEMORY_MB,
    ) -> tuple[Tensor, Tensor]:
        """The best answers of many questions at once, by number: ids and scores, each [questions, count].

        With known="exclude", known answers have the score -inf and come last.
        """
        if side not in SIDES or known not in ("include", "exclude"):
            raise DihedralError(f"side is {side!r} and known {known!r}; choose head or tail, include or exclude")
        candidates = self.candidates
        count = min(count, len(candidates))
        ids, values = [], []
        rows_at_once, scratch = tile_rows(candidates, memory_mb), Scratch()
        for anchor, relation in zip(anchors.split(rows_at_once), relations.split(rows_at_once), strict=True):
            scores = score_all(self.model.queries(anchor, relation, side, self.operators), candidates, scratch)
            if known == "exclude":
                scores[self.known[side].of(anchor, relation)] = float("-inf")
            best, its_scores = best_answers(scores, count)
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
            Prediction(head, graph.relations[i], tail, float(scores[i]), bool(is_known[i]))
            for i in order[:top].tolist()
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
        """Write a model folder; `latents` keeps the training parameters behind the codes as well."""
        if latents and self.latents is None:
            raise DihedralError("this predictor holds no training latents to save")
        stored = StoredModel(self.model, self.graph, self.recipe, self.metrics, self.latents if latents else None)
        save_model(Path(folder), stored, dtype=dtype, shard_mb=shard_mb, overwrite=overwrite)


def load(folder: str | Path, *, device: str | torch.device = "cpu") -> Predictor:
    """Open a model folder."""
    stored = load_model(Path(folder), device=choose_device(device))
    return Predictor(stored.model, stored.graph, recipe=stored.recipe, metrics=stored.metrics, latents=stored.latents)
