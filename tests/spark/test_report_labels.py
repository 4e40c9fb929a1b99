"""Names of tubes are text in charts, tables and folders, whatever a library makes of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow.parquet as pq

from benchmarks.logmaker import LogMaker
from tandemq.pipeline import history, report
from tandemq.pipeline.page import chart

#: Legal all of them; the last ones are longer than a file's name may be.
NAMES = ["price_$^$_x", "_a/b=c%d", "<i>..</i>", "鱼" * 90, "n" * 3000, "n" * 3001]


def test_a_tube_may_be_called_like_a_formula() -> None:
    names = ["$x_$", "a$b$c", "plain"]
    table = pd.DataFrame({"tube": names, "time": [0, 0, 0], "puts": [1, 2, 3]})
    drawn = chart(table, {"puts": "put"}, "Throughput", "tasks")
    for name in names:
        assert f">{name} put</text>" in drawn


def test_a_long_name_is_cut_in_the_legend() -> None:
    table = pd.DataFrame({"tube": ["n" * 65_000], "time": [0], "puts": [1]})
    drawn = chart(table, {"puts": "put"}, "Throughput", "tasks")
    assert f">{'n' * 39}… put</text>" in drawn
    assert len(drawn) < 65_000


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
    report.run(spark, [str(maker.directory)], str(tmp_path / "out"), None, str(home))
    rates = pq.read_table(tmp_path / "out" / "throughput.parquet").to_pydict()
    expected = {name: number + 1 for number, name in enumerate(NAMES)}
    assert dict(zip(rates["tube"], rates["puts"], strict=True)) == expected
    assert "&lt;i&gt;..&lt;/i&gt;" in (tmp_path / "out" / "report.html").read_text()
    folders = {Path(file).parent.name for _, file in history.files(str(home))}
    assert len({one for one in folders if one.startswith("tube=")}) == len(NAMES)
    assert {"tube=price_$%5E$_x", "tube=_a%2Fb%3Dc%25d"} < folders
