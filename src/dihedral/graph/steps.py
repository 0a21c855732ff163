"""Signed steps: a relation walked forwards or backwards.

Of R relations, step id r walks relation r forwards and step id R + r walks it backwards. The question (head, r, ?) is a
step forwards from the head; (?, r, tail) is a step backwards from the tail. So one numbering serves questions, known
answers, walks, paths and rules.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, NamedTuple, TypeVar

from dihedral.errors import DihedralError

Side = Literal["head", "tail"]  # the side that a question asks for
SIDES: tuple[Side, ...] = ("head", "tail")
Fact = tuple[str, str, str]  # names of head, relation and tail
INVERSE = "~"  # marks a relation that is walked backwards
Ids = TypeVar("Ids", bound=Any)  # a step id, or an array or tensor of them


class Step(NamedTuple):
    """One relation with a direction.

    >>> Step.from_id(7, num_relations=5)
    Step(relation=2, backwards=True)
    """

    relation: int
    backwards: bool = False

    @classmethod
    def from_id(cls, step: int, num_relations: int) -> Step:
        return cls(step % num_relations, step >= num_relations)

    def name(self, relations: Sequence[str]) -> str:
        return f"{INVERSE if self.backwards else ''}{relations[self.relation]}"


def split_step(text: str, relations: Any) -> tuple[str, bool]:
    """The name in `name` or `~name`, and whether it is walked backwards; a name may itself start with `~`."""
    backwards = text.startswith(INVERSE) and text not in relations
    return text.removeprefix(INVERSE) if backwards else text, backwards


def parse_steps(path: Sequence[str], relations: Any) -> list[int]:
    """The step ids of a path given as a list of `name` and `~name`."""
    if isinstance(path, str):
        raise DihedralError(f"via is the string {path!r}; give a list of relations, such as [{path!r}]")
    if not path:
        raise DihedralError("the path has no steps; name at least one relation")
    named = (split_step(text, relations) for text in path)
    return [relations.id(name) + len(relations) * backwards for name, backwards in named]


def facts_along(path: Sequence[str], entities: Sequence[str], relations: Any) -> list[Fact]:
    """The facts of a path, given as `name` and `~name` and the entities from its start to its end."""
    facts = []
    for text, start, end in zip(path, entities[:-1], entities[1:], strict=True):
        name, backwards = split_step(text, relations)
        facts.append((end, name, start) if backwards else (start, name, end))
    return facts


def inverse_ids(steps: Ids, num_relations: int) -> Ids:
    """The same steps walked in the other direction."""
    return (steps + num_relations) % (2 * num_relations)


def question_steps(relations: Ids, side: Side, num_relations: int) -> Ids:
    """The steps that ask for one side: forwards from the head for tails, backwards from the tail for heads."""
    return relations if side == "tail" else relations + num_relations


def anchors_and_targets(triples: Any, side: Side) -> tuple[Any, Any, Any]:
    """Triples [n, 3] as questions for one side: the given entity, the relation, the answer."""
    head, relation, tail = triples.T
    return (head, relation, tail) if side == "tail" else (tail, relation, head)
