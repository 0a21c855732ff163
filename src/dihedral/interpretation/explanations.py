"""Why a triple is predicted: paths of known facts, similar facts, and the components that carry its score.

For a path model, paths are the computation itself: they are ordered by what they add to the score
(`interpretation.path_reasons`), each with the fact that matters most and the rank of the tail without it.

For embeddings, a path counts as a reason by its confidence: of the other pairs that its steps join in training, the
share that the relation holds (`graph.patterns.count_rules`). Paths are ordered by the lower end of its 95 % confidence
interval. The match of a path for (h, r, t) is how similarly the product of its relations and r move h and t: the mean
of two cosines, of (R₁R₂)ᵀh with Rᵀh and of R₁R₂t with Rt.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass, field, replace
from functools import cache
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from dihedral.errors import DihedralError
from dihedral.graph import Graph
from dihedral.graph.joins import Triple, bodies_between
from dihedral.graph.patterns import Interval, RuleCount, count_rule
from dihedral.graph.steps import SIDES, Fact, Step, facts_along, inverse_ids
from dihedral.graph.triples import Split
from dihedral.graph.vocabulary import Show
from dihedral.interpretation.path_reasons import path_shares, rank_without
from dihedral.io.display import probability_text, table
from dihedral.models.dihedral import DiscreteRelations
from dihedral.predict.predictor import Predictor
from dihedral.runtime import interruption
from dihedral.scoring.embedding import CHUNK, EmbeddingScorer, need_embeddings
from dihedral.scoring.path_scorer import PathScorer

MAX_KINDS = 100  # kinds of paths that are counted: those of the counted rules, then those with the highest match
CLOSE = 0.05  # a probability that differs by less from what the best path holds for needs no note
MAX_BODIES = 1_000_000  # pairs of facts between head and tail that are looked at
MAX_COUNTED = 1 << 22  # paths along the relations of a path that are all counted; of more, a sample

Steps = tuple[int, ...]
Bodies = dict[Steps, tuple[int, ...]]
"""Step ids from head to tail, and for each the entities between of one path."""


@dataclass(frozen=True)
class SupportingPath:
    """A path of known facts from head to tail."""

    relations: tuple[str, ...]  # `~name` is walked backwards
    entities: tuple[str, ...]  # from head to tail
    confidence: float  # the share of `pairs` that the relation holds in training
    pairs: int  # other pairs that these relations join in training, the explained triple left out
    facts: tuple[Fact, ...]  # along the path, as the graph holds them
    interval: Interval | None = None  # confidence and pairs are estimates from a sample; None if they are exact
    match: float | None = None  # embeddings: how far the product of the relations acts like the relation, on these two
    share: float | None = None  # path models: what all paths of these relations from head to tail add to the score
    num_paths: int = 1  # path models: how many such paths there are; this one carries most
    main_fact: Fact | None = None  # path models: the fact of the path without which the score is lowest
    rank_without_fact: float | None = None  # path models: the rank of the tail in the graph without that fact
    rank_without: float | None = None  # path models: the same without the facts of all such paths

    def __str__(self) -> str:
        return self.text()

    @property
    def bounds(self) -> tuple[float, float]:
        """The 95 % confidence interval of the confidence."""
        return RuleCount(round(self.confidence * self.pairs), self.pairs, 0, self.interval).bounds

    @property
    def counted(self) -> str:
        """What the path holds for."""
        if not self.pairs:
            return "joins no other pair"
        if self.interval is None:
            share = f"{100 * self.confidence:.0f} %"
            share = "< 1 %" if 0 < self.confidence < 0.01 else "> 99 %" if 0.99 < self.confidence < 1 else share
            return f"holds for {share} of {self.pairs:,}"
        sample, low, high = self.interval
        share = f"{self.confidence:.2%} ({low:.2%} to {high:.2%})"
        return f"holds for {share} of about {self.pairs:,}, in a sample of {sample:,}"

    def shown(self, entity: Show = str, relation: Show = str) -> tuple[str, str, str]:
        """What counts for the path, the path, and what else is known of it."""
        path = self.text(entity, relation)
        if self.share is None or self.main_fact is None:
            return self.counted, path, f"match of elements {self.match or 0.0:.2f}"
        head, name, tail = self.main_fact
        without = f"without ({entity(head)}, {relation(name)}, {entity(tail)}): rank {self.rank_without_fact:g}"
        if self.num_paths > 1:
            all_paths = "both" if self.num_paths == 2 else f"all {self.num_paths:,}"
            without = f"one of {self.num_paths:,}; {without}, without {all_paths}: rank {self.rank_without:g}"
        twice = [each for each in self.entities if self.entities.count(each) > 1]
        walk = f"a walk that returns to {entity(twice[0])}; " if twice else ""
        return f"adds {self.share:.2f}", path, f"{walk}{without}; {self.counted}"

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
    complete: bool = True  # whether all paths were counted: head and tail may have too many facts in common
    kinds: int = 0  # how many sequences of relations the paths between the two have
    more: int = 0  # kinds of paths that hold for other pairs too, and are not among `paths`
    longest: int = 2  # facts of the paths that were looked for
    added: float | None = None  # what all paths together add to the score of a path model
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
        facts = f"of up to {self.longest} known facts"
        if not self.kinds:
            if not self.added:
                return f"no path {facts} joins the two"
            found = "" if self.complete else "was found that "
            return f"no path {facts} {found}adds to the score; all paths together add {self.added:.2f}"
        kinds = "the one kind of path" if self.kinds == 1 else f"each of the {self.kinds:,} kinds of paths"
        return f"{kinds} {facts} between the two holds for no other pair"

    @property
    def about_paths(self) -> str:
        """What is shown with each path."""
        if self.added is None:
            return "paths of known facts, and the share of the other pairs joined in this way that it holds for"
        if self.added <= 0:
            return f"paths that add to the score; all paths together add {self.added:.2f}, because others subtract more"
        others = ", because others subtract" * (sum(path.share or 0.0 for path in self.paths) > self.added + 0.01)
        return f"paths of known facts that add most to the score; all paths together add {self.added:.2f}{others}"

    @property
    def note(self) -> str:
        """Why the probability is not the confidence of the best path; empty if nobody would ask."""
        low, high = self.paths[0].bounds if self.paths else (0.0, 0.0)
        if self.probability is None or self.added is not None or low - CLOSE <= self.probability <= high + CLOSE:
            return ""
        if self.probability < low:
            return (
                "the probability is lower: of the pairs that a path joins, those that the graph does not hold are "
                "right less often"
            )
        why = "is higher, because it also rests" if self.paths else "of the triple rests"
        return f"the probability {why} on the score and on the facts that each of the two has"

    def to_dict(self) -> dict[str, Any]:
        content = asdict(self) | {"known": self.known, "supported": self.supported}
        for path, shown in zip(self.paths, content["paths"], strict=True):
            shown["interval"] = path.interval and path.interval._asdict()
        return content

    @property
    def summary(self) -> str:
        """The probability if there is one, and the score."""
        likely = "" if self.probability is None else f"probability {probability_text(self.probability)}, "
        return f"{likely}score {self.score:.2f}"

    def __str__(self) -> str:
        return self.text()

    def text(self, entity: Show = str, relation: Show = str) -> str:
        """The evidence for people to read, with names as they are to be shown."""

        def shown(fact: Fact) -> str:
            return f"({entity(fact[0])}, {relation(fact[1])}, {entity(fact[2])})"

        known = f", a known fact ({self.split})" if self.split else ""
        lines = [
            f"{shown(self.triple)}: {self.summary}, rank {self.ranks['tail']:g} among tails and "
            f"{self.ranks['head']:g} among heads by score{known}"
        ]
        if self.paths:
            lines.append(f"{self.about_paths}:")
            for path in self.paths:
                lines.append("  {}: {} ({})".format(*path.shown(entity, relation)))
        else:
            lines.append(self.unsupported)
        if self.more:
            kinds = "kind of path holds" if self.more == 1 else "kinds of paths hold"
            lines.append(f"{self.more:,} more {kinds} for other pairs; a higher top shows more")
        if self.note:
            lines.append(self.note)
        if not self.complete and self.added is None:
            lines.append("the two have so many facts in common that not all paths between them were counted")
        elif not self.complete:
            lines.append("the search ended early; other paths may add more")
        if self.similar_facts:
            lines.append("similar facts:")
        lines += [f"  {each.similarity:.2f}  {shown(each.fact)}" for each in self.similar_facts]
        if self.elements:
            added = ", ".join(f"{name} {value:+.2f}" for name, value in list(self.elements.items())[:4])
            lines.append(f"elements whose components add most to the score: {added}")
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        def shown(name: str) -> str:
            label = self.labels.get(name.removeprefix("~"))
            return f"{'~' if name.startswith('~') else ''}{label} ({name.removeprefix('~')})" if label else name

        paths = [path.shown(shown, shown) for path in self.paths]
        similar = [[" ".join(map(shown, each.fact)), each.similarity] for each in self.similar_facts]
        title = " ".join(map(shown, self.triple))
        about = f"{title}: {self.summary}, rank {self.ranks['tail']:g} among tails by score. {self.note}"
        tables = [table(("", self.about_paths, ""), paths or [["none:", self.unsupported, ""]], about)]
        if self.added is None:
            tables.append(table(("similar fact", "similarity"), similar))
            tables.append(table(("element", "adds to the score"), list(self.elements.items())[:4]))
        return "".join(tables)


@torch.no_grad()
def explain(predictor: Predictor, head: str, relation: str, tail: str, *, top: int = 5) -> Explanation:
    """The evidence for a triple, known or predicted; the triple itself never counts as evidence."""
    if top < 1:
        raise DihedralError(f"top is {top}; it must be 1 or more")
    graph, scorer = predictor.graph, predictor.scorer
    triple = predictor.triple_ids([(head, relation, tail)])
    h, r, t = triple[0].tolist()
    if isinstance(scorer, PathScorer):
        reasons = _path_reasons(predictor, scorer, (h, r, t), top)
    else:
        reasons = _reasons(predictor, need_embeddings(scorer, "an explanation"), (h, r, t), top)
    split = graph.index.split_of(h, r, t)
    tie = 0.5 if split is None else 0.0  # a triple that is not known is not filtered out, so it ties with itself
    ranks = {}
    for side in SIDES:
        greater, equal = scorer.rank_counts(triple, side, predictor.known)
        ranks[str(side)] = 1.0 + int(greater) + int(equal) / 2 - tie
    score = scorer.score(triple)
    found = Explanation(
        triple=next(graph.names_of(triple.cpu().numpy())),
        split=split,
        score=float(score[0]),
        probability=predictor.probabilities(triple, score)[0],
        ranks=ranks,
        **reasons,
    )
    return replace(found, labels=graph.labels_in(found))


def _reasons(predictor: Predictor, scorer: EmbeddingScorer, triple: Triple, top: int) -> dict[str, Any]:
    """What supports a triple of a model with entity vectors."""
    if scorer.model.codes is None:
        kind = scorer.model.relations.kind
        raise DihedralError(f"a {kind!r} model has no group elements; explanations need a DihEdral model")
    h, r, t = triple
    bodies, complete = bodies_between(predictor.graph.evidence_index, h, t, without=triple, max_paths=MAX_BODIES)
    paths = _paths(predictor, bodies, _matches(scorer, bodies, triple), triple)
    return {
        "paths": tuple(paths[:top]),
        "similar_facts": tuple(_similar_facts(scorer, predictor.graph, triple, top)),
        "elements": _elements(scorer, h, r, t),
        "complete": complete and len(bodies) <= MAX_KINDS,
        "kinds": len(bodies),
        "more": len(paths[top:]),
    }


def _path_reasons(predictor: Predictor, scorer: PathScorer, triple: Triple, top: int) -> dict[str, Any]:
    """What carries the score of a triple of a path model."""
    found, paths = path_shares(scorer, triple, top), []
    without = cache(lambda *facts: rank_without(scorer, triple, torch.tensor(facts), predictor.known))
    for kind in found.kinds:
        path = _path(predictor, triple, kind.steps, kind.entities, share=kind.share, num_paths=kind.num_paths)
        facts = list(map(tuple, predictor.triple_ids(path.facts).tolist()))
        main = min(facts, key=without)
        ranks = without(main)[1], without(*map(tuple, kind.facts.tolist()))[1]
        main_fact = path.facts[facts.index(main)]
        paths.append(replace(path, main_fact=main_fact, rank_without_fact=ranks[0], rank_without=ranks[1]))
    return {
        "paths": tuple(paths), "similar_facts": (), "elements": {}, "complete": found.complete, "kinds": len(paths),
        "longest": scorer.model.num_steps, "added": found.total,
    }  # fmt: skip


def _path(predictor: Predictor, triple: Triple, steps: Steps, ids: tuple[int, ...], **about: Any) -> SupportingPath:
    """A path of names, with the counts of its steps as a rule."""
    graph = predictor.graph
    counted = count_rule(graph.train_index, steps, triple[1], without=triple, max_paths=MAX_COUNTED)
    relations = tuple(Step.from_id(step, graph.num_relations).name(graph.relations) for step in steps)
    entities = tuple(graph.entities[entity] for entity in ids)
    facts = tuple(facts_along(relations, entities, graph.relations))
    return SupportingPath(
        relations, entities, counted.confidence or 0.0, counted.pairs, facts, counted.interval, **about
    )


def _paths(predictor: Predictor, bodies: Bodies, match: dict[Steps, float], triple: Triple) -> list[SupportingPath]:
    """The paths that hold for other pairs, the best one of those whose steps join the same pairs."""
    (h, r, t), same = triple, predictor.reversals.same_steps()
    rules = {tuple(body): confidence for body, confidence in predictor.evidence.rules.of(r)}
    found: dict[Steps, SupportingPath] = {}
    for steps in sorted(bodies, key=lambda steps: (-rules.get(steps, 0.0), -match[steps], steps))[:MAX_KINDS]:
        path = _path(predictor, triple, steps, (h, *bodies[steps], t), match=match[steps])
        if path.confidence:
            key = tuple(same[list(steps)].tolist())
            found[key] = max(found.get(key, path), path, key=lambda path: path.bounds)
    return sorted(found.values(), key=lambda path: path.bounds, reverse=True)


def _matches(scorer: EmbeddingScorer, bodies: Iterable[Steps], triple: Triple) -> dict[Steps, float]:
    """How far each body acts on the two entities like the relation."""
    h, r, t = triple

    def walk(entity: int, steps: Tensor) -> Tensor:
        """Where steps [n, length] lead from an entity: unit vectors [n, 2L]."""
        vectors = scorer.entities[[entity]].expand(len(steps), -1)
        for step in steps.unbind(1):
            vectors = scorer.queries_from(vectors, step)
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
            match = 0.5 * (forwards @ right.T + backwards @ left.T)[:, 0]
            found |= dict(zip(map(tuple, part.tolist()), match.tolist(), strict=True))
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
