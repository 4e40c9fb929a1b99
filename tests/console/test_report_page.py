"""The page of a report in a browser: its numbers, its charts, any names, any screen."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect

from tandemq.pipeline import spans
from tandemq.pipeline.page import markup, page, summary
from tests.spark.report_scenes import names, scene

WIDE, PHONE = {"width": 1200, "height": 900}, {"width": 390, "height": 844}
SECTIONS = ["verdict", "headline", "time", "capacity", "durations", "failures", "tubes"]
SECTIONS += ["workers", "method"]
NAMES = ["price_$^$_x", "$a$", "_hidden", "a<b>&c", "очередь", "鱼", "{x}", "\\frac{1}", "%s %d"]
NAMES += ["</script><script>document.title='out'</script>", "a\x00b\u2028", "n" * 3000, "' \""]


Look = Callable[..., Page]


@pytest.fixture
def look(browser: Browser, tmp_path: Path) -> Iterator[Look]:
    """look(text, **options of the context); the page must ask for nothing and have no error."""
    asked: list[str] = []
    said: list[str] = []
    file = tmp_path / "report.html"

    def open_one(text: str, **options: Any) -> Page:
        file.write_text(text, encoding="utf-8")
        shown = browser.new_context(**options).new_page()
        shown.on("request", lambda request: asked.append(request.url))
        shown.on("console", lambda message: said.append(message.text))
        shown.on("pageerror", lambda error: said.append(str(error)))
        shown.goto(file.as_uri())
        return shown

    yield open_one
    for context in browser.contexts:
        context.close()
    assert said == []
    assert {url.split("#")[0] for url in asked} <= {file.as_uri()}


def fits(shown: Page) -> bool:
    return bool(shown.evaluate("document.documentElement.scrollWidth <= innerWidth"))


def figure(shown: Page, name: str) -> float:
    return float(shown.locator(f"[data-figure={name}]").get_attribute("data-value") or "nan")


def check_numbers(shown: Page, tables: Any) -> None:
    """What the page says is what the tables say."""
    now = tables["periods"].query("period == 0")
    for name, column in (("puts", "puts"), ("left", "left"), ("there", "there_after")):
        assert figure(shown, name) == now[column].sum()
    assert figure(shown, "failed") == now["failed"].sum()
    assert shown.locator("[data-figure=puts] .value").inner_text() == f"{now['puts'].sum():,}"
    exact = summary.durations(tables["distribution"], 0, "wait")["p95"]
    assert figure(shown, "wait_p95") == pytest.approx(exact)
    assert shown.locator(".card").count() == tables["throughput"]["tube"].nunique()
    first = shown.evaluate("JSON.parse(document.getElementById('given').textContent).page.all.put")
    assert sum(first) == tables["throughput"]["puts"].sum()


@pytest.mark.parametrize(("count", "dark"), [(1, False), (25, True), (500, False)])
def test_the_page_of_so_many_tubes(look: Look, count: int, dark: bool) -> None:
    tables, span = scene(names(count), tasks=60 if count == 500 else 300)
    text = page(tables, span)
    assert len(text) < 4_000_000
    scheme = "dark" if dark else "light"
    for viewport in (WIDE, PHONE):
        shown = look(text, viewport=viewport, color_scheme=scheme)
        assert [one.get_attribute("id") for one in shown.locator("section").all()] == SECTIONS
        assert fits(shown)
        shown.locator("#time .chart").first.scroll_into_view_if_needed()
        chart = shown.locator("[data-chart=flow][data-kind=flow][data-drawn] svg").first
        expect(chart).to_be_visible()
        back = shown.evaluate("getComputedStyle(document.body).backgroundColor")
        assert back == ("rgb(18, 22, 29)" if dark else "rgb(255, 255, 255)")
    check_numbers(shown, tables)
    shown.locator(".card").last.scroll_into_view_if_needed()
    expect(shown.locator(".card [data-drawn]").last).to_be_visible()
    # Of one tube, on a phone: all of its charts.
    name = shown.locator(".card h3").last.inner_text()
    shown.locator(".card").last.click()
    expect(shown.locator("#tube-name")).to_have_text(name)
    for one in shown.locator("#tube .chart").all():
        one.scroll_into_view_if_needed()
        expect(one).to_have_attribute("data-rows", re.compile(r"\d"))
    expect(shown.locator("#tube [data-chart=stock] svg")).to_be_visible()
    assert fits(shown)
    shown.get_by_role("link", name="All tubes").click()
    expect(shown.locator("#tubes")).to_be_visible()
    shown.locator("#find").fill(name)
    expect(shown.locator(".card:visible").first).to_contain_text(name)


def test_any_legal_name_and_payload_is_text(look: Look) -> None:
    tables, span = scene(NAMES, tasks=20)
    key = "<img src='http://127.0.0.1:1/x' onerror='document.title=1'>"
    tables["failing"].loc[0] = [NAMES[9], key, 3, 2]
    shown = look(page(tables, span), viewport=PHONE)
    assert shown.title() == "Queue report"
    assert key in shown.locator("#failing").inner_text()
    heads = {one.inner_text() for one in shown.locator(".card h3").all()}
    assert {*NAMES[:10]} <= heads
    assert "a␀b" in "".join(heads)
    assert "n" * 79 + "…" in heads
    assert fits(shown)
    at = shown.evaluate("Object.values(document.querySelectorAll('.card')).length")
    for number in range(at):
        shown.evaluate(f"location.hash = '#tube-{number}'")
        expect(shown.locator("#tube-tiles .tile").first).to_be_visible()
        assert fits(shown)


def test_a_log_without_a_task_has_a_page(look: Look) -> None:
    empty, span = scene(["q"], tasks=1)
    none = {name: table.iloc[:0] for name, table in empty.items()}
    shown = look(page(none, spans.span([])), viewport=PHONE)
    assert "The log has no task." in shown.locator("#period").inner_text()
    assert span.compared


def test_a_short_log_is_compared_with_nothing(look: Look) -> None:
    tables, span = scene(["q"], tasks=40, length_us=60_000_000)
    text = page(tables, span)
    shown = look(text, viewport=WIDE)
    expect(shown.locator("#time svg").first).to_be_visible()
    assert not span.compared
    assert "too short for a period before" in text
    assert "; " + markup.NONE not in text
    assert {*tables["periods"]["period"]} == {0}


def flow(**sums: int) -> summary.Flow:
    return summary.Flow(**sums)


@pytest.mark.parametrize(
    ("sums", "state", "says"),
    [
        ({"puts": 100, "left": 100, "takes": 100}, "ok", "keeps up"),
        ({}, "ok", "quiet"),
        ({"puts": 100, "left": 80, "there_after": 20}, "act", "falls behind"),
        ({"puts": 1000, "left": 980, "there_after": 20}, "ok", "keeps up"),
        ({"puts": 9, "left": 0, "there_after": 9}, "ok", "keeps up"),
        ({"takes": 100, "failed": 3}, "look", "3% of deliveries fail"),
        ({"takes": 100, "failed": 20}, "act", "20% of deliveries fail"),
        ({"takes": 9, "failed": 9}, "ok", "keeps up"),
    ],
)
def test_the_state_of_a_tube(sums: dict[str, int], state: str, says: str) -> None:
    assert (flow(**sums).state, flow(**sums).says) == (state, says)


def test_capacity_is_the_service_rate_at_full_work() -> None:
    free = summary.Capacity(100.0, 2.0, 1.0, 4, 1.0, 4.0)
    assert (free.utilisation, free.most) == (0.25, 4.0)
    several = summary.Capacity(100.0, 2.0, 1.0, 1, 3.0, 1.0)
    assert (several.utilisation, several.most) == (3.0, None)
    assert summary.Capacity(100.0, 2.0, 0.0, 0, 0.0, 0.0).most is None


def test_numbers_are_written_for_people() -> None:
    written = [markup.number(n) for n in (0, 1234, 0.256, 12.34, -5, None, float("nan"))]
    assert written == ["0", "1,234", "0.26", "12.3", f"{markup.MINUS}5", markup.NONE, markup.NONE]
    assert [markup.duration(ms) for ms in (0.25, 900, 90_000, 5_400_000)] == [
        *("0.25 ms", "900 ms", "1.5 min", "1.5 h")
    ]
    assert [markup.rate(n) for n in (2, 0.5, 0.01, 0.00001)] == [
        *("2 a second", "30 a minute", "36 an hour", "0.86 a day")
    ]
    assert [markup.change(*of) for of in ((5, 4), (3, 4), (4, 4), (4, 0), (40, 4), (4, None))] == [
        *("+25%", f"{markup.MINUS}25%", "unchanged", "none before", "10 times as much", "")
    ]
