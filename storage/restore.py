"""A data directory made from a backup, up to its end or to an earlier record.

An iterator that knows its total bytes and how many are done, for a progress bar.
"""

from __future__ import annotations

from collections.abc import Iterator

from tandemq.log.disk import RESCUE_PREFIX, Disk, ReadDisk, write_file
from tandemq.log.meta import COMMIT_NAME, META_NAME, Meta, encode_commit, read_meta
from tandemq.log.rescue import cut_from
from tandemq.log.segment import SegmentReader
from tandemq.log.snapshot import snapshot_names, verify_snapshot
from tandemq.model.errors import StorageError
from tandemq.model.record import decode_body
from tandemq_server.storage.copies import Copying, described, end_lsn, read_manifest, segment_infos
from tandemq_server.storage.inspection import covering
from tandemq_server.storage.mend import MISSING_NAME


class Restore(Copying):
    """Iterate to make the empty `target` a data directory out of a backup.

    until_lsn / until_time_us: leave out every record behind that LSN, or newer than that time.
    `last_lsn`, `term` and `last_time_us` tell what came of it. Raises `StorageError`, with the
    target empty again.
    """

    def __init__(
        self,
        source: ReadDisk,
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
        reach = end_lsn(snapshot) if snapshot is not None else 0
        names = [snapshot] if snapshot is not None else []
        names += covering(self.source, reach + 1, until)
        # All of them, whatever the point wanted: they tell of what is in no log.
        names += [name for name in self.manifest.files if name.startswith(RESCUE_PREFIX)]
        if until == self.manifest.last_lsn and MISSING_NAME in self.manifest.files:
            # Up to an earlier point somebody decided to go on without the rest.
            names.append(MISSING_NAME)
        planned = {name: self.source.size(name) for name in names}
        self._fits(planned)
        self.total_bytes = 2 * sum(planned.values())
        for name, size in planned.items():
            yield from self._copy(name, size)
        segments = list(segment_infos(self.target, self.meta))
        if segments and segments[-1].last_lsn > until:
            self._made += [info.name for info in segments]
            cut_from(self.target, self.meta, segments, until + 1)
        yield from self._verified(self.meta)
        found = described(self.target, self.meta, self.manifest.created_us)
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
        fitting = [n for n in snapshot_names(self.source) if end_lsn(n) <= until]
        return fitting[-1] if fitting else None


def _last_before(disk: ReadDisk, meta: Meta, time_us: int) -> int:
    """LSN of the last record that is not newer than `time_us`, -1 when that cannot be told.

    The log's clock never runs back. What is no longer in the log, a snapshot tells.
    """
    ends = [verify_snapshot(disk, name, meta.cluster) for name in snapshot_names(disk)]
    last = max((end.end_lsn for end in ends if end.time_us <= time_us), default=-1)
    for info in segment_infos(disk, meta):
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
