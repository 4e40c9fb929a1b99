"""Filling an archive: what a data directory has is copied to a line, verified before and after.

Here: what is to be copied, what goes on an older line and what begins a new one, what is let go.
Must not be here: what an archive looks like (`archived`), when to ship (the command).

A line is one history: each record once, without a gap. A log that was cut, or trimmed before it
was shipped, does not go on what is there: it begins a line of its own, and the older one stays.
"""

from __future__ import annotations

import hashlib
from copy import deepcopy
from dataclasses import dataclass, field

from tandemq.log.disk import ReadDisk
from tandemq.log.meta import META_NAME, Meta, NothingYet, meta_of, read_commit
from tandemq.log.segment import SegmentReader, segment_names
from tandemq.log.shipped import manifest_name, object_name
from tandemq.log.snapshot import SnapshotReader, snapshot_names
from tandemq.model.errors import StorageError
from tandemq.model.record import decode_body
from tandemq_server.storage.archived import (
    ArchiveLine,
    ArchiveStore,
    Shipped,
    line_name,
    lines_of,
)
from tandemq_server.storage.copies import COPY_BYTES, beside, end_lsn
from tandemq_server.storage.inspection import covering

#: How often a round begins anew because the node took away what was being copied.
ATTEMPTS = 5


@dataclass(slots=True)
class Round:
    """What one round did. new_line: why a line was begun, empty when it went on.

    let_go: files. problems: damaged snapshots, which were left out.
    """

    line: ArchiveLine
    files: int = 0
    bytes: int = 0
    new_line: str = ""
    let_go: int = 0
    problems: list[str] = field(default_factory=list)


class Shipping:
    """Ships one data directory, which a node may be writing to, round after round.

    What an earlier process shipped is taken up after its files were compared with the directory's.
    """

    def __init__(self, source: ReadDisk, store: ArchiveStore) -> None:
        self.source = source
        self.store = store
        self.line: ArchiveLine | None = None
        self._compared: set[tuple[str, int]] = set()
        self._begun = False
        self._newest = 0
        #: Digests of the objects that this round has copied, should it begin anew.
        self._copied: dict[str, str] = {}

    def round(self, now_us: int, keep_us: int | None = None) -> Round:
        """Ship what is new, then let go what is older than `keep_us` before now.

        Raises `StorageError`: of damage in the directory, which is never shipped, or of the store.
        """
        meta = meta_of(self.source)
        if not self._begun:
            lines = lines_of(self.store)
            self.line = next((one for one in reversed(lines) if one.node == meta.node.hex()), None)
            self._newest = max((one.begun_us for one in lines), default=0)
            self._begun = True
        self._copied = {}
        done = self._attempted(meta, now_us)
        self.line = done.line
        self._newest = max(self._newest, done.line.begun_us)
        if keep_us is not None:
            done.let_go = self._expire(now_us - keep_us)
        return done

    def _attempted(self, meta: Meta, now_us: int) -> Round:
        for _ in range(ATTEMPTS - 1):
            before = self.source.list()
            try:
                return self._round(meta, now_us)
            except StorageError as error:
                # A file may go while it is copied; damage, and the store's troubles, stay.
                if error.file not in before or error.file in self.source.list():
                    raise
        return self._round(meta, now_us)

    def _round(self, meta: Meta, now_us: int) -> Round:
        commit_lsn, _ = read_commit(self.source)
        why = self._parted(meta)
        if why or self.line is None:
            # Lines are in order of their names, also after a clock was put back.
            begun_us = max(now_us, self._newest + 1)
            line = ArchiveLine(line_name(begun_us, meta.node), 0, "", "", 0)
        else:
            line = deepcopy(self.line)
        line.cluster, line.node = meta.cluster.hex(), meta.node.hex()
        line.number, line.shipped_us = line.number + 1, now_us
        line.commit_lsn = max(line.commit_lsn, commit_lsn)
        done = Round(line, new_line=why)
        for name in snapshot_names(self.source):
            if name not in line.snapshots and end_lsn(name) >= line.let_go_lsn:
                self._snapshot(meta, name, done)
        for name in covering(self.source, line.let_go_lsn + 1, None):
            self._segment(meta, name, done)
        if not line.segments and not line.snapshots:
            raise NothingYet(self.source.where, 0, "holds neither a segment nor a snapshot yet")
        for name in (META_NAME, *beside(self.source)):
            size = self.source.size(name)
            if name not in line.beside or line.beside[name].size != size:
                line.beside[name] = self._copy(name, size, done)
        self._publish(line, done)
        return done

    # -- whether it goes on ----------------------------------------------------------------------

    def _parted(self, meta: Meta) -> str:
        """Why the directory does not go on the newest line of its node; empty when it does."""
        line = self.line
        if line is None:
            return "the archive has none of this node yet"
        if line.cluster != meta.cluster.hex():
            return "the node is in another cluster now"
        names = self.source.list()
        newest = max(line.segments, default=None)
        if newest is None:
            newest = max(line.snapshots)
        if newest not in names:
            return f"{newest} was trimmed, or cut, before all of it was shipped"
        # A cut changes it, wherever the cut is; so it is looked at each time, the others once.
        self._compared.discard((newest, line.files[newest].size))
        for name, shipped in {**line.segments, **line.snapshots}.items():
            if name in names and not self._is(name, shipped):
                return f"{name} is another than the one that was shipped: the log was cut"
        return ""

    def _is(self, name: str, shipped: Shipped) -> bool:
        """Whether the file begins with what was shipped of it."""
        size = self.source.size(name)
        if size < shipped.size:
            return False
        if (name, shipped.size) not in self._compared:
            if digest(self.source, name, shipped.size) != shipped.sha256:
                return False
            self._compared.add((name, shipped.size))
        return True

    # -- one file --------------------------------------------------------------------------------

    def _snapshot(self, meta: Meta, name: str, done: Round) -> None:
        try:
            reader = SnapshotReader(self.source, name, meta.cluster)
            for _ in reader.blocks():
                pass
        except StorageError as error:
            if name not in self.source.list():
                raise
            # The log behind the one before reaches further than it does.
            done.problems.append(str(error))
            return
        assert reader.end is not None
        term = reader.lineage[-1].number if reader.lineage else 0
        lsn, time_us = reader.end.end_lsn, reader.end.time_us
        shipped = self._copy(name, reader.size, done, lsn, lsn, term, time_us)
        done.line.snapshots[name] = shipped

    def _segment(self, meta: Meta, name: str, done: Round) -> None:
        """All whole frames of a segment: of the one that is being written, those there are."""
        line = done.line
        known = line.segments.get(name)
        if known is not None and known.size == self.source.size(name):
            return
        try:
            reader = SegmentReader(self.source, name, meta)
        except StorageError:
            if name == segment_names(self.source)[-1]:
                return  # Just being made.
            raise
        time_us, start = 0, None
        if known is not None and reader.peek_footer() is None:
            # What was shipped of it was verified then, and compared a moment ago.
            start, reader.info.size = (known.last_lsn + 1, known.size), known.size
            time_us = known.time_us
        try:
            for header, body in reader.frames(start):
                time_us = decode_body(body, header.count)[-1][0]
        except StorageError as error:
            torn = error is reader.damage and reader.follows_valid(reader.info.size) is None
            if not torn or name != segment_names(self.source)[-1]:
                raise
        info = reader.info
        size = reader.size if reader.footer is not None else info.size
        if known is None or known.size != size:
            spans = (info.first_lsn, info.last_lsn, info.term.number, time_us)
            line.segments[name] = self._copy(name, size, done, *spans)

    def _copy(self, name: str, size: int, done: Round, *spans: int) -> Shipped:
        """The first `size` bytes, read back from the archive."""
        there = object_name(done.line.name, name, size)
        found = self._copied.get(there)
        if found is None or digest(self.source, name, size) != found:
            found = self._copied[there] = self._written(name, size, there)
        self._compared.add((name, size))
        done.files, done.bytes = done.files + 1, done.bytes + size
        return Shipped(size, found, *spans)

    def _written(self, name: str, size: int, there: str) -> str:
        """The digest of what was written there, and read back."""
        summed, position = hashlib.sha256(), 0
        with self.store.write(there) as writer:
            while position < size:
                data = self.source.read(name, position, min(COPY_BYTES, size - position))
                if not data:
                    raise StorageError(name, position, "was cut while it was copied")
                summed.update(data)
                writer.write(data)
                position += len(data)
        found = digest(self.store, there, size)
        if found != summed.hexdigest():
            raise StorageError(there, 0, "reads back as something else than was written")
        return found

    # -- what is let go --------------------------------------------------------------------------

    def _publish(self, line: ArchiveLine, done: Round) -> None:
        """The manifest last; then what neither it nor the one before names."""
        before = self.line if self.line is not None and self.line.name == line.name else None
        if before is not None and not done.files and before.commit_lsn == line.commit_lsn:
            line.number, line.shipped_us = before.number, before.shipped_us
            return
        path = manifest_name(line.name, line.number)
        encoded = line.encoded()
        with self.store.write(path) as writer:
            writer.write(encoded)
        if self.store.read(path) != encoded:
            raise StorageError(path, 0, "reads back as something else than was written")
        self._sweep(line, before)

    def _sweep(self, line: ArchiveLine, before: ArchiveLine | None) -> None:
        kept = {manifest_name(line.name, line.number)}
        for one in (line, before):
            if one is not None:
                kept.add(manifest_name(one.name, one.number))
                kept |= {object_name(one.name, n, file.size) for n, file in one.files.items()}
        for path in self.store.list():
            if path.startswith(f"{line.name}/") and path not in kept:
                self.store.remove(path)

    def _expire(self, before_us: int) -> int:
        """Let go what no point at or after `before_us` needs; how many files that was."""
        assert self.line is not None
        gone = 0
        for old in lines_of(self.store):
            ours = old.name != self.line.name and old.node == self.line.node
            if ours and old.newest.time_us < before_us:
                gone += self._drop(old)
        line = deepcopy(self.line)
        bases = [one.last_lsn for one in line.snapshots.values() if one.time_us <= before_us]
        base = max(bases, default=0)
        useless = [name for name, one in line.snapshots.items() if one.last_lsn < base]
        useless += [name for name, one in line.segments.items() if one.last_lsn <= base]
        # The newest one shows whether the directory goes on this line.
        useless = [name for name in useless if name != max(line.segments, default="")]
        if useless:
            for name in useless:
                line.snapshots.pop(name, None)
                line.segments.pop(name, None)
            line.let_go_lsn = base
            line.number += 1
            with self.store.write(manifest_name(line.name, line.number)) as writer:
                writer.write(line.encoded())
            self.line = line
            self._sweep(line, None)
        return gone + len(useless)

    def _drop(self, line: ArchiveLine) -> int:
        """A whole line: its manifests first, so that nobody takes what is left for a line."""
        paths = [path for path in self.store.list() if path.startswith(f"{line.name}/")]
        for path in sorted(paths, key=lambda path: "/manifest-" not in path):
            self.store.remove(path)
        return len(line.files)


def digest(disk: ReadDisk | ArchiveStore, name: str, size: int) -> str:
    """SHA-256, in hex, of the first `size` bytes of a file."""
    summed, position = hashlib.sha256(), 0
    while position < size:
        data = disk.read(name, position, min(COPY_BYTES, size - position))
        if not data:
            break
        summed.update(data)
        position += len(data)
    return summed.hexdigest()
