"""Probabilities: from evidence to the share of proposals, or of judged triples, that hold.

Two models of the same kind (`probability.additive`) are fitted on the valid triples, with the evidence of the training
facts. Proposals are facts that train does not hold. Test has no part in a fit: its facts are like those that nobody
knows (`probability.missing_share`). Judgements are true and false in equal parts. Of the false triples, one half has an
entity replaced by another that fits that side, and one half are proposals of the model that probably do not hold.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from dihedral.errors import DihedralError
from dihedral.graph import Graph
from dihedral.graph.triples import Triples
from dihedral.io.files import read_record
from dihedral.probability.additive import AdditiveModel, fit_additive
from dihedral.probability.corrections import Corrections, scale_odds
from dihedral.probability.evidence import FEATURES, FREE, CountedRules, Evidence
from dihedral.probability.missing_share import MissingShare, estimate_missing
from dihedral.probability.proposals import sample_proposals
from dihedral.scoring.scorer import Scorer

BINS = 15
DRAWS = 20  # draws of true triples, for the error that is due to chance
MIN_TRUE = 30  # valid triples among the proposals; with fewer there are no probabilities
MAX_FACTS = 2_000_000  # in larger graphs the evidence takes too long to count
MAX_TRIES = 20  # to draw a triple that is not a known fact
HARD = 5  # of so many times as many best proposals as are needed, false ones are drawn
GROWTH = 1.3  # each bin of proposals is larger than the more probable one by this factor
TIE = 1e-9  # how much z counts where probabilities are equal
QUERY_FEATURES, QUERY_GROUPS = 2, 3  # the shape of the model of answers to queries
CUTS = 60  # probabilities for which the number of proposals is kept


@dataclass(frozen=True)
class JudgementReport:
    """How reliable judgements are: those of triples of valid, by a model that was fitted on others of them."""

    triples: int
    expected_calibration_error: float
    error_by_chance: float  # that correct probabilities have with as many triples
    accuracy: float
    reliability: list[dict[str, float]]


@dataclass(frozen=True)
class OrderReport:
    """The filtered MRR of a sample of valid in both orders of answers, and the order that is better."""

    order: Literal["probability", "score"]
    triples: int
    mrr: dict[str, float]  # by order


@dataclass(frozen=True, eq=False)
class Calibration:
    """The fitted models, how many proposals they were fitted on at each probability, and what was measured."""

    rules: CountedRules
    proposals: AdditiveModel
    judgements: AdditiveModel
    cuts: list[tuple[float, int]]  # a share in valid, and the number of proposals with at least that, ascending
    missing: MissingShare
    queries: AdditiveModel | None = None  # for answers to queries (`ask.answer_calibration`); None if too few are true
    judged: JudgementReport | None = None
    orders: OrderReport | None = None
    corrections: Corrections | None = None  # by decisions of reviewers
    offsets: NDArray[np.float64] | None = None  # [R]: the corrections of each relation

    @property
    def order(self) -> Literal["probability", "score"]:
        """The order of answers that ranked the valid triples better."""
        return self.orders.order if self.orders else "score"

    def corrected(self, corrections: Corrections | None, relations: Sequence[str]) -> Calibration:
        """The same with other corrections, for the relations of a graph."""
        offsets = None if corrections is None else corrections.offsets(relations)
        return replace(self, corrections=corrections, offsets=offsets)

    def to_dict(self) -> dict[str, Any]:
        """The content of the file calibration.json."""
        models = {name: getattr(self, name).to_dict() for name in ("rules", "proposals", "judgements")}
        content: dict[str, Any] = {
            "models": {"features": list(FEATURES), **models, "cuts": [list(cut) for cut in self.cuts]},
            "missing": asdict(self.missing),
            "judgements": asdict(self.judged) if self.judged else {},
            "answers": asdict(self.orders) if self.orders else {},
            "queries": self.queries.to_dict() if self.queries else None,
        }
        return content | ({"reviews": self.corrections.to_dict()} if self.corrections else {})

    @classmethod
    def from_dict(cls, content: Any, relations: Sequence[str]) -> Calibration:
        """The calibration that a file holds, checked against the relations of its graph."""
        try:
            return cls._read(content, relations)
        except (AttributeError, LookupError, OverflowError, TypeError, ValueError) as error:
            raise DihedralError(
                f"the model's probabilities are damaged: {error!r:.200}; copy the folder again"
            ) from None

    @classmethod
    def _read(cls, content: Any, relations: Sequence[str]) -> Calibration:
        models, count, width = content["models"], len(relations), len(FEATURES)
        if tuple(models["features"]) != FEATURES:
            raise ValueError(f"expected the features {', '.join(FEATURES)}")
        kinds = "proposals", "judgements"
        proposals, judgements = (AdditiveModel.from_dict(models[kind], width, count) for kind in kinds)
        cuts = [(float(probability), int(number)) for probability, number in models["cuts"]]
        if not cuts:
            raise ValueError("expected at least one cut")
        queries, judged = content.get("queries"), content.get("judgements")
        orders, reviews = content.get("answers"), content.get("reviews")
        found = cls(
            CountedRules.from_dict(models["rules"], count),
            proposals,
            judgements,
            cuts,
            read_record(MissingShare, content["missing"]),
            queries=AdditiveModel.from_dict(queries, QUERY_FEATURES, QUERY_GROUPS) if queries else None,
            judged=read_record(JudgementReport, judged) if judged else None,
            orders=read_record(OrderReport, orders) if orders else None,
        )
        return found.corrected(Corrections.from_dict(reviews) if reviews else None, relations)

    def estimate(
        self, evidence: Evidence, triples: Tensor, scores: Tensor | None = None, *, judge: bool = False
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """The probabilities of triples [n, 3] as proposals or judgements, and the values z behind them.

        A fact about an entity and itself is at most as probable as such facts are frequent in its relation.
        """
        model = self.judgements if judge else self.proposals
        head, relation, tail = triples.cpu().numpy().T
        z = model.logits(evidence.features(triples, scores), relation)
        found = model.at(z) if judge else self.at(z, relation)
        for place in np.flatnonzero(head == tail).tolist():
            found[place] = min(found[place], evidence.reversal_shares(int(relation[place]))[1])
        return found, z

    def at(
        self, z: NDArray[np.float64], relations: NDArray[np.int64], missing: float | None = None
    ) -> NDArray[np.float64]:
        """The probabilities of proposals with the values z, corrected if reviewers decided about some.

        missing: how many facts are missing, as a multiple of those of valid, instead of the estimate and corrections.
        """
        found = self.missing.of_unknown(self.proposals.at(z), missing)
        if self.offsets is None or missing is not None:
            return found
        return scale_odds(found, np.exp(self.offsets[relations]))

    def sort_keys(self, z: NDArray[np.float64], relation: int) -> NDArray[np.float64]:
        """What proposals of a relation are ordered by among those of others: the corrected probability, then z."""
        if self.offsets is None:
            return z
        likely = self.missing.of_unknown(self.proposals.at(z)).clip(TIE, 1 - TIE)
        found: NDArray[np.float64] = np.log(likely / (1 - likely)) + self.offsets[relation] + TIE * z
        return found

    def num_similar(self, share: float) -> int:
        """The number of proposals that were at least as probably in valid."""
        places = [cut[0] for cut in self.cuts]
        rounded = share * (1 - 1e-4)  # cuts have fewer digits
        where = min(int(np.searchsorted(places, rounded)), len(self.cuts) - 1)
        return self.cuts[where][1]


def fit_calibration(scorer: Scorer, graph: Graph, seed: int = 0, names: tuple[int, int] | None = None) -> Calibration:
    """Models fitted on valid; an error if valid is too small or the graph too large.

    names: the numbers of entities and relations when valid was drawn, if others were added since.
    """
    if graph.num_triples > MAX_FACTS:
        raise DihedralError(
            f"the graph has {graph.num_triples:,} triples; probabilities are fitted up to {MAX_FACTS:,}"
        )
    if len(graph.valid) < MIN_TRUE:
        raise DihedralError(f"the graph has {len(graph.valid)} valid triples; probabilities need {MIN_TRUE} or more")
    evidence = Evidence(scorer, graph.train_index, CountedRules.count(graph.train_index))
    triples, features, held = sample_proposals(evidence, graph, seed, names)
    if held.sum() < MIN_TRUE:
        raise DihedralError(
            f"{held.sum()} of the {len(graph.valid)} valid triples are among the model's proposals; "
            f"probabilities need {MIN_TRUE} or more"
        )
    relations = triples[:, 1].numpy()
    proposals, unseen = fit_additive(
        features, relations, held, graph.num_relations, seed=seed, growth=GROWTH, free=FREE
    )
    # Facts of test are known, but must not influence probabilities, unless the reader drew them from the user's own.
    known = len(graph.test) / len(graph.valid) if graph.is_divided else 0.0
    missing, proposals = estimate_missing(proposals, unseen, held, known)
    shares = proposals.at(unseen)
    likely = np.where(held, 1.0, missing.of_unknown(shares))
    true, false = false_triples(evidence, graph, (triples.numpy(), likely), seed)
    if len(true) < MIN_TRUE:
        raise DihedralError(f"false triples were found for {len(true)} valid triples; probabilities need {MIN_TRUE}")
    judged = torch.from_numpy(np.concatenate([true, false]).astype(np.int64))
    truth = np.arange(len(judged)) < len(true)
    features = evidence.features(judged)
    judgements, by_others = fit_additive(
        features, judged[:, 1].numpy(), truth, graph.num_relations, seed=seed, free=FREE
    )
    report = report_judgements(judgements.at(by_others), truth)
    return Calibration(evidence.rules, proposals, judgements, _cuts(shares), missing, judged=report)


def _cuts(probabilities: NDArray[np.float64]) -> list[tuple[float, int]]:
    ascending = np.sort(probabilities)
    places = np.unique(np.geomspace(1, len(ascending), CUTS).round().astype(int))
    values = np.unique(ascending[-places])
    counts = len(ascending) - np.searchsorted(ascending, values)
    return [(float(f"{value:.6g}"), int(count)) for value, count in zip(values, counts, strict=True)]


def false_triples(
    evidence: Evidence, graph: Graph, proposals: tuple[Triples, NDArray[np.float64]], seed: int = 0
) -> tuple[Triples, Triples]:
    """The triples of valid, and one false triple for each; a triple for which none was found is left out.

    One half has one side replaced by an entity that fits it. One half is drawn from the best proposals [n, 3], each by
    the probability that it does not hold; the probabilities [n] that they do are given. Some of the drawn ones hold all
    the same. The square makes up for that: as many are drawn as if each that does not hold had that probability.
    """
    rng, known = np.random.default_rng(seed), graph.evidence_index
    order = rng.permutation(len(graph.valid))
    half = len(order) // 2
    true, false = (graph.valid[each] for each in (order[half:], order[half:].copy()))
    column = rng.choice([0, 2], len(true))
    step = true[:, 1] + np.where(column == 0, 0, graph.num_relations)
    open_ = np.arange(len(true))
    for _ in range(MAX_TRIES):
        for one in np.unique(step[open_]).tolist():
            here, candidates = open_[step[open_] == one], evidence.signatures.candidates(one)
            if len(candidates):  # a relation without training facts has none
                false[here, column[here]] = rng.choice(candidates, len(here))
        edges = known.locate(*torch.from_numpy(false[open_].astype(np.int64)).unbind(1))
        open_ = open_[edges.numpy() >= 0]
        if not len(open_):
            break
    true, false = np.delete(true, open_, 0), np.delete(false, open_, 0)
    triples, likely = proposals
    best = np.argsort(-likely, kind="stable")
    best = best[likely[best] < 1]
    best = best[(1 - likely[best]).cumsum() <= HARD * half]
    doubt = (1 - likely[best]) ** 2
    drawn = rng.choice(best, min(half, len(best)), replace=False, p=doubt / doubt.sum()) if len(best) else best
    true = np.concatenate([true, graph.valid[order[: len(drawn)]]])
    return true, np.concatenate([false, triples[drawn].astype(false.dtype)])


def reliability(
    probabilities: NDArray[np.float64], truth: NDArray[np.bool_], bins: int = BINS
) -> list[dict[str, float]]:
    """For each bin with triples: how many, their mean probability, and the share that is true."""
    place = (probabilities * bins).astype(int).clip(max=bins - 1)
    rows = []
    for number in range(bins):
        here = place == number
        if here.any():
            rows.append({"triples": int(here.sum()), "probability": float(probabilities[here].mean()),
                         "true": float(truth[here].mean())})  # fmt: skip
    return rows


def expected_error(rows: list[dict[str, float]]) -> float:
    """Expected calibration error: the mean distance of probability and true share, weighted by triples."""
    total = sum(row["triples"] for row in rows)
    return sum(row["triples"] * abs(row["probability"] - row["true"]) for row in rows) / max(total, 1)


def report_judgements(probabilities: NDArray[np.float64], truth: NDArray[np.bool_], seed: int = 1) -> JudgementReport:
    """How reliable judgements with these probabilities are."""
    rows = reliability(probabilities, truth)
    drawn = (np.random.default_rng(seed + number).random(len(truth)) < probabilities for number in range(DRAWS))
    by_chance = [expected_error(reliability(probabilities, each)) for each in drawn]
    return JudgementReport(
        triples=len(truth),
        expected_calibration_error=expected_error(rows),
        error_by_chance=float(np.mean(by_chance)),
        accuracy=float(((probabilities >= 0.5) == truth).mean()) if len(truth) else 0.0,
        reliability=rows,
    )
