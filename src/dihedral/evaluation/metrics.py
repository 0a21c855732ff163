"""Metrics from filtered ranks: MRR, Hits@k and mean rank, per side, relation and relation category."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import torch
from numpy.typing import NDArray
from torch import Tensor

from dihedral.errors import DihedralError, check_seed
from dihedral.graph import Graph, GraphIndex
from dihedral.graph.steps import SIDES, Side
from dihedral.graph.triples import Triples
from dihedral.io.display import Tabular, table
from dihedral.probability.ordering import Ranker
from dihedral.scoring.scorer import MEMORY_MB, AnswerLookup, Scorer

Ties = Literal["realistic", "optimistic", "pessimistic"]
HITS = (1, 3, 10)
METRICS = ("mrr", *(f"hits@{k}" for k in HITS), "mr")


@dataclass(frozen=True)
class Ranks:
    """For each triple, how many other candidates score higher and how many the same."""

    greater: NDArray[np.int64]
    equal: NDArray[np.int64]

    @property
    def optimistic(self) -> NDArray[np.floating[Any]]:
        return 1.0 + self.greater

    @property
    def pessimistic(self) -> NDArray[np.floating[Any]]:
        return 1.0 + self.greater + self.equal

    @property
    def realistic(self) -> NDArray[np.floating[Any]]:
        return 1.0 + self.greater + self.equal / 2

    def __getitem__(self, which: NDArray[np.bool_] | slice) -> Ranks:
        return Ranks(self.greater[which], self.equal[which])

    @staticmethod
    def join(parts: list[Ranks]) -> Ranks:
        return Ranks(np.concatenate([p.greater for p in parts]), np.concatenate([p.equal for p in parts]))


def rank_triples(
    scorer: Scorer, triples: Tensor, side: Side, known: AnswerLookup, *, memory_mb: int = MEMORY_MB,
    ranker: Ranker | None = None,
) -> Ranks:  # fmt: skip
    """Filtered ranks of one side of triples [n, 3], whose answers `known` gives too; `ranker` orders by probability."""
    counts = scorer.rank_counts(triples, side, known, memory_mb=memory_mb)
    greater, equal = counts if ranker is None else ranker.rank_counts(triples, side, known, counts)
    return Ranks(greater.cpu().numpy(), equal.cpu().numpy())


def summarise(ranks: Ranks, ties: Ties = "realistic") -> dict[str, float]:
    """MRR, Hits@1/3/10 and mean rank; NaN if there are no ranks."""
    values = getattr(ranks, ties)
    if len(values) == 0:
        return dict.fromkeys(METRICS, float("nan"))
    return {
        "mrr": float((1 / values).mean()),
        **{f"hits@{k}": float((values <= k).mean()) for k in HITS},
        "mr": float(values.mean()),
    }


@dataclass(frozen=True, repr=False)
class Evaluation(Tabular):
    """Ranks of both sides of a split, and the metrics computed from them."""

    split: str
    triples: Triples
    ranks: Mapping[Side, Ranks]
    seen: NDArray[np.bool_]  # both entities occur in training
    relation_names: tuple[str, ...]
    categories: NDArray[np.str_]  # by relation
    drawn_from: int | None = None  # the size of the split, if these triples are a sample of it
    order: str = "score"  # what answers are ordered by; or "probability"

    @property
    def both(self) -> Ranks:
        return Ranks.join([self.ranks[side] for side in SIDES])

    @property
    def mrr(self) -> float:
        return summarise(self.both)["mrr"]

    def hits(self, k: int) -> float:
        """The share of answers with rank k or better."""
        return float((self.both.realistic <= k).mean())

    def standard_errors(self) -> dict[str, float]:
        """One standard error of each sampled metric, over triples, with the finite population correction."""
        count, total = len(self.triples), self.drawn_from or len(self.triples)
        ranks = np.stack([self.ranks[side].realistic for side in SIDES])  # [2, n]
        values = {"mrr": 1 / ranks, **{f"hits@{k}": ranks <= k for k in HITS}, "mr": ranks}
        if count < 2:
            return dict.fromkeys(values, float("nan"))
        shrink = np.sqrt((1 - count / total) / count)
        return {key: float(value.mean(axis=0).std(ddof=1) * shrink) for key, value in values.items()}

    def to_arrow(self) -> pa.Table:
        """The metrics of each relation."""
        return pa.Table.from_pylist(self.to_dict()["per_relation"])

    def _repr_html_(self) -> str:
        report = self.to_dict()
        rows = {"both sides": report["both"], "heads": report["head"], "tails": report["tail"]}
        rows |= {name: each["both"] for name, each in report["per_category"].items()}
        title = f"{self.split}, {len(self.triples):,} facts, filtered, in order of {self.order}"
        return table(("", *METRICS), [[name, *(row[key] for key in METRICS)] for name, row in rows.items()], title)

    def __repr__(self) -> str:
        size = f"{len(self.triples)} triples" + (f" of {self.drawn_from}" if self.drawn_from else "")
        error = f" ± {self.standard_errors()['mrr']:.4f}" if self.drawn_from else ""
        order = "" if self.order == "score" else f", in order of {self.order}"
        return f"Evaluation({self.split}: {size}{order}, MRR {self.mrr:.4f}{error}, Hits@10 {self.hits(10):.4f})"

    def _summary(self, which: NDArray[np.bool_] | slice = slice(None), ties: Ties = "realistic") -> dict[str, float]:
        return summarise(Ranks.join([self.ranks[side][which] for side in SIDES]), ties)

    def _sides(self, which: NDArray[np.bool_] | slice = slice(None)) -> dict[str, dict[str, float]]:
        return {side: summarise(self.ranks[side][which]) for side in SIDES}

    def to_dict(self) -> dict[str, Any]:
        relation_of = self.triples[:, 1]
        per_relation = []
        for relation in np.unique(relation_of):
            here = relation_of == relation
            row: dict[str, Any] = {
                "relation": self.relation_names[relation],
                "category": str(self.categories[relation]),
                "triples": int(here.sum()),
                **self._summary(here),
                **{f"{side}_mrr": found["mrr"] for side, found in self._sides(here).items()},
            }
            per_relation.append(row)
        per_category: dict[str, Any] = {}
        for category in ("1-1", "1-N", "N-1", "N-N"):
            here = self.categories[relation_of] == category
            if here.any():
                found = {"both": self._summary(here), **self._sides(here)}
                per_category[category] = {"triples": int(here.sum()), **found}
        sample = {"drawn_from": self.drawn_from, "standard_error": self.standard_errors()} if self.drawn_from else {}
        return {
            "split": self.split,
            "order": self.order,
            "triples": len(self.triples),
            **sample,
            "both": self._summary(),
            **self._sides(),
            "optimistic": self._summary(ties="optimistic"),
            "pessimistic": self._summary(ties="pessimistic"),
            "seen_only": {"triples": int(self.seen.sum()), **self._summary(self.seen)},
            "per_category": per_category,
            "per_relation": per_relation,
        }


class Evaluator:
    """Ranks the answers of one split; everything that does not depend on the model is prepared once.

    The facts that `Graph.filtered` gives are filtered out, so that ranks of valid do not depend on test.
    triples: rank these instead of the split's own. also_known: facts to filter out besides those of the graph.
    sample: rank only this many triples, drawn with `seed`; 0 ranks all.
    """

    def __init__(
        self,
        graph: Graph,
        split: str = "test",
        *,
        triples: Triples | None = None,
        also_known: Triples | None = None,
        device: torch.device | str = "cpu",
        memory_mb: int = MEMORY_MB,
        sample: int = 0,
        seed: int = 0,
    ) -> None:
        self.split, self.memory_mb = split, memory_mb
        self.triples = graph.split(split) if triples is None else triples
        if len(self.triples) == 0:
            raise DihedralError(
                f"graph {graph.name!r} has no {split} triples to evaluate on; choose a split that has some"
            )
        if isinstance(sample, bool) or not isinstance(sample, int) or sample < 0:
            raise DihedralError(f"sample is {sample!r}; give the number of triples to rank, or 0 for all")
        index, more = graph.filter_index(split), [each for each in (also_known, triples) if each is not None]
        if any(bool((index.locate(*torch.from_numpy(each).unbind(1)) < 0).any()) for each in more):
            index = GraphIndex.build([*graph.filtered(split), *more], graph.num_entities, graph.num_relations)
        self.drawn_from = None
        if 0 < sample < len(self.triples):
            self.drawn_from = len(self.triples)
            drawn = np.random.default_rng(check_seed(seed)).choice(len(self.triples), sample, replace=False)
            self.triples = np.ascontiguousarray(self.triples[np.sort(drawn)])
        anchors = np.zeros(graph.num_entities, dtype=bool)
        anchors[self.triples[:, 0]] = anchors[self.triples[:, 2]] = True
        self.known = index.about(anchors).to(device)
        self.on_device = torch.from_numpy(self.triples).to(device)
        trained = np.zeros(graph.num_entities, dtype=bool)
        trained[graph.train[:, 0]] = trained[graph.train[:, 2]] = True
        self.seen = trained[self.triples[:, 0]] & trained[self.triples[:, 2]]
        self.relation_names = tuple(graph.relations)
        self.categories = relation_categories(graph)

    def __call__(self, scorer: Scorer, ranker: Ranker | None = None) -> Evaluation:
        """Rank the triples by score, or in the order that a ranker gives."""
        triples, known, memory = self.on_device, self.known.answers, self.memory_mb
        ranks = {side: rank_triples(scorer, triples, side, known, memory_mb=memory, ranker=ranker) for side in SIDES}
        names, categories = self.relation_names, self.categories
        order = "score" if ranker is None else "probability"
        return Evaluation(self.split, self.triples, ranks, self.seen, names, categories, self.drawn_from, order)


def relation_categories(graph: Graph) -> NDArray[np.str_]:
    """1-1, 1-N, N-1 or N-N for each relation; N has at least 1.5 entities on average (Bordes et al., 2013)."""
    count = np.bincount(graph.train[:, 1], minlength=graph.num_relations)
    heads, tails = graph.train_index.member_counts.numpy().reshape(2, -1)  # distinct ones of each relation
    many_tails = count / np.maximum(heads, 1) >= 1.5
    many_heads = count / np.maximum(tails, 1) >= 1.5
    left, right = np.where(many_heads, "N", "1"), np.where(many_tails, "N", "1")
    return np.char.add(np.char.add(left, "-"), right)
