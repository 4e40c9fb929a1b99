"""An archive of a node's log: lines of snapshots and segments, each as a manifest names them.

Here: what a line holds, and reading it as if it were a backup. Must not be here: where things are
in it (`tandemq.log.shipped`), filling it (`shipping`), the file system it lives on.

Nothing is ever written over: a file that grew is a new object, and the manifest that names it comes
after it. So an archive is whole at every moment, however its writer ended.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, field
from typing import Any, Protocol

from tandemq.log.shipped import PARTS, VERSION, manifests, newest, not_shipped, object_name
from tandemq.model.errors import StorageError
from tandemq_server.storage.copies import MANIFEST_NAME, Manifest


class ObjectWriter(Protocol):
    """One object on its way; it is there once its context ends without an error."""

    def write(self, data: bytes) -> object: ...


class ArchiveStore(Protocol):
    """A folder of objects, wherever it is. Every operation raises `StorageError`."""

    @property
    def where(self) -> str: ...

    def list(self) -> list[str]:
        """Paths of all objects, sorted; none when the folder is not there yet."""
        ...

    def read(self, name: str, position: int = 0, length: int = -1) -> bytes:
        """Up to `length` bytes from `position`; -1 reads to the end."""
        ...

    def write(self, name: str) -> AbstractContextManager[ObjectWriter]: ...

    def remove(self, name: str) -> None: ...


@dataclass(frozen=True, slots=True)
class Shipped:
    """One file. first_lsn, last_lsn: its records; of a snapshot both are where it stands, of what
    lies beside the log 0. term, time_us: of its last record."""

    size: int
    sha256: str
    first_lsn: int = 0
    last_lsn: int = 0
    term: int = 0
    time_us: int = 0


@dataclass(slots=True)
class ArchiveLine:
    """What one line holds, by its manifest. cluster, node: ids in hex; times in µs.

    let_go_lsn: what was needed only for points before it is there no more, and not shipped again.
    """

    name: str
    number: int
    cluster: str
    node: str
    shipped_us: int
    commit_lsn: int = 0
    let_go_lsn: int = 0
    snapshots: dict[str, Shipped] = field(default_factory=dict)
    segments: dict[str, Shipped] = field(default_factory=dict)
    beside: dict[str, Shipped] = field(default_factory=dict)

    @property
    def begun_us(self) -> int:
        return int(self.name.split("-")[1])

    @property
    def files(self) -> dict[str, Shipped]:
        return {**self.snapshots, **self.segments, **self.beside}

    @property
    def first_lsn(self) -> int:
        """The earliest point this line can be restored to."""
        starts = [one.first_lsn for one in self.segments.values()]
        if starts and min(starts) == 1:
            return 1
        reached = min(starts) - 1 if starts else 0
        return min(one.last_lsn for one in self.snapshots.values() if one.last_lsn >= reached)

    @property
    def newest(self) -> Shipped:
        """The file that reaches furthest."""
        files = [*self.snapshots.values(), *self.segments.values()]
        return max(files, key=lambda one: (one.last_lsn, one.time_us))

    @property
    def first_time_us(self) -> int:
        """Of the earliest point; of a log from its beginning on that is not kept: 0."""
        times = [s.time_us for s in self.snapshots.values() if s.last_lsn == self.first_lsn]
        return min(times, default=0)

    def backup(self) -> Manifest:
        """The line as the backup it can be restored from."""
        newest = self.newest
        return Manifest(
            self.cluster,
            self.node,
            self.shipped_us,
            self.first_lsn,
            newest.last_lsn,
            self.commit_lsn,
            newest.term,
            newest.time_us,
            {name: one.size for name, one in self.files.items()},
        )

    def encoded(self) -> bytes:
        value = {"version": VERSION, **asdict(self)}
        return (json.dumps(value, indent=1) + "\n").encode()


def line_name(begun_us: int, node: bytes) -> str:
    return f"line-{begun_us:016d}-{node.hex()[:8]}"


def lines_of(store: ArchiveStore) -> list[ArchiveLine]:
    """Each line's newest whole manifest, oldest line first; none that holds no log.

    Raises `StorageError`.
    """
    lines = []
    for name, numbers in manifests(store.list()).items():
        if (found := newest(store.read, name, numbers)) is not None:
            lines.append(_decoded(*found))
    return [one for one in lines if one.segments or one.snapshots]


def _decoded(path: str, value: dict[str, Any]) -> ArchiveLine:
    try:
        for part in PARTS:
            value[part] = {name: Shipped(**one) for name, one in value[part].items()}
        return ArchiveLine(**value)
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise not_shipped(path, error) from None


def line_for(
    lines: list[ArchiveLine], until_lsn: int | None, until_us: int | None
) -> ArchiveLine | None:
    """The newest line that holds a point; the newest of all when no point is given."""
    for line in reversed(lines):
        beyond = until_lsn is not None and not (line.first_lsn <= until_lsn <= line.newest.last_lsn)
        if not beyond and (until_us is None or line.first_time_us <= until_us):
            return line
    return None


class ArchivedLine:
    """A line as a directory to read from: a `ReadDisk` that holds a backup."""

    def __init__(self, store: ArchiveStore, line: ArchiveLine) -> None:
        self.store = store
        self.line = line
        self.where = f"{store.where.rstrip('/')}/{line.name}"
        self._sizes: Mapping[str, int] = {name: one.size for name, one in line.files.items()}
        self._manifest = json.dumps(asdict(line.backup())).encode()

    def list(self) -> list[str]:
        return sorted([*self._sizes, MANIFEST_NAME])

    def read(self, name: str, position: int = 0, length: int = -1) -> bytes:
        if name == MANIFEST_NAME:
            end = len(self._manifest) if length < 0 else position + length
            return self._manifest[position:end]
        return self.store.read(object_name(self.line.name, name, self.size(name)), position, length)

    def size(self, name: str) -> int:
        if name == MANIFEST_NAME:
            return len(self._manifest)
        if name not in self._sizes:
            raise StorageError(name, 0, f"{self.where} does not hold it")
        return self._sizes[name]
