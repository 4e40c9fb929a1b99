"""Following a log into a Delta table: each record once, whatever comes again or ends."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from benchmarks.logmaker import LogMaker, fill
from tandemq.pipeline import follow
from tandemq.spark.delta import DeltaChanges, DeltaWriter
from tandemq_server.cli.archive_store import ArrowStore
from tandemq_server.storage.shipping import Shipping
from tests import object_store
from tests.spark.test_follow import SMALL, command, logged, settings, wait_for


def in_table(out: Path) -> list[dict[str, Any]]:
    """As another tool reads it."""
    table = DeltaTable(str(out)).to_pyarrow_table()
    return sorted(table.to_pylist(), key=lambda row: (row["lsn"], row["task_id"] or 0))


def expected(maker: LogMaker) -> list[dict[str, Any]]:
    return sorted(logged(maker.directory), key=lambda row: (row["lsn"], row["task_id"] or 0))


def into(maker: LogMaker, out: Path, checkpoint: Path | None = None) -> follow.Output:
    there = None if checkpoint is None else str(checkpoint)
    return follow.output(str(maker.directory), str(out), "delta", there)


def test_each_batch_is_one_commit_and_again_brings_what_is_new(
    spark: Any, maker: LogMaker, tmp_path: Path
) -> None:
    out, path = tmp_path / "changes", str(maker.directory)
    fill(maker, 1500)
    told: list[tuple[int, int, int]] = []
    done = follow.run(spark, path, into(maker, out), None, SMALL, lambda *one: told.append(one))
    assert in_table(out) == expected(maker)
    assert done == {"batches": len(told), "rows": len(in_table(out)), "to_lsn": maker.log.last_lsn}
    assert [batch for batch, _, _ in told] == list(range(len(told)))
    assert DeltaTable(str(out)).version() == len(told) >= 3
    nothing = follow.run(spark, path, into(maker, out), None, SMALL)
    assert nothing == {"batches": 0, "rows": 0, "to_lsn": 0}
    tube = maker.engine.tubes["orders"]
    for value in range(300):
        maker.put(tube, value)
        maker.turn()
    follow.run(spark, path, into(maker, out), None, SMALL)
    assert in_table(out) == expected(maker)
    # A query over a few records opens the files that may hold them, by the bounds Delta keeps.
    adds = DeltaTable(str(out)).get_add_actions(flatten=True)
    bounds = [adds.column(name).to_pylist() for name in ("min.lsn", "max.lsn", "num_records")]
    assert all(low <= high and count for low, high, count in zip(*bounds, strict=True))


def test_a_batch_that_comes_again_is_there_once(
    spark: Any, maker: LogMaker, tmp_path: Path
) -> None:
    """The driver ended after Delta took the batch, before Spark noted it down."""
    out, path = tmp_path / "changes", str(maker.directory)
    fill(maker, 1000)
    follow.run(spark, path, into(maker, out), None, SMALL)
    before, version = in_table(out), DeltaTable(str(out)).version()
    last = version - 1
    for name in (f"{last}", f".{last}.crc"):
        (out / follow.CHECKPOINT / follow.QUERY / "commits" / name).unlink()
    follow.run(spark, path, into(maker, out), None, SMALL)
    assert (in_table(out), DeltaTable(str(out)).version()) == (before, version)
    assert in_table(out) == expected(maker)


def test_the_batch_number_decides_not_the_files(
    spark: Any, maker: LogMaker, tmp_path: Path
) -> None:
    out = tmp_path / "changes"
    fill(maker, 300)
    made = into(maker, out)
    follow.run(spark, str(maker.directory), made)
    feed = made.options["feed"]
    again = sorted(path.name for path in out.glob("*.parquet"))[0]
    shutil.copy(out / again, out / "copy.parquet")
    version = DeltaTable(str(out)).version()
    writer = DeltaWriter(str(out), feed)
    first = DeltaChanges(str(out)).batch(feed)
    for batch in (first, first - 1):
        DeltaChanges(str(out)).add(["copy.parquet"], feed, batch)
    writer.commit([], first + 1)
    assert DeltaTable(str(out)).version() == version
    DeltaChanges(str(out)).add(["copy.parquet"], feed, first + 1)
    assert DeltaTable(str(out)).version() == version + 1


def test_a_table_of_another_checkpoint_or_cluster_is_refused(
    maker: LogMaker, tmp_path: Path
) -> None:
    fill(maker, 100)
    out = tmp_path / "changes"
    into(maker, out)
    with pytest.raises(ValueError, match="is written from another checkpoint"):
        into(maker, out, tmp_path / "other")
    mark = out / follow.CHECKPOINT / follow.FEED
    told = json.loads(mark.read_text())
    mark.write_text(json.dumps(told | {"version": 2}))
    with pytest.raises(ValueError, match="version 2 is unknown"):
        into(maker, out)
    mark.write_text(json.dumps(told | {"cluster": "00"}))
    with pytest.raises(ValueError, match="is a checkpoint of cluster 00"):
        into(maker, out)
    with pytest.raises(ValueError, match="name a folder for --checkpoint"):
        into(maker, "s3://bucket/changes?region=x")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="parquet or delta"):
        follow.output(str(maker.directory), str(out), "iceberg")
    with pytest.raises(ValueError, match="has its checkpoint inside"):
        follow.output(str(maker.directory), str(tmp_path / "new"), "parquet", str(tmp_path))


def test_killed_in_the_middle_it_goes_on_where_it_was(
    spark: Any, maker: LogMaker, tmp_path: Path
) -> None:
    out, path = tmp_path / "changes", str(maker.directory)
    fill(maker, 4000)
    words = command(path, "--out", str(out), "--every", "0", "--records", "150", "--table", "delta")
    with subprocess.Popen(
        words, env=settings(), text=True, stdout=subprocess.PIPE, start_new_session=True
    ) as first:
        wait_for(first, lambda: len(list(out.glob("_delta_log/*.json"))) > 5)
        os.killpg(first.pid, signal.SIGKILL)
    assert follow.run(spark, path, into(maker, out))["to_lsn"] == maker.log.last_lsn
    assert in_table(out) == expected(maker)


@pytest.mark.slow
@pytest.mark.integration
def test_in_object_storage(
    maker: LogMaker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A table in S3, its checkpoint here; the source is an archive in S3, too."""
    for name, value in object_store.KEYS.items():
        monkeypatch.setenv(name, value)
    fill(maker, 600)
    maker.commit()
    with object_store.bucket() as place:
        archive, out = place % "archive", place % "changes"
        Shipping(maker.disk, ArrowStore(archive)).round(maker.engine.now)
        checkpoint = ("--checkpoint", str(tmp_path / "checkpoint"))
        words = (archive, "--out", out, "--table", "delta", "--once", "--records", "400", "--json")
        done = subprocess.run(
            command(*words, *checkpoint),
            env=settings(),
            text=True,
            capture_output=True,
            timeout=240,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        told = json.loads(done.stdout.splitlines()[-1])
        assert told["to_lsn"] == maker.log.last_lsn
        assert told["rows"] == len(expected(maker))
        batches = DeltaChanges(out).batches(-1)
        assert [batch for batch, _, _ in batches] == list(range(told["batches"]))
        assert sum(rows for _, rows, _ in batches) == told["rows"]
        with pytest.raises(ValueError, match="is written from another checkpoint"):
            follow.output(archive, out, "delta", str(tmp_path / "new"))
