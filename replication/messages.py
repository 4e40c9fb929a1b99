"""What two nodes say to each other once a connection was switched over by SUBSCRIBE.

A message is a length (u32, big-endian, of what follows) and a MessagePack array: its type, then
its fields in the order of the class. Fields behind the known ones are ignored, so that a newer
node can add some. Layouts are listed in docs/replication.md; nothing here decides anything.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

from tandemq_server.replication.lineage import ID_BYTES, Lineage
from tandemq_server.replication.standing import Standing

PROTOCOL_VERSION = 1
#: The cluster id of a node that has none yet: it joins whatever cluster answers.
NO_CLUSTER = bytes(ID_BYTES)

CONTINUE, REWIND, BOOTSTRAP, REFUSE, IDLE = 1, 2, 3, 4, 5
ANSWER_NAMES = {
    CONTINUE: "continue",
    REWIND: "rewind",
    BOOTSTRAP: "bootstrap",
    REFUSE: "refuse",
    IDLE: "idle",
}
#: Names of refusals: codes of WELCOME and of BYE.
WRONG_CLUSTER, SELF, NEWER_PROTOCOL, UNKNOWN_NODE = 1, 2, 3, 4
NEWER_TERM, CONFLICT, LOST_ACKNOWLEDGED, BROKEN_LINEAGE = 5, 6, 7, 8
GARBAGE, SILENT, AGAIN, STOPPING, DIVERGED = 9, 10, 11, 12, 13
OTHER_WAL_MODE = 14
#: The sender's process ends and does not serve; the next one begins by asking its peers.
ENDED = 15
CODE_NAMES = {
    0: "none",
    WRONG_CLUSTER: "wrong_cluster",
    SELF: "self",
    NEWER_PROTOCOL: "newer_protocol",
    UNKNOWN_NODE: "unknown_node",
    NEWER_TERM: "newer_term",
    CONFLICT: "conflict",
    LOST_ACKNOWLEDGED: "lost_acknowledged",
    BROKEN_LINEAGE: "broken_lineage",
    GARBAGE: "garbage",
    SILENT: "silent",
    AGAIN: "again",
    STOPPING: "stopping",
    DIVERGED: "diverged",
    OTHER_WAL_MODE: "other_wal_mode",
    ENDED: "ended",
}


class LinkError(Exception):
    """The peer broke the protocol. `code` is one of the names above, `reason` one line.

    Whoever catches it closes the connection; nothing that came before is undone.
    """

    def __init__(self, reason: str, code: int = GARBAGE) -> None:
        super().__init__(reason)
        self.reason = reason
        self.code = code


@dataclass(frozen=True, slots=True)
class Hello:
    """First message of the downstream: who it is and what its log holds.

    last_lsn / durable_lsn: end of the log, and how far it survives a power cut. acked_mark: the
    highest LSN the node knows to have been acknowledged to clients, by whomever. partial: the
    name and received bytes of a snapshot it would like to resume. wal_mode: how durable what it
    confirms is; empty from a node of a version that did not say. known_*: all up to `known_lsn`
    was acknowledged by somebody, as said in the term `known_number`, `known_id`; or zeros.
    """

    version: int
    cluster_id: bytes
    node_id: bytes
    node_name: str
    lineage: Lineage
    last_lsn: int
    durable_lsn: int
    state: str
    read_only: bool
    commit_lsn: int
    acked_mark: int
    partial: tuple[str, int] | None = None
    wal_mode: str = ""
    known_lsn: int = 0
    known_number: int = 0
    known_id: bytes = bytes(ID_BYTES)


@dataclass(frozen=True, slots=True)
class Welcome:
    """The one answer to HELLO. `answer` is CONTINUE REWIND BOOTSTRAP REFUSE or IDLE.

    lsn: CONTINUE: the first LSN that will come; REWIND: the last LSN to keep; else 0.
    code, reason: why, for REFUSE, BOOTSTRAP, IDLE and REWIND. The rest describes the upstream.
    """

    answer: int
    lsn: int
    code: int
    reason: str
    version: int
    cluster_id: bytes
    node_id: bytes
    node_name: str
    lineage: Lineage
    last_lsn: int
    commit_lsn: int
    state: str
    writable: bool
    wal_mode: str = ""


@dataclass(frozen=True, slots=True)
class Frame:
    """One or more log frames of one term, the bytes that are on the upstream's disk, and its id."""

    term_id: bytes
    data: bytes


@dataclass(frozen=True, slots=True)
class Ack:
    """What the downstream holds; cumulative. `term_id`: the term of the record `durable_lsn`.

    snapshot_bytes: how much of the snapshot under way has arrived and is kept.
    """

    term_id: bytes
    durable_lsn: int
    applied_lsn: int
    snapshot_bytes: int = 0


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """Each second, both ways. clock_us: the sender's log clock when it was sent.

    standing: what the sender's log has to show for itself, None from an older node. sent_us: by a
    clock of the sender's own; heard_us: the highest `sent_us` that has reached it from the other
    side, so that an answer can be told from what crossed the question. Zeros from an older node.
    wants: the sender is about to serve, by this claim; 0 when not. asks: it waits for an answer.
    """

    term_number: int
    term_id: bytes
    state: str
    last_lsn: int
    commit_lsn: int
    clock_us: int
    read_only: bool
    writable: bool
    standing: Standing | None = None
    sent_us: int = 0
    heard_us: int = 0
    wants: int = 0
    asks: bool = False


@dataclass(frozen=True, slots=True)
class SnapshotBegin:
    """A snapshot of `size` bytes follows, `crc` is the CRC-32 of them all; then come frames."""

    end_lsn: int
    size: int
    name: str
    crc: int


@dataclass(frozen=True, slots=True)
class SnapshotChunk:
    """Bytes of the snapshot from `offset` on, with their CRC-32."""

    offset: int
    data: bytes
    crc: int


@dataclass(frozen=True, slots=True)
class SnapshotEnd:
    """The snapshot is complete; `end_lsn` as announced."""

    end_lsn: int


@dataclass(frozen=True, slots=True)
class Fence:
    """The sender knows this term: whoever leads under an older one stops acknowledging."""

    term_number: int
    term_id: bytes


@dataclass(frozen=True, slots=True)
class Handoff:
    """The sender stopped writing: its log ends at `barrier_lsn`, the next term is `term_number`."""

    term_number: int
    barrier_lsn: int


@dataclass(frozen=True, slots=True)
class Bye:
    """The sender closes the connection. AGAIN asks the other side to subscribe anew at once."""

    code: int
    reason: str


@dataclass(frozen=True, slots=True)
class Ask:
    """The sender carries out an operator's switch-over: become (not) writable.

    The answer is the state, in the heartbeats that follow.
    """

    read_only: bool
    reason: str


Message = (
    Hello
    | Welcome
    | Frame
    | Ack
    | Heartbeat
    | SnapshotBegin
    | SnapshotChunk
    | SnapshotEnd
    | Fence
    | Handoff
    | Bye
    | Ask
)
TYPES: dict[int, type[Message]] = {
    1: Hello,
    2: Welcome,
    3: Frame,
    4: Ack,
    5: Heartbeat,
    6: SnapshotBegin,
    7: SnapshotChunk,
    8: SnapshotEnd,
    9: Fence,
    10: Handoff,
    11: Bye,
    12: Ask,
}
LENGTH = struct.Struct(">I")
