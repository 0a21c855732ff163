"""Why a triple is predicted: paths in the graph that the algebra takes for its relation, similar facts, components.

A path from head to tail supports (h, r, t) as far as its product of relations moves h and t as r does:
the cosine of (R₁R₂)ᵀh with Rᵀh, and that of R₁R₂t with Rt. How often that way holds in training is counted
beside it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from dihedral.errors import DihedralError
from dihedral.evaluation import rank_triples
from dihedral.graph import Graph
from dihedral.graph.steps import SIDES
from dihedral.group import DihedralGroup
from dihedral.inference.paths import INVERSE, step
from dihedral.inference.predictor import Predictor
from dihedral.models.dihedral import DiscreteRelations

SUPPORTS = 0.3  # a path with less is no support
MAX_EDGES = 2000  # of an entity that paths are looked for among, the first ones


@dataclass(frozen=True)
class SupportingPath:
    """A way through known facts from head to tail."""

    relations: tuple[str, ...]  # `~name` is walked backwards
    entities: tuple[str, ...]  # from head to tail
    support: float  # how far the product of the relations is the relation asked about, on these entities
    confidence: float  # of the rule: the share of the pairs joined so that the relation holds in training
    pairs: int  # that the relations join in training
    facts: tuple[tuple[str, str, str], ...]  # on the way, as the graph holds them

    def __str__(self) -> str:
        words = [self.entities[0]]
        for name, entity in zip(self.relations, self.entities[1:], strict=True):
            words += [f"—{name}→", entity]
        return " ".join(words)


@dataclass(frozen=True)
class SimilarFact:
    """A known fact of the same relation between entities like the two asked about."""

    fact: tuple[str, str, str]
    likeness: float  # product of the two cosines


@dataclass(frozen=True)
class Explanation:
    """What speaks for a triple."""

    triple: tuple[str, str, str]
    known: bool  # in training
    score: float
    ranks: dict[str, float]  # of the head and of the tail among all entities, other known answers left out
    paths: tuple[SupportingPath, ...]
    alike: tuple[SimilarFact, ...]
    elements: dict[str, float]  # what the components with each element of D_K add to the score

    @property
    def supported(self) -> bool:
        return bool(self.paths)

    def to_dict(self) -> dict[str, Any]:
        return asdict(self) | {"supported": self.supported}

    def __str__(self) -> str:
        head, relation, tail = self.triple
        lines = [
            f"({head}, {relation}, {tail}): score {self.score:.2f}, rank {self.ranks['tail']:g} among tails and "
            f"{self.ranks['head']:g} among heads{', a fact of training' if self.known else ''}"
        ]
        if self.paths:
            lines.append("paths that support it:")
            for path in self.paths:
                lines.append(f"  {path.support:.2f}  {path}")
                lines.append(f"        a way that holds for {path.confidence:.0%} of the {path.pairs} pairs it joins")
        else:
            lines.append("no path of known facts between the two supports it")
        lines.append("similar facts:")
        lines += [f"  {each.likeness:.2f}  ({', '.join(each.fact)})" for each in self.alike]
        added = ", ".join(f"{name} {value:+.2f}" for name, value in list(self.elements.items())[:4])
        lines.append(f"components with these elements add most to the score: {added}")
        return "\n".join(lines)


@torch.no_grad()
def explain(predictor: Predictor, head: str, relation: str, tail: str, *, top: int = 5) -> Explanation:
    """What speaks for a triple, known or predicted; the triple itself is never counted for it."""
    if top < 1:
        raise DihedralError(f"top is {top}; it must be 1 or more")
    graph = predictor.graph
    relations = predictor.model.relations
    if not isinstance(relations, DiscreteRelations):
        raise DihedralError(f"a {relations.kind!r} model has no group elements; explanations need a DihEdral model")
    h, r, t = graph.entities.id(head), graph.relations.id(relation), graph.entities.id(tail)
    triple = torch.tensor([[h, r, t]], device=predictor.device)
    # a triple that no split holds is not left out with the known answers, so it ties with itself
    tie = 0.0 if (graph.known == (h, r, t)).all(axis=1).any() else 0.5
    ranks: dict[str, float] = {
        side: float(rank_triples(predictor.model, triple, side, predictor.known[side]).realistic[0]) - tie
        for side in SIDES
    }
    known = bool((graph.train == (h, r, t)).all(axis=1).any())
    return Explanation(
        triple=(graph.entities[h], graph.relations[r], graph.entities[t]),
        known=known,
        score=predictor.score(head, relation, tail),
        ranks=ranks,
        paths=tuple(_paths(predictor, relations.elements(), h, r, t, top)),
        alike=tuple(_alike(predictor, h, r, t, top)),
        elements=_elements(predictor, h, r, t),
    )


def _paths(predictor: Predictor, operators: Tensor, h: int, r: int, t: int, top: int) -> list[SupportingPath]:
    graph, model = predictor.graph, predictor.model
    found = _connections(predictor, h, r, t)
    if not found:
        return []
    bodies = sorted({steps for steps, _ in found})
    start, end = model.entities[[h]], model.entities[[t]]
    relation = torch.tensor([r], device=predictor.device)
    right = F.normalize(model.relations.queries(operators, relation, start, "tail"))
    left = F.normalize(model.relations.queries(operators, relation, end, "head"))
    strength: dict[tuple[int, ...], float] = {}
    count = model.num_relations
    for length in {len(body) for body in bodies}:
        these = [body for body in bodies if len(body) == length]
        steps = torch.tensor(these, device=predictor.device)
        forwards, backwards = start.expand(len(these), -1), end.expand(len(these), -1)
        for i in range(length):
            forwards = step(model, operators, steps[:, i], forwards)
            turned = (steps[:, length - 1 - i] + count) % (2 * count)  # the same step from its other end
            backwards = step(model, operators, turned, backwards)
        support = 0.5 * (F.normalize(forwards) @ right.T + F.normalize(backwards) @ left.T)[:, 0]
        strength |= dict(zip(these, support.tolist(), strict=True))
    best = sorted(found, key=lambda way: (-strength[way[0]], way))
    names = graph.relations
    paths: list[SupportingPath] = []
    used: set[tuple[int, ...]] = set()
    for steps_taken, between in best:
        if strength[steps_taken] < SUPPORTS or len(paths) == top:
            break
        if steps_taken in used:  # one example a body: the next path should say something else
            continue
        used.add(steps_taken)
        holds, joined, _ = predictor.rule_counter.count(steps_taken, r)
        paths.append(
            SupportingPath(
                tuple(names[s] if s < count else INVERSE + names[s - count] for s in steps_taken),
                tuple(graph.entities[e] for e in (h, *between, t)),
                strength[steps_taken],
                holds / max(joined, 1),
                joined,
                tuple(_facts(graph, steps_taken, (h, *between, t))),
            )
        )
    return paths


def _facts(graph: Graph, steps: tuple[int, ...], entities: tuple[int, ...]) -> Iterator[tuple[str, str, str]]:
    for step_taken, a, b in zip(steps, entities, entities[1:], strict=False):
        relation = graph.relations[step_taken % graph.num_relations]
        first, last = (a, b) if step_taken < graph.num_relations else (b, a)
        yield graph.entities[first], relation, graph.entities[last]


def _connections(predictor: Predictor, h: int, r: int, t: int) -> list[tuple[tuple[int, ...], tuple[int, ...]]]:
    """Ways of one or two known training facts from h to t: their steps, and the entities between."""
    train, count = predictor.graph.train, predictor.graph.num_relations

    def edges(entity: int) -> list[tuple[int, int]]:
        """(step, where it leads) of an entity, the triple itself left out."""
        out = train[train[:, 0] == entity][:MAX_EDGES, 1:].tolist()
        back = [(s + count, e) for e, s, _ in train[train[:, 2] == entity][:MAX_EDGES].tolist()]
        own = ({(r, t)} if entity == h else set()) | ({(r + count, h)} if entity == t else set())
        return [edge for edge in (*map(tuple, out), *back) if edge not in own]

    from_h, from_t = edges(h), edges(t)
    found: list[tuple[tuple[int, ...], tuple[int, ...]]] = [((s,), ()) for s, e in from_h if e == t]
    to_t: dict[int, list[int]] = defaultdict(list)
    for s, e in from_t:
        to_t[e].append((s + count) % (2 * count))
    found += [((s, last), (m,)) for s, m in from_h if m not in (h, t) for last in to_t.get(m, ())]
    return found


def _alike(predictor: Predictor, h: int, r: int, t: int, top: int) -> list[SimilarFact]:
    graph, entities = predictor.graph, predictor.model.entities
    facts = graph.train[graph.train[:, 1] == r]
    facts = facts[(facts[:, 0] != h) | (facts[:, 2] != t)]
    if len(facts) == 0:
        return []
    ids = torch.from_numpy(facts).long().to(predictor.device)
    heads = F.cosine_similarity(entities[ids[:, 0]], entities[[h]])
    tails = F.cosine_similarity(entities[ids[:, 2]], entities[[t]])
    likeness = heads.clamp(min=0) * tails.clamp(min=0)
    best = likeness.topk(min(top, len(facts)))
    named = list(graph.labels(facts[best.indices.cpu().numpy()]))
    return [SimilarFact(fact, value) for fact, value in zip(named, best.values.tolist(), strict=True)]


def _elements(predictor: Predictor, h: int, r: int, t: int) -> dict[str, float]:
    """What the components with each element add to the score, the most first."""
    model = predictor.model
    index = torch.tensor([r], device=predictor.device)
    query = model.relations.queries(predictor.operators, index, model.entities[[h]], "tail")
    parts = (query * model.entities[[t]]).view(2, -1).sum(dim=0)
    codes = model.codes
    assert codes is not None
    names = DihedralGroup(int(model.relations.settings()["K"])).names
    totals = torch.zeros(len(names), device=parts.device).index_add_(0, codes[r].long(), parts)
    return {names[i]: float(totals[i]) for i in totals.argsort(descending=True).tolist()}
