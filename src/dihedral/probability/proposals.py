"""Proposals: facts that the graph does not hold and that could be missing from it, and those to fit probabilities on.

The candidates of a relation are the pairs of entities that fit its two sides. Of these, the proposals are the best
tails of each head and the best heads of each tail by score, and the pairs that counted rules imply.

A graph may have millions of proposals, most of them hopeless. A random share is enough to fit the curves of evidence,
but has too few of the best to say how many of those hold. So a first model, fitted on the random share, finds the best
of all, and these replace the best of the random share. Where questions are dear, as to a path model, the share of the
heads that are asked is all that is affordable. Which proposals are drawn depends on their evidence and not on
whether they hold. So the share that holds among similar ones is that of all proposals.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from dihedral.graph import Graph
from dihedral.graph.triples import Triples
from dihedral.probability.additive import AdditiveModel, fit_curves
from dihedral.probability.evidence import CHUNK, FREE, Evidence, Features
from dihedral.runtime import interruption

PER_ENTITY = 10  # proposals by score for each head and for each tail
MIN_CONFIDENCE = 0.1  # pairs that such a rule implies are proposed whatever their score
TILE = 1 << 21  # scores at a time
MAX_SCORES = 2e9  # pairs scored to find proposals to fit on, for the random share and again for the best
MAX_PROPOSALS = 5e5  # in the random share, about
NUM_BEST = 20_000  # proposals, about

Ids = NDArray[np.int64]
Values = NDArray[np.float32]
Sides = dict[int, list[Ids]]  # per relation, the entities that fit its head and its tail


def propose(
    evidence: Evidence, relation: int, heads: Ids, tails: Ids, *, share: float = 1.0, seed: int = 0
) -> tuple[Tensor, Tensor]:
    """Distinct unknown triples [n, 3] of a relation with these heads and tails, and their scores [n].

    share: of the heads and of the tails that are asked for their best partners, drawn at random. Where few questions
    are affordable, only the drawn heads are scored, and each tail has as many fewer partners.
    """
    count = evidence.facts.num_entities
    rng = np.random.default_rng([seed, relation])
    asked = [own if share >= 1 else own[rng.random(len(own)) < share] for own in (heads, tails)]
    if share >= 1 or evidence.scorer.max_questions < np.inf:
        of_tails = max(1, round(PER_ENTITY * share))
        found = list(_best(evidence, relation, asked[0], tails, per_head=PER_ENTITY, per_tail=of_tails))
    else:
        found = list(_best(evidence, relation, asked[0], tails, per_head=PER_ENTITY))
        found += _best(evidence, relation, heads, asked[1], per_tail=PER_ENTITY)
    pairs, values = [np.concatenate(each) for each in zip(*found, strict=True)] if found else [np.zeros(0, int)] * 2
    keys, first = np.unique(pairs, return_index=True)
    head, tail = np.divmod(keys, count)
    triples = torch.from_numpy(np.stack([head, np.full_like(head, relation), tail], axis=1))
    unknown = (evidence.facts.locate(*triples.unbind(1)) < 0) & (triples[:, 0] != triples[:, 2])
    return triples[unknown], torch.from_numpy(values[first]).float()[unknown]


def select(
    evidence: Evidence, model: AdditiveModel, triples: Tensor, scores: Tensor, least: float
) -> tuple[Tensor, Tensor, Features, NDArray[np.float64]]:
    """The triples [n, 3] with a value z of at least `least`, their scores, evidence and z.

    Rules are looked up only for triples that may reach it.
    """
    may = model.logits(evidence.features(triples, scores, of_rules=False), triples[:, 1].numpy()) >= least
    triples, scores = triples[torch.from_numpy(may)], scores[torch.from_numpy(may)]
    features = evidence.features(triples, scores)
    z = model.logits(features, triples[:, 1].numpy())
    kept = torch.from_numpy(z >= least)
    return triples[kept], scores[kept], features[z >= least], z[z >= least]


def _best(
    evidence: Evidence, relation: int, heads: Ids, tails: Ids, *, per_head: int = 0, per_tail: int = 0
) -> Iterator[tuple[Ids, Values]]:
    """Pairs head · N + tail and their scores: the best unknown tails of each head, or heads of each tail.

    With those of each head come the tails that a rule of high confidence implies.
    """
    if not len(heads) or not len(tails):
        return
    count = evidence.facts.num_entities
    best, which = torch.empty(0, len(tails)), torch.empty(0, len(tails), dtype=torch.int64)  # heads of each tail
    for part, place, scores in _tiles(evidence, relation, heads, tails):
        if per_head:
            top = scores.topk(min(per_head, len(tails)))
            yield (part[:, None] * count + tails[top.indices.cpu().numpy()]).ravel(), top.values.cpu().numpy().ravel()
            implied, confidence = evidence.rules.implied(evidence.between, relation, part)
            row, end = np.divmod(implied[confidence >= MIN_CONFIDENCE], count)
            row, end = row[place[end] >= 0], end[place[end] >= 0]
            yield part[row] * count + end, scores[row, place[end]].cpu().numpy()
        if per_tail:
            top = scores.T.contiguous().topk(min(per_tail, len(part)))
            best = torch.cat([best, top.values.T.cpu()])
            which = torch.cat([which, torch.from_numpy(part)[top.indices.T.cpu()]])
            best, order = best.topk(min(per_tail, len(best)), dim=0)
            which = which.gather(0, order)
    if per_tail:
        yield (which * count + torch.from_numpy(tails)).numpy().ravel(), best.numpy().ravel()


def _tiles(evidence: Evidence, relation: int, heads: Ids, tails: Ids) -> Iterator[tuple[Ids, Ids, Tensor]]:
    """Some heads at a time, the column of each entity, and their scores with all tails: -inf for known facts."""
    facts, score_rows = evidence.facts, evidence.scorer.rows(torch.from_numpy(tails))
    place = np.full(facts.num_entities, -1)
    place[tails] = np.arange(len(tails))
    for part in np.array_split(heads, max(-(-len(heads) * len(tails) // TILE), -(-len(heads) // CHUNK))):
        interruption.check()
        asked = torch.from_numpy(part)
        steps = torch.full_like(asked, relation)
        scores = score_rows(asked, steps)
        row, ends = facts.answers(asked, steps)
        column = torch.from_numpy(place[ends.numpy()])
        scores[row[column >= 0], column[column >= 0]] = float("-inf")
        yield part, place, scores


# --- proposals to fit on ----------------------------------------------------------------------------


def sample_proposals(
    evidence: Evidence, graph: Graph, seed: int = 0, names: tuple[int, int] | None = None
) -> tuple[Tensor, Features, NDArray[np.bool_]]:
    """Proposals [n, 3], their evidence, and which of them valid holds.

    names: the numbers of entities and relations when valid was drawn. Valid holds no fact of later names, true or not,
    so proposals about them are left out.
    """
    sides = sides_of(evidence)
    if names is not None:
        sides = {each: [one[one < names[0]] for one in both] for each, both in sides.items() if each < names[1]}
    max_questions = evidence.scorer.max_questions
    shares = _shares(sides, max_questions)
    triples, scores = draw(evidence, sides, shares, seed)
    features, relations = evidence.features(triples, scores), triples[:, 1].numpy()
    held = is_among(triples, graph.valid, graph.num_entities)
    if min(shares.values(), default=1.0) >= 1 or not held.any() or max_questions < np.inf:
        return triples, features, held
    model = fit_curves(features, relations, held, graph.num_relations, free=FREE)
    z = model.logits(features, relations)
    order = np.argsort(-z)
    stands_for = 1 / np.array([shares[each] for each in relations[order].tolist()])  # proposals
    least = float(z[order[min(int(np.searchsorted(stands_for.cumsum(), NUM_BEST)), len(z) - 1)]])
    chosen = {each: sides[each] for each in np.unique(relations[z >= least]).tolist()}
    best, of_best = _best_of(evidence, chosen, model, least, seed)
    triples = torch.cat([triples[torch.from_numpy(z < least)], best])
    features = np.concatenate([features[z < least], of_best])
    return triples, features, is_among(triples, graph.valid, graph.num_entities)


def _best_of(
    evidence: Evidence, sides: Sides, model: AdditiveModel, least: float, seed: int
) -> tuple[Tensor, Features]:
    """The proposals of some relations with a value z of at least `least`, and their evidence."""
    share = min(1.0, MAX_SCORES / max(sum(len(heads) * len(tails) for heads, tails in sides.values()), 1))
    triples, features = [], []
    for relation in sides:
        drawn = draw(evidence, sides, {relation: share}, seed)
        found = select(evidence, model, *drawn, least)
        triples.append(found[0])
        features.append(found[2])
    return torch.cat(triples), np.concatenate(features)


def sides_of(evidence: Evidence) -> Sides:
    """The entities that fit each relation with facts."""
    count = evidence.facts.num_relations
    used = [relation for relation in range(count) if len(evidence.facts.members(relation))]
    return {each: [evidence.signatures.candidates(step) for step in (each, each + count)] for each in used}


def draw(evidence: Evidence, sides: Sides, shares: dict[int, float], seed: int = 0) -> tuple[Tensor, Tensor]:
    """A share of the proposals [n, 3] of some relations, and their scores [n]."""
    found = [propose(evidence, each, *sides[each], share=share, seed=seed) for each, share in shares.items()]
    if not found:
        return torch.zeros(0, 3, dtype=torch.int64), torch.zeros(0)
    triples, scores = zip(*found, strict=True)
    return torch.cat(triples), torch.cat(scores)


def _shares(sides: Sides, max_questions: float) -> dict[int, float]:
    """Of the proposals of each relation, so that few enough are drawn and few enough pairs or questions are scored."""
    if max_questions < np.inf:
        return dict.fromkeys(sides, min(1.0, max_questions / max(sum(len(heads) for heads, _ in sides.values()), 1)))
    expected = PER_ENTITY * sum(len(heads) + len(tails) for heads, tails in sides.values())
    limit = min(1.0, MAX_PROPOSALS / max(expected, 1))
    pairs = {each: len(heads) * len(tails) for each, (heads, tails) in sides.items()}
    return {each: min(limit, MAX_SCORES / max(2 * count * len(sides), 1)) for each, count in pairs.items()}


def is_among(triples: Tensor, wanted: Triples, num_entities: int) -> NDArray[np.bool_]:
    """Which triples [n, 3] are among others."""

    def keys(rows: Ids) -> Ids:
        head, relation, tail = rows.T
        key: Ids = (relation * num_entities + head) * num_entities + tail
        return key

    return np.isin(keys(triples.numpy()), keys(wanted.astype(np.int64)))
