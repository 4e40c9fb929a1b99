"""Looking at a data directory without changing it: one row per record, one report per file.

For `tandemq log dump` and `log verify`, also beside a running server. Rendering is the CLI's.
Both are iterators that know their total bytes and how many are done, for a progress bar.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

from tandemq.log.disk import SUFFIX_IN_PROGRESS, Disk, ReadDisk
from tandemq.log.meta import Meta, meta_of, read_commit
from tandemq.log.rescue import all_rescued, rescue_names
from tandemq.log.segment import SEGMENT_HEADER_SIZE, SegmentReader, name_lsn, segment_names
from tandemq.log.segment import SUFFIX as SEGMENT_SUFFIX
from tandemq.log.snapshot import SUFFIX as SNAPSHOT_SUFFIX
from tandemq.log.snapshot import SnapshotReader, snapshot_names
from tandemq.model.errors import StorageError
from tandemq.model.record import KIND_NAMES, OP_NAMES, FrameError, Op, decode_body


class DumpRow(NamedTuple):
    """One record. `time_us` wall time; `session` hex or None; `ops` readable, see `readable`."""

    lsn: int
    term: int
    time_us: int
    kind: str
    session: str | None
    ops: list[list[Any]]


@dataclass(frozen=True, slots=True)
class FileReport:
    """What `verify` says of one file. `problem` is None when every byte is as it was written.

    LSNs 0 where a file has none; `state` is sealed, open, torn, snapshot, rescue or damaged.
    """

    name: str
    state: str
    size: int
    first_lsn: int = 0
    last_lsn: int = 0
    frames: int = 0
    records: int = 0
    problem: str | None = None


def readable(op: Op) -> list[Any]:
    """An op with its name for its code, and bytes as text that JSON can hold."""
    return [OP_NAMES.get(op[0], op[0]), *(_text(value) for value in op[1:])]


def _text(value: Any) -> Any:
    if isinstance(value, bytes):
        return "0x" + value.hex()
    if isinstance(value, str):
        return value.encode("utf-8", "backslashreplace").decode()
    if isinstance(value, list | tuple):
        return [_text(item) for item in value]
    if isinstance(value, dict):
        return {str(_text(key)): _text(item) for key, item in value.items()}
    if value is None or isinstance(value, bool | int | float):
        return value
    return repr(value)


class Dump:
    """Iterate over `DumpRow`s; each segment is read once, front to back.

    total_bytes / done_bytes: for a progress bar. problems: one line for each segment that could
    not be read to its end, filled as it goes; the rows of the next segment still follow.
    """

    def __init__(
        self,
        disk: Disk,
        first_lsn: int = 0,
        last_lsn: int | None = None,
        rescue: str | None = None,
        meta: Meta | None = None,
    ) -> None:
        """Records `first_lsn..last_lsn` of the log, or of the `rescue` file named.

        meta: the directory's identity, where it is known: to read it takes a listing.
        """
        self._disk = disk
        self._meta = meta or meta_of(disk)
        self._range = (first_lsn, last_lsn)
        self._rescue = rescue is not None
        names = [rescue] if rescue is not None else covering(disk, first_lsn, last_lsn)
        self._files = [(name, disk.size(name)) for name in names]
        self.total_bytes = sum(size for _, size in self._files)
        self.done_bytes = 0
        self.problems: list[str] = []

    def __iter__(self) -> Iterator[DumpRow]:
        done = 0
        for name, size in self._files:
            try:
                yield from self._segment(name, size, done)
            except StorageError as error:
                self.problems.append(str(error))
            done += size
            self.done_bytes = done

    def _segment(self, name: str, size: int, done: int) -> Iterator[DumpRow]:
        first, last = self._range
        reader = SegmentReader(self._disk, name, self._meta, size, rescue=self._rescue)
        for header, body in reader.frames():
            self.done_bytes = done + reader.info.size
            if header.last_lsn < first:
                continue
            try:
                records = decode_body(body, header.count)
            except FrameError as error:
                raise StorageError(name, reader.info.size, error.reason) from error
            for lsn, (time_us, kind, session, ops) in enumerate(records, header.first_lsn):
                if lsn < first:
                    continue
                if last is not None and lsn > last:
                    return
                yield DumpRow(
                    lsn,
                    header.term,
                    time_us,
                    KIND_NAMES.get(kind, str(kind)),
                    session.hex() if session is not None else None,
                    [readable(op) for op in ops],
                )


def dump(disk: Disk, first_lsn: int = 0, last_lsn: int | None = None) -> Dump:
    """Rows of the log's records, oldest first. Raises `StorageError` for a foreign directory."""
    return Dump(disk, first_lsn, last_lsn)


def covering(disk: ReadDisk, first_lsn: int, last_lsn: int | None) -> list[str]:
    """Segments that may hold records of the range, by their names alone."""
    names = segment_names(disk)
    starts = [name_lsn(name, SEGMENT_SUFFIX) or 0 for name in names]
    ends = [*starts[1:], None][: len(names)]
    return [
        name
        for name, start, end in zip(names, starts, ends, strict=True)
        if (end is None or end > first_lsn) and (last_lsn is None or start <= last_lsn)
    ]


class Verification:
    """Iterate over `FileReport`s of every file of the directory; each byte is checked once.

    `problems` holds, after the last report, what is wrong with single files and between them;
    `notes` what is harmless. `ok` once done and without problems.
    """

    def __init__(self, disk: Disk, meta: Meta | None = None) -> None:
        """`meta`: whose files they are to be, for a directory that has none yet.

        Raises `StorageError` when `meta` itself is missing or damaged.
        """
        self._disk = disk
        self._meta = meta if meta is not None else meta_of(disk)
        # Before the files: what a node publishes meanwhile is not in what is looked at here.
        self.commit_lsn, self._commit_problem = read_commit(disk)
        self._snapshots = snapshot_names(disk)
        self._segments = segment_names(disk)
        self._rescues = rescue_names(disk)
        self._rescued_snapshots = [n for n in all_rescued(disk) if n.endswith(SNAPSHOT_SUFFIX)]
        files = [*self._snapshots, *self._segments, *self._rescues, *self._rescued_snapshots]
        self._sizes = {name: disk.size(name) for name in files}
        self.total_bytes = sum(self._sizes.values())
        self.done_bytes = 0
        self.first_lsn = self.last_lsn = 0
        self.snapshot_lsn = 0
        self.problems: list[str] = []
        self.notes: list[str] = []
        self.done = False

    @property
    def ok(self) -> bool:
        return self.done and not self.problems

    def __iter__(self) -> Iterator[FileReport]:
        for name in self._snapshots:
            yield self._finished(self._snapshot(name))
        due: int | None = None
        for name in self._segments:
            report = self._segment(name, last=name == self._segments[-1], due=due)
            # Behind damage the next segment's start cannot be judged.
            due = report.last_lsn + 1 if report.problem is None else None
            yield self._finished(report)
        for name in self._rescues:
            yield self._finished(self._segment(name, last=False, due=None, rescue=True))
        for name in self._rescued_snapshots:
            yield self._finished(self._snapshot(name, rescue=True))
        self._compare()
        self.done = True

    def _finished(self, report: FileReport) -> FileReport:
        if report.problem is not None and report.state != "torn":
            self.problems.append(report.problem)
        elif report.problem is not None:
            self.notes.append(f"{report.problem} (a torn tail, recovery cuts it)")
        return report

    def _snapshot(self, name: str, rescue: bool = False) -> FileReport:
        before = self.done_bytes
        size = self._sizes[name]
        frames = 0
        try:
            reader = SnapshotReader(self._disk, name, self._meta.cluster)
            for _magic, frame, _body in reader.blocks():
                frames += frame is not None
                self.done_bytes = before + reader.position
        except StorageError as error:
            self.done_bytes = before + size
            return FileReport(name, "damaged", size, problem=str(error))
        assert reader.end is not None
        if not rescue:
            self.snapshot_lsn = reader.end.end_lsn
        self.done_bytes = before + size
        start = reader.header.start_lsn
        return FileReport(
            name,
            "rescue" if rescue else "snapshot",
            size,
            start,
            reader.end.end_lsn,
            frames,
            reader.end.rows,
        )

    def _segment(self, name: str, last: bool, due: int | None, rescue: bool = False) -> FileReport:
        before, size = self.done_bytes, self._sizes[name]
        problem: str | None = None
        reader: SegmentReader | None = None
        try:
            reader = SegmentReader(self._disk, name, self._meta, size, rescue)
            if due is not None and reader.first_lsn != due:
                problem = f"{name}: byte 0: LSN {due} up to {reader.first_lsn - 1} are missing"
            for _header, _body in reader.frames():
                self.done_bytes = before + reader.info.size
        except StorageError as error:
            problem = problem or str(error)
        self.done_bytes = before + size
        if reader is None:
            torn = last and size <= SEGMENT_HEADER_SIZE and not rescue
            return FileReport(name, "torn" if torn else "damaged", size, problem=problem)
        info = reader.info
        state = "rescue" if rescue else "sealed" if reader.footer else "open"
        if problem is not None:
            torn = last and reader.damage is not None and _unproven(reader)
            state = "torn" if torn else "damaged"
        elif state != "sealed" and not last and reader.footer is None:
            state = "damaged"
            problem = f"{name}: byte {info.size}: ends without its footer"
        if not rescue:
            self.first_lsn = self.first_lsn or info.first_lsn
            self.last_lsn = info.last_lsn
        return FileReport(
            name, state, size, info.first_lsn, info.last_lsn, info.frames, info.records, problem
        )

    def _compare(self) -> None:
        """What only several files together can tell."""
        if self._commit_problem is not None:
            self.notes.append(self._commit_problem)
        reach = max(self.last_lsn, self.snapshot_lsn)
        if self.commit_lsn > reach:
            self.problems.append(
                f"log ends at LSN {reach}, but LSN {self.commit_lsn} was published as committed"
            )
        if self.first_lsn > self.snapshot_lsn + 1:
            self.problems.append(
                f"log starts at LSN {self.first_lsn}, and no snapshot covers what was before"
            )
        for name in self._disk.list():
            if name.endswith(SUFFIX_IN_PROGRESS):
                self.notes.append(f"{name}: unfinished, removed at the next start")


def _unproven(reader: SegmentReader) -> bool:
    """Whether nothing behind the damage tells that it was committed: recovery cuts it then."""
    return reader.behind(reader.info.size).commit_lsn <= reader.info.last_lsn


def verify(disk: Disk) -> Verification:
    """Check every byte of a directory. Raises `StorageError` when it is no data directory."""
    return Verification(disk)
