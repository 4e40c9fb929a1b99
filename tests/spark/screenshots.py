"""Takes docs/img/report.png: the report over a day of made-up work, in a browser.

Part of `make screenshots`.
"""

from __future__ import annotations

import math
import tempfile
from pathlib import Path

from playwright.sync_api import sync_playwright

from benchmarks.logmaker import LogMaker
from tandemq.pipeline import report
from tandemq.pipeline.session import build_session
from tests.console.conftest import browser_path

ROOT = Path(__file__).resolve().parents[2]

OUT = ROOT / "docs" / "img" / "report.png"
STEPS_A_HOUR = 60
MINUTE_US = 60_000_000


def day(maker: LogMaker) -> None:
    """Two tubes; puts follow the clock, workers take what they can, a few tasks fail."""
    choose, tubes = maker.random, [maker.tube("orders"), maker.tube("mail")]
    for step in range(24 * STEPS_A_HOUR):
        noon = 1 - math.cos(2 * math.pi * step / (24 * STEPS_A_HOUR))
        for tube, weight in zip(tubes, (6, 3), strict=True):
            for _ in range(int(weight * noon * choose.random() + 0.5)):
                maker.put(tube, {"kind": choose.choice(("invoice", "letter", "refund"))})
            taken = [task for _ in range(4) if (task := maker.take(tube)) is not None]
            maker.turn(int(MINUTE_US * choose.random() / 4))
            for task in taken:
                chance, worker = choose.random(), maker.clients[1]
                if chance < 0.03:
                    tube.release(worker, task)
                elif chance < 0.04:
                    tube.bury(worker, task)
                else:
                    tube.ack(worker, task)
            maker.turn(MINUTE_US // 4)


def main() -> None:
    home = Path(tempfile.mkdtemp())
    maker = LogMaker(home / "data")
    maker.open_term()
    day(maker)
    maker.close()
    spark = build_session("local[2]", home=home / "spark", shuffle_partitions=2)
    try:
        report.run(spark, [str(home / "data")], str(home / "report"), "kind")
    finally:
        spark.stop()
    with sync_playwright() as play:
        browser = play.chromium.launch(executable_path=browser_path(), args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 1000, "height": 1500})
        page.goto((home / "report" / "report.html").as_uri())
        page.screenshot(path=OUT)
        browser.close()


if __name__ == "__main__":
    main()
