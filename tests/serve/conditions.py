"""Conditions of a page that hold after some time.

Playwright's `wait_for_function` looks once and then calls eval, which the pages forbid: it fails unless the condition
holds already. `expect` waits for what locators can say.
"""

from __future__ import annotations

from typing import Any

from playwright.sync_api import Page

LOOK = """arg => new Promise((resolve, reject) => {
  const holds = %s, last = Date.now() + 60_000;
  const look = () => {
    if (holds(arg)) resolve();
    else if (Date.now() > last) reject(new Error("the condition never held"));
    else setTimeout(look, 20);
  };
  look();
})"""


def wait_until(page: Page, condition: str, arg: Any = None) -> None:
    """Wait until a function of JavaScript is true."""
    page.evaluate(LOOK % condition, arg)
