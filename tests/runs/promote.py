"""`python -m tests.runs.promote PID`: kills the master and promotes the other in the console.

Nothing is known beforehand but the page: each step takes what it shows. Between them nothing is
waited for, so a person's reading comes on top of the seconds printed.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time

from playwright.sync_api import Page, expect, sync_playwright

from tests.console.conftest import browser_path

CONSOLE = "http://127.0.0.1:8082/"


def promoted(page: Page, pid: int) -> list[tuple[float, str]]:
    """(seconds, what) of each step, from the sentence on the page to the next one."""
    banner = page.locator(".banner")
    expect(banner).to_have_attribute("data-level", "green", timeout=60_000)
    killed = time.monotonic()
    os.kill(pid, signal.SIGKILL)
    expect(banner.locator(".sentence")).to_contain_text("no node serves", timeout=60_000)
    told = time.monotonic()
    page.get_by_role("button", name="Promote b").click()
    page.get_by_role("dialog").get_by_role("button", name="Promote", exact=True).click()
    dialog = page.get_by_role("dialog").filter(has_text="may lose acknowledged work")
    dialog.get_by_role("textbox").fill("b")
    dialog.get_by_role("button", name="Promote by force").click()
    expect(banner.locator(".sentence")).to_have_text(
        re.compile("^a cannot be reached"), timeout=60_000
    )
    serves = time.monotonic()
    subprocess.run(
        ["tandemq", "put", "letters", "Bob", "--server", "127.0.0.1:3301,127.0.0.1:3302"],
        check=True,
        capture_output=True,
    )
    return [
        (told - killed, "kill -9, until the page says that no node serves"),
        (serves - told, "3 clicks and one letter, until it says that b does"),
        (time.monotonic() - serves, "a put that is accepted"),
    ]


def main() -> int:
    """Prints the steps."""
    with sync_playwright() as play:
        browser = play.chromium.launch(executable_path=browser_path(), args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 1280, "height": 900})
        page.goto(CONSOLE)
        for seconds, what in promoted(page, int(sys.argv[1])):
            print(f"{seconds:7.1f} s  {what}")
        browser.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
