"""Takes docs/img/report*.png: the pages of 1, 25 and 500 tubes of made-up work, in a browser.

Part of `make screenshots`.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from playwright.sync_api import Browser, sync_playwright

from tandemq.pipeline.page import page
from tests.console.conftest import browser_path
from tests.spark.report_scenes import names, scene

ROOT = Path(__file__).resolve().parents[2]

OUT = ROOT / "docs" / "img"
PHONE = {"viewport": {"width": 390, "height": 1500}, "color_scheme": "dark"}
WIDE = {"viewport": {"width": 1100, "height": 1500}}


def picture(browser: Browser, name: str, count: int, begin: str, **options: Any) -> None:
    """Of the page of so many tubes, from this section on."""
    file = Path(tempfile.mkdtemp()) / "report.html"
    file.write_text(page(*scene(names(count))), encoding="utf-8")
    shown = browser.new_context(**options).new_page()
    shown.goto(f"{file.as_uri()}{begin}")
    shown.locator("#report .chart svg").first.wait_for()
    # What is in view is drawn, one after the other.
    shown.wait_for_function(
        """() => [...document.querySelectorAll("#report .chart")].every((one) => {
            const { top, bottom } = one.getBoundingClientRect();
            return bottom < 0 || top > innerHeight || one.dataset.drawn || one.textContent;
        })"""
    )
    shown.screenshot(path=OUT / f"{name}.png")


def main() -> None:
    with sync_playwright() as play:
        browser = play.chromium.launch(executable_path=browser_path(), args=["--no-sandbox"])
        picture(browser, "report", 25, "", **WIDE)
        picture(browser, "report-1", 1, "", **PHONE)
        picture(browser, "report-500", 500, "#tubes", **WIDE)
        browser.close()


if __name__ == "__main__":
    main()
