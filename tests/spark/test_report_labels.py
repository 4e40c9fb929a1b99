"""Names of tubes are text in charts, tables and folders, whatever a library makes of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from benchmarks.logmaker import LogMaker
from tandemq.pipeline import history
from tests.spark.report_engines import report_by_both

#: Legal all of them; the last ones are longer than a file's name may be.
NAMES = ["price_$^$_x", "_a/b=c%d", "<i>..</i>", "鱼" * 90, "n" * 3000, "n" * 3001]


def test_a_report_of_tubes_with_any_legal_name(spark: Any, maker: LogMaker, tmp_path: Path) -> None:
    for number, name in enumerate(NAMES):
        tube = maker.tube(name)
        for _ in range(number + 1):
            maker.put(tube, number)
            maker.take(tube)
            maker.turn()
        for task in range(number + 1):
            tube.ack(maker.clients[1], task)
        maker.turn()
    maker.close()
    home = tmp_path / "history"
    report_by_both(spark, [str(maker.directory)], str(tmp_path / "out"), None, str(home))
    rates = pq.read_table(tmp_path / "out" / "throughput.parquet").to_pydict()
    expected = {name: number + 1 for number, name in enumerate(NAMES)}
    assert dict(zip(rates["tube"], rates["puts"], strict=True)) == expected
    assert "&lt;i&gt;..&lt;/i&gt;" in (tmp_path / "out" / "report.html").read_text()
    folders = {Path(file).parent.name for _, file in history.files(str(home))}
    assert len({one for one in folders if one.startswith("tube=")}) == len(NAMES)
    assert {"tube=price_$%5E$_x", "tube=_a%2Fb%3Dc%25d"} < folders
