"""Takes the pictures in docs/img/ from two real nodes under a little load: `make screenshots`."""

from __future__ import annotations

import random
import tempfile
import threading
import time
from pathlib import Path

from playwright.sync_api import Browser, Page, sync_playwright

from tests.cluster.cluster_nodes import Pair
from tests.console.conftest import browser_path, filled

ROOT = Path(__file__).resolve().parents[2]

OUT = ROOT / "docs" / "img"
LOAD_SECONDS = 45
PHONE = {"viewport": {"width": 390, "height": 844}, "is_mobile": True, "device_scale_factor": 2}


def load(pair: Pair, ended: threading.Event) -> None:
    """Puts in waves, takes and acks behind them."""
    client, worker, chance = pair.a.connect(), pair.a.connect(), random.Random(7)
    while not ended.wait(0.05):
        for _ in range(chance.randrange(1, 9)):
            client.call("queue.tube.jobs:put", {"send": "mail", "to": "user@example.org"})
        for _ in range(chance.randrange(1, 8)):
            found = worker.call("queue.tube.jobs:take", 0).data
            if found and found[0]:
                worker.call("queue.tube.jobs:ack", found[0][0])


def picture(browser: Browser, pair: Pair, name: str, place: str = "", **options: object) -> Page:
    context = browser.new_context(**{"viewport": {"width": 1200, "height": 860}, **options})
    page = context.new_page()
    page.goto(f"http://127.0.0.1:{pair.a.admin_port}/{place}")
    page.locator("tbody tr").first.wait_for()
    page.wait_for_timeout(1500)
    page.screenshot(path=OUT / f"{name}.png")
    return page


def main() -> None:
    OUT.mkdir(parents=True, exist_ok=True)
    pair = Pair(Path(tempfile.mkdtemp()), "--in-replicaset", "--ttr", "60")
    ended = threading.Event()
    try:
        filled(pair.start())
        busy = threading.Thread(target=load, args=(pair, ended))
        busy.start()
        time.sleep(LOAD_SECONDS)
        with sync_playwright() as play:
            browser = play.chromium.launch(executable_path=browser_path(), args=["--no-sandbox"])
            picture(browser, pair, "overview")
            page = picture(browser, pair, "cluster", "#/cluster")
            picture(browser, pair, "cluster-phone", color_scheme="dark", **PHONE)
            picture(browser, pair, "tubes", "#/tubes")
            picture(browser, pair, "tasks", "#/tubes/crawl", color_scheme="dark")
            picture(browser, pair, "sessions", "#/sessions")
            ended.set()
            busy.join()
            page.get_by_role("button", name="Switch over to b").click()
            page.get_by_role("dialog").get_by_role("button", name="Switch over").click()
            page.get_by_text("is the master, after").wait_for()
            page.screenshot(path=OUT / "switchover.png")
            browser.close()
    finally:
        ended.set()
        pair.stop()


if __name__ == "__main__":
    main()
