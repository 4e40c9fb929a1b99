"""A rewind of the log on disk: everything behind a point is saved, noted, then taken off.

Where the point cannot be reached from what the directory holds, everything goes: the newest
snapshot moves to `rescue/`, and the node starts from nothing.

The order of the steps is the whole matter. Files come before the note that tells of them, the note
before the first record is removed, and whatever is removed leaves a directory that starts.
"""

from __future__ import annotations

from dataclasses import replace

from tandemq.log.disk import Disk, remove_durably, write_file
from tandemq.log.meta import Meta
from tandemq.log.rescue import rescued_snapshot
from tandemq.log.segment import name_lsn
from tandemq.log.snapshot import SUFFIX, snapshot_names, verify_snapshot
from tandemq.model.errors import StorageError
from tandemq_server.node.loop.rescue_files import RescueFiles, note_name
from tandemq_server.replication.rescue import RescueNote, encode_rescue
from tandemq_server.storage.log import Log
from tandemq_server.storage.recovery import wipe_log


def rewind(disk: Disk, meta: Meta, log: Log, to_lsn: int, note: RescueNote) -> None:
    """Take every record after `to_lsn` off the log; the caller loads what is left.

    `note` tells of records `to_lsn + 1` on. Interrupted at any point it leaves a directory that
    starts; told to rewind again, the node finishes it. Raises `StorageError`.
    """
    base = _base(disk, meta, log, to_lsn)
    if base is not None:
        log.rescue_from(to_lsn + 1)
        _write_note(disk, meta, note, "", 0)
        for name in snapshot_names(disk):
            if _lsn(name) > to_lsn:
                remove_durably(disk, name)
        log.truncate_from(to_lsn + 1, rescue=False)
        return
    kept = _newest_good(disk, meta)
    moved = ""
    if kept is not None:
        term = note.lineage.term_at(_lsn(kept))
        assert term is not None, "a snapshot that is loaded is of this lineage"
        moved = rescued_snapshot(kept, term.id)
    log.rescue_from(max(to_lsn + 1, log.first_lsn))
    _write_note(disk, meta, note, moved, log.first_lsn)
    # The kept one leads to the end of the log by itself; without the log it is a state still.
    for name in snapshot_names(disk):
        if name != kept:
            remove_durably(disk, name)
    log.close()
    wipe_log(disk)
    if kept is not None:
        disk.rename(kept, moved)
        disk.sync_dir()


def _lsn(snapshot: str) -> int:
    found = name_lsn(snapshot, SUFFIX)
    assert found is not None, f"{snapshot} is not named like a snapshot"
    return found


def _base(disk: Disk, meta: Meta, log: Log, to_lsn: int) -> int | None:
    """The LSN of a snapshot from which the log leads to `to_lsn`, verified; 0 for the log alone.

    None when there is none: what is cut then is everything.
    """
    wanted = [_lsn(name) for name in snapshot_names(disk) if _lsn(name) <= to_lsn]
    for lsn in [*reversed(wanted), 0]:
        if lsn + 1 < log.first_lsn:
            return None
        try:
            if lsn:
                verify_snapshot(disk, f"{lsn:020d}{SUFFIX}", meta.cluster)
            if lsn < to_lsn:
                for header, _ in log.read_from(lsn + 1):
                    if header.last_lsn >= to_lsn:
                        break
        except StorageError:
            continue
        return lsn
    return None


def _newest_good(disk: Disk, meta: Meta) -> str | None:
    for name in reversed(snapshot_names(disk)):
        try:
            verify_snapshot(disk, name, meta.cluster)
        except StorageError:
            continue
        return name
    return None


def _write_note(
    disk: Disk, meta: Meta, note: RescueNote, snapshot: str, log_first_lsn: int
) -> None:
    """Tell of what no earlier note tells of: an interrupted rewind that runs again adds nothing.

    Records below `log_first_lsn` are in no log any more: `snapshot` has what they led to.
    """
    first_lsn = RescueFiles(disk, meta).untold(note)
    if first_lsn > note.last_lsn:
        return
    note = replace(note, first_lsn=first_lsn)
    if log_first_lsn > first_lsn:
        if not snapshot:
            raise StorageError(
                disk.where,
                0,
                f"LSN {first_lsn} to {log_first_lsn - 1} are to be rescued, and neither log nor "
                "snapshot has them",
            )
        note = replace(note, records_from=log_first_lsn, snapshot=snapshot)
    write_file(disk, note_name(note), encode_rescue(note, ()))
