"""History and archive, ended at any step: readers see a whole run or none, the next one goes on."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from contextlib import suppress
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
            with suppress(SystemExit):
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


def test_a_mark_is_what_it_was_or_is_to_be(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mark = tmp_path / "mark.json"
    found = []
    for step in range(1, 6):
        mark.write_text("as it was")
        with monkeypatch.context() as patch:
            Steps(patch, step)
            with suppress(SystemExit):
                put_text(mark, "as it is to be")
        found.append(mark.read_text())
    assert found == ["as it was"] * 3 + ["as it is to be"] * 2
