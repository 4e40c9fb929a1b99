"""Names of tubes are text in a chart, whatever a plotting library would make of them."""

from __future__ import annotations

import pandas as pd

from tandemq.pipeline.report import chart


def test_a_tube_may_be_called_like_a_formula() -> None:
    names = ["$x_$", "a$b$c", "plain"]
    table = pd.DataFrame({"tube": names, "hour": [0, 0, 0], "puts": [1, 2, 3]})
    drawn = chart(table, {"puts": "put"}, "Throughput", "tasks")
    for name in names:
        assert f">{name} put</text>" in drawn
