"""Folders of `history` and `follow`, merged and cut back, also where that was cut short."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tandemq.pipeline import keep
from tests.spark.cutting import Steps

NOON = datetime(2026, 3, 20, 12, tzinfo=UTC)


def changes(home: Path, batches: int) -> list[int]:
    """A folder of follow: a batch a day, the last one of today."""
    home.mkdir()
    (home / "tandemq-changes.json").write_text("{}")
    for number in range(batches):
        folder = home / f"batch={number:010d}"
        folder.mkdir()
        day = NOON - timedelta(batches - 1 - number)
        for part in range(2):
            lsns = [number * 10 + part * 5 + n for n in range(5)]
            rows = pa.table({"lsn": lsns, "time": pa.array([day] * 5, pa.timestamp("us", "UTC"))})
            pq.write_table(rows, folder / f"part-{part:05d}.zstd.parquet")
    return list(range(batches * 10))


def history(home: Path, runs: int) -> None:
    """Runs of two days and two tubes, one run that is under way."""
    for number in range(runs + 1):
        for table in ("tasks", "deliveries"):
            for day, tube in ((19, "a"), (20, "a"), (20, "b~1")):
                folder = (
                    home / table / f"run={number:020d}" / f"date=2026-03-{day}" / f"tube={tube}"
                )
                folder.mkdir(parents=True)
                rows: dict[str, list[Any]] = {"task": [number * 100 + day]}
                # A long name stands in the file.
                rows |= {"tube": ["b" * 300]} if "~" in tube else {}
                pq.write_table(pa.table(rows), folder / "part-00000.zstd.parquet")
    (home / "history.json").write_text(json.dumps({"lsn": runs, "name": f"run={runs - 1:020d}"}))


def lsns(home: Path) -> list[int]:
    files = sorted(home.glob("batch=*/*.parquet"))
    return [lsn for file in files for lsn in pq.ParquetFile(file).read()["lsn"].to_pylist()]


def rows_of(home: Path) -> list[str]:
    """Rows by table, date and tube, whatever run they stand in."""
    return sorted(
        f"{path.relative_to(home).parts[0]}/{'/'.join(path.parts[-3:-1])} {row}"
        for path in home.rglob("*.parquet")
        for row in pq.ParquetFile(path).read().to_pylist()
    )


def test_batches_become_one_in_the_order_of_the_log_but_for_the_newest(tmp_path: Path) -> None:
    wanted = changes(tmp_path / "out", 6)
    done = keep.run(str(tmp_path / "out"))
    assert done == {"files_before": 12, "files_removed": 0, "files_after": 3}
    assert lsns(tmp_path / "out") == wanted
    names = sorted(path.name for path in (tmp_path / "out").glob("batch=*"))
    assert names == ["batch=0000000004", "batch=0000000005"]
    assert keep.run(str(tmp_path / "out"))["files_after"] == 3


def test_large_ones_stay_as_they_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = changes(tmp_path / "out", 6)
    monkeypatch.setattr(keep, "MERGED_BYTES", 1)
    assert keep.run(str(tmp_path / "out"))["files_after"] == 12
    assert lsns(tmp_path / "out") == wanted


def test_runs_of_a_history_become_one_but_for_what_is_under_way(tmp_path: Path) -> None:
    history(tmp_path, 4)
    wanted = rows_of(tmp_path)
    done = keep.run(str(tmp_path))
    assert done == {"files_before": 30, "files_removed": 0, "files_after": 12}
    assert rows_of(tmp_path) == wanted
    assert {path.name[-1] for path in (tmp_path / "tasks").iterdir()} == {"3", "4"}


def test_days_that_are_over_go(tmp_path: Path) -> None:
    wanted = changes(tmp_path / "out", 6)
    done = keep.run(str(tmp_path / "out"), days=2, now=NOON)
    # Of two days ago to the moment is kept.
    assert done["files_removed"] == 6
    assert lsns(tmp_path / "out") == wanted[30:]
    history(tmp_path / "history", 3)
    assert keep.run(str(tmp_path / "history"), days=0, now=NOON)["files_removed"] == 6
    kept = {row.split("/")[1] for row in rows_of(tmp_path / "history") if "119" not in row}
    assert "date=2026-03-20" in kept
    old = list((tmp_path / "history").glob("tasks/*/date=2026-03-19"))
    assert [path.parts[-2][-1] for path in old] == ["3"]
    # Later on nothing is left of the oldest run.
    assert keep.run(str(tmp_path / "history"), days=0, now=NOON + timedelta(1))["files_after"] == 6


@pytest.mark.parametrize("step", range(1, 20))
def test_cut_short_anywhere_the_next_run_finishes_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: int
) -> None:
    wanted = changes(tmp_path / "out", 4)
    steps = Steps(monkeypatch, step)
    try:
        keep.run(str(tmp_path / "out"))
        over = True
    except SystemExit:
        over = False
    monkeypatch.undo()
    assert over == steps.over
    assert keep.run(str(tmp_path / "out"))["files_after"] == 3
    assert lsns(tmp_path / "out") == wanted
    assert not list((tmp_path / "out").glob("_keeping*"))


def test_somebody_else_s_folder_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "file.parquet").write_bytes(b"mine")
    with pytest.raises(ValueError, match="neither by history nor by follow"):
        keep.run(str(tmp_path))
    assert [path.name for path in tmp_path.iterdir()] == ["file.parquet"]
