"""What the core hands over at the end of a turn of the event loop: a frame, and whom to tell.

Must not be here: how a frame is made durable (node/loop/wal_writer.py).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tandemq_server.node.core.connection import Connection


@dataclass(slots=True)
class Turn:
    """What one event-loop turn produced: at most one frame, and replies to send after it."""

    frame: bytes | None = None
    first_lsn: int = 0
    last_lsn: int = 0
    #: Frames before that one, with their first and last LSNs, where it would be too large.
    before: Sequence[tuple[bytes, int, int]] = ()
    replies: list[tuple[Connection, bytes]] = field(default_factory=list)
    #: Replies that tell nothing of the data: they wait for no record.
    prompt: list[tuple[Connection, bytes]] = field(default_factory=list)
    #: Called when the replies may leave; they must not raise.
    committed: Sequence[Callable[[], None]] = ()
    #: When its first request came, by the process's own clock in seconds; 0: not measured.
    began: float = 0.0
    #: Of a measured turn: how many calls of each kind it answered.
    calls: dict[str, int] | None = None
