"""Take the screenshots of the explorer in docs/images: `python -m benchmarks.explorer_images`."""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tempfile
from pathlib import Path
from urllib.parse import quote

from playwright.sync_api import sync_playwright

import dihedral as dh
from benchmarks.serving import start_server

IMAGES = Path(__file__).resolve().parent.parent / "docs" / "images"
WHY = "#/why/woman_0328/spouse/man_0284?model=family"  # a fact of the test split
ASKED = {  # who diagnoses something that a bacterium causes
    "select": "x",
    "where": {"and": [{"fact": ["bacterium", "causes", {"variable": "y"}]},
                      {"fact": [{"variable": "x"}, "diagnoses", {"variable": "y"}]}]},
}  # fmt: skip
VIEWS = {  # name: address, width, height, scheme
    "entity": ("#/entity/virus", 1200, 860, "light"),
    "neighbourhood": ("#/entity/virus/graph", 1200, 860, "light"),
    "map": ("#/map", 1200, 860, "light"),
    "explanation": (WHY, 1200, 1040, "light"),
    "calculator": ("#/compose/spouse/parent?model=family", 1200, 860, "light"),
    "ask": (f"#/ask/json/{quote(json.dumps(ASKED), safe='')}/new", 1200, 1000, "light"),
    "phone": (WHY, 360, 780, "light"),
    "dark": ("#/relation/parent?model=family", 1200, 800, "dark"),
}


def train_models(folder: Path) -> list[str]:
    dh.train(dh.load_graph("umls"), "demo/umls", device="cpu", out=folder / "umls")
    dh.train(dh.make_family(400), "algebra/family-d4-gumbel", device="cpu", out=folder / "family")
    return [str(folder / "umls"), str(folder / "family")]


def take(address: str, out: Path) -> None:
    program = shutil.which("chromium")
    if program is None:
        sys.exit("chromium is not installed")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=program, args=["--headless=new", "--no-sandbox", "--disable-gpu"]
        )
        for name, (route, width, height, scheme) in VIEWS.items():
            context = browser.new_context(
                viewport={"width": width, "height": height},
                color_scheme=scheme,
                device_scale_factor=2 if width < 500 else 1,
            )
            page = context.new_page()
            page.goto(f"http://{address}/{route}")
            page.wait_for_load_state("networkidle")
            if name == "neighbourhood":
                page.get_by_role("button", name="Predict").click()
                page.wait_for_selector(".drawn-facts .guess")
                page.wait_for_timeout(500)
            if name == "phone":
                page.mouse.wheel(0, 250)
                page.wait_for_timeout(300)
            path = out / f"explorer-{name}.png"
            page.screenshot(path=path)
            print(path, path.stat().st_size)
            context.close()
        browser.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=IMAGES)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        server, address = start_server(train_models(Path(folder)))
        try:
            take(address, options.out)
        finally:
            server.terminate()
            server.wait()


if __name__ == "__main__":
    main()
