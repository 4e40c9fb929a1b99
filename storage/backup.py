"""A copy of a data directory that a node may be writing to, and a directory made from a copy.

A backup is a snapshot, the segments behind it and `backup.json`, which says how far they reach:
so a copy that lost its end is told from a whole one. Everything is read back from the device and
verified. Both are iterators that know their total bytes and how many are done, for progress bars.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field

from model.errors import StorageError
from model.record import decode_body
from storage.disk import SUFFIX_IN_PROGRESS, Disk, append_all, write_file
from storage.inspect import Verification, covering
from storage.meta import COMMIT_NAME, META_NAME, Meta, encode_commit, read_commit, read_meta
from storage.rescue import cut_from, rescue_names
from storage.segment import SEGMENT_HEADER_SIZE, SegmentInfo, SegmentReader, segment_names
from storage.snapshot import SnapshotReader, snapshot_names, verify_snapshot

MANIFEST_NAME = "backup.json"
MANIFEST_VERSION = 1
COPY_BYTES = 1 << 20
#: How often a copy begins anew because the node took away what was being copied.
ATTEMPTS = 5


@dataclass(slots=True)
class Manifest:
    """What a backup holds. Ids are hex, times microseconds; `files` maps names to sizes.

    first_lsn: the earliest point it can be restored to. term: number of the last record's term.
    """

    cluster: str
    node: str
    created_us: int
    first_lsn: int = 0
    last_lsn: int = 0
    commit_lsn: int = 0
    term: int = 0
    last_time_us: int = 0
    files: dict[str, int] = field(default_factory=dict)
    version: int = MANIFEST_VERSION

    @property
    def size(self) -> int:
        return sum(self.files.values())


class _Changed(Exception):
    """The node removed or cut a file while it was copied: what we have fits nothing."""


class _Copying:
    """Bytes from one disk to another, counted."""

    def __init__(self, source: Disk, target: Disk) -> None:
        self.source = source
        self.target = target
        self.total_bytes = self.done_bytes = 0
        self.notes: list[str] = []
        self._made: list[str] = []

    def _fits(self, files: dict[str, int]) -> None:
        """Raises `StorageError` when the target has no room."""
        needed, free = sum(files.values()), self.target.free()
        if needed > free:
            raise StorageError(
                self.target.where, 0, f"{needed} bytes are needed, {free} are free there"
            )

    def _copy(self, name: str, size: int) -> Iterator[str]:
        """The first `size` bytes of a file, durable at the end; its name after each piece."""
        handle = self.target.create(name)
        self._made.append(name)
        try:
            position = 0
            while position < size:
                data = self.source.read(name, position, min(COPY_BYTES, size - position))
                if not data:
                    raise _Changed(name)
                append_all(self.target, handle, data)
                position += len(data)
                self.done_bytes += len(data)
                yield name
            self.target.sync(handle)
        finally:
            self.target.close(handle)

    def _verified(self, meta: Meta) -> Iterator[str]:
        """Read everything back from the device. Raises `StorageError` for the first damage."""
        for name in (*snapshot_names(self.target), *segment_names(self.target)):
            self.target.settle(name)
        checked = Verification(self.target, meta)
        before = self.done_bytes
        for report in checked:
            self.done_bytes = before + checked.done_bytes
            yield report.name
            if report.problem is not None:
                raise StorageError(report.name, report.size, report.problem)
        if checked.problems:
            raise StorageError(self.target.where, 0, checked.problems[0])

    def _undo(self) -> None:
        """Leave the target as it was: empty."""
        names = self.target.list()
        for made in reversed(self._made):
            for name in (made, made + SUFFIX_IN_PROGRESS):
                if name in names:
                    names.remove(name)
                    self.target.remove(name)
        self._made.clear()


class Backup(_Copying):
    """Iterate to copy `source`, a directory that may be in use, into the empty `target`.

    Yields the name of the file at work. `manifest` is there at the end, `notes` what a person
    should know. Raises `StorageError` for damage or a full disk, with the target empty again.
    """

    def __init__(self, source: Disk, target: Disk, created_us: int, history: bool = False) -> None:
        """`history`: everything the directory has, to go back further than the newest snapshot."""
        super().__init__(source, target)
        meta = read_meta(source)
        if meta is None:
            raise StorageError(META_NAME, 0, f"{source.where} is not a data directory yet")
        if target.list():
            raise StorageError(target.where, 0, f"is not empty: it has {target.list()[0]}")
        self.meta = meta
        self.history = history
        self.created_us = created_us
        self.manifest: Manifest | None = None

    def __iter__(self) -> Iterator[str]:
        try:
            for attempt in range(ATTEMPTS):
                self.notes.clear()
                self.done_bytes = 0
                planned = self._plan()
                try:
                    yield from self._attempt(planned)
                    self.done_bytes = self.total_bytes
                    return
                except (StorageError, _Changed):
                    self._undo()
                    # A file may go, or be cut, while it is copied; damage stays where it is.
                    if self._unchanged(planned) or attempt == ATTEMPTS - 1:
                        raise
        except _Changed as error:
            self._undo()
            raise StorageError(str(error), 0, "was cut again and again while copied") from None
        except BaseException:
            self._undo()
            raise

    def _plan(self) -> dict[str, int]:
        """Files to copy with the sizes they have now, snapshots first."""
        snapshots = snapshot_names(self.source)
        if not self.history:
            snapshots = snapshots[-1:]
        reach = _end_lsn(snapshots[0]) if snapshots else 0
        names = [*snapshots, *covering(self.source, 0 if self.history else reach + 1, None)]
        if not names:
            raise StorageError(
                self.source.where, 0, "has neither snapshot nor log: let the node write a snapshot"
            )
        planned = {}
        for name in names:
            try:
                planned[name] = self.source.size(name)
            except StorageError:
                if name in self.source.list():
                    raise
        self._fits(planned)
        self.total_bytes = 2 * sum(planned.values())
        return planned

    def _unchanged(self, planned: dict[str, int]) -> bool:
        names = self.source.list()
        return all(
            name in names and self.source.size(name) >= size for name, size in planned.items()
        )

    def _attempt(self, planned: dict[str, int]) -> Iterator[str]:
        # What was published before the copy began must be in it.
        commit_lsn, problem = read_commit(self.source)
        if problem is not None:
            self.notes.append(problem)
        for name, size in planned.items():
            yield from self._copy(name, size)
        self._cut_torn_end()
        yield from self._verified(self.meta)
        if not self._unchanged(planned) and self._rewound(planned):
            raise _Changed(next(iter(planned)))
        manifest = _described(self.target, self.meta, self.created_us)
        if manifest.last_lsn < commit_lsn:
            raise StorageError(
                self.source.where,
                0,
                f"the log ends at LSN {manifest.last_lsn}, but LSN {commit_lsn} was published as "
                "committed",
            )
        manifest.commit_lsn = commit_lsn
        if rescued := rescue_names(self.source):
            self.notes.append(f"{len(rescued)} rescue files are left out: copy rescue/ by hand")
        self._finish(manifest)
        self.manifest = manifest

    def _rewound(self, planned: dict[str, int]) -> bool:
        """Whether the end of the log was cut meanwhile; old files may well have gone."""
        segments = [name for name in planned if name in segment_names(self.target)]
        if not segments:
            return False
        newest = segments[-1]
        return newest not in self.source.list() or self.source.size(newest) < planned[newest]

    def _cut_torn_end(self) -> None:
        """The frame the node was writing when its size was taken is not in the copy."""
        names = segment_names(self.target)
        if not names:
            return
        name, size = names[-1], self.target.size(names[-1])
        try:
            reader = SegmentReader(self.target, name, self.meta)
        except StorageError:
            alone = len(names) == 1 and not snapshot_names(self.target)
            if size > SEGMENT_HEADER_SIZE or alone:
                raise
            self.target.remove(name)
            return
        try:
            for _ in reader.frames():
                pass
        except StorageError as error:
            if error is not reader.damage or reader.follows_valid(reader.info.size) is not None:
                raise
            self.target.truncate(name, reader.info.size)

    def _finish(self, manifest: Manifest) -> None:
        target = self.target
        self._made += [COMMIT_NAME, META_NAME, MANIFEST_NAME]
        write_file(target, COMMIT_NAME, encode_commit(min(manifest.commit_lsn, manifest.last_lsn)))
        write_file(target, META_NAME, self.source.read(META_NAME))
        text = json.dumps(asdict(manifest), indent=2) + "\n"
        write_file(target, MANIFEST_NAME, text.encode())


def read_manifest(disk: Disk) -> Manifest:
    """What a backup says of itself. Raises `StorageError` when it is none, or incomplete."""
    if MANIFEST_NAME not in disk.list():
        raise StorageError(
            MANIFEST_NAME, 0, f"is missing: {disk.where} is no backup, or an unfinished one"
        )
    try:
        value = json.loads(disk.read(MANIFEST_NAME))
        if value["version"] > MANIFEST_VERSION:
            raise StorageError(
                MANIFEST_NAME, 0, f"version {value['version']} is newer than {MANIFEST_VERSION}"
            )
        manifest = Manifest(**value)
    except (ValueError, TypeError, KeyError) as error:
        raise StorageError(MANIFEST_NAME, 0, f"is not what a backup writes: {error}") from None
    for name, size in manifest.files.items():
        if name not in disk.list() or disk.size(name) != size:
            raise StorageError(name, 0, f"is missing or is not of {size} bytes")
    return manifest


class Restore(_Copying):
    """Iterate to make the empty `target` a data directory out of a backup.

    until_lsn / until_time_us: leave out every record behind that LSN, or newer than that time.
    `last_lsn`, `term` and `last_time_us` tell what came of it. Raises `StorageError`, with the
    target empty again.
    """

    def __init__(
        self,
        source: Disk,
        target: Disk,
        until_lsn: int | None = None,
        until_time_us: int | None = None,
    ) -> None:
        super().__init__(source, target)
        self.manifest = read_manifest(source)
        meta = read_meta(source)
        assert meta is not None, "read_manifest has seen its size"
        if target.list():
            raise StorageError(target.where, 0, f"is not empty: it has {target.list()[0]}")
        self.meta = meta
        self.until_lsn, self.until_time_us = until_lsn, until_time_us
        self.last_lsn = self.term = self.last_time_us = 0

    def __iter__(self) -> Iterator[str]:
        try:
            yield from self._run()
            self.done_bytes = self.total_bytes
        except BaseException:
            self._undo()
            raise

    def _run(self) -> Iterator[str]:
        until = self._until()
        snapshot = self._snapshot(until)
        reach = _end_lsn(snapshot) if snapshot is not None else 0
        names = [snapshot] if snapshot is not None else []
        names += covering(self.source, reach + 1, until)
        planned = {name: self.source.size(name) for name in names}
        self._fits(planned)
        self.total_bytes = 2 * sum(planned.values())
        for name, size in planned.items():
            yield from self._copy(name, size)
        segments = list(_infos(self.target, self.meta))
        if segments and segments[-1].last_lsn > until:
            self._made += [info.name for info in segments]
            cut_from(self.target, self.meta, segments, until + 1)
        yield from self._verified(self.meta)
        found = _described(self.target, self.meta, self.manifest.created_us)
        if found.last_lsn != until:
            raise StorageError(
                self.source.where, 0, f"holds records up to LSN {found.last_lsn}, not {until}"
            )
        self.last_lsn, self.term, self.last_time_us = until, found.term, found.last_time_us
        self._made += [COMMIT_NAME, META_NAME]
        commit_lsn = min(self.manifest.commit_lsn, until)
        write_file(self.target, COMMIT_NAME, encode_commit(commit_lsn))
        # Without it no node starts here: it comes last.
        write_file(self.target, META_NAME, self.source.read(META_NAME))

    def _until(self) -> int:
        """The last LSN wanted."""
        manifest = self.manifest
        until = manifest.last_lsn
        if self.until_lsn is not None:
            if self.until_lsn > until:
                raise StorageError(
                    self.source.where, 0, f"ends at LSN {until}, before {self.until_lsn}"
                )
            until = self.until_lsn
        if self.until_time_us is not None:
            until = min(until, _last_before(self.source, self.meta, self.until_time_us))
        if until < manifest.first_lsn:
            raise StorageError(
                self.source.where,
                0,
                f"reaches back to LSN {manifest.first_lsn} only, a point before it was asked for",
            )
        return until

    def _snapshot(self, until: int) -> str | None:
        """The newest one that is not beyond the point wanted; None to begin with the log."""
        fitting = [n for n in snapshot_names(self.source) if _end_lsn(n) <= until]
        return fitting[-1] if fitting else None


def _infos(disk: Disk, meta: Meta) -> Iterator[SegmentInfo]:
    """All segments, sealed ones by their footers."""
    for name in segment_names(disk):
        reader = SegmentReader(disk, name, meta)
        footer = reader.peek_footer()
        if footer is not None:
            reader.skip(footer)
        else:
            for header, body in reader.frames():
                times = decode_body(body, header.count)
                reader.info.first_time_us = reader.info.first_time_us or times[0][0]
                reader.info.last_time_us = times[-1][0]
        yield reader.info


def _last_before(disk: Disk, meta: Meta, time_us: int) -> int:
    """LSN of the last record that is not newer than `time_us`, -1 when that cannot be told.

    The log's clock never runs back. What is no longer in the log, a snapshot tells.
    """
    ends = [verify_snapshot(disk, name, meta.cluster) for name in snapshot_names(disk)]
    last = max((end.end_lsn for end in ends if end.time_us <= time_us), default=-1)
    for info in _infos(disk, meta):
        if not info.records or info.first_time_us > time_us:
            continue
        if info.last_time_us <= time_us:
            last = max(last, info.last_lsn)
            continue
        for header, body in SegmentReader(disk, info.name, meta, info.size).frames():
            records = decode_body(body, header.count)
            for lsn, record in enumerate(records, header.first_lsn):
                if record[0] > time_us:
                    return last
                last = max(last, lsn)
    return last


def _described(disk: Disk, meta: Meta, created_us: int) -> Manifest:
    """What verified files hold."""
    found = Manifest(meta.cluster.hex(), meta.node.hex(), created_us, first_lsn=1)
    snapshots = snapshot_names(disk)
    if snapshots:
        found.first_lsn = _end_lsn(snapshots[0])
        found.last_lsn = _end_lsn(snapshots[-1])
    ahead = [i for i in _infos(disk, meta) if i.records and i.last_lsn > found.last_lsn]
    if ahead:
        newest = ahead[-1]
        found.last_lsn, found.term = newest.last_lsn, newest.term.number
        found.last_time_us = newest.last_time_us
    elif snapshots:
        reader = SnapshotReader(disk, snapshots[-1], meta.cluster)
        for _ in reader.blocks():
            pass
        assert reader.end is not None
        found.last_time_us = reader.end.time_us
        found.term = reader.lineage[-1].number if reader.lineage else 0
    found.files = {n: disk.size(n) for n in (*snapshots, *segment_names(disk))}
    return found


def _end_lsn(snapshot: str) -> int:
    return int(snapshot.partition(".")[0])
