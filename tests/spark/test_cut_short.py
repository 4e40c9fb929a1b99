"""History and archive, ended at any step: readers see a whole run or none, the next one goes on."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from benchmarks.logmaker import LogMaker, fill
from tandemq.pipeline import history_files, local
from tandemq.spark.logs import LogQuery, plan
from tandemq.spark.parts import put_text
from tests.spark.cutting import Steps


def history_rows(home: Path) -> list[str]:
    """As a reader sees them."""
    return sorted(
        f"{table} {row}"
        for table, file in history_files.files(str(home))
        for row in pq.ParquetFile(file).read().to_pylist()
    )


def archive_rows(home: Path) -> list[str]:
    # A reader needs the tubes that are noted beside the parts, too.
    parts = plan([str(home)], LogQuery())
    files = [Path(part.path) / part.name for part in parts]
    return sorted(str(row) for file in files for row in pq.ParquetFile(file).read().to_pylist())


def go_on(maker: LogMaker) -> None:
    tube, worker = maker.engine.tubes["mail"], maker.clients[1]
    for number in range(20):
        maker.put(tube, number)
        task = maker.take(tube)
        assert task is not None
        if number % 3:
            tube.ack(worker, task)
        maker.turn(20_000)


JOBS: dict[str, tuple[Callable[[list[str], str], Any], Callable[[Path], list[str]]]] = {
    "history": (local.history, history_rows),
    "archive": (lambda paths, out: local.compact(paths, out, True), archive_rows),
}


@pytest.mark.parametrize("job", JOBS)
def test_ended_at_any_step_the_next_run_finishes_it(
    maker: LogMaker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, job: str
) -> None:
    run, rows = JOBS[job]
    paths, first, wanted = [str(maker.directory)], tmp_path / "first", tmp_path / "wanted"
    fill(maker, 60)
    maker.commit()
    run(paths, str(first))
    before = rows(first)
    go_on(maker)
    maker.commit()
    shutil.copytree(first, wanted)
    run(paths, str(wanted))
    after = rows(wanted)
    assert len(after) > len(before) > 0
    left, over = [], False
    while not over:
        left.append(shutil.copytree(first, tmp_path / f"out{len(left)}"))
        with monkeypatch.context() as patch:
            steps = Steps(patch, len(left))
            with contextlib.suppress(SystemExit):
                run(paths, str(left[-1]))
            over = steps.over
        assert rows(left[-1]) in (before, after), f"step {len(left)}"
    # The log has grown since: the next run begins where the last whole one ended, and goes further.
    go_on(maker)
    maker.commit()
    maker.close()
    for out in (wanted, *left):
        run(paths, str(out))
        assert rows(out) == rows(wanted), out.name
    assert len(left) > 8


def test_a_history_goes_on_only_where_the_log_does(maker: LogMaker, tmp_path: Path) -> None:
    log, archive, out = maker.directory, tmp_path / "archive", tmp_path / "out"
    fill(maker, 60)
    parts = []
    for _ in range(3):
        go_on(maker)
        maker.commit()
        local.compact([str(log)], str(archive), True)
        [part] = set(archive.glob("node=*/lsn=*")) - set(parts)
        parts.append(part)
        if len(parts) == 1:
            told = local.history([str(archive)], str(out))
    before = history_rows(out)
    # Of the second part nobody saw anything.
    parts[1].rename(tmp_path / "trimmed")
    gap = rf"ends at LSN {told['to_lsn']}, and the log begins at \d+: read an archive"
    with pytest.raises(ValueError, match=gap):
        local.history([str(archive)], str(out))
    # Another log goes on there, as one does whose end was cut.
    with contextlib.closing(LogMaker(tmp_path / "other", seed=1)) as other:
        other.open_term()
        fill(other, 300)
        other.commit()
        with pytest.raises(ValueError, match=r"up to LSN \d+ that were cut off since"):
            local.history([str(other.directory)], str(out))
    assert history_rows(out) == before
    assert local.history([str(archive), str(log)], str(tmp_path / "whole"))["from_lsn"] == 1
    (tmp_path / "trimmed").rename(parts[1])
    assert local.history([str(archive)], str(out))["from_lsn"] == told["to_lsn"] + 1
    maker.close()


def test_a_mark_is_what_it_was_or_is_to_be(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mark = tmp_path / "mark.json"
    found = []
    for step in range(1, 6):
        mark.write_text("as it was")
        with monkeypatch.context() as patch:
            Steps(patch, step)
            with contextlib.suppress(SystemExit):
                put_text(mark, "as it is to be")
        found.append(mark.read_text())
    assert found == ["as it was"] * 3 + ["as it is to be"] * 2
