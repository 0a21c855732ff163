"""Time until the drawings of the explorer are interactive, in Chromium: `python -m benchmarks.explorer`.

The model has 50,000 entities and random weights, because the time does not depend on them; one entity has 600
neighbours, of which 500 are drawn. Every run has a new browser context without a cache. `seconds` is the time from
opening the view in the explorer until it is drawn and the page handles events again, `seconds_with_page` the time from
entering its address, with everything that the explorer loads. The CPU time of the page's main thread depends less on
what else the machine does. Frames are those while the drawing is dragged.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import tempfile
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from playwright.sync_api import Browser, CDPSession, Page, sync_playwright

import dihedral as dh
from benchmarks.record import RESULTS, save
from benchmarks.serving import start_server, write_model
from dihedral.graph.triples import Graph
from dihedral.graph.vocabulary import Vocabulary

ENTITIES, RELATIONS, FACTS, NEIGHBOURS, DIMENSION = 50_000, 20, 300_000, 600, 200
SCREENS = {1280: 900, 390: 844}  # width: height
VIEWS = {"neighbourhood": "#/entity/entity_00000/graph/500", "map": "#/map"}
MAX_SECONDS = {"neighbourhood": 1.0, "map": 2.0}
ARGUMENTS = ["--headless=new", "--no-sandbox", "--disable-gpu"]

WATCH = """
new MutationObserver((_, observer) => {
  if (!document.querySelector(".drawing[data-drawn]")) return;
  observer.disconnect();
  requestAnimationFrame(() => setTimeout(() => { document.documentElement.dataset.interactive = performance.now(); }));
}).observe(document, { subtree: true, childList: true, attributes: true, attributeFilter: ["data-drawn"] });
"""
FRAMES = """() => new Promise((done) => {
  const times = [];
  const next = (now) => { times.push(now); if (times.length < 60) requestAnimationFrame(next); else done(times); };
  requestAnimationFrame(next);
})"""


def make_graph(seed: int = 0) -> Graph:
    rng = np.random.default_rng(seed)
    facts = rng.integers((1, 0, 1), (ENTITIES, RELATIONS, ENTITIES), (FACTS, 3))
    spokes = np.array([(0, i % RELATIONS, i) if i % 2 else (i, i % RELATIONS, 0) for i in range(1, NEIGHBOURS + 1)])
    among = rng.integers((1, 0, 1), (NEIGHBOURS, RELATIONS, NEIGHBOURS), (1000, 3))
    known = np.unique(np.concatenate([facts, spokes, among]), axis=0).astype(np.int32)
    names = [f"entity_{i:05}" for i in range(ENTITIES)], [f"relation_{i:02}" for i in range(RELATIONS)]
    return Graph(
        Vocabulary(names[0]), Vocabulary(names[1], "relation"), known, known[:0], known[:0], name="50,000 entities"
    )


def measure(browser: Browser, address: str, route: str, width: int) -> dict[str, float]:
    context = browser.new_context(viewport={"width": width, "height": SCREENS[width]})
    page = context.new_page()
    page.goto(f"http://{address}/#/model")
    page.wait_for_load_state("networkidle")
    metrics = context.new_cdp_session(page)
    metrics.send("Performance.enable", {"timeDomain": "threadTicks"})
    before = _busy(metrics)
    started = page.evaluate(f"() => {{ {WATCH}; location.hash = {route!r}; return performance.now(); }}")
    seconds = _interactive(page) - started / 1000
    busy, frames = _busy(metrics) - before, drag(page)
    context.close()
    context = browser.new_context(viewport={"width": width, "height": SCREENS[width]})
    page = context.new_page()
    page.add_init_script(WATCH)
    page.goto(f"http://{address}/{route}")
    with_page = _interactive(page)
    context.close()
    return {
        "seconds": seconds, "seconds_with_page": with_page, "main_thread_seconds": busy,
        "frame_ms": median(frames), "frame_ms_95": float(np.percentile(frames, 95)),
    }  # fmt: skip


def _interactive(page: Page) -> float:
    """When the view was interactive, in seconds since the page was opened."""
    page.wait_for_selector("[data-interactive]", timeout=60_000)
    return float(page.locator("html").get_attribute("data-interactive") or 0) / 1000


def _busy(metrics: CDPSession) -> float:
    rows = metrics.send("Performance.getMetrics")["metrics"]
    return float(next(row["value"] for row in rows if row["name"] == "TaskDuration"))


def drag(page: Page) -> list[float]:
    """The times between frames while the drawing is dragged."""
    page.locator(".drawing").scroll_into_view_if_needed()
    box = page.locator(".drawing").bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + 15, box["y"] + 15)
    page.mouse.down()
    page.evaluate(f"window.frames_seen = ({FRAMES})()")
    for step in range(60):
        page.mouse.move(box["x"] + 15 + 2 * step, box["y"] + 15 + step)
    times: list[float] = page.evaluate("window.frames_seen")
    page.mouse.up()
    return np.diff(times).tolist()


def measure_all(browser: Browser, address: str, runs: int) -> list[dict[str, Any]]:
    rows = []
    for view, route in VIEWS.items():
        first = measure(browser, address, route, 1280)["seconds"]  # with what the server computes once
        for width in SCREENS:
            found = [measure(browser, address, route, width) for _ in range(runs)]
            row = {
                "view": view, "width": width, "runs": runs, "limit_seconds": MAX_SECONDS[view],
                "seconds_of_runs": [round(each["seconds"], 3) for each in found], "first_seconds": round(first, 3),
                **{key: round(median(each[key] for each in found), 3) for key in found[0]},
            }  # fmt: skip
            rows.append(row)
            print(row)
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args()
    program = shutil.which("chromium")
    if program is None:
        sys.exit("chromium is not installed")
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        write_model(Path(folder) / "model", make_graph(), DIMENSION)
        server, address = start_server([str(Path(folder) / "model")])
        try:
            browser = playwright.chromium.launch(executable_path=program, args=ARGUMENTS)
            load, version = os.getloadavg()[0], browser.version
            rows = measure_all(browser, address, options.runs)
            browser.close()
        finally:
            server.terminate()
            server.wait()
    content = {
        "command": " ".join(["python -m benchmarks.explorer", *sys.argv[1:]]), "version": dh.__version__,
        "browser": f"Chromium {version}, without a GPU", "entities": ENTITIES, "facts": FACTS, "dimension": DIMENSION,
        "load_average": [round(load, 1), round(os.getloadavg()[0], 1)], "cores": os.cpu_count(), "views": rows,
    }  # fmt: skip
    print(save("explorer", content, options.out))


if __name__ == "__main__":
    main()
