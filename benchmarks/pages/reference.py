"""docs/reference/cli.md from the Typer application, and docs/reference/recipes.md from the fields of Recipe."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, get_args, get_type_hints

from dihedral.cli.main import all_commands
from dihedral.objectives.recipe import Recipe

VALUES = {int: "INTEGER", float: "NUMBER", str: "TEXT", Path: "PATH"}
SHARED = 2  # what at least so many commands have, with one meaning, is described once
Entry = tuple[str, str]  # a name and a description


def find_commands(found: dict[str, Any], path: tuple[str, ...] = ("dihedral",)) -> Iterator[tuple[str, Any]]:
    """Yield each command with the words that invoke it, in the order of `dihedral --help`."""
    for name, command in found.items():
        if hasattr(command, "commands"):
            yield from find_commands(command.commands, (*path, name))
        else:
            yield " ".join((*path, name)), command


def commands() -> str:
    """The arguments and options that commands share, then every command."""
    found = list(find_commands(all_commands()))
    entries = {words: [entry(param, get_type_hints(command.callback)) for param in command.params]
               for words, command in found}  # fmt: skip
    counts = Counter(each for listed in entries.values() for each in listed)
    names = Counter(name for (name, _), count in counts.items() if count >= SHARED)
    shared = {each for each, count in counts.items() if count >= SHARED and names[each[0]] == 1}
    text = "Several commands have these arguments and options:\n\n" + listing(sorted(shared))
    return "\n\n".join([text, *(section(words, command, entries[words], shared) for words, command in found)])


def section(words: str, command: Any, entries: list[Entry], shared: set[Entry]) -> str:
    """Describe one command: help text, examples, its own arguments and options, and the names of shared ones."""
    paragraphs = [" ".join(text.split()) for text in command.help.split("\n\n")]
    examples = [text.split(": ", 1)[1] for text in paragraphs if text.startswith("Example")]
    parts = [f"## {words}", *(text for text in paragraphs if not text.startswith("Example"))]
    parts.append("```console\n" + "\n".join(examples) + "\n```")
    if own := [each for each in entries if each not in shared]:
        parts.append(listing(own))
    if also := [name.split()[0].strip("`") for name, _ in entries if (name, _) in shared]:
        parts.append(f"Also {', '.join(f'`{name}`' for name in also)}.")
    return "\n\n".join(parts)


def listing(entries: Iterable[Entry]) -> str:
    return "\n".join(f"- {name}: {description}" for name, description in entries)


def entry(param: Any, hints: dict[str, Any]) -> Entry:
    """The name of an argument or option with its default or the kind of its value, and its description."""
    if param.param_type_name == "argument":
        return f"`{argument_name(param)}`", param.help
    return f"`{option_name(param, hints)}`", param.help + (" Required." if param.required else "")


def argument_name(param: Any) -> str:
    """Return NAME, NAME... if it can be repeated, or [NAME] if it is optional."""
    name = param.name.upper() + ("..." if param.nargs == -1 else "")
    return name if param.required else f"[{name}]"


def option_name(param: Any, hints: dict[str, Any]) -> str:
    """Return a flag with its negation, an option with its default, or an option with the kind of its value."""
    if param.is_flag:
        return " / ".join([*param.opts, *param.secondary_opts])
    if param.default not in (None, []) and not param.required:
        return f"{param.opts[-1]}={param.default}"
    return f"{param.opts[-1]} {param.metavar or value_name(hints[param.name])}"


def value_name(hint: Any) -> str:
    """Return the kind of value of a type, of an optional type or of the items of a list."""
    return VALUES[hint] if hint in VALUES else value_name(get_args(hint)[0])


def recipe_settings() -> str:
    """One line per setting of a recipe, with its default and what it applies to."""
    return listing(map(setting, dataclasses.fields(Recipe)))


def setting(field: dataclasses.Field[Any]) -> Entry:
    default = str(field.default).lower() if isinstance(field.default, bool) else str(field.default)
    applies = "; ".join(condition.text.split(" (")[0] for condition in field.metadata["when"])
    applies = applies.replace("objectives 'logistic' and 'softmax'", "embeddings")
    shown = field.name if field.default is None else f"{field.name}={default}"
    return f"`{shown}`", field.metadata["help"] + (f" *For {applies}.*" if applies else "")
