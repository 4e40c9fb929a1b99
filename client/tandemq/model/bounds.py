"""How large what is written may be, and what is read: one rule for frames, blocks and messages.

What is written is bounded, so that every reader, an older node's too, takes it: a record, a frame
and a block of a snapshot have at most `FRAME_BODY_BYTES_MAX` bytes, and whoever groups records or
rows ends a group at `FRAME_BODY_BYTES_AIM`. What is read is bounded by what a file holds, as older
versions wrote more: from `BIG_BYTES` on a CRC is verified in pieces before anything is kept.
Settings are checked against this when the configuration is loaded. Bytes everywhere.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tandemq.model.errors import QueueError, failure
from tandemq.model.units import MIB

#: What the length field of a frame, a block or a message can say.
LENGTH_MAX = (1 << 32) - 1
#: The largest frame, block or record that is written; older readers refuse more.
FRAME_BODY_BYTES_MAX = 256 * MIB
#: The records of a turn, or the rows of a snapshot, go into one frame or block up to here; a
#: record or row larger than this has one of its own.
FRAME_BODY_BYTES_AIM = 4 * MIB
#: Read whole only once its CRC is known to be right.
BIG_BYTES = 16 * MIB
#: What a record adds to the bytes of the request it comes from: names, deadlines, counters.
RECORD_EXTRA_BYTES = MIB
#: The array around the records of a frame.
FRAME_EXTRA_BYTES = 5
#: The most that stands in front of a record's ops.
RECORD_HEAD_BYTES = 64
RECORD_BYTES_MAX = FRAME_BODY_BYTES_MAX - FRAME_EXTRA_BYTES
#: The largest request, and so the largest payload: a record must have room for it.
REQUEST_BYTES_MAX = RECORD_BYTES_MAX // MIB * MIB
#: What a link keeps of a message that is no frame; a frame may be as large as one in a file.
MESSAGE_BYTES_MAX = FRAME_BODY_BYTES_MAX + MIB


class TooLarge(Exception):
    """Something that no reader takes was about to be written. Nothing was."""


def unmeasured_rows(payload_bytes_max: int) -> int:
    """How many rows a transaction may change without being measured: they fit whatever they are."""
    return max(1, RECORD_BYTES_MAX // (payload_bytes_max + RECORD_EXTRA_BYTES))


def record_too_large(size: int) -> QueueError:
    """The caller's mistake: what one call changes must fit one record."""
    return failure(
        f"The call changes {size} bytes at once, which is too large: a record has at most "
        f"{RECORD_BYTES_MAX}. Do it with fewer tasks at a time (see limits.frame_bytes_max)"
    )


def row_bytes(row: Sequence[Any]) -> int:
    """About how many bytes a row takes in a snapshot: enough to end a block in time."""
    last = row[-1]
    if type(last) is bytes:
        # A task: its payload is what counts.
        return len(last) + 64
    return 64 + sum([len(field) for field in row if type(field) is bytes or type(field) is str])
