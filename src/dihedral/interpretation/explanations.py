"""Why a triple is predicted: supporting paths in the graph, similar facts, and the components that carry its score.

The support of a path for (h, r, t) is how similarly the product of its relations and r move h and t: the mean of two
cosines, of (R₁R₂)ᵀh with Rᵀh and of R₁R₂t with Rt. The confidence of the path is counted in training, without the
triple in question (`graph.patterns.count_rules`).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from dihedral.errors import DihedralError
from dihedral.graph import Graph
from dihedral.graph.joins import Triple, bodies_between
from dihedral.graph.patterns import Interval, count_rules
from dihedral.graph.steps import SIDES, Fact, Step, facts_along, inverse_ids
from dihedral.graph.triples import Split
from dihedral.graph.vocabulary import Show
from dihedral.io.display import table
from dihedral.models.dihedral import DiscreteRelations
from dihedral.predict.predictor import Predictor
from dihedral.runtime import interruption
from dihedral.scoring.embedding import CHUNK, EmbeddingScorer, need_embeddings

MIN_SUPPORT = 0.3  # paths with less are not shown
MAX_BODIES = 1_000_000  # pairs of facts between head and tail that are looked at
MAX_COUNTED = 1 << 22  # paths along the relations of a path that are all counted; of more, a sample

Steps = tuple[int, ...]
Bodies = dict[Steps, tuple[int, ...]]
"""Step ids from head to tail, and for each the entities between of one path."""


@dataclass(frozen=True)
class SupportingPath:
    """A path of training facts from head to tail."""

    relations: tuple[str, ...]  # `~name` is walked backwards
    entities: tuple[str, ...]  # from head to tail
    support: float  # how far the product of the relations acts like the relation, on these entities
    confidence: float | None  # the share of `pairs` that the relation holds in training; None if there are no pairs
    pairs: int  # other pairs that these relations join in training, the explained triple left out
    facts: tuple[Fact, ...]  # along the path, as the graph holds them
    interval: Interval | None = None  # confidence and pairs are estimates from a sample; None if they are exact

    def __str__(self) -> str:
        return self.text()

    def text(self, entity: Show = str, relation: Show = str) -> str:
        """The path for people to read, with names as they are to be shown."""
        words = [entity(self.entities[0])]
        for step, name in zip(self.relations, self.entities[1:], strict=True):
            words += [f"—{relation(step)}→", entity(name)]
        return " ".join(words)


@dataclass(frozen=True)
class SimilarFact:
    """A training fact of the same relation between entities similar to the two in question."""

    fact: Fact
    similarity: float  # product of the two cosines


@dataclass(frozen=True)
class Explanation:
    """The evidence for a triple."""

    triple: Fact
    split: Split | None  # the split that holds the triple; None if it is not a known fact
    score: float
    ranks: dict[str, float]  # head and tail: the rank among all entities, other known answers left out
    paths: tuple[SupportingPath, ...]
    similar_facts: tuple[SimilarFact, ...]
    elements: dict[str, float]  # what the components with each element of D_K add to the score
    labels: dict[str, str] = field(default_factory=dict)  # by name, for all names above that have one
    complete: bool = True  # whether all paths were looked at: head and tail may have too many facts in common
    kinds: int = 0  # how many sequences of relations the paths between the two have
    best_support: float | None = None  # the highest support of any kind; None if there are no paths
    probability: float | None = None  # that it holds, as if it were not known; None if the model is not calibrated

    @property
    def known(self) -> bool:
        """Whether any split holds the triple."""
        return self.split is not None

    @property
    def supported(self) -> bool:
        return bool(self.paths)

    @property
    def unsupported(self) -> str:
        """What was looked for, of a triple that nothing supports."""
        if self.best_support is None:
            return "no path of one or two training facts joins the two"
        kinds = "the one kind of path" if self.kinds == 1 else f"the best of {self.kinds:,} kinds of paths"
        return (
            f"{kinds} of one or two training facts between the two has support {self.best_support:.2f}, and at least "
            f"{MIN_SUPPORT:.2f} is needed"
        )

    def to_dict(self) -> dict[str, Any]:
        content = asdict(self) | {"known": self.known, "supported": self.supported}
        for path, shown in zip(self.paths, content["paths"], strict=True):
            shown["interval"] = path.interval and path.interval._asdict()
        return content

    @property
    def summary(self) -> str:
        """The score, and the probability if there is one."""
        likely = "" if self.probability is None else f", probability {self.probability:.2f}"
        return f"score {self.score:.2f}{likely}"

    def __str__(self) -> str:
        return self.text()

    def text(self, entity: Show = str, relation: Show = str) -> str:
        """The evidence for people to read, with names as they are to be shown."""

        def shown(fact: Fact) -> str:
            return f"({entity(fact[0])}, {relation(fact[1])}, {entity(fact[2])})"

        known = f", a known fact ({self.split})" if self.split else ""
        lines = [
            f"{shown(self.triple)}: {self.summary}, rank {self.ranks['tail']:g} among tails and "
            f"{self.ranks['head']:g} among heads{known}"
        ]
        if self.paths:
            lines.append("supporting paths:")
            for path in self.paths:
                lines.append(f"  {path.support:.2f}  {path.text(entity, relation)}")
                lines.append(f"        {_counted(path)}")
        else:
            lines.append(f"no path of training facts between the two supports it: {self.unsupported}")
        if not self.complete:
            lines.append(f"only {MAX_BODIES:,} of the paths between the two were looked at")
        lines.append("similar facts:")
        lines += [f"  {each.similarity:.2f}  {shown(each.fact)}" for each in self.similar_facts]
        added = ", ".join(f"{name} {value:+.2f}" for name, value in list(self.elements.items())[:4])
        lines.append(f"elements whose components add most to the score: {added}")
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        def shown(name: str) -> str:
            label = self.labels.get(name.removeprefix("~"))
            return f"{'~' if name.startswith('~') else ''}{label} ({name.removeprefix('~')})" if label else name

        paths = [[path.text(shown, shown), path.support, path.confidence, path.pairs] for path in self.paths]
        similar = [[" ".join(map(shown, each.fact)), each.similarity] for each in self.similar_facts]
        title = " ".join(map(shown, self.triple))
        ranks = f"{title}: {self.summary}, rank {self.ranks['tail']:g} among tails"
        header = ("supporting path", "support", "confidence", "other pairs")
        return (
            table(header, paths or [[f"none: {self.unsupported}"]], ranks)
            + table(("similar fact", "similarity"), similar)
            + table(("element", "adds to the score"), list(self.elements.items())[:4])
        )


def _counted(path: SupportingPath) -> str:
    if path.confidence is None:
        return "joins no other pair"
    if path.interval is None:
        return f"holds for {path.confidence:.0%} of the {path.pairs} other pairs joined this way"
    sample, low, high = path.interval
    return (
        f"holds for {path.confidence:.2%} ({low:.2%} to {high:.2%}) of about {path.pairs:,} other pairs joined this "
        f"way, in a sample of {sample:,}"
    )


@torch.no_grad()
def explain(predictor: Predictor, head: str, relation: str, tail: str, *, top: int = 5) -> Explanation:
    """The evidence for a triple, known or predicted; the triple itself never counts as evidence."""
    if top < 1:
        raise DihedralError(f"top is {top}; it must be 1 or more")
    graph, scorer = predictor.graph, need_embeddings(predictor.scorer, "an explanation")
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
    bodies, complete = bodies_between(graph.train_index, h, t, without=(h, r, t), max_paths=MAX_BODIES)
    support = _supports(scorer, bodies, (h, r, t))
    score = scorer.score(triple)
    found = Explanation(
        triple=next(graph.names_of(triple.cpu().numpy())),
        split=split,
        score=float(score[0]),
        probability=predictor.probabilities(triple, score)[0],
        ranks=ranks,
        paths=tuple(_paths(graph, bodies, support, (h, r, t), top)),
        similar_facts=tuple(_similar_facts(scorer, graph, (h, r, t), top)),
        elements=_elements(scorer, h, r, t),
        complete=complete,
        kinds=len(bodies),
        best_support=max(support.values(), default=None),
    )
    return replace(found, labels=graph.labels_in(found))


def _paths(graph: Graph, bodies: Bodies, support: dict[Steps, float], triple: Triple, top: int) -> list[SupportingPath]:
    """The paths with the highest support, one for each body."""
    h, r, t = triple
    best = [steps for steps in bodies if support[steps] >= MIN_SUPPORT]
    paths = []
    for steps in sorted(best, key=lambda steps: (-support[steps], steps))[:top]:
        (counted,) = count_rules(graph.train_index, steps, [r], without=triple, max_paths=MAX_COUNTED)
        relations = tuple(Step.from_id(step, graph.num_relations).name(graph.relations) for step in steps)
        entities = tuple(graph.entities[entity] for entity in (h, *bodies[steps], t))
        facts = tuple(facts_along(relations, entities, graph.relations))
        paths.append(
            SupportingPath(
                relations, entities, support[steps], counted.confidence, counted.pairs, facts, counted.interval
            )
        )
    return paths


def _supports(scorer: EmbeddingScorer, bodies: Iterable[Steps], triple: Triple) -> dict[Steps, float]:
    """How far each body acts on the two entities like the relation."""
    h, r, t = triple

    def walk(entity: int, steps: Tensor) -> Tensor:
        """Where steps [n, length] lead from an entity: unit vectors [n, 2L]."""
        vectors = scorer.entities[[entity]].expand(len(steps), -1)
        for step in steps.unbind(1):
            vectors = scorer.walk(vectors, step)
        return F.normalize(vectors)

    def both_ends(steps: Tensor) -> tuple[Tensor, Tensor]:
        return walk(h, steps), walk(t, inverse_ids(steps.flip(1), scorer.num_relations))

    right, left = both_ends(torch.tensor([[r]], device=scorer.device))
    found: dict[Steps, float] = {}
    for length in (1, 2):
        these = sorted(body for body in bodies if len(body) == length)
        for part in torch.tensor(these, device=scorer.device, dtype=torch.long).view(-1, length).split(CHUNK):
            interruption.check()
            forwards, backwards = both_ends(part)
            support = 0.5 * (forwards @ right.T + backwards @ left.T)[:, 0]
            found |= dict(zip(map(tuple, part.tolist()), support.tolist(), strict=True))
    return found


def _similar_facts(scorer: EmbeddingScorer, graph: Graph, triple: Triple, top: int) -> list[SimilarFact]:
    h, r, t = triple
    facts = graph.facts_of(r)
    facts = facts[(facts[:, 0] != h) | (facts[:, 2] != t)]
    if len(facts) == 0:
        return []
    similarities = []
    for part in torch.from_numpy(facts).long().to(scorer.device).split(CHUNK):
        pairs = ((h, part[:, 0]), (t, part[:, 2]))
        one, other = (F.cosine_similarity(scorer.entities[ids], scorer.entities[[own]]) for own, ids in pairs)
        similarities.append(one.clamp(min=0) * other.clamp(min=0))
    best = torch.cat(similarities).topk(min(top, len(facts)))
    named = graph.names_of(facts[best.indices.cpu().numpy()])
    return [SimilarFact(fact, value) for fact, value in zip(named, best.values.tolist(), strict=True)]


def _elements(scorer: EmbeddingScorer, h: int, r: int, t: int) -> dict[str, float]:
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
