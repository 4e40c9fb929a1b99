"""The count behind the alert: tasks in rescue files, none of those that were put again."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tandemq_server.node.loop.rescue_files import Rescued, RescueFiles, load_replayed
from tandemq_server.node.observe.rescued import RescuedTasks
from tandemq_server.storage.files import FileDisk

GOLDEN = Path(__file__).with_name("golden") / "full_rescue_done"


def test_only_tasks_that_wait_are_counted_and_files_read_when_they_change(tmp_path: Path) -> None:
    data = tmp_path / "data"
    shutil.copytree(GOLDEN, data)
    disk = FileDisk(data, read_only=True)
    rescued = RescuedTasks(disk, data)
    assert rescued.count == 0, "nobody looked"
    rescued.look()
    assert rescued.count == 15
    files = RescueFiles(disk)
    (cut,) = files.cuts()
    assert isinstance(cut, Rescued)
    tasks, replayed = files.plan(cut).tasks, load_replayed(data, cut.name)
    for task in tasks[:5]:
        replayed.note(task, 7, "somewhere")
    rescued.look()
    assert rescued.count == 10
    for task in tasks[5:]:
        replayed.note(task, 7, "somewhere")
    rescued.look()
    assert rescued.count == 0, "the files are there, and nobody is called for them"
    # A note that cannot be read may be about anything.
    (data / "rescue" / f"{cut.name}.note").write_bytes(b"no note")
    rescued.look()
    assert rescued.count >= 1
    disk.release()


def test_thousands_of_files_are_not_listed_for_each_of_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A look took seconds of a thread beside 2,500 strays, and switch-overs waited for it."""
    data = tmp_path / "data"
    shutil.copytree(GOLDEN, data)
    for number in range(40):
        (data / "rescue" / f"{9:010d}-{number:020d}.wal").touch()
    disk = FileDisk(data, read_only=True)
    listings = 0

    def listed(self: FileDisk) -> list[str]:
        nonlocal listings
        listings += 1
        return real(self)

    real = FileDisk.list
    monkeypatch.setattr(FileDisk, "list", listed)
    rescued = RescuedTasks(disk, data)
    rescued.look()
    assert rescued.count == 15 + 40
    assert listings < 20
    disk.release()
