"""Look for known vulnerabilities in requirements/dev.txt with pip-audit; skipped with a reason where it cannot run."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path

DATABASE = "https://api.osv.dev/v1/vulns/GHSA-vqfr-h8mv-ghfj"  # any entry: that of h11
SECONDS = 10


def why_not() -> str:
    """Why the packages cannot be audited here; empty if they can."""
    if importlib.util.find_spec("pip_audit") is None:
        return "pip-audit is not installed"
    try:
        urllib.request.urlopen(DATABASE, timeout=SECONDS).close()
    except (urllib.error.URLError, OSError) as error:
        return f"no database of vulnerabilities can be reached ({getattr(error, 'reason', error)})"
    return ""


def main() -> None:
    if reason := why_not():
        print(f"pip-audit skipped: {reason}")
        return
    requirements = Path(__file__).with_name("dev.txt")
    options = ["--require-hashes", "--disable-pip", "--vulnerability-service", "osv", "--progress-spinner", "off"]
    sys.exit(subprocess.call([sys.executable, "-m", "pip_audit", *options, "-r", str(requirements)]))


if __name__ == "__main__":
    main()
