"""The report's charts take every name a tube may have."""

from __future__ import annotations

import pandas as pd
import pytest

from tandemq.pipeline.page import chart

NAMES = ["price_$^$_x", "$a$", "_hidden", "a<b>&c", "очередь", "鱼", "{x}", "\\frac{1}", "%s %d"]


@pytest.mark.parametrize("name", NAMES)
def test_a_chart_of_a_tube_with_any_legal_name(name: str) -> None:
    hours = pd.to_datetime(["2025-06-01 10:00", "2025-06-01 11:00"], utc=True)
    table = pd.DataFrame({"tube": [name, name], "time": hours, "puts": [1, 2]})
    drawn = chart(table, {"puts": "put"}, "Throughput", "tasks per hour")
    shown = name.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    assert f"{shown} put" in drawn
