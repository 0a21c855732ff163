"""Look for known vulnerabilities in requirements/dev.txt with pip-audit; says SKIPPED and why where it cannot run."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
import urllib.request
from pathlib import Path

ENTRY = "GHSA-vqfr-h8mv-ghfj"  # any entry: that of h11
DATABASE = f"https://api.osv.dev/v1/vulns/{ENTRY}"
SECONDS = 10


def why_not() -> str:
    """Why the packages cannot be audited here; empty if they can."""
    if importlib.util.find_spec("pip_audit") is None:
        return "pip-audit is not installed"
    try:
        with urllib.request.urlopen(DATABASE, timeout=SECONDS) as answer:
            entry = json.load(answer)
    except (OSError, ValueError) as error:  # ValueError: a page of a proxy, not the database
        return f"no database of vulnerabilities can be reached ({getattr(error, 'reason', error)})"
    return "" if isinstance(entry, dict) and entry.get("id") == ENTRY else "the database of vulnerabilities is another"


def main() -> None:
    if reason := why_not():
        print(f"SKIPPED pip-audit, nothing was checked: {reason}")
        return
    requirements = Path(__file__).with_name("dev.txt")
    options = ["--require-hashes", "--disable-pip", "--vulnerability-service", "osv", "--progress-spinner", "off"]
    sys.exit(subprocess.call([sys.executable, "-m", "pip_audit", *options, "-r", str(requirements)]))


if __name__ == "__main__":
    main()
