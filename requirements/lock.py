"""Write requirements/demo.txt and requirements/dev.txt: every package that they need, with the hashes of its files.

`python requirements/lock.py`, on Linux and in an environment with the versions of constraints.txt. Hashes come from the
package index. torch is the one exception: it is often a local build, so `make` installs it by version only.
"""

from __future__ import annotations

import re
import sys
import tomllib
import urllib.request
from importlib.metadata import PackageNotFoundError, requires
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import (
    InvalidSdistFilename,
    InvalidWheelFilename,
    canonicalize_name,
    parse_sdist_filename,
    parse_wheel_filename,
)
from packaging.version import InvalidVersion, Version

ROOT = Path(__file__).parents[1]
INDEX = "https://pypi.org/simple"
EXCEPT = {"torch", "dihedral", "setuptools", "pip"}  # the last two come with torch or with the environment
BUILD = {"hatchling", "packaging", "pathspec", "pluggy", "trove-classifiers"}  # hatchling and what it needs
FILES = {"demo": ["plots"], "dev": ["dev"]}
ABOUT = "# Packages for `make {name}` with the hashes of their files, by requirements/lock.py; torch is not here.\n"


def pins() -> dict[str, Version]:
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    pairs = (line.split("==") for line in lines if "==" in line)
    return {canonicalize_name(name): Version(version) for name, version in pairs}


def own(extra: str) -> list[Requirement]:
    """What this project or one of its extras needs."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    return list(map(Requirement, project["optional-dependencies"][extra] if extra else project["dependencies"]))


def needed(roots: list[Requirement]) -> set[str]:
    """The names of these packages and of all that they need."""
    found: set[tuple[str, str]] = set()
    waiting = [(each, extra) for each in roots for extra in (each.extras or {""}) | {""}]
    while waiting:
        requirement, extra = waiting.pop()
        name = canonicalize_name(requirement.name)
        if (name, extra) in found:
            continue
        found.add((name, extra))
        try:
            inner = own(extra) if name == "dihedral" else list(map(Requirement, requires(requirement.name) or []))
        except PackageNotFoundError:
            sys.exit(f"{requirement.name} is not installed, so what it needs is not known; run `make lint` first")
        for each in inner:
            if each.marker is None or each.marker.evaluate({"extra": extra}):
                waiting += [(each, more) for more in (each.extras or {""}) | {""}]
    return {name for name, _ in found} - EXCEPT


def hashes(name: str, version: Version) -> list[str]:
    """The SHA-256 hashes of all files of a version."""
    with urllib.request.urlopen(f"{INDEX}/{name}/", timeout=60) as page:
        links = re.findall(r"/([^/\"#]+)#sha256=([0-9a-f]{64})", page.read().decode())
    return sorted({digest for file, digest in links if _version(file) == version})


def _version(file: str) -> Version | None:
    try:
        return parse_wheel_filename(file)[1] if file.endswith(".whl") else parse_sdist_filename(file)[1]
    except (InvalidSdistFilename, InvalidWheelFilename, InvalidVersion):
        return None


def main() -> None:
    versions = pins()
    cached: dict[str, str] = {}
    for name, extras in FILES.items():
        packages = needed([Requirement(f"dihedral[{','.join(extras)}]")]) | BUILD
        lines = []
        for package in sorted(packages):
            if package not in versions:
                sys.exit(f"{package} has no version in constraints.txt; add it")
            if package not in cached:
                found = hashes(package, versions[package])
                if not found:
                    sys.exit(f"{package} {versions[package]} is not in the index")
                parts = [f"{package}=={versions[package]}", *(f"    --hash=sha256:{digest}" for digest in found)]
                cached[package] = " \\\n".join(parts)
            lines.append(cached[package])
        path = ROOT / "requirements" / f"{name}.txt"
        path.write_text(ABOUT.format(name=name) + "\n".join(lines) + "\n")
        print(f"{path}: {len(lines)} packages")


if __name__ == "__main__":
    main()
