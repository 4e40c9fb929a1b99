"""Damaged ends and files: put aside, never thrown away.

A node with peers goes on with the part of its log that is whole, and remembers in the file
`missing` up to which LSN there was more: until that is here again it must not serve. What is put
aside is evidence for people; nothing here reads it again.
"""

from __future__ import annotations

from tandemq.log.blocks import BLOCK_SIZE, decode_block, encode_block
from tandemq.log.disk import SUFFIX_DAMAGED, Disk, remove_durably, write_file
from tandemq.log.meta import Meta, read_commit
from tandemq.log.segment import SEGMENT_HEADER_SIZE, SegmentReader, segment_names
from tandemq.log.snapshot import snapshot_names
from tandemq.model.errors import StorageError
from tandemq.model.record import FrameError

SUFFIX_TORN = ".torn"
MISSING_NAME = "missing"
MISSING_MAGIC = b"TQx1"
MISSING_SIZE = BLOCK_SIZE + 8


class DamagedFiles(StorageError):
    """Records that were here cannot be read any more; up to `position` the file is whole.

    A peer may have them. Other refusals (another node's file, a newer version) are no damage.
    """

    @staticmethod
    def of(error: StorageError) -> DamagedFiles:
        return DamagedFiles(error.file, error.position, error.reason)


def read_missing(disk: Disk) -> int:
    """Up to which LSN there was more once than could be read; 0 when nothing is missing.

    Raises `StorageError` when that cannot be told.
    """
    if MISSING_NAME not in disk.list():
        return 0
    try:
        body = decode_block(disk.read(MISSING_NAME), 0, MISSING_MAGIC)
    except FrameError as error:
        raise StorageError(MISSING_NAME, 0, error.reason) from error
    return int.from_bytes(body, "big")


def forget_missing(disk: Disk) -> None:
    """What was missing is here again, or somebody decided to go on without it."""
    if MISSING_NAME in disk.list():
        remove_durably(disk, MISSING_NAME)


def end_before(disk: Disk, meta: Meta, damage: DamagedFiles) -> list[str]:
    """Make the log end before the damage, so that a peer can go on from there.

    What stood from there on is renamed or copied to `*.damaged`, newest first, after `missing`
    was written: interrupted anywhere, it is found damaged again or is done. Returns what to say.
    """
    names = segment_names(disk)
    moved: list[str] = []
    if damage.file in names:
        moved = names[names.index(damage.file) :]
    elif damage.file in snapshot_names(disk):
        moved = [*snapshot_names(disk), *names]
    reached = [_reach(disk, meta, name) for name in moved]
    needed = max(read_commit(disk)[0], read_missing(disk), *reached, 0)
    write_file(disk, MISSING_NAME, encode_block(MISSING_MAGIC, needed.to_bytes(8, "big")))
    lines = [f"{damage}; what was up to LSN {needed} is fetched from a peer"]
    for name in reversed(moved):
        aside = free_name(disk, name + SUFFIX_DAMAGED)
        if name != damage.file or damage.position <= SEGMENT_HEADER_SIZE:
            disk.rename(name, aside)
            disk.sync_dir()
        elif damage.position < disk.size(name):
            write_file(disk, aside, disk.read(name))
            disk.truncate(name, damage.position)
        else:
            continue
        lines.append(f"{name}: put aside as {aside}")
    return lines


def _reach(disk: Disk, meta: Meta, name: str) -> int:
    """The last LSN a segment is known to have held, or to have seen committed.

    Raises `StorageError` when the disk cannot read it, or it is not this node's.
    """
    try:
        reader = SegmentReader(disk, name, meta)
    except StorageError as error:
        if "segment header" in error.reason:
            return 0
        raise
    footer = reader.peek_footer()
    if footer is not None:
        return footer.last_lsn
    try:
        for _ in reader.frames():
            pass
    except StorageError as error:
        if error is not reader.damage:
            raise
        behind = reader.behind(reader.info.size)
        return max(behind.last_lsn, behind.commit_lsn)
    return reader.info.last_lsn


def keep_torn(disk: Disk, name: str, position: int) -> str:
    """Copy what stands in a file from `position` on to another, durably. Returns what to say.

    A disk that has no room for a copy that nobody needs must not keep a node from starting.
    """
    aside = free_name(disk, name + SUFFIX_TORN)
    try:
        write_file(disk, aside, disk.read(name, position))
    except StorageError as error:
        return f"not kept: {error}"
    return f"kept in {aside}"


def free_name(disk: Disk, wanted: str) -> str:
    """`wanted`, or with a number behind it when there is such a file already."""
    names = disk.list()
    number, name = 1, wanted
    while name in names:
        number += 1
        name = f"{wanted}.{number}"
    return name
