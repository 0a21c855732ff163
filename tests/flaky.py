"""Looks for tests that fail by chance: `python -m tests.flaky --times 30`.

Runs every test that starts a browser, process, server, timer or thread so many times, while busy processes take turns
with it on every core, and lists those that failed at least once. Arguments that are not its own go to pytest.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ET
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

SELECTED = "concurrent and not slow"
BUSY = "import os; parent = os.getppid()\nwhile os.getppid() == parent: pass"  # as long as this process lives
NO_TESTS_FAILED, TESTS_FAILED = 0, 1  # exit codes of pytest


@contextmanager
def busy() -> Iterator[None]:
    """A process that uses a whole core."""
    with subprocess.Popen([sys.executable, "-c", BUSY]) as process:
        try:
            yield
        finally:
            process.kill()


def failures(report: Path) -> list[str]:
    """The tests of a JUnit report that failed, or whose fixtures did."""
    cases = ET.parse(report).getroot().iter("testcase")
    failed = [case for case in cases if case.find("failure") is not None or case.find("error") is not None]
    return [f"{case.get('classname')}::{case.get('name')}" for case in failed]


def run_once(words: list[str]) -> list[str]:
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.xml"
        command = [sys.executable, "-m", "pytest", "-q", "-n", "2", "-m", SELECTED, "-p", "no:cacheprovider"]
        code = subprocess.run([*command, f"--junitxml={report}", *words], check=False).returncode
        if code not in (NO_TESTS_FAILED, TESTS_FAILED):
            sys.exit(f"pytest ended with {code}")
        return failures(report)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.flaky", description=__doc__)
    parser.add_argument("--times", type=int, default=30)
    parser.add_argument("--busy", type=int, default=os.cpu_count(), help="the number of busy processes")
    options, words = parser.parse_known_args()
    failed: Counter[str] = Counter()
    with ExitStack() as stack:
        for _ in range(options.busy):
            stack.enter_context(busy())
        for number in range(1, options.times + 1):
            failed.update(run_once(words))
            print(f"run {number} of {options.times}: {len(failed)} tests have failed at least once", flush=True)
    for name, count in failed.most_common():
        print(f"failed {count} of {options.times} times: {name}")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
