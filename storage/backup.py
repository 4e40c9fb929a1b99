"""A copy of a data directory that a node may be writing to, verified when it is done.

An iterator that knows its total bytes and how many are done, for a progress bar.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict

from tandemq.log.disk import Disk, write_file
from tandemq.log.meta import COMMIT_NAME, META_NAME, encode_commit, meta_of, read_commit
from tandemq.log.segment import SEGMENT_HEADER_SIZE, SegmentReader, segment_names
from tandemq.log.snapshot import snapshot_names
from tandemq.model.errors import StorageError
from tandemq_server.storage.copies import (
    MANIFEST_NAME,
    Copying,
    Manifest,
    SourceChanged,
    beside,
    described,
    end_lsn,
)
from tandemq_server.storage.inspection import covering
from tandemq_server.storage.mend import read_missing

#: How often a copy begins anew because the node took away what was being copied.
ATTEMPTS = 5


class Backup(Copying):
    """Iterate to copy `source`, a directory that may be in use, into the empty `target`.

    Yields the name of the file at work. `manifest` is there at the end, `notes` what a person
    should know. Raises `StorageError` for damage or a full disk, with the target empty again.
    """

    def __init__(self, source: Disk, target: Disk, created_us: int, history: bool = False) -> None:
        """`history`: everything the directory has, to go back further than the newest snapshot."""
        super().__init__(source, target)
        meta = meta_of(source)
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
                except (StorageError, SourceChanged):
                    self._undo()
                    # A file may go, or be cut, while it is copied; damage stays where it is.
                    if self._unchanged(planned) or attempt == ATTEMPTS - 1:
                        raise
        except SourceChanged as error:
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
        reach = end_lsn(snapshots[0]) if snapshots else 0
        names = [*snapshots, *covering(self.source, 0 if self.history else reach + 1, None)]
        if not names:
            raise StorageError(
                self.source.where, 0, "has neither snapshot nor log: let the node write a snapshot"
            )
        planned = {}
        for name in [*names, *beside(self.source)]:
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
            raise SourceChanged(next(iter(planned)))
        manifest = described(self.target, self.meta, self.created_us)
        missing_lsn = read_missing(self.target)
        if missing_lsn:
            self.notes.append(
                f"records up to LSN {missing_lsn} could no longer be read there: a node "
                "started from this copy fetches it from a peer"
            )
        if max(manifest.last_lsn, missing_lsn) < commit_lsn:
            raise StorageError(
                self.source.where,
                0,
                f"the log ends at LSN {manifest.last_lsn}, but LSN {commit_lsn} was published as "
                "committed",
            )
        manifest.commit_lsn = commit_lsn
        manifest.files |= {name: self.target.size(name) for name in beside(self.target)}
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
