"""The contract of a disk, run against the simulated and the real one; then what is special."""

from __future__ import annotations

import errno
import os
import resource
import subprocess
import sys
from pathlib import Path
from random import Random

import pytest

from tandemq.log.disk import Disk, append_all, write_file
from tandemq.model.errors import StorageError
from tandemq_server.storage.files import FileDisk
from tandemq_server.storage.memory import MemoryDisk


def put(disk: Disk, name: str, data: bytes) -> None:
    handle = disk.create(name)
    append_all(disk, handle, data)
    disk.close(handle)


def test_appends_and_reads_parts(disk: Disk) -> None:
    put(disk, "a", b"hello")
    handle = disk.open("a")
    assert disk.append(handle, b" world") == 6
    disk.sync(handle)
    disk.close(handle)
    assert disk.read("a") == b"hello world"
    assert disk.read("a", 6) == b"world"
    assert disk.read("a", 6, 2) == b"wo"
    assert disk.read("a", 9, 100) == b"ld"
    assert disk.read("a", 50, 5) == b""
    assert disk.size("a") == 11


def test_overwrites_in_place(disk: Disk) -> None:
    handle = disk.create("commit")
    disk.overwrite(handle, b"12345678")
    disk.overwrite(handle, b"abcd")
    disk.close(handle)
    assert disk.read("commit") == b"abcd5678"


def test_lists_renames_removes_truncates(disk: Disk) -> None:
    put(disk, "b", b"old")
    put(disk, "a", b"new content")
    put(disk, "rescue/x", b"saved")
    assert disk.list() == ["a", "b", "rescue/x"]
    disk.rename("a", "b")
    assert disk.list() == ["b", "rescue/x"]
    disk.truncate("b", 3)
    disk.settle("b")
    assert disk.read("b") == b"new"
    disk.remove("b")
    disk.sync_dir()
    assert disk.list() == ["rescue/x"]
    assert disk.free() > 0


@pytest.mark.parametrize("operation", ["read", "size", "open", "remove", "truncate", "settle"])
def test_a_missing_file_is_named(disk: Disk, operation: str) -> None:
    arguments = (0,) if operation == "truncate" else ()
    with pytest.raises(StorageError, match=f"nothing.*{operation}.*No such file"):
        getattr(disk, operation)("nothing", *arguments)


def test_create_does_not_overwrite(disk: Disk) -> None:
    put(disk, "a", b"keep")
    with pytest.raises(StorageError, match="a: byte 0: create: File exists"):
        disk.create("a")
    assert disk.read("a") == b"keep"


def test_write_file_replaces_at_once_and_survives_its_own_leftover(disk: Disk) -> None:
    put(disk, "meta.inprogress", b"half")
    write_file(disk, "meta", b"one")
    write_file(disk, "meta", b"two")
    assert disk.list() == ["meta"]
    assert disk.read("meta") == b"two"


def test_append_goes_on_after_short_writes() -> None:
    disk = MemoryDisk()
    handle = disk.create("a")
    disk.short_write(1)
    disk.short_write(2)
    append_all(disk, handle, b"0123456789")
    assert disk.read("a") == b"0123456789"


def test_faults_hit_the_operation_and_call_they_were_aimed_at() -> None:
    disk = MemoryDisk()
    handle = disk.create("a")
    disk.fail("append", 2, errno.ENOSPC)
    disk.append(handle, b"x")
    with pytest.raises(StorageError, match="a: byte 0: append: No space left"):
        disk.append(handle, b"y")
    disk.append(handle, b"z")
    disk.fail("sync")
    with pytest.raises(StorageError, match="Input/output error"):
        disk.sync(handle)


def test_a_crash_keeps_what_was_synced_and_only_prefixes_or_rubbish_of_the_rest() -> None:
    seen = set()
    for seed in range(200):
        disk = MemoryDisk()
        handle = disk.create("a")
        disk.append(handle, b"durable")
        disk.sync(handle)
        disk.sync_dir()
        disk.append(handle, b"loose")
        put(disk, "b", b"never synced")
        disk.crash(Random(seed))
        data = disk.read("a")
        assert data.startswith(b"durable")
        assert len(data) <= len(b"durableloose")
        seen.add((data, "b" in disk.list()))
    tails = {data for data, _ in seen}
    assert b"durable" in tails
    assert b"durableloose" in tails
    assert b"durablelo" in tails
    assert any(b"\0" in data for data in tails)
    assert {there for _, there in seen} == {True, False}


def test_a_crash_can_take_back_a_rename_that_was_not_synced() -> None:
    outcomes = set()
    for seed in range(20):
        disk = MemoryDisk({"old": b"1"})
        disk.rename("old", "new")
        disk.crash(Random(seed))
        outcomes.add(tuple(disk.list()))
    assert outcomes == {("old",), ("new",)}


def test_a_second_process_is_refused_with_directory_and_pid(tmp_path: Path) -> None:
    first = FileDisk(tmp_path)
    script = (
        "import sys\nfrom tandemq_server.storage.files import FileDisk\n"
        "from tandemq.model.errors import StorageError\n"
        "try:\n    FileDisk(sys.argv[1])\nexcept StorageError as error:\n    print(error)\n"
    )
    command = [sys.executable, "-c", script, str(tmp_path)]
    root = Path(__file__).resolve().parents[2]
    run = subprocess.run(command, cwd=root, capture_output=True, text=True, timeout=30, check=True)
    message = f"{tmp_path}: byte 0: directory is in use by process {os.getpid()}"
    assert run.stdout.splitlines() == [message]
    # Looking is allowed meanwhile, and changes nothing.
    looking = FileDisk(tmp_path, read_only=True)
    assert looking.list() == []
    looking.release()
    first.release()
    run = subprocess.run(command, cwd=root, capture_output=True, text=True, timeout=30, check=True)
    assert run.stdout == ""


def test_release_twice_and_unusable_directories(tmp_path: Path) -> None:
    disk = FileDisk(tmp_path / "made" / "as needed")
    disk.create("open file")
    disk.release()
    disk.release()
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(StorageError, match="file: byte 0: open: "):
        FileDisk(tmp_path / "file")
    with pytest.raises(StorageError, match="No such file"):
        FileDisk(tmp_path / "absent", read_only=True)


def test_a_roll_finds_a_descriptor_when_there_are_none_left(tmp_path: Path) -> None:
    disk = FileDisk(tmp_path)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    flood: list[int] = []
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(256, hard), hard))
    try:
        with pytest.raises(OSError, match="Too many open files"):
            for _ in range(10_000):
                flood.append(os.open(os.devnull, os.O_RDONLY))
        handle = disk.create("segment")
        assert disk.append(handle, b"x") == 1
        with pytest.raises(StorageError, match="Too many open files"):
            disk.create("another")
        disk.close(handle)
        disk.close(disk.open("segment"))
    finally:
        for descriptor in flood:
            os.close(descriptor)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        disk.release()


def test_a_sync_reaches_the_device(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    disk = FileDisk(tmp_path)
    synced: list[int] = []
    monkeypatch.setattr("os.fdatasync", synced.append)
    handle = disk.create("a")
    disk.sync(handle)
    assert synced == [handle]
    disk.close(handle)
    disk.release()


def test_nobody_else_reads_what_is_written_whatever_the_umask(tmp_path: Path) -> None:
    for umask in (0, 0o077, 0o777):
        where = tmp_path / f"{umask:o}"
        before = os.umask(umask)
        try:
            disk = FileDisk(where)
            put(disk, "a", b"payload")
            put(disk, "rescue/b", b"payload")
            disk.release()
        finally:
            os.umask(before)
        modes = {path.name: path.stat().st_mode & 0o777 for path in (where, *where.rglob("*"))}
        assert modes.pop(where.name) == modes.pop("rescue") == 0o700
        assert modes.pop("lock") & 0o177 == 0
        assert set(modes.values()) == {0o600}
    (tmp_path / "open").mkdir(mode=0o755)
    FileDisk(tmp_path / "open").release()
    assert (tmp_path / "open").stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize("name", ["../x", "/etc/x", "rescue/../../x", "a/b", "..", "", "rescue/"])
def test_no_name_leads_out_of_the_directory(tmp_path: Path, name: str) -> None:
    disk = FileDisk(tmp_path / "data")
    put(disk, "a", b"payload")
    for act in (
        lambda: disk.rename("a", name),
        lambda: disk.create(name),
        lambda: disk.read(name),
        lambda: disk.remove(name),
        lambda: disk.truncate(name, 0),
    ):
        with pytest.raises(StorageError, match="no name of a file"):
            act()
    assert disk.list() == ["a"]
    disk.release()
