"""Dataclasses from the content of JSON files, whose values are checked against the annotations of the fields."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, fields
from types import UnionType
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

Record = TypeVar("Record")


def read_record(kind: type[Record], content: Any) -> Record:
    """A dataclass from decoded JSON; fields that are missing have their defaults, and other keys are left out.

    A TypeError names the first value that does not fit its annotation.
    """
    if not isinstance(content, Mapping):
        raise TypeError(f"{kind.__name__} is {content!r:.80}")
    hints, values = get_type_hints(kind), {}
    for field in fields(kind):  # type: ignore[arg-type]  # any dataclass
        if field.name in content:
            values[field.name] = content[field.name]
            if not _fits(values[field.name], hints[field.name]):
                raise TypeError(f"{field.name} is {values[field.name]!r:.80}")
        elif field.default is MISSING and field.default_factory is MISSING:
            raise TypeError(f"{field.name} is missing")
    return kind(**values)


def _fits(value: Any, hint: Any) -> bool:
    """Whether a value has the annotated type: a plain type, `X | None`, Literal, list[X] or dict[str, X]."""
    origin, parts = get_origin(hint), get_args(hint)
    if origin in (Union, UnionType):
        return any(_fits(value, part) for part in parts)
    if origin is Literal:
        return value in parts
    if origin is list:
        return isinstance(value, list) and all(_fits(each, parts[0]) for each in value)
    if origin is dict:
        return isinstance(value, dict) and all(_fits(each, parts[1]) for each in value.values())
    if hint is Any:
        return True
    if hint in (int, float):
        return isinstance(value, (int, hint)) and not isinstance(value, bool)
    return isinstance(value, hint)
