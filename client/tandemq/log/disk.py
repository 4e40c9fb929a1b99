"""The disk as an object: every operation has a name, so that each can fail or be simulated alone.

Only the contract and helpers written in its terms. `files.py` is the real one, `memory.py` the
simulated one; nothing here touches the operating system.
"""

from __future__ import annotations

from typing import Protocol

from tandemq.model.errors import StorageError

#: Every name a fault can be aimed at.
OPERATIONS = (
    "list",
    "read",
    "size",
    "create",
    "open",
    "append",
    "overwrite",
    "sync",
    "close",
    "rename",
    "remove",
    "truncate",
    "settle",
    "sync_dir",
    "free",
)
SUFFIX_IN_PROGRESS = ".inprogress"
#: Behind the name of a file that was found damaged and set aside.
SUFFIX_DAMAGED = ".damaged"
RESCUE_PREFIX = "rescue/"


class ReadDisk(Protocol):
    """One data directory to read. Names are relative; the only folder is `rescue/`.

    Every operation raises `StorageError` naming the file, the operation and the cause.
    """

    @property
    def where(self) -> str:
        """What to call this directory in an error message."""
        ...

    def list(self) -> list[str]:
        """All files, sorted, the lock file left out."""
        ...

    def read(self, name: str, position: int = 0, length: int = -1) -> bytes:
        """Up to `length` bytes from `position`; -1 reads to the end. Shorter only at the end."""
        ...

    def size(self, name: str) -> int: ...


class Disk(ReadDisk, Protocol):
    """One data directory to read and write.

    After a failed `append` or `sync` the file's content is unknown: never repeat either, open
    again.
    """

    def create(self, name: str) -> int:
        """A new empty file open for appending; an error if it exists. Returns a handle."""
        ...

    def open(self, name: str) -> int:
        """An existing file open for appending. Returns a handle."""
        ...

    def append(self, handle: int, data: bytes) -> int:
        """Write at the end. Returns the bytes written, which may be fewer than given."""
        ...

    def overwrite(self, handle: int, data: bytes) -> None:
        """Write at position 0, for the few bytes of the `commit` file. All or an error."""
        ...

    def sync(self, handle: int) -> None:
        """Make content and length durable. May run in another thread than `append`."""
        ...

    def close(self, handle: int) -> None: ...

    def rename(self, old: str, new: str) -> None:
        """Atomically, over an existing file too. Durable after `sync_dir`."""
        ...

    def remove(self, name: str) -> None: ...

    def truncate(self, name: str, size: int) -> None:
        """Cut a file to `size` bytes and make that durable."""
        ...

    def settle(self, name: str) -> None:
        """Make what a file seems to hold durable, and drop what only the cache still holds.

        After a failed sync the cache may show bytes the device never got: settle before reading.
        """
        ...

    def sync_dir(self) -> None:
        """Make creations, renames and removals durable."""
        ...

    def free(self) -> int:
        """Bytes the file system still has for us."""
        ...


def append_all(disk: Disk, handle: int, data: bytes) -> None:
    """Write all of `data`, going on after short writes. Raises `StorageError`."""
    written = disk.append(handle, data)
    while written < len(data):
        more = disk.append(handle, data[written:])
        if more <= 0:
            raise StorageError(disk.where, written, "append: the disk takes no more bytes")
        written += more


def write_file(disk: Disk, name: str, data: bytes) -> None:
    """A whole small file, there completely or not at all: written aside, synced, renamed."""
    aside = name + SUFFIX_IN_PROGRESS
    try:
        handle = disk.create(aside)
    except StorageError:
        # What an earlier attempt left. Looking first would cost a listing each time.
        if aside not in disk.list():
            raise
        disk.remove(aside)
        handle = disk.create(aside)
    try:
        append_all(disk, handle, data)
        disk.sync(handle)
    finally:
        disk.close(handle)
    disk.rename(aside, name)
    disk.sync_dir()


def remove_durably(disk: Disk, name: str) -> None:
    """Remove a file so that no later removal can become durable before this one.

    Logs and snapshots go in an order that leaves no gap at any moment.
    """
    disk.remove(name)
    disk.sync_dir()
