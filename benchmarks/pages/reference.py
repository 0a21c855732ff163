"""docs/reference/cli.md from the Typer application, and docs/reference/recipes.md from the fields of Recipe."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, get_args, get_type_hints

from dihedral.cli.main import all_commands
from dihedral.objectives.recipe import Recipe
from paper.tables import markdown

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
    """The name of an argument or option, and its description with its default."""
    if param.param_type_name == "argument":
        return f"`{argument_name(param)}`", param.help
    default = default_of(param)
    note = " Required." if param.required else f" Default: {default}." if default else ""
    return f"`{option_name(param, hints)}`", param.help + note


def argument_name(param: Any) -> str:
    """Return NAME, NAME... if it can be repeated, or [NAME] if it is optional."""
    name = param.name.upper() + ("..." if param.nargs == -1 else "")
    return name if param.required else f"[{name}]"


def option_name(param: Any, hints: dict[str, Any]) -> str:
    """Return the option with the kind of its value; a flag with its negation, if any."""
    if param.is_flag:
        return " / ".join([*param.opts, *param.secondary_opts])
    return f"{param.opts[-1]} {param.metavar or value_name(hints[param.name])}"


def value_name(hint: Any) -> str:
    """Return the kind of value of a type, of an optional type or of the items of a list."""
    return VALUES[hint] if hint in VALUES else value_name(get_args(hint)[0])


def default_of(param: Any) -> str:
    """Return the default value of an option as it is written on the command line."""
    if param.is_flag:
        return f"`{param.opts[0]}`" if param.default else ""
    return "" if param.default is None or param.default == [] else f"`{param.default}`"


def recipe_settings() -> str:
    """One row per setting of a recipe."""
    header = ["Setting", "Default", "Applies to", "Description"]
    return markdown(header, [setting_row(field) for field in dataclasses.fields(Recipe)])


def setting_row(field: dataclasses.Field[Any]) -> list[str]:
    """Return the name, default, condition and description of a setting."""
    default = str(field.default).lower() if isinstance(field.default, bool) else str(field.default)
    shown = "by model or weight" if field.default is None else f"`{default}`" if default else ""
    applies = "; ".join(condition.text.split(" (")[0] for condition in field.metadata["when"])
    return [f"`{field.name}`", shown, applies, field.metadata["help"]]
