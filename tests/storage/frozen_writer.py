"""The files of 8ab7980, written by hand: nothing of `storage/` or of the record codec is used.

So what today's reader takes cannot drift along with today's writer.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgpack

CLUSTER, NODE = b"c" * 16, b"n" * 16
TERM = [1, b"t" * 16, None, 1, "old", False]
NOW_US = 1_700_000_000_000_000
INSERT, CREATE, TERM_OP, MARK, INSERT_MANY = 1, 4, 7, 8, 9
TUBE_ID = 1024
#: What a node of that version logs for `create_tube('jobs', 'fifo')`.
TUBE_OPS: list[list[Any]] = [
    [CREATE, TUBE_ID, "jobs", "fifo", {}, 0],
    [INSERT, 512, ["jobs", 1, "jobs", "fifo", {}]],
]


def pack(value: Any) -> bytes:
    data: bytes = msgpack.packb(value, use_bin_type=True)
    return data


def block(magic: bytes, body: bytes, seed: bytes = b"") -> bytes:
    head = struct.pack(">4sII", magic, len(body), 0)
    crc = zlib.crc32(body, zlib.crc32(head, zlib.crc32(seed)))
    return struct.pack(">4sII", magic, len(body), crc) + body


def fixed(magic: bytes, value: Any, size: int) -> bytes:
    return block(magic, pack(value).ljust(size - 12, b"\0"))


def frame(records: list[Any], first_lsn: int, commit_lsn: int) -> bytes:
    body = pack(records)
    number, term_id = TERM[0], TERM[1]
    head = [b"TQf1", len(body), 0, number, first_lsn, len(records), commit_lsn]
    seed = zlib.crc32(term_id + struct.pack(">Q", first_lsn))  # type: ignore[operator]
    bare = struct.pack(">4sIIIQIQ", *head)
    head[2] = zlib.crc32(body, zlib.crc32(bare, seed))
    return struct.pack(">4sIIIQIQ", *head) + body


def meta() -> bytes:
    value = {"version": 1, "cluster": CLUSTER, "node": NODE, "created": NOW_US}
    return fixed(b"TQm1", value, 128)


def segment(frames: Iterable[bytes], first_lsn: int = 1) -> Iterable[bytes]:
    """An open segment, piece by piece."""
    value = {"version": 1, "cluster": CLUSTER, "node": NODE, "term": TERM, "first_lsn": first_lsn}
    yield fixed(b"TQh1", value, 1024)
    yield from frames


def snapshot(end_lsn: int, blocks: Iterable[tuple[bytes, Any]], rows: int) -> Iterable[bytes]:
    """A snapshot without frames, piece by piece; `blocks` are (magic, value)."""
    value = {
        "version": 1,
        "kind": "snapshot",
        "cluster": CLUSTER,
        "node": NODE,
        "lineage": [TERM],
        "start_lsn": end_lsn,
    }
    header = block(b"TQh1", pack(value))
    size, count = len(header), 0
    tie = struct.pack(">I", zlib.crc32(header))
    yield header
    for magic, what in blocks:
        piece = block(magic, pack(what), tie + struct.pack(">Q", size))
        size, count = size + len(piece), count + 1
        yield piece
    yield block(b"TQe1", pack([end_lsn, rows, NOW_US, count]), tie + struct.pack(">Q", size))


def write(path: Path, pieces: Iterable[bytes]) -> None:
    with path.open("wb") as file:
        for piece in pieces:
            file.write(piece)
