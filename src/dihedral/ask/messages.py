"""Evaluation of plans: messages pass from the entities that a query names to its answer variable.

A message holds one log-probability per entity. A step multiplies the messages of the entities that it starts from with
the rows of probabilities that the step leads to each entity, as in QTO (Bai et al. 2023). Nothing is held for pairs of
entities beyond one tile of rows. Predictions are followed only from the `width` most probable entities of a variable
that are at least `share` times as probable as the best, known facts from all above `floor`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from dihedral.ask.query_plan import Anything, Either, Every, Given, Node, Walk, below, height, inputs
from dihedral.errors import DihedralError
from dihedral.graph import GraphIndex
from dihedral.runtime import interruption
from dihedral.scoring.scorer import Scorer

WIDTH = 8  # entities of a variable from which predictions are followed
MAX_WIDTH = 100_000
SHARE = 0.1  # predictions are not followed from entities below this share of the highest probability
FLOOR = 1e-4  # entities that are less probable are not followed
TILE = 1 << 22  # probabilities in memory
MAX_UNKNOWN = 0.9  # the highest probability of a fact that is not known
UNKNOWN = 0.2  # how many answers of a question are not known, for each that is; chosen on valid
CHOICES = {"conjunction": ("product", "minimum"), "ways": ("noisy-or", "max")}


class KnownSteps:
    """Facts are certain, and nothing else holds."""

    def __init__(self, facts: GraphIndex) -> None:
        self.facts, self.num_entities, self.device = facts, facts.num_entities, facts.keys.device

    def log_probabilities(self, entities: Tensor, steps: Tensor) -> Tensor:
        """Log-probabilities that steps [n] lead from entities [n] to each entity: [n, N]; 0 for known facts."""
        likely = torch.full((len(entities), self.num_entities), -math.inf, device=self.device)
        likely[self.facts.answers(entities, steps)] = 0.0
        return likely


class Transitions(KnownSteps):
    """Facts are certain, and others have a probability.

    It is the softmax of the scores of the entities that training facts do not give, times UNKNOWN and the number of
    those that they give, at most MAX_UNKNOWN. QTO (Bai et al. 2023) takes the softmax over all entities: the answers
    that the model has seen then leave the others next to nothing. Facts of valid do not count, so that they change
    nothing about other answers, which the fit of probabilities assumes. A step that no fact takes from an entity to
    itself never does.
    """

    def __init__(self, scorer: Scorer, facts: GraphIndex, train: GraphIndex | None = None) -> None:
        """train: those of the facts that the model has seen, by default all."""
        super().__init__(facts)
        self.train = facts if train is None else train
        self.score_rows = scorer.rows()
        self.leaves = torch.ones(2 * facts.num_relations, dtype=torch.bool, device=self.device)  # by step
        self.leaves[facts.steps[facts.loops].long()] = False

    @torch.no_grad()
    def log_probabilities(self, entities: Tensor, steps: Tensor) -> Tensor:
        row, answer = self.train.answers(entities, steps)
        expected = UNKNOWN * torch.bincount(row, minlength=len(entities)).clamp_(min=1)
        scores, leaving = self.score_rows(entities, steps), self.leaves[steps].nonzero()[:, 0]
        scores[row, answer] = scores[leaving, entities[leaving]] = -math.inf
        likely = torch.log_softmax(scores, dim=1).add_(expected.log()[:, None]).clamp_(max=math.log(MAX_UNKNOWN))
        likely[scores == -math.inf] = -math.inf  # also where no entity is left, whose softmax is NaN
        likely[self.facts.answers(entities, steps)] = 0.0
        return likely


@dataclass(frozen=True)
class Semantics:
    """How probabilities combine, and how many entities are followed.

    conjunction: "product" multiplies the probabilities of facts that must all hold; "minimum" takes the lowest (Gödel).
    ways: "noisy-or" takes the probability that at least one of several ways to an answer holds, as if they were
    independent; "max" takes that of the most probable way. The negation of p is 1 - p.
    """

    conjunction: Literal["product", "minimum"] = "product"
    ways: Literal["noisy-or", "max"] = "noisy-or"
    width: int = WIDTH
    floor: float = FLOOR
    share: float = SHARE

    def __post_init__(self) -> None:
        for name, allowed in CHOICES.items():
            if getattr(self, name) not in allowed:
                raise DihedralError(f"{name} is {getattr(self, name)!r:.80}; choose {' or '.join(allowed)}")
        if isinstance(self.width, bool) or not isinstance(self.width, int) or not 1 <= self.width <= MAX_WIDTH:
            raise DihedralError(f"width is {self.width!r:.80}; it must be a whole number from 1 to {MAX_WIDTH}")
        for name in ("floor", "share"):
            if not 0 <= getattr(self, name) < 1:
                raise DihedralError(f"{name} is {getattr(self, name)!r:.80}; it must be from 0 to less than 1")

    def both(self, messages: Sequence[Tensor]) -> Tensor:
        return reduce(torch.add if self.conjunction == "product" else torch.minimum, messages)

    def either(self, messages: Sequence[Tensor]) -> Tensor:
        return reduce(noisy_or if self.ways == "noisy-or" else torch.maximum, messages)


@dataclass(frozen=True, eq=False)
class Message:
    """What a node says about every entity."""

    likely: Tensor  # [N]: log-probabilities
    best: Tensor  # [N]: those of the best single choice of the variables below
    came_from: Tensor | None = None  # [N]: for a step, the entity that it starts from in that choice
    followed: int = 0  # entities from which predictions were followed
    candidates: int = 0  # entities with a probability of at least the floor
    exact: bool = True


Messages = dict[Node, Message]


def complement(logs: Tensor) -> Tensor:
    """log(1 - p) of log p, accurate near 0 and near 1."""
    return torch.where(logs > -0.7, torch.log(-torch.expm1(logs)), torch.log1p(-torch.exp(logs)))


def noisy_or(first: Tensor, second: Tensor) -> Tensor:
    """log(p + q - pq) of log p and log q: complement(complement(first) + complement(second)) in fewer passes."""
    high, low = torch.maximum(first, second), torch.minimum(first, second)
    found = high + torch.log1p(-torch.expm1(high) * torch.exp(low - high))
    return torch.where(low > -math.inf, found, high)


@torch.no_grad()
def evaluate(plans: Sequence[Node], rows: KnownSteps, semantics: Semantics) -> Iterator[tuple[Node, Messages]]:
    """The messages of each plan with those of its nodes; plans that are evaluated together share equal nodes."""
    for batch in _batches(plans, rows.num_entities):
        nodes = list(dict.fromkeys(node for plan in batch for node in below(plan)))
        messages: Messages = {}
        heights = list(map(height, nodes))
        for level in range(1 + max(heights)):
            interruption.check()
            here = [node for node, own in zip(nodes, heights, strict=True) if own == level]
            messages |= _walk_all([node for node in here if isinstance(node, Walk)], messages, rows, semantics)
            for node in here:
                if node not in messages:
                    messages[node] = _combine(node, messages, rows, semantics)
        for plan in batch:
            yield plan, messages


def _batches(plans: Sequence[Node], num_entities: int) -> Iterator[list[Node]]:
    """Plans in batches whose messages fit a few tiles."""
    batch: list[Node] = []
    size = 0
    for plan in plans:
        count = sum(1 for _ in below(plan)) * num_entities
        if batch and size + count > 4 * TILE:
            yield batch
            batch, size = [], 0
        batch.append(plan)
        size += count
    if batch:
        yield batch


def _combine(node: Node, messages: Messages, rows: KnownSteps, semantics: Semantics) -> Message:
    """The message of a node that is not a step."""
    if isinstance(node, (Given, Anything)):
        likely = torch.full((rows.num_entities,), 0.0 if isinstance(node, Anything) else -math.inf, device=rows.device)
        if isinstance(node, Given):
            likely[list(node.entities)] = 0.0
        return _counted(Message(likely, likely), semantics)
    parts = [messages[part] for part in inputs(node)]
    if isinstance(node, Either):
        likely = semantics.either([part.likely for part in parts])
        best = torch.stack([part.best for part in parts]).amax(0)
    else:
        assert isinstance(node, Every)
        positive, negative = parts[: len(node.parts)], parts[len(node.parts) :]
        absent = [complement(part.likely) for part in negative]
        likely = semantics.both([part.likely for part in positive] + absent)
        best = semantics.both([part.best for part in positive] + absent)
    return _counted(Message(likely, best, exact=all(part.exact for part in parts)), semantics)


def _counted(message: Message, semantics: Semantics) -> Message:
    return replace(message, candidates=int(_alive(message, semantics).sum()))


def _alive(message: Message, semantics: Semantics) -> Tensor:
    """The entities that are probable enough to be followed, as a mask [N]."""
    return message.likely >= math.log(semantics.floor) if semantics.floor else message.likely > -math.inf


# --- steps ---------------------------------------------------------------------------------------


class _Sum:
    """A step in the making: which entities of the source are followed, and the ways that have been added so far."""

    def __init__(self, node: Walk, source: Message, rows: KnownSteps, semantics: Semantics) -> None:
        self.node, self.source, self.semantics = node, source, semantics
        alive = _alive(source, semantics)
        followed = alive.nonzero()[:, 0]
        num_alive, likely = len(followed), source.likely[followed]
        if semantics.share and num_alive:
            enough = likely >= likely.max() + math.log(semantics.share)
            followed, likely = followed[enough], likely[enough]
        if len(followed) > semantics.width:
            order = torch.argsort(likely, descending=True, stable=True)  # equal ones: the lowest id first
            followed = followed[order[: semantics.width]].sort().values
        self.followed, self.rest = followed, followed[:0]
        self.exact = len(followed) == num_alive
        if not self.exact:  # known facts are also followed from the other entities
            alive[followed] = False
            members = rows.facts.members(node.step)
            self.rest = members[alive[members]]
        self.takes_best = semantics.ways == "max" or len(self.followed) + len(self.rest) <= 1
        self.likely, self.best = (torch.full_like(source.likely, -math.inf) for _ in range(2))  # of the best way
        self.came_from = torch.zeros_like(source.likely, dtype=torch.int32)
        self.misses = torch.zeros_like(source.likely)  # log-probabilities that no way holds

    def add(self, ways: Tensor, entities: Tensor) -> None:
        """Add ways [n, N] from entities [n]; each way is the log-probability of one step."""
        likely_before, best_before = self.source.likely[entities], self.source.best[entities]
        joined = _join(ways, likely_before, self.semantics)
        same = torch.equal(likely_before, best_before)
        best, place = _highest(joined if same else _join(ways, best_before, self.semantics))
        better = best > self.best
        self.best = torch.where(better, best, self.best)
        self.came_from = torch.where(better, entities.int()[place], self.came_from)
        if self.takes_best:
            self.likely = torch.maximum(self.likely, best if same else joined.amax(0))
        else:
            self.misses += joined.exp_().neg_().log1p_().sum(0) if len(joined) > 1 else complement(joined[0])

    def add_known(self, rows: KnownSteps) -> None:
        """Add the known facts of the other entities."""
        row, answer = rows.facts.answers(self.rest, torch.full_like(self.rest, self.node.step))
        source = self.rest[row]
        likely, best = self.source.likely[source], self.source.best[source]
        order = torch.argsort(best, stable=True).cpu().numpy()
        last = np.full(rows.num_entities, -1)
        last[answer.cpu().numpy()[order]] = order  # the best of several ways to an answer is written last
        places = torch.from_numpy(last[last >= 0]).to(rows.device)
        ends, values = answer[places], best[places]
        better = values > self.best[ends]
        self.best[ends[better]] = values[better]
        self.came_from[ends[better]] = source[places][better].int()
        if self.takes_best:
            self.likely = self.likely.scatter_reduce(0, answer, likely, "amax")
        else:
            self.misses.index_add_(0, answer, complement(likely))

    def message(self) -> Message:
        likely = self.likely if self.takes_best else complement(self.misses)
        found = Message(likely, self.best, self.came_from, len(self.followed), exact=self.exact and self.source.exact)
        return _counted(found, self.semantics)


def _highest(values: Tensor) -> tuple[Tensor, Tensor]:
    """The maximum of each column of values [n, N], and the first row that has it; max(0) takes five times as long."""
    count = len(values)
    if count == 1:
        return values[0], torch.zeros(values.shape[1], dtype=torch.long, device=values.device)
    highest = values.amax(0)
    from_last = torch.arange(count, 0, -1, dtype=torch.float32, device=values.device)[:, None]
    last = torch.where(values == highest, from_last, 0.0).amax(0)
    return highest, count - last.long()


def _join(ways: Tensor, before: Tensor, semantics: Semantics) -> Tensor:
    """The log-probabilities of ways [n, N] that start with probabilities [n]."""
    if semantics.conjunction == "product":
        return ways + before[:, None]
    return torch.minimum(ways, before[:, None])


def _walk_all(nodes: list[Walk], messages: Messages, rows: KnownSteps, semantics: Semantics) -> Messages:
    """The messages of several steps; equal (entity, step) pairs are scored once."""
    sums = [_Sum(node, messages[node.source], rows, semantics) for node in nodes]
    if sums:
        owner = torch.repeat_interleave(
            torch.arange(len(sums)), torch.tensor([len(each.followed) for each in sums])
        ).to(rows.device)
        steps = torch.tensor([each.node.step for each in sums], device=rows.device)[owner]
        entities = torch.cat([each.followed for each in sums])
        pairs, place = torch.unique(steps * rows.num_entities + entities, return_inverse=True)
        size = max(1, TILE // rows.num_entities)
        for start in range(0, len(pairs), size):
            interruption.check()
            tile = pairs[start : start + size]
            ways = rows.log_probabilities(tile % rows.num_entities, tile // rows.num_entities)
            inside = (place >= start) & (place < start + size)
            for number in owner[inside].unique().tolist():
                mine = (inside & (owner == number)).nonzero()[:, 0]
                sums[number].add(ways.index_select(0, place[mine] - start), entities[mine])
    for each in sums:
        if len(each.rest):
            each.add_known(rows)
    return {each.node: each.message() for each in sums}


# --- witnesses -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Witness:
    """The best choice of the variables of one answer, and the facts that it needs, as ids."""

    variables: dict[str, int] = field(default_factory=dict)
    facts: list[tuple[int, int, int]] = field(default_factory=list)  # (entity, step, entity), from named entities on


def trace(node: Node, messages: Messages, entity: int, witness: Witness | None = None) -> Witness:
    """The witness of an answer; what is found below a node is added to that of its plan."""
    witness = witness or Witness()
    came_from = messages[node].came_from
    if isinstance(node, Walk) and came_from is not None:
        source = int(came_from[entity])
        trace(node.source, messages, source, witness)
        if node.variable is not None:
            witness.variables[node.variable] = source
        if (source, node.step, entity) not in witness.facts:
            witness.facts.append((source, node.step, entity))
    elif isinstance(node, Every):
        for part in node.parts:
            trace(part, messages, entity, witness)
    elif isinstance(node, Either):
        trace(max(node.parts, key=lambda part: float(messages[part].best[entity])), messages, entity, witness)
    return witness


def describe(
    plan: Node, messages: Messages, step_name: Callable[[int], str], entity_name: Callable[[int], str]
) -> list[str]:
    """The plan as lines: each node, below it what it is computed from, with its number of candidates."""

    def lines(node: Node, depth: int, sign: str = "") -> Iterator[str]:
        message = messages[node]
        shown = {Anything: "any entity", Every: "all of", Either: "one of"}.get(type(node), "")
        how = "" if message.exact else ", beam"
        if isinstance(node, Given):
            shown = ", ".join(map(entity_name, node.entities[:3])) + (", ..." if len(node.entities) > 3 else "")
        elif isinstance(node, Walk):
            name = f" from ?{node.variable}" if node.variable and not node.variable.startswith("_") else ""
            shown, how = f"{step_name(node.step)}{name}", f"; predictions followed from {message.followed}{how}"
        noun = "candidate" if message.candidates == 1 else "candidates"
        yield f"{'  ' * depth}{sign}{shown}: {message.candidates} {noun}{how}"
        for number, each in enumerate(inputs(node)):
            yield from lines(each, depth + 1, "not " if isinstance(node, Every) and number >= len(node.parts) else "")

    return list(lines(plan, 0))
