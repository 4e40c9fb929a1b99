"""The first page in a real browser: its banner, a leader killed meanwhile, sorting, filters."""

from __future__ import annotations

import re
import signal
from pathlib import Path

import pytest
from playwright.sync_api import expect

from tests.cluster.cluster_nodes import Pair, pair
from tests.console.conftest import Open
from tests.console.test_console import check_access, choose_yes, counts, toast

pytestmark = [
    pytest.mark.slow,
    pytest.mark.integration,
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
]


def test_the_first_page_says_that_all_is_well(nodes: Pair, open_page: Open) -> None:
    page = open_page(nodes.a)
    banner = page.locator(".banner")
    expect(banner).to_have_attribute("data-level", "green")
    expect(banner.locator(".sentence")).to_have_text("a serves, b in step")
    tiles = page.locator(".tiles")
    expect(tiles).to_contain_text("master, followed by b, 0 behind")
    expect(tiles).to_contain_text("b, once somebody promotes it")
    expect(page.locator("tbody tr").first).to_contain_text("jobs")


@pytest.mark.parametrize("place", ["#/tubes/jobs", "#/tubes", ""])
def test_nothing_is_cut_off_at_1280(nodes: Pair, open_page: Open, place: str) -> None:
    page = open_page(nodes.a, place)
    expect(page.locator("tbody tr").first).to_be_visible()
    wider = "e => e.scrollWidth - e.clientWidth"
    assert page.locator(".scroll").first.evaluate(wider) <= 0


def test_tubes_are_sorted_by_any_column_and_the_address_keeps_it(
    nodes: Pair, open_page: Open
) -> None:
    page = open_page(nodes.a, "#/tubes")
    names = page.locator("tbody tr td:first-child")
    expect(names).to_have_text(["crawl", "dead", "jobs"])
    page.get_by_role("button", name="Ready", exact=True).click()
    expect(names).to_have_text(["jobs", "crawl", "dead"])
    page.mouse.move(0, 0)
    page.get_by_role("button", name="Ready", exact=True).click()
    expect(names).to_have_text(["dead", "crawl", "jobs"])
    expect(page.locator("th[aria-sort=ascending]")).to_have_text("Ready")
    assert page.url.endswith("#/tubes?sort=ready")
    page.reload()
    expect(names).to_have_text(["dead", "crawl", "jobs"])
    expect(page.locator("tbody tr").first).to_contain_text("empty")


def test_filters_are_in_the_address_and_words_are_found(nodes: Pair, open_page: Open) -> None:
    page = open_page(nodes.a, "#/tubes/jobs")
    rows = page.locator("tbody tr")
    expect(rows).to_have_count(50)
    page.get_by_label("Contains").fill("USER42@example")
    page.get_by_label("Contains").press("Enter")
    expect(rows).to_have_count(1)
    expect(rows).to_contain_text("user42@example.org")
    assert "search=USER42" in page.url
    page.get_by_label("State", exact=True).select_option("buried")
    expect(rows).to_contain_text("no such task")
    page.reload()
    expect(page.get_by_label("State", exact=True)).to_have_value("buried")
    expect(page.get_by_label("Contains")).to_have_value("USER42@example")


def test_rows_stay_under_the_pointer_and_keys_do_what_clicks_do(
    nodes: Pair, open_page: Open
) -> None:
    client = nodes.a.connect()
    for name in ("low", "high"):
        client.call("queue.create_tube", name, "fifo")
    client.call("queue.tube.high:put_many", [[["x"]] * 200])
    try:
        page = open_page(nodes.a, "#/tubes?sort=ready&order=desc")
        names = page.locator("tbody tr td:first-child")
        expect(names.first).to_have_text("high")
        page.locator("tbody tr").nth(1).hover()
        client.call("queue.tube.low:put_many", [[["x"]] * 300])
        row = page.locator("tbody tr", has_text="low")
        expect(row).to_contain_text("300")
        assert names.first.inner_text() == "high"
        page.mouse.move(0, 0)
        expect(names.first).to_have_text("low")
        page.get_by_role("button", name="Tube", exact=True).focus()
        page.keyboard.press("Enter")
        expect(names).to_have_text(["crawl", "dead", "high", "jobs", "low"])
        page.get_by_role("link", name="high", exact=True).focus()
        page.keyboard.press("Enter")
        expect(page.get_by_role("heading", name="high")).to_be_visible()
        page.get_by_label("Choose task 3", exact=True).focus()
        page.keyboard.press("Space")
        expect(page.get_by_role("group", name="Chosen tasks")).to_contain_text("1 chosen")
    finally:
        for name in ("low", "high"):
            client.call(f"queue.tube.{name}:truncate")
            client.call(f"queue.tube.{name}:drop")


def test_what_a_filter_finds_is_counted_then_deleted(nodes: Pair, open_page: Open) -> None:
    client = nodes.a.connect()
    client.call("queue.create_tube", "sift", "fifo")
    words = [["chaff" if number % 3 else "wheat"] for number in range(240)]
    client.call("queue.tube.sift:put_many", [words])
    try:
        page = open_page(nodes.a, "#/tubes/sift?search=chaff")
        expect(page.locator("tbody tr")).to_have_count(50)
        page.get_by_role("button", name="Choose all that fit").click()
        bar = page.get_by_role("group", name="Chosen tasks")
        expect(bar).to_contain_text("160 chosen")
        bar.get_by_role("button", name="Delete").click()
        expect(page.get_by_role("dialog")).to_contain_text("160 tasks of sift")
        choose_yes(page, "Cancel")
        assert counts(nodes.a, "sift")["total"] == 240
        bar.get_by_role("button", name="Delete").click()
        choose_yes(page, "Delete")
        toast(page, "delete: 160 of 160")
        assert counts(nodes.a, "sift")["total"] == 80
        check_access(page)
    finally:
        client.call("queue.tube.sift:truncate")
        client.call("queue.tube.sift:drop")


def test_a_failing_task_is_two_clicks_from_the_overview(nodes: Pair, open_page: Open) -> None:
    client = nodes.a.connect()
    client.call("queue.create_tube", "fails", "fifo", {"max_attempts": 5})
    for number in (17, 18):
        client.call("queue.tube.fails:put", {"order": number})
    client.call("queue.tube.fails:take", 0)
    client.call("queue.tube.fails:release", 0, {"reason": "no such address"})
    try:
        page = open_page(nodes.a)
        row = page.locator("tbody tr", has_text="fails")
        row.locator("a.warn").click()
        rows = page.locator("tbody tr")
        expect(rows).to_have_count(1)
        expect(rows).to_contain_text("no such address")
        page.get_by_label("Failed only").uncheck()
        expect(rows).to_have_count(2)
        page.get_by_label("Contains").fill("18")
        page.get_by_label("Contains").press("Enter")
        expect(rows).to_have_count(1)
        # The tube is altered where one looks at it.
        page.get_by_role("button", name="Alter").click()
        page.get_by_label("max_attempts").fill("9")
        page.get_by_label("capacity", exact=True).fill("many")
        choose_yes(page, "Alter")
        toast(page, "Invalid value of capacity: many")
        page.get_by_role("button", name="Alter").click()
        page.get_by_label("max_attempts").fill("9")
        choose_yes(page, "Alter")
        toast(page, "altered: max_attempts")
        told = nodes.a.connect(encoding="utf-8").call("queue.tube.fails:info", 0).data[0]
        assert told["max_attempts"] == 9
    finally:
        client.call("queue.tube.fails:truncate")
        client.call("queue.tube.fails:drop")


def test_what_happened_to_a_task_that_is_gone(nodes: Pair, open_page: Open) -> None:
    client = nodes.a.connect()
    client.call("queue.create_tube", "orders", "fifo")
    client.call("queue.tube.orders:put", {"order": 17, "to": "Ännchen"})
    client.call("queue.tube.orders:take", 0)
    client.call("queue.tube.orders:ack", 0)
    try:
        page = open_page(nodes.a, "#/tubes/orders")
        page.get_by_role("button", name="Look back").click()
        dialog = page.get_by_role("dialog")
        # By its id, by a field of its payload, and by words in it.
        for text in ("0", "order=17", "Ännchen"):
            dialog.get_by_label("Task, field or words").fill(text)
            dialog.get_by_label("Task, field or words").press("Enter")
            expect(dialog.locator("tbody tr")).to_have_count(3)
            expect(dialog.locator("tbody tr").last).to_contain_text("gone")
            check_access(page)
        dialog.get_by_label("Task, field or words").fill("order=18")
        dialog.get_by_role("button", name="Look", exact=True).click()
        expect(dialog).to_contain_text("has nothing of it")
    finally:
        client.call("queue.tube.orders:drop")


def test_the_leader_is_killed_while_one_looks(tmp_path: Path, open_page: Open) -> None:
    with pair(tmp_path) as nodes:
        nodes.a.connect().call("queue.create_tube", "jobs", "fifo")
        nodes.in_step()
        dead, survivor = open_page(nodes.a), open_page(nodes.b)
        banner = survivor.locator(".banner")
        expect(banner).to_have_attribute("data-level", "green")
        expect(dead.locator(".banner")).to_have_attribute("data-level", "green")
        nodes.a.end(signal.SIGKILL)
        expect(banner.locator(".sentence")).to_have_text(
            "no node serves: a cannot be reached", timeout=3_000
        )
        expect(banner).to_have_attribute("data-level", "red")
        expect(banner).to_contain_text("start a again, or promote b")
        # The page of the dead one says so, and nothing of it can be pressed.
        expect(dead.locator("#gone")).to_contain_text("does not answer since", timeout=3_000)
        expect(dead.locator("#gone")).to_contain_text("Look at the console of b")
        assert dead.evaluate("document.getElementById('main').inert")
        # How long ago it was heard of goes on counting.
        survivor.goto(survivor.url.split("#")[0] + "#/cluster")
        heard = survivor.locator("[data-node=a] [data-since]")
        before = heard.inner_text()
        expect(heard).not_to_have_text(before)
        survivor.goto(survivor.url.split("#")[0] + "#/")
        survivor.get_by_role("button", name="Promote b").click()
        choose_yes(survivor, "Promote")
        dialog = survivor.get_by_role("dialog")
        expect(dialog).to_contain_text("This may lose acknowledged work")
        dialog.get_by_role("textbox").fill("b")
        choose_yes(survivor, "Promote by force")
        expect(banner.locator(".sentence")).to_have_text(re.compile("^a cannot be reached"))
        expect(banner).to_have_attribute("data-level", "amber")
        expect(survivor.locator(".tiles")).to_contain_text("master, followed by nobody")


def test_a_connection_that_is_cut_without_a_word_is_noticed(nodes: Pair, open_page: Open) -> None:
    page = open_page(nodes.a)
    expect(page.locator("#live")).to_have_text("live")
    page.context.set_offline(True)
    expect(page.locator("#gone")).to_be_visible()
    page.context.set_offline(False)
    expect(page.locator("#gone")).to_be_hidden()
    expect(page.locator("#live")).to_have_text("live")
