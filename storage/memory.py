"""A disk in memory for tests and simulations: it loses, keeps and tears what was not synced.

Same contract as the real one, plus the weather: `fail` aims an error at the n-th operation of a
name, `full` refuses all growth, `crash` decides by an injected generator what a power cut leaves. A
failed sync drops what it should have written, as a kernel does. No chance of its own.
"""

from __future__ import annotations

import errno
import os
from collections import Counter
from collections.abc import Callable
from random import Random

from tandemq.log.disk import OPERATIONS
from tandemq.model.errors import StorageError

_SHORT_WRITE = -1


class _File:
    """Content now, how much of it is durable, and what is durable instead after a rewrite.

    lost: (from, to) of bytes whose sync failed: the cache shows them, no device has them, and no
    later sync writes them.
    """

    __slots__ = ("data", "durable_size", "lost", "shadow")

    def __init__(self, data: bytes = b"") -> None:
        self.data = bytearray(data)
        self.durable_size = len(data)
        self.lost: list[tuple[int, int]] = []
        self.shadow: bytes | None = None

    def keep_shadow(self) -> None:
        if self.shadow is None:
            self.shadow = bytes(self.data[: self.durable_size])

    def make_durable(self) -> None:
        self.durable_size = len(self.data)
        self.shadow = None

    def synced(self, size: int, content: bytes | None) -> None:
        """A sync that began when the file had `size` bytes is done; later bytes are not in it.

        content: what was overwritten then, None for a file that only grows.
        """
        self.durable_size = max(self.durable_size, min(size, len(self.data)))
        if self.shadow is not None:
            self.shadow = None if content is None or content == self.data else content

    def lose(self) -> None:
        """A sync failed: what it was to write counts as clean, and is nowhere."""
        if len(self.data) > self.durable_size:
            self.lost.append((self.durable_size, len(self.data)))
            self.durable_size = len(self.data)
        if self.shadow is not None:
            self.data[:] = self.shadow
            self.shadow = None

    def forget(self) -> None:
        """The cache is dropped: what was lost reads as zeros, as a hole does."""
        for start, end in self.lost:
            end = min(end, len(self.data))
            if start < end:
                self.data[start:end] = bytes(end - start)
        self.lost.clear()


class MemoryDisk:
    """A directory of byte arrays.

    `counts` says how often each operation ran; `fail` and `crash` are the weather. A crash closes
    all handles; the object lives on as the disk the restarted process finds.
    """

    def __init__(self, files: dict[str, bytes] | None = None, where: str = "memory") -> None:
        self._where = where
        self._entries = {name: _File(data) for name, data in (files or {}).items()}
        self._durable = dict(self._entries)
        #: What happened to the directory since it was last synced, in order.
        self._pending: list[tuple[set[str], Callable[[dict[str, _File]], None]]] = []
        self._handles: dict[int, tuple[str, _File]] = {}
        self._next_handle = 3
        self._faults: dict[tuple[str, int], int] = {}
        self.counts: Counter[str] = Counter()
        self.free_bytes = 1 << 40
        #: The disk is full and stays so until this is taken back.
        self.full = False
        #: Told of each operation and its file before anything happens; may raise.
        self.watch: Callable[[str, str], None] | None = None
        #: Called in the middle of each sync, with its file: the time it takes passes there.
        self.during_sync: Callable[[str], None] | None = None

    @property
    def where(self) -> str:
        return self._where

    # -- weather ---------------------------------------------------------------------------------

    def fail(self, operation: str, nth: int = 1, error: int = errno.EIO) -> None:
        """Let the `nth` call of `operation` from now fail with `error` (an errno)."""
        assert operation in OPERATIONS, operation
        self._faults[operation, self.counts[operation] + nth] = error

    def short_write(self, nth: int = 1) -> None:
        """Let the `nth` append from now write only half of its bytes."""
        self._faults["append", self.counts["append"] + nth] = _SHORT_WRITE

    def crash(self, chance: Random, page: int = 0) -> None:
        """Cut the power: keep what was synced, and of the rest what `chance` leaves.

        Directory changes survive each by itself, in order only for the same name; unsynced bytes
        survive not at all, wholly, up to some byte, or as a prefix followed by rubbish. With a
        `page` size in bytes also page by page: any of them, in any order.
        """
        entries = dict(self._durable)
        lost: set[str] = set()
        for names, change in self._pending:
            if names & lost or chance.random() < 0.3:
                lost |= names
            else:
                change(entries)
        for file in dict.fromkeys(entries.values()):
            file.data = bytearray(_after_crash(file, chance, page))
            file.make_durable()
        self._entries = entries
        self._durable = dict(entries)
        self._pending.clear()
        self._handles.clear()
        self._faults.clear()

    def contents(self) -> dict[str, bytes]:
        """A copy of every file as a running process sees it."""
        return {name: bytes(file.data) for name, file in self._entries.items()}

    def _enter(self, operation: str, name: str) -> int:
        """Count the call; raise the error aimed at it. Returns 0 or the mark of a short write."""
        if self.watch is not None:
            self.watch(operation, name)
        self.counts[operation] += 1
        if self.full and operation in ("append", "create"):
            raise StorageError(name, 0, f"{operation}: {os.strerror(errno.ENOSPC)}")
        if not self._faults:
            return 0
        fault = self._faults.pop((operation, self.counts[operation]), 0)
        if fault > 0:
            raise StorageError(name, 0, f"{operation}: {os.strerror(fault)}")
        return fault

    def _file(self, operation: str, name: str) -> _File:
        self._enter(operation, name)
        file = self._entries.get(name)
        if file is None:
            raise StorageError(name, 0, f"{operation}: {os.strerror(errno.ENOENT)}")
        return file

    def _change(self, names: set[str], change: Callable[[dict[str, _File]], None]) -> None:
        change(self._entries)
        self._pending.append((names, change))

    def _handle(self, name: str, file: _File) -> int:
        handle = self._next_handle
        self._next_handle += 1
        self._handles[handle] = (name, file)
        return handle

    # -- the contract of tandemq.log.disk.Disk ----------------------------------------------

    def list(self) -> list[str]:
        self._enter("list", self._where)
        return sorted(self._entries)

    def read(self, name: str, position: int = 0, length: int = -1) -> bytes:
        data = self._file("read", name).data
        end = len(data) if length < 0 else position + length
        return bytes(data[position:end])

    def size(self, name: str) -> int:
        return len(self._file("size", name).data)

    def create(self, name: str) -> int:
        self._enter("create", name)
        if name in self._entries:
            raise StorageError(name, 0, f"create: {os.strerror(errno.EEXIST)}")
        file = _File()
        self._change({name}, lambda entries: entries.__setitem__(name, file))
        return self._handle(name, file)

    def open(self, name: str) -> int:
        return self._handle(name, self._file("open", name))

    def append(self, handle: int, data: bytes) -> int:
        name, file = self._handles[handle]
        size = len(data)
        try:
            if self._enter("append", name) == _SHORT_WRITE:
                size //= 2
        except StorageError:
            # A write that fails may still have left some bytes behind.
            file.data += data[: size // 2]
            raise
        file.data += data[:size]
        return size

    def overwrite(self, handle: int, data: bytes) -> None:
        name, file = self._handles[handle]
        self._enter("overwrite", name)
        file.keep_shadow()
        file.data[: len(data)] = data

    def sync(self, handle: int) -> None:
        name, file = self._handles[handle]
        size = len(file.data)
        content = bytes(file.data) if file.shadow is not None else None
        try:
            self._enter("sync", name)
            if self.during_sync is not None:
                self.during_sync(name)
        except StorageError:
            file.lose()
            raise
        file.synced(size, content)

    def close(self, handle: int) -> None:
        # A process that died in mid-operation still closes what it had; it is told so first.
        name, _ = self._handles.get(handle, ("?", None))
        self._enter("close", name)
        del self._handles[handle]

    def rename(self, old: str, new: str) -> None:
        self._file("rename", old)

        def change(entries: dict[str, _File]) -> None:
            entries[new] = entries.pop(old)

        self._change({old, new}, change)

    def remove(self, name: str) -> None:
        self._file("remove", name)

        def change(entries: dict[str, _File]) -> None:
            entries.pop(name, None)

        self._change({name}, change)

    def truncate(self, name: str, size: int) -> None:
        file = self._file("truncate", name)
        del file.data[size:]
        file.forget()
        file.make_durable()

    def settle(self, name: str) -> None:
        file = self._file("settle", name)
        file.forget()
        file.make_durable()

    def sync_dir(self) -> None:
        self._enter("sync_dir", self._where)
        self._pending.clear()
        self._durable = dict(self._entries)

    def free(self) -> int:
        self._enter("free", self._where)
        return 0 if self.full else self.free_bytes


def _after_crash(file: _File, chance: Random, page: int) -> bytes:
    """What a power cut leaves of one file."""
    file.forget()
    if file.shadow is not None:
        return bytes(file.data) if chance.random() < 0.5 else file.shadow
    durable, loose = bytes(file.data[: file.durable_size]), bytes(file.data[file.durable_size :])
    fate = chance.randrange(6 if page else 5)
    if fate == 0 or not loose:
        return durable
    if fate == 1:
        return durable + loose
    if fate == 5:
        return durable + _pages_left(loose, page - len(durable) % page, page, chance)
    kept = chance.randint(0, len(loose))
    if fate == 2:
        return durable + loose[:kept]
    # The length reached the disk before the content did.
    rest = len(loose) - kept
    return durable + loose[:kept] + (bytes(rest) if fate == 3 else chance.randbytes(rest))


def _pages_left(loose: bytes, first: int, page: int, chance: Random) -> bytes:
    """Each page reached the disk or did not; holes before the last one that did are zeros."""
    starts = [0, *range(first, len(loose), page)]
    kept = bytearray()
    for start, end in zip(starts, [*starts[1:], len(loose)], strict=True):
        if chance.random() < 0.5:
            kept += bytes(start - len(kept)) + loose[start:end]
    return bytes(kept)
