"""The console while a node is missing: going solo, a promotion by force, nodes that come back."""

from __future__ import annotations

import re
import signal
import threading
from collections.abc import Iterator

import pytest
from playwright.sync_api import Page, expect

from tests.cluster.cluster_nodes import Pair
from tests.console.conftest import Open

pytestmark = [
    pytest.mark.slow,
    pytest.mark.integration,
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
]


@pytest.fixture(scope="module")
def nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    """Pair mode that never goes alone by itself."""
    settings = ("ack=pair", "solo_after=null", "heartbeat=300ms", "lease=2s")
    flags = [word for one in settings for word in ("--set", f"replication.{one}")]
    pair = Pair(tmp_path_factory.mktemp("alone"), "--in-replicaset", "--ttr", "60", *flags)
    try:
        yield pair.start()
    finally:
        pair.stop()


def click(page: Page, label: str) -> None:
    page.get_by_role("button", name=label, exact=True).click()


def answer(page: Page, label: str) -> None:
    page.get_by_role("dialog").get_by_role("button", name=label, exact=True).click(timeout=15_000)


def toast(page: Page, text: str) -> None:
    expect(page.locator(".toast", has_text=re.compile(text)).last).to_be_visible()


def test_go_solo_when_the_replica_is_gone_and_pair_mode_again(nodes: Pair, open_page: Open) -> None:
    page = open_page(nodes.a, "#/cluster")
    a, b = page.locator("[data-node=a]"), page.locator("[data-node=b]")
    client = nodes.a.connect()
    client.call("queue.create_tube", "jobs", "fifo")
    nodes.in_step()
    expect(b.locator(".badge")).to_have_text("read-only")
    nodes.b.end(signal.SIGKILL)
    expect(b.locator(".badge")).to_have_text("not connected")
    expect(b.locator(".state")).to_have_text("unknown")
    # Nobody confirms this, so nobody is told that it is stored.
    told: list[object] = []
    waiting = threading.Thread(target=lambda: told.append(client.call("queue.tube.jobs:put", 1)))
    waiting.start()
    expect(a.locator("dl")).to_contain_text("pair")
    click(page, "Go solo")
    expect(page.get_by_role("dialog")).to_contain_text("until the replica is back")
    answer(page, "Cancel")
    assert not told
    assert not nodes.a.status()["solo"]
    click(page, "Go solo")
    answer(page, "Go solo")
    toast(page, r"Solo: term \d")
    waiting.join(20)
    assert told, "going solo answers who waits"
    expect(a.locator("dl")).to_contain_text("solo")
    expect(page.get_by_role("button", name="Go solo")).to_have_count(0)
    nodes.b.start()
    expect(b.locator(".badge")).to_have_text("read-only")
    expect(page.get_by_role("button", name="Go solo")).to_have_count(1)
    nodes.in_step()


def test_a_promotion_by_force_tells_what_it_may_lose_first(nodes: Pair, open_page: Open) -> None:
    page, onlooker = open_page(nodes.b, "#/cluster"), open_page(nodes.a, "#/cluster")
    here = page.locator("[data-node=b]")
    expect(onlooker.locator("#live")).to_have_text("live")
    expect(here.locator(".state")).to_have_text(re.compile("WAITING|INIT"))
    term = int(nodes.a.status()["term"]["number"])
    nodes.a.end(signal.SIGKILL)
    expect(page.locator("[data-node=a] .badge")).to_have_text("not connected")
    expect(onlooker.locator("#live")).to_have_text("no connection")
    row = page.locator("#flips + .scroll tbody tr").filter(has_text=re.compile("^b"))
    expect(row.get_by_role("button", name="Switch over to b")).to_be_disabled()
    expect(row).to_contain_text(re.compile(r"\d+ records|not known"))
    click(page, "Promote")
    answer(page, "Promote")
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("This may lose acknowledged work")
    expect(dialog).to_contain_text(
        re.compile(r"give up (at least )?\d+ records|not known how many")
    )
    force = dialog.get_by_role("button", name="Promote by force")
    expect(force).to_be_disabled()
    dialog.get_by_role("textbox").fill("a")
    expect(force).to_be_disabled()
    answer(page, "Cancel")
    assert nodes.b.status()["state"] != "RUNNING"
    click(page, "Promote")
    answer(page, "Promote")
    dialog.get_by_role("textbox").fill("b")
    force.click()
    toast(page, "Promoted by force: RUNNING")
    expect(here.locator("g.lit")).to_have_attribute("data-state", "RUNNING")
    expect(here.locator("dl")).to_contain_text(str(term + 1))
    nodes.b.connect().call("queue.tube.jobs:put", "on the other node")
    # The old master comes back as a replica; its page, left open, finds it again by itself.
    nodes.a.start()
    expect(page.locator("[data-node=a] .badge")).to_have_text("read-only")
    expect(onlooker.locator("#live")).to_have_text("live")
    expect(onlooker.locator("[data-node=a] .state")).to_have_text("WAITING")
    expect(onlooker.locator("[data-node=b] .badge")).to_have_text("writable")
    nodes.in_step()
