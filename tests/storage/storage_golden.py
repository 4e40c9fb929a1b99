"""The golden data directory of format version 1: how its files are made and described.

`python -m tests.storage.storage_golden --write` makes them anew; review the
difference. Files of a released version are never rewritten: a new one gets its own folder.
"""

from __future__ import annotations

import sys
from pathlib import Path

from tandemq.log.disk import Disk
from tandemq.log.meta import Meta, read_commit, read_meta
from tandemq.log.rescue import rescue_names
from tandemq.log.snapshot import read_snapshot, snapshot_names
from tandemq_server.storage.inspection import Dump, dump, readable
from tandemq_server.storage.memory import MemoryDisk
from tests.storage.storage_samples import CLUSTER, NODE, Writing, small_snapshot

GOLDEN = Path(__file__).resolve().parent / "golden" / "v1"


def build() -> MemoryDisk:
    """Two terms, three segments, one of them open, a commit, a snapshot and a rescue file."""
    writing = Writing(MemoryDisk(), 1_300)
    for count in (4, 3, 2):
        writing.frame(count)
    writing.new_term()
    for count in (1, 5):
        writing.frame(count)
    writing.log.truncate_from(14)
    writing.log.publish_commit(12)
    writing.log.close()
    small_snapshot(writing.disk, Meta(CLUSTER, NODE, 0), 6)
    return writing.disk


def describe(disk: Disk) -> str:
    """The directory as text: what a person checks the bytes against."""
    meta = read_meta(disk)
    assert meta is not None
    lines = [f"meta    {meta}", f"commit  {read_commit(disk)[0]}"]
    lines += [f"record  {row}" for row in dump(disk)]
    for name in rescue_names(disk):
        lines += [f"rescue  {row}" for row in Dump(disk, rescue=name)]
    for name in snapshot_names(disk):
        for part in read_snapshot(disk, name, meta):
            shown = [readable(op) for op in part[1]] if part[0] == "catalogue" else part[1:]
            lines.append(f"snap    {part[0]} {shown}")
    return "\n".join(lines) + "\n"


def golden_files() -> dict[str, bytes]:
    """The files as they are in the repository, by their name in a data directory."""
    return {
        path.relative_to(GOLDEN).as_posix(): path.read_bytes()
        for path in sorted(GOLDEN.rglob("*"))
        if path.is_file() and path.name != "dump.txt"
    }


def write() -> None:
    disk = build()
    for name, data in disk.contents().items():
        path = GOLDEN / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    (GOLDEN / "dump.txt").write_text(describe(disk), "utf-8")


if __name__ == "__main__" and sys.argv[1:] == ["--write"]:
    write()
