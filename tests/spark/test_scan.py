"""Looking through segments: window by window, and sealed ones once."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.logmaker import LogMaker
from tandemq.log.segment import SEGMENT_HEADER_SIZE
from tandemq.model.errors import StorageError
from tandemq.model.record import HEADER_SIZE
from tandemq.spark import disk as disks
from tandemq.spark import scan as scans
from tandemq.spark.disk import ArrowDisk
from tandemq.spark.logs import meta_of
from tandemq.spark.scan import Segment, Spaces, scan


@pytest.fixture(autouse=True)
def nothing_scanned_before(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scans, "_scanned", {})


def segments(path: Path, split: int = 1) -> tuple[list[Segment], Spaces]:
    disk, spaces = ArrowDisk(str(path)), Spaces()
    names = disk.list()
    meta = meta_of(disk, names)
    logs = [name for name in names if name.endswith(".wal")]
    return [scan(disk, meta, name, spaces, split) for name in logs], spaces


@pytest.fixture
def busy(tmp_path: Path) -> LogMaker:
    """A log: tubes created between tasks, frames of very different sizes, several segments."""
    maker = LogMaker(tmp_path / "log", segment_bytes=4096)
    maker.open_term()
    for number in range(40):
        tube = maker.tube(f"tube{number}")
        for task in range(number % 7):
            maker.put(tube, "\x96\x04\xcd" * (task * number % 50))
        maker.turn()
    maker.close()
    return maker


@pytest.mark.parametrize("size", [1, 2, 3, 7, HEADER_SIZE, 100, 1021, 1 << 20])
def test_windows_of_any_size_find_the_same(
    busy: LogMaker, size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(disks, "WINDOW_NEAR", size)
    found, spaces = segments(busy.directory)
    assert len(found) > 1
    assert sorted(name for name, _ in spaces.values()) == sorted(f"tube{n}" for n in range(40))
    at = 1
    for segment in found:
        # Each frame is marked, and each begins where its header says.
        data = (busy.directory / segment.name).read_bytes()
        assert segment.marks[0] == (at, SEGMENT_HEADER_SIZE)
        assert all(data[place : place + 4] == b"TQf1" for _, place in segment.marks)
        assert len(segment.marks) == data.count(b"TQf1")
        at = segment.last_lsn + 1
    assert at == busy.log.last_lsn + 1


def test_a_sealed_segment_is_looked_through_once(
    busy: LogMaker, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, tubes = segments(busy.directory)
    looked: list[str] = []
    windows = ArrowDisk.windows

    def seen(disk: ArrowDisk, name: str, *how: int) -> object:
        looked.append(name)
        return windows(disk, name, *how)

    monkeypatch.setattr(ArrowDisk, "windows", seen)
    assert segments(busy.directory) == (first, tubes)
    assert looked == [segment.name for segment in first if not segment.sealed]
    # One that is no longer what it was, as after a rewind, is looked at again.
    looked.clear()
    name = first[0].name
    data = (busy.directory / name).read_bytes()
    (busy.directory / name).write_bytes(data[: first[0].marks[3][1]])
    again, _ = segments(busy.directory)
    assert looked[0] == name
    assert (again[0].sealed, again[0].last_lsn) == (False, first[0].marks[3][0] - 1)


def test_what_is_kept_of_segments_has_an_end(
    busy: LogMaker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scans, "SCANNED_MAX", 2)
    found, _ = segments(busy.directory)
    assert len(found) > 3
    assert len(scans._scanned) <= 2


def test_a_file_that_is_cut_while_it_is_read_ends_there(tmp_path: Path) -> None:
    (tmp_path / "short").write_bytes(b"abcdef")
    disk = ArrowDisk(str(tmp_path))
    read = [(at, bytes(window)) for at, window in disk.windows("short", 100, 2)]
    assert read == [(0, b"abcdef")]


def test_a_file_that_cannot_be_read_is_told_by_name(tmp_path: Path) -> None:
    disk = ArrowDisk(str(tmp_path))
    with pytest.raises(StorageError, match=r"gone\.wal.*read: "):
        list(disk.windows("gone.wal", 100, 2))
