"""A data directory as it lies there: whose it is, who uses it, every byte, room and speed.

Nothing is changed: the probe of the disk's speed writes a file of its own and removes it.
"""

from __future__ import annotations

import fcntl
import os
import stat
import time
from collections.abc import Iterator
from pathlib import Path

from tandemq.log.disk import SUFFIX_DAMAGED, SUFFIX_IN_PROGRESS
from tandemq.log.meta import Meta, read_meta
from tandemq.log.rescue import rescue_names
from tandemq.log.segment import SUFFIX as SEGMENT_SUFFIX
from tandemq.log.snapshot import snapshot_names
from tandemq.model.errors import StorageError
from tandemq_server.doctor.findings import Bounds, Finding, Level
from tandemq_server.storage.files import LOCK_NAME, FileDisk
from tandemq_server.storage.inspection import Verification
from tandemq_server.storage.mend import SUFFIX_TORN, read_missing

PROBE_NAME = f"doctor{SUFFIX_IN_PROGRESS}"
PROBES, PROBE_BYTES = 9, 4096
#: A restart writes at least one snapshot beside those that are there.
_ROOM = 2


class DirectoryExam:
    """Iterate over findings. `meta` and `holder` are there afterwards, for who goes on from them.

    holder: process id of the node that holds the directory, 0 when it is not known, None: nobody.
    """

    def __init__(self, directory: Path, bounds: Bounds) -> None:
        self.directory = directory
        self.where = str(directory)
        self.bounds = bounds
        self.meta: Meta | None = None
        self.holder: int | None = None

    def __iter__(self) -> Iterator[Finding]:
        try:
            disk = FileDisk(self.directory, read_only=True)
        except StorageError as error:
            yield self._found(
                "directory", "error", str(error), "name the node's data_dir, as a user who may read"
            )
            return
        try:
            yield from self._look(disk)
        finally:
            disk.release()

    def _found(self, check: str, level: Level, text: str, todo: str = "") -> Finding:
        return Finding(self.where, check, level, text, todo)

    def _look(self, disk: FileDisk) -> Iterator[Finding]:
        self.holder = holder(self.directory)
        try:
            self.meta = read_meta(disk)
        except StorageError as error:
            yield self._found(
                "identity", "error", str(error), "restore the directory from a backup or the peer"
            )
            return
        if self.meta is None:
            yield self._found(
                "identity", "ok", "no node has run here yet: the first start makes everything"
            )
        else:
            yield self._found(
                "identity",
                "ok",
                f"node {self.meta.node.hex()} of cluster {self.meta.cluster.hex()}, format version "
                f"{self.meta.version}",
            )
        used = "nobody" if self.holder is None else f"process {self.holder or 'unknown'}"
        yield self._found("lock", "ok", f"held by {used}")
        yield from self._rights()
        yield from self._room(disk)
        yield from self._speed()
        if self.meta is not None:
            yield from self._files(disk)

    def _rights(self) -> Iterator[Finding]:
        owner = self.directory.stat()
        if owner.st_mode & stat.S_IWOTH:
            yield self._found(
                "permissions",
                "error",
                f"mode {stat.S_IMODE(owner.st_mode):o}: every user may remove and replace files",
                f"chmod o-w {self.directory}",
            )
        strange, public = [], []
        for file in sorted(self.directory.rglob("*")):
            try:
                found = file.stat()
            except FileNotFoundError:
                continue
            needed = stat.S_IRUSR | stat.S_IWUSR
            if found.st_uid != owner.st_uid or found.st_mode & needed != needed:
                strange.append(file.name)
            if file.is_file() and found.st_mode & (stat.S_IROTH | stat.S_IWOTH):
                public.append(file.name)
        if public:
            yield self._found(
                "permissions",
                "warning",
                f"every user of this machine may read {len(public)} files, such as {public[0]}",
                f"chmod -R o-rw {self.directory}",
            )
        if strange:
            yield self._found(
                "permissions",
                "error",
                f"its owner may not write to {len(strange)} of the files, such as {strange[0]}",
                f"chown -R --reference={self.directory} {self.directory}; chmod -R u+rw the same",
            )
        elif not os.access(self.directory, os.R_OK | os.W_OK | os.X_OK):
            yield self._found(
                "permissions", "warning", "this user may not write here", "ask as the node's user"
            )
        else:
            yield self._found("permissions", "ok", "all files can be read and written")

    def _room(self, disk: FileDisk) -> Iterator[Finding]:
        newest = max((disk.size(name) for name in snapshot_names(disk)), default=0)
        free, needed = disk.free(), max(self.bounds.free_bytes, _ROOM * newest)
        text = f"{free:,} bytes free"
        if free < needed:
            yield self._found(
                "free space",
                "error" if free < needed // 4 else "warning",
                f"{text}, {needed:,} are wanted",
                "make room: a full disk ends the node",
            )
        else:
            yield self._found("free space", "ok", text)

    def _speed(self) -> Iterator[Finding]:
        """How long making 4 KiB durable takes, the median of a few times."""
        try:
            median = sync_seconds(self.directory / PROBE_NAME)
        except OSError as error:
            yield self._found(
                "fsync",
                "warning",
                f"cannot be measured: {error.strerror}",
                "ask as the node's user",
            )
            return
        text = f"{median * 1000:.2f} ms to make 4 KiB durable"
        if median > self.bounds.sync_s:
            todo = "another program on the same disk, or a dying one: switch over, then look"
            yield self._found("fsync", "warning", text, todo)
        else:
            yield self._found("fsync", "ok", text)

    def _files(self, disk: FileDisk) -> Iterator[Finding]:
        checked = self._verified(disk)
        if isinstance(checked, StorageError):
            yield self._found("log", "error", str(checked), _RESTORE)
            return
        for problem in checked.problems:
            yield self._found("log", "error", problem, _RESTORE)
        if missing := read_missing(disk):
            text = f"records up to LSN {missing} were damaged and are still to come from a peer"
            yield self._found("log", "error", text, "start the node and its peer")
        for text in checked.notes:
            if self.holder is None:
                yield self._found("log", "warning", text, "the next start sees to it")
        if checked.ok:
            yield self._found(
                "log",
                "ok",
                f"LSN {checked.first_lsn} to {checked.last_lsn}, snapshot {checked.snapshot_lsn}, "
                f"{checked.total_bytes:,} bytes verified",
            )
        for name in disk.list():
            if SUFFIX_DAMAGED in name:
                yield self._found(
                    "log" if SEGMENT_SUFFIX in name else "snapshots",
                    "warning",
                    f"{name}: recovery found it damaged and used another",
                    f"check the disk, then remove {self.directory / name}",
                )
            elif SUFFIX_TORN in name:
                yield self._found(
                    "log",
                    "warning",
                    f"{name}: the end of a segment that a power cut tore, never acknowledged",
                    f"check the disk, then remove {self.directory / name}",
                )
        if rescued := rescue_names(disk):
            yield self._found(
                "rescue files",
                "warning",
                f"{len(rescued)} files of records that a rewind cut off",
                f"`tandemq rescue list {self.directory}` shows them; remove them when done",
            )

    def _verified(self, disk: FileDisk) -> Verification | StorageError:
        """A node at work takes away old files meanwhile: then once more."""
        found: Verification | StorageError = StorageError(self.where, 0, "not looked at")
        for _ in range(2):
            try:
                found = Verification(disk)
                for _report in found:
                    pass
            except StorageError as error:
                found = error
            if self.holder is None or (isinstance(found, Verification) and found.ok):
                break
        return found


_RESTORE = "restore from the peer (empty directory, read_only: true) or a backup; do not edit"


def holder(directory: Path) -> int | None:
    """Process id of the node that holds the directory, 0 if it is not told, None for nobody."""
    try:
        lock = os.open(directory / LOCK_NAME, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        text = os.pread(lock, 32, 0).decode("ascii", "replace").strip()
        return int(text) if text.isdigit() else 0
    finally:
        os.close(lock)
    return None


def sync_seconds(probe: Path) -> float:
    """Median seconds of a small write made durable, in a file that is removed again."""
    handle = os.open(probe, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    times = []
    try:
        for _ in range(PROBES):
            began = time.perf_counter()
            os.write(handle, b"\0" * PROBE_BYTES)
            os.fdatasync(handle)
            times.append(time.perf_counter() - began)
    finally:
        os.close(handle)
        probe.unlink()
    return sorted(times)[PROBES // 2]
