"""The engine of one process: the rows and folders of Spark's, and nothing of Spark loaded."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from benchmarks.logmaker import LogMaker, fill
from tandemq.pipeline import compact, engines, history, local
from tandemq.pipeline.engines import JobEngine, choice
from tandemq.pipeline.faststart import cache

TABLES = ("tasks", "deliveries", "open", "open-tasks", "open-deliveries")
#: Runs the commands given as JSON in one process, where there is no Spark, and says after each of
#: them whether pandas is loaded.
COMMANDS = """
import json, sys
sys.modules["pyspark"] = sys.modules["py4j"] = None
from tandemq.pipeline.cli import app
for command in json.loads(sys.argv[1]):
    app(command, standalone_mode=False)
    print("pandas" in sys.modules)
"""


def rows_below(home: Path) -> list[tuple[str, ...]]:
    """Every row below a folder, with the folder it is in."""
    found = []
    for file in home.rglob("[!_.]*.parquet"):
        folder = file.parent.relative_to(home).as_posix()
        rows = pq.ParquetFile(file).read().to_pylist()
        found += [(folder, str(sorted(row.items()))) for row in rows]
    return sorted(found)


def more(maker: LogMaker) -> None:
    """Tasks of before go on, others begin, a tube is emptied, one has a long name."""
    tube, worker = maker.engine.tubes["mail"], maker.clients[1]
    long = maker.engine.tubes.get("n" * 300) or maker.tube("n" * 300, "fifottl", ttl=0.5)
    for number in range(40):
        maker.put(tube, number)
        maker.put(long, number)
        task = maker.take(tube)
        assert task is not None
        if number % 3:
            tube.ack(worker, task)
        elif number % 2:
            tube.bury(worker, task)
        maker.turn(20_000)
    maker.engine.tubes["crawl"].truncate(maker.clients[0])
    maker.turn()


def test_histories_of_both_engines_are_the_same_and_each_goes_on_from_the_other(
    spark: Any, maker: LogMaker, tmp_path: Path
) -> None:
    def spark_run(out: str) -> dict[str, Any]:
        return history.run(spark, paths, out)

    def local_run(out: str) -> dict[str, Any]:
        return local.history(paths, out)

    paths = [str(maker.directory)]
    folders = {
        "spark, local": (spark_run, local_run),
        "local, spark": (local_run, spark_run),
        "local, local": (local_run, local_run),
    }
    counts: list[dict[str, Any]] = []
    fill(maker, 900)
    for run in range(2):
        told = {name: runs[run](str(tmp_path / name)) for name, runs in folders.items()}
        assert len({str(one) for one in told.values()}) == 1, told
        counts.append(told["local, local"])
        for table in TABLES:
            one, *others = (rows_below(tmp_path / name / table) for name in folders)
            # Whatever was taken is over at the end of the first run.
            assert one or (run, table) == (0, "open-deliveries")
            assert all(other == one for other in others), (run, table)
        if run == 0:
            more(maker)
    maker.close()
    assert counts[1]["from_lsn"] == counts[0]["to_lsn"] + 1
    assert counts[0]["open"] > 0
    assert local_run(str(tmp_path / "spark, local"))["tasks"] == 0


def test_archives_of_both_engines_are_the_same(spark: Any, maker: LogMaker, tmp_path: Path) -> None:
    paths = [str(maker.directory)]
    fill(maker, 900)
    for include_open in (False, True):
        told = compact.run(spark, paths, str(tmp_path / "spark"), include_open)
        assert local.compact(paths, str(tmp_path / "local"), include_open) == told
        assert told[paths[0]]["rows"] > 0
        assert rows_below(tmp_path / "local") == rows_below(tmp_path / "spark")
        more(maker)
        maker.commit()
    # A history of archive and log is that of the log alone.
    local.history(paths, str(tmp_path / "alone"))
    local.history([str(tmp_path / "local"), *paths], str(tmp_path / "both"))
    maker.close()
    for table in TABLES:
        assert rows_below(tmp_path / "both" / table) == rows_below(tmp_path / "alone" / table)


def test_one_process_needs_neither_spark_nor_java(maker: LogMaker, tmp_path: Path) -> None:
    fill(maker, 300)
    maker.close()
    log, archive = str(maker.directory), str(tmp_path / "archive")
    commands = [
        ["history", log, "--out", str(tmp_path / "history"), "--json"],
        ["compact", log, "--archive", archive, "--engine", "local", "--json"],
        ["history", archive, log, "--out", str(tmp_path / "again"), "--json"],
        ["report", log, "--out", str(tmp_path / "report"), "--json"],
    ]
    ended = subprocess.run(
        [sys.executable, "-c", COMMANDS, json.dumps(commands)],
        env={"PATH": "/nothing", "HOME": str(tmp_path), "XDG_CACHE_HOME": str(cache().parent)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    lines = ended.stdout.splitlines()
    told = [json.loads(line) for line in lines[::2]]
    assert told[0] == told[2]
    # Only a report's tables are worth the half second that loading it takes.
    assert lines[1::2] == ["False", "False", "False", "True"]
    assert Path(told[3]["page"]).stat().st_size > 500_000


def test_the_choice_falls_on_spark_where_it_is_named_or_memory_may_not_do(
    maker: LogMaker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in engines.SPARKS:
        monkeypatch.delenv(name, raising=False)
    fill(maker, 300)
    maker.close()
    log, archive = str(maker.directory), str(tmp_path / "archive")
    local.compact([log], archive)
    assert choice(JobEngine.auto, [log, archive], None) is JobEngine.local
    assert choice(JobEngine.auto, [log], "local[2]") is JobEngine.spark
    assert choice(JobEngine.local, [log], "local[2]") is JobEngine.local
    assert choice(JobEngine.auto, [log], None, alike=False) is JobEngine.local
    assert choice(JobEngine.auto, [log, archive], None, alike=False) is JobEngine.spark
    monkeypatch.setattr(engines, "LOCAL_BYTES", 1000)
    assert choice(JobEngine.auto, [log], None) is JobEngine.spark
    assert choice(JobEngine.auto, [archive], None) is JobEngine.spark
    monkeypatch.undo()
    monkeypatch.setenv("SPARK_REMOTE", "sc://127.0.0.1:15002")
    assert choice(JobEngine.auto, [log], None) is JobEngine.spark
    assert choice(JobEngine.auto, [log], None, alike=False) is JobEngine.local
