"""The whole way: two real nodes under load, a switch-over and a kill, a verdict, a page."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page, sync_playwright

from demo import pipeline as demo
from tandemq.pipeline import audit, checks
from tandemq.pipeline.events import read_log
from tests.console.conftest import browser_path

pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning")


def test_two_nodes_under_load_a_switch_and_a_kill_are_judged_ok(spark: Any, tmp_path: Path) -> None:
    paths, told = demo.load(tmp_path, 4)
    verdict = demo.run(spark, tmp_path, paths, told)
    puts = [json.loads(line) for line in told.read_text().splitlines()]
    assert verdict.ok, verdict.rows[:5]
    assert verdict.counts["nodes"] == 2
    # A put whose answer was lost with the killed node may stand in the log without being told.
    assert verdict.counts["acked"] >= len(puts) > 50
    look_at(tmp_path / "report" / "report.html", len(puts))
    assert (tmp_path / "history" / "history.json").exists()
    # The same logs, and a client that was told of a task nobody ever put.
    told.write_text(told.read_text() + json.dumps({**puts[0], "task_id": 10**9}) + "\n")
    log = read_log(spark, paths[:1], audit.columns())
    lost = checks.check_clients(log, spark.read.json(str(told))).collect()
    assert [(row["check"], row["task"]) for row in lost] == [("lost_put", 10**9)]


def look_at(file: Path, puts: int) -> None:
    """The page in a browser: all charts drawn, no error, no request but the one for the page."""
    found = browser_path()
    assert found is not None, "no Chromium: the tools step could not install it"
    asked: list[str] = []
    said: list[str] = []
    with sync_playwright() as play:
        browser = play.chromium.launch(executable_path=found, args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 1200, "height": 860})
        page.on("request", lambda request: asked.append(request.url))
        page.on("console", lambda message: said.append(message.text))
        page.on("pageerror", lambda error: said.append(str(error)))
        page.goto(file.as_uri())
        check_charts(page, puts)
        browser.close()
    assert asked == [file.as_uri()]
    assert said == []


def check_charts(page: Page, puts: int) -> None:
    charts = page.locator("#time .chart")
    for chart in charts.all():
        chart.scroll_into_view_if_needed()
        drawn = chart.locator("svg")
        drawn.wait_for(timeout=60_000)
        size = drawn.bounding_box()
        assert size is not None
        assert size["width"] > 300
        assert size["height"] > 100
    assert charts.count() == 5
    assert "crawl" in page.locator("#tubes").inner_text()
    row = page.locator("#outcomes tbody tr", has_text="acked").first
    assert int(row.locator("td").nth(1).inner_text().replace(",", "")) >= puts
