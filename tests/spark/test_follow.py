"""Following a log into Parquet: each record once, whatever ends the query and wherever."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from pyspark.errors import AnalysisException

from benchmarks.logmaker import CLUSTER, LogMaker, fill
from tandemq.pipeline import follow
from tandemq.spark.changes import ASIDE, folder_of
from tandemq.spark.columns import ALL
from tandemq.spark.decode import Decoder
from tandemq.spark.logs import LogQuery, plan

SMALL = {"maxRecordsPerBatch": 400}


def written(out: Path) -> list[dict[str, Any]]:
    """Rows in the order they were written, read as other tools do: every file that is there."""
    files = sorted(out.glob("batch=*/*.parquet"))
    return [row for file in files for row in pq.ParquetFile(file).read().to_pylist()]


def logged(path: Path) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for part in plan([str(path)], LogQuery()):
        for batch in Decoder(part, ALL).batches():
            found += batch.to_pylist()
    return found


def forget(out: Path, batch: int) -> None:
    """As if the query had ended before Spark noted the batch down as done."""
    for name in (f"{batch}", f".{batch}.crc"):
        (out / follow.CHECKPOINT / "commits" / name).unlink()


def test_what_is_new_comes_in_batches_of_its_own(
    spark: Any, maker: LogMaker, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    fill(maker, 1500)
    told: list[tuple[int, int, int]] = []
    done = follow.run(
        spark, str(maker.directory), str(out), None, SMALL, lambda *one: told.append(one)
    )
    rows = written(out)
    assert rows == logged(maker.directory)
    assert done == {"batches": len(told), "rows": len(rows), "to_lsn": maker.log.last_lsn}
    assert sum(count for _, count, _ in told) == len(rows)
    assert [batch for batch, _, _ in told] == list(range(len(told)))
    assert len(told) >= 3
    first = {path: path.stat().st_mtime_ns for path in out.glob("batch=*/*")}
    nothing = follow.run(spark, str(maker.directory), str(out), None, SMALL)
    assert nothing == {"batches": 0, "rows": 0, "to_lsn": 0}
    tube = maker.engine.tubes["orders"]
    for value in range(500):
        maker.put(tube, value)
        maker.turn()
    follow.run(spark, str(maker.directory), str(out), None, SMALL)
    assert written(out) == logged(maker.directory)
    assert (
        first.items() <= {path: path.stat().st_mtime_ns for path in out.glob("batch=*/*")}.items()
    )
    # Spark reads the folder as one table, and the work beside the batches is out of its way.
    assert spark.read.parquet(str(out)).count() == len(written(out))
    assert not list((out / ASIDE).iterdir())


def test_a_batch_asked_for_again_is_there_once(spark: Any, maker: LogMaker, tmp_path: Path) -> None:
    out = tmp_path / "out"
    fill(maker, 1000)
    follow.run(spark, str(maker.directory), str(out), None, SMALL)
    rows, last = written(out), max(int(path.name[6:]) for path in out.glob("batch=*"))
    # It ended behind the name, but before Spark knew.
    forget(out, last)
    follow.run(spark, str(maker.directory), str(out), None, SMALL)
    assert written(out) == rows
    # It ended before the name, with files half done.
    forget(out, last)
    shutil.rmtree(folder_of(out, last))
    (out / ASIDE / "part-00000-old.zstd.parquet").write_bytes(b"PAR1 half")
    (out / ASIDE / folder_of(out, last).name).mkdir()
    follow.run(spark, str(maker.directory), str(out), None, SMALL)
    assert written(out) == rows
    assert not list((out / ASIDE).iterdir())


def test_a_rewind_comes_as_retractions(spark: Any, maker: LogMaker, tmp_path: Path) -> None:
    out = tmp_path / "out"
    tube = maker.tube("q")
    for value in range(50):
        maker.put(tube, value)
        maker.turn()
    follow.run(spark, str(maker.directory), str(out))
    before = written(out)
    fork, parent = maker.log.last_lsn - 9, maker.term.id
    maker.log.truncate_from(fork + 1)
    maker.open_term(3, "b", parent)
    for value in range(1000, 1020):
        maker.put(tube, value)
        maker.turn()
    follow.run(spark, str(maker.directory), str(out))
    rows = written(out)
    assert rows[: len(before)] == before
    taken_back = [(row["term_id"], row["lsn"]) for row in rows if row["retracted"]]
    assert taken_back == [(row["term_id"], row["lsn"]) for row in before[-9:]]
    left = [
        row
        for row in rows
        if not row["retracted"] and (row["term_id"], row["lsn"]) not in taken_back
    ]
    assert left == logged(maker.directory)


def test_only_what_is_committed_where_asked(spark: Any, maker: LogMaker, tmp_path: Path) -> None:
    out = tmp_path / "out"
    tube = maker.tube("q")
    maker.put(tube, 1)
    maker.turn()
    maker.commit()
    committed = maker.log.last_lsn
    maker.put(tube, 2)
    maker.turn()
    done = follow.run(spark, str(maker.directory), str(out), None, {"until": "commit"})
    assert done["to_lsn"] == committed == written(out)[-1]["lsn"]


def test_folders_of_something_else_are_left_alone(
    spark: Any, maker: LogMaker, tmp_path: Path
) -> None:
    path, out = str(maker.directory), tmp_path / "out"
    out.mkdir()
    (out / "letter").write_text("dear")
    with pytest.raises(ValueError, match="is not empty, and no folder of changes"):
        follow.run(spark, path, str(out))
    assert [one.name for one in out.iterdir()] == ["letter"]
    (out / follow.MARK).write_text(json.dumps({"version": 2, "cluster": "00"}))
    with pytest.raises(ValueError, match=r"tandemq-changes\.json: version 2 is unknown"):
        follow.run(spark, path, str(out))
    (out / follow.MARK).write_text(json.dumps({"version": 1, "cluster": "00"}))
    with pytest.raises(ValueError, match=f"has changes of cluster 00, .* is of {CLUSTER.hex()}"):
        follow.run(spark, path, str(out))
    with pytest.raises(AnalysisException, match="tandemq_archive has no option 'colour'"):
        follow.run(spark, path, str(tmp_path / "new"), None, {"colour": "red"})


def command(*words: str) -> list[str]:
    return [sys.executable, "-m", "tandemq.pipeline", "follow", *words]


def settings() -> dict[str, str]:
    return os.environ | {"TANDEM_SPARK_QUICK": "1"}


def batches_in(out: Path) -> int:
    return len(list(out.glob("batch=*")))


def wait_for(process: subprocess.Popen[str], what: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 90
    while not what():
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline, "no batch in 90 s"
        time.sleep(0.02)


def test_killed_in_mid_batch_and_interrupted_it_goes_on_where_it_was(
    spark: Any, maker: LogMaker, tmp_path: Path
) -> None:
    """kill -9 of the command and its JVM, then Ctrl-C, then the rest."""
    out, path = tmp_path / "out", str(maker.directory)
    fill(maker, 6000)
    words = command(path, "--out", str(out), "--every", "0", "--records", "150")
    with subprocess.Popen(
        words, env=settings(), text=True, stdout=subprocess.PIPE, start_new_session=True
    ) as first:
        wait_for(first, lambda: batches_in(out) >= 5)
        os.killpg(first.pid, signal.SIGKILL)
    there = batches_in(out)
    with subprocess.Popen(
        words,
        env=settings(),
        text=True,
        stdout=subprocess.PIPE,
        start_new_session=True,
        # Shells have what runs in the background ignore it.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    ) as second:
        wait_for(second, lambda: batches_in(out) >= there + 5)
        second.send_signal(signal.SIGINT)
        said, _ = second.communicate(timeout=60)
        assert second.returncode == 0
        assert f"batch {there}: " in said or f"batch {there - 1}: " in said
    assert follow.run(spark, path, str(out))["to_lsn"] == maker.log.last_lsn
    assert written(out) == logged(maker.directory)
