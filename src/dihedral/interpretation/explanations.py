"""Why a triple is predicted: supporting paths in the graph, similar facts, and the components that carry its score.

The support of a path for (h, r, t) is how similarly the product of its relations and r move h and t: the mean of two
cosines, of (R₁R₂)ᵀh with Rᵀh and of R₁R₂t with Rt. The confidence of the path is counted in training, without the
triple in question (`graph.patterns.count_rule`).
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import asdict, dataclass
from typing import Any

import torch
import torch.nn.functional as F

from dihedral.errors import DihedralError
from dihedral.graph import Graph
from dihedral.graph.patterns import count_rule
from dihedral.graph.steps import SIDES, Step, inverse_ids
from dihedral.graph.triples import Split
from dihedral.inference.predictor import Predictor
from dihedral.inference.scorer import Scorer
from dihedral.models.dihedral import DiscreteRelations

MIN_SUPPORT = 0.3  # paths with less are not shown
MAX_EDGES = 2000  # of an entity, in each direction, that paths are looked for among

Way = tuple[tuple[int, ...], tuple[int, ...]]
"""Step ids from head to tail, and the entities between."""


@dataclass(frozen=True)
class SupportingPath:
    """A path of training facts from head to tail."""

    relations: tuple[str, ...]  # `~name` is walked backwards
    entities: tuple[str, ...]  # from head to tail
    support: float  # how far the product of the relations acts like the relation, on these entities
    confidence: float | None  # the share of `pairs` that the relation holds in training; None if there are no pairs
    pairs: int  # other pairs that these relations join in training, the explained triple left out
    facts: tuple[tuple[str, str, str], ...]  # along the path, as the graph holds them

    def __str__(self) -> str:
        words = [self.entities[0]]
        for name, entity in zip(self.relations, self.entities[1:], strict=True):
            words += [f"—{name}→", entity]
        return " ".join(words)


@dataclass(frozen=True)
class SimilarFact:
    """A training fact of the same relation between entities similar to the two in question."""

    fact: tuple[str, str, str]
    similarity: float  # product of the two cosines


@dataclass(frozen=True)
class Explanation:
    """The evidence for a triple."""

    triple: tuple[str, str, str]
    split: Split | None  # that holds the triple; None if it is not a known fact
    score: float
    ranks: dict[str, float]  # of the head and of the tail among all entities, other known answers left out
    paths: tuple[SupportingPath, ...]
    similar_facts: tuple[SimilarFact, ...]
    elements: dict[str, float]  # what the components with each element of D_K add to the score

    @property
    def known(self) -> bool:
        """Whether any split holds the triple."""
        return self.split is not None

    @property
    def supported(self) -> bool:
        return bool(self.paths)

    def to_dict(self) -> dict[str, Any]:
        return asdict(self) | {"known": self.known, "supported": self.supported}

    def __str__(self) -> str:
        head, relation, tail = self.triple
        lines = [
            f"({head}, {relation}, {tail}): score {self.score:.2f}, rank {self.ranks['tail']:g} among tails and "
            f"{self.ranks['head']:g} among heads{f', a known fact ({self.split})' if self.split else ''}"
        ]
        if self.paths:
            lines.append("supporting paths:")
            for path in self.paths:
                lines.append(f"  {path.support:.2f}  {path}")
                lines.append(f"        {_counted(path)}")
        else:
            lines.append("no path of training facts between the two supports it")
        lines.append("similar facts:")
        lines += [f"  {each.similarity:.2f}  ({', '.join(each.fact)})" for each in self.similar_facts]
        added = ", ".join(f"{name} {value:+.2f}" for name, value in list(self.elements.items())[:4])
        lines.append(f"elements whose components add most to the score: {added}")
        return "\n".join(lines)


def _counted(path: SupportingPath) -> str:
    if path.confidence is None:
        return "joins no other pair"
    return f"holds for {path.confidence:.0%} of the {path.pairs} other pairs joined this way"


@torch.no_grad()
def explain(predictor: Predictor, head: str, relation: str, tail: str, *, top: int = 5) -> Explanation:
    """The evidence for a triple, known or predicted; the triple itself never counts as evidence."""
    if top < 1:
        raise DihedralError(f"top is {top}; it must be 1 or more")
    graph, scorer = predictor.graph, predictor.scorer
    if scorer.model.codes is None:
        kind = scorer.model.relations.kind
        raise DihedralError(f"a {kind!r} model has no group elements; explanations need a DihEdral model")
    triple = predictor.triple_ids([(head, relation, tail)])
    h, r, t = triple[0].tolist()
    split = graph.index.split_of(h, r, t)
    tie = 0.5 if split is None else 0.0  # a triple that is not known is not filtered out, so it ties with itself
    ranks = {}
    for side in SIDES:
        greater, equal = scorer.rank_counts(triple, side, predictor.known)
        ranks[str(side)] = 1.0 + int(greater) + int(equal) / 2 - tie
    return Explanation(
        triple=next(graph.labels(triple.cpu().numpy())),
        split=split,
        score=float(scorer.score(triple)[0]),
        ranks=ranks,
        paths=tuple(_paths(scorer, graph, h, r, t, top)),
        similar_facts=tuple(_similar_facts(scorer, graph, h, r, t, top)),
        elements=_elements(scorer, h, r, t),
    )


def _paths(scorer: Scorer, graph: Graph, h: int, r: int, t: int, top: int) -> list[SupportingPath]:
    found = _connections(graph, h, r, t)
    support = _supports(scorer, sorted({steps for steps, _ in found}), h, r, t)
    paths: list[SupportingPath] = []
    used: set[tuple[int, ...]] = set()
    for steps, between in sorted(found, key=lambda way: (-support[way[0]], way)):
        if support[steps] < MIN_SUPPORT or len(paths) == top:
            break
        if steps in used:  # one example per body
            continue
        used.add(steps)
        entities = (h, *between, t)
        holds, joined, _ = count_rule(graph.train_index, steps, r, without=(h, r, t))
        signed = [Step.from_id(step, graph.num_relations) for step in steps]
        facts = [
            (b, step.relation, a) if step.backwards else (a, step.relation, b)
            for step, a, b in zip(signed, entities, entities[1:], strict=False)
        ]
        paths.append(
            SupportingPath(
                relations=tuple(step.name(graph.relations) for step in signed),
                entities=tuple(graph.entities[entity] for entity in entities),
                support=support[steps],
                confidence=holds / joined if joined else None,
                pairs=joined,
                facts=tuple((graph.entities[a], graph.relations[s], graph.entities[b]) for a, s, b in facts),
            )
        )
    return paths


def _supports(scorer: Scorer, bodies: list[tuple[int, ...]], h: int, r: int, t: int) -> dict[tuple[int, ...], float]:
    """How far each body acts on the two entities like the relation."""
    start, end = scorer.entities[[h]], scorer.entities[[t]]
    relation = torch.tensor([r], device=scorer.device)
    right = F.normalize(scorer.walk(start, relation))
    left = F.normalize(scorer.walk(end, inverse_ids(relation, scorer.num_relations)))
    found: dict[tuple[int, ...], float] = {}
    for length in sorted({len(body) for body in bodies}):
        these = [body for body in bodies if len(body) == length]
        steps = torch.tensor(these, device=scorer.device)
        forwards, backwards = start.expand(len(these), -1), end.expand(len(these), -1)
        for i in range(length):
            forwards = scorer.walk(forwards, steps[:, i])
            backwards = scorer.walk(backwards, inverse_ids(steps[:, length - 1 - i], scorer.num_relations))
        support = 0.5 * (F.normalize(forwards) @ right.T + F.normalize(backwards) @ left.T)[:, 0]
        found |= dict(zip(these, support.tolist(), strict=True))
    return found


def _connections(graph: Graph, h: int, r: int, t: int) -> list[Way]:
    """Ways of one or two training facts from h to t, the triple itself left out."""
    own = {(h, r, t), (t, inverse_ids(r, graph.num_relations), h)}
    from_h, from_t = ([edge for edge in _edges(graph, entity) if (entity, *edge) not in own] for entity in (h, t))
    found: list[Way] = [((step,), ()) for step, entity in from_h if entity == t]
    to_t: dict[int, list[int]] = defaultdict(list)
    for step, entity in from_t:
        to_t[entity].append(inverse_ids(step, graph.num_relations))
    found += [((step, last), (m,)) for step, m in from_h if m not in (h, t) for last in to_t.get(m, ())]
    return found


def _edges(graph: Graph, entity: int) -> list[tuple[int, int]]:
    """(step, end) of the training edges of an entity, up to MAX_EDGES in each direction."""
    steps, ends, _ = graph.train_index.edges_of(entity)
    edges = list(zip(steps.tolist(), ends.tolist(), strict=True))
    forwards = int((steps < graph.num_relations).sum())
    return edges[:forwards][:MAX_EDGES] + edges[forwards:][:MAX_EDGES]


def _similar_facts(scorer: Scorer, graph: Graph, h: int, r: int, t: int, top: int) -> list[SimilarFact]:
    facts = graph.facts_of(r)
    facts = facts[(facts[:, 0] != h) | (facts[:, 2] != t)]
    if len(facts) == 0:
        return []
    entities, ids = scorer.entities, torch.from_numpy(facts).long().to(scorer.device)
    heads = F.cosine_similarity(entities[ids[:, 0]], entities[[h]])
    tails = F.cosine_similarity(entities[ids[:, 2]], entities[[t]])
    best = (heads.clamp(min=0) * tails.clamp(min=0)).topk(min(top, len(facts)))
    named = graph.labels(facts[best.indices.cpu().numpy()])
    return [SimilarFact(fact, value) for fact, value in zip(named, best.values.tolist(), strict=True)]


def _elements(scorer: Scorer, h: int, r: int, t: int) -> dict[str, float]:
    """What the components with each element add to the score, by descending contribution."""
    query = scorer.queries(*(torch.tensor([i], device=scorer.device) for i in (h, r)))
    parts = (query * scorer.entities[[t]]).view(2, -1).sum(dim=0)
    relations = scorer.model.relations
    assert isinstance(relations, DiscreteRelations)
    names = relations.element_names  # that of zero, id -1, comes last
    ids = relations.codes[r].long() % len(names)
    totals = torch.zeros(len(names), device=parts.device).index_add_(0, ids, parts)
    order = totals.argsort(descending=True).tolist()
    return {names[i]: float(totals[i]) for i in order if names[i] != "0"}  # zero adds nothing
