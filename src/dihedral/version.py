"""The version of the installed package."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version


def package_version() -> str:
    """The installed version of dihedral."""
    try:
        return version("dihedral")
    except PackageNotFoundError:  # a source tree that is not installed
        return "0+unknown"
