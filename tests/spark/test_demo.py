"""The whole way: two real nodes under load, a switch-over and a kill, a verdict on both logs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from pipeline import checks, demo
from pipeline.events import read_log

pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning")


def test_two_nodes_under_load_a_switch_and_a_kill_are_judged_ok(spark: Any, tmp_path: Path) -> None:
    paths, told = demo.load(tmp_path, 4)
    verdict = demo.run(spark, tmp_path, paths, told)
    puts = [json.loads(line) for line in told.read_text().splitlines()]
    assert verdict.ok, verdict.rows[:5]
    assert verdict.counts["nodes"] == 2
    # A put whose answer was lost with the killed node may stand in the log without being told.
    assert verdict.counts["acked"] >= len(puts) > 50
    assert "<svg" in (tmp_path / "report" / "report.html").read_text()
    assert (tmp_path / "history" / "history.json").exists()
    # The same logs, and a client that was told of a task nobody ever put.
    told.write_text(told.read_text() + json.dumps({**puts[0], "task_id": 10**9}) + "\n")
    log = read_log(spark, paths[:1], ["tube", "task_id", "operation"])
    lost = checks.check_clients(log, spark.read.json(str(told))).collect()
    assert [(row["check"], row["task"]) for row in lost] == [("lost_put", 10**9)]
