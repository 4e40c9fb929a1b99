"""A browser, two real nodes with something in them, and pages that must not have errors."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect, sync_playwright

from tests.cluster.cluster_nodes import Member, Pair, until

BROWSERS = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")
TOKEN = "console-tests-token"
#: A loaded machine needs longer than a person would wait.
expect.set_options(timeout=20_000)


def browser_path() -> str | None:
    return next((path for name in BROWSERS if (path := shutil.which(name))), None)


# Not for the whole session: while Playwright runs, its loop is the thread's and no other may run.
@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    found = browser_path()
    if found is None:
        pytest.fail("no Chromium: the tools step could not install chromium-headless-shell")
    with sync_playwright() as play:
        # Root may not have a sandbox; nothing but our own pages is ever opened.
        running = play.chromium.launch(executable_path=found, args=["--no-sandbox"])
        yield running
        running.close()


@pytest.fixture(scope="module")
def nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    """Node a with three tubes, all states of tasks, two sessions; b follows it."""
    home = tmp_path_factory.mktemp("console")
    pair = Pair(home, "--in-replicaset", "--ttr", "60")
    try:
        yield filled(pair.start())
    finally:
        pair.stop()


def filled(pair: Pair) -> Pair:
    client = pair.a.connect()
    for name, kind in (("jobs", "fifottl"), ("crawl", "utubettl"), ("dead", "fifo")):
        client.call("queue.create_tube", name, kind)
    for number in range(12):
        task = {"url": f"https://host{number % 3}.example/page/{number}", "depth": number % 4}
        client.call("queue.tube.crawl:put", task, {"utube": f"host{number % 3}.example"})
    for number in range(70):
        client.call("queue.tube.jobs:put", {"send": "mail", "to": f"user{number}@example.org"})
    client.call("queue.tube.jobs:put", "<img src=x onerror=alert(1)>", {"delay": 3600})
    client.call("queue.tube.jobs:put", {"long": ["x" * 50] * 40}, {"pri": 1})
    for number in (10, 11, 12):
        client.call("queue.tube.jobs:bury", number)
    worker = pair.a.connect()
    worker.call("queue.tube.jobs:take", 0)
    worker.call("queue.tube.crawl:take", 0)
    pair.in_step()
    return pair


Open = Callable[..., Page]


@pytest.fixture
def open_page(browser: Browser) -> Iterator[Open]:
    """open_page(member, "#/tubes", **options of the context); errors of any page fail the test."""
    problems: list[str] = []
    contexts = []

    def open_one(member: Member, place: str = "", **options: Any) -> Page:
        options = {"viewport": {"width": 1280, "height": 900}, **options}
        context = browser.new_context(**options)
        contexts.append(context)
        page = context.new_page()
        page.on("pageerror", lambda error: problems.append(str(error)))
        page.on("console", lambda said: problems.append(said.text) if bad(said) else None)
        page.goto(f"http://127.0.0.1:{member.admin_port}/{place}")
        return page

    yield open_one
    for context in contexts:
        context.close()
    assert not problems


def bad(said: Any) -> bool:
    """Errors, among them what the content security policy blocked; a refused request is no error
    of the page: the browser reports every answer that is not 2xx."""
    return said.type == "error" and "Failed to load resource" not in said.text


__all__ = ["until"]
