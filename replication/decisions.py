"""What the downstream's end of a link asks its owner to do, in the order it was decided.

Plain values; the owner writes, applies, cuts and closes. Nothing here decides.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from tandemq.model.record import Record, Span
from tandemq.model.terms import Term
from tandemq_server.replication.lineage import Lineage
from tandemq_server.replication.standing import Standing


class Append(NamedTuple):
    """Append these bytes to the log, then apply `records` to the spaces.

    data: `frames` whole frames of one term, LSNs `span`. opens_term: the log must be opened for
    `term` first. When it is done: `FollowedLog.applied`, and `FollowedLog.flushed` once it is
    durable.
    """

    data: bytes
    span: Span
    frames: int
    records: list[Record]
    term: Term
    opens_term: bool


@dataclass(frozen=True, slots=True)
class Broken:
    """Behind good frames came what is none: close the link as one that sends garbage."""

    reason: str


@dataclass(frozen=True, slots=True)
class Rewind:
    """Save every record after `to_lsn` in rescue files, cut them, rebuild the state, reconnect.

    cut / cut_acknowledged: how many records go, and how many of them are known to have been
    acknowledged. Then `FollowedLog.rewound(to_lsn)`. A node that cannot rebuild the state at
    `to_lsn` (no snapshot that old) rescues everything and goes on from an empty log.
    """

    to_lsn: int
    cut: int
    cut_acknowledged: int
    reason: str
    upstream: Lineage


@dataclass(frozen=True, slots=True)
class StartSnapshot:
    """A snapshot arrives: `size` bytes, `at` of them are here already. Keep the old state."""

    name: str
    size: int
    at: int


@dataclass(frozen=True, slots=True)
class WriteSnapshot:
    """Write `data` at `offset` of the snapshot file under way."""

    name: str
    offset: int
    data: bytes


@dataclass(frozen=True, slots=True)
class InstallSnapshot:
    """Every byte is here and verified: make the file durable, load it in place of the state.

    Then `FollowedLog.installed(lineage, end_lsn)` with the lineage found in the snapshot.
    """

    name: str
    end_lsn: int


@dataclass(frozen=True, slots=True)
class DropSnapshot:
    """Remove the unfinished file: it is damaged, or the upstream has another one now."""

    name: str
    reason: str


@dataclass(frozen=True, slots=True)
class Alarm:
    """Two logs hold different records at one LSN, or a term appears from nowhere.

    Nothing was applied. The link is to be closed and the alarm raised; it needs a person if it
    comes again after a new handshake.
    """

    lsn: int
    reason: str


@dataclass(frozen=True, slots=True)
class Resubscribe:
    """Close the connection and connect again at once: the handshake will sort it out."""

    reason: str


@dataclass(frozen=True, slots=True)
class SubscribeRefused:
    """The upstream refused by name (`code` of replication.messages). Retry slowly, log once."""

    code: int
    reason: str


@dataclass(frozen=True, slots=True)
class Idle:
    """The upstream has nothing to give now and keeps the link; heartbeats go on."""

    reason: str


@dataclass(frozen=True, slots=True)
class SeenTerm:
    """A peer lives in this term. For the role machine: a newer one fences.

    writable: the peer is RUNNING in it. standing: what its log has to show;
    None from an older node.
    """

    number: int
    id: bytes
    writable: bool
    standing: Standing | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class HandedOff:
    """The upstream stopped writing at `barrier_lsn`; the next term may be `term_number`."""

    term_number: int
    barrier_lsn: int


@dataclass(frozen=True, slots=True)
class Asked:
    """An operator's switch-over, carried out by the upstream, wants this node (not) writable."""

    read_only: bool
    reason: str


Decision = (
    Append
    | Broken
    | Rewind
    | StartSnapshot
    | WriteSnapshot
    | InstallSnapshot
    | DropSnapshot
    | Alarm
    | Resubscribe
    | SubscribeRefused
    | Idle
    | SeenTerm
    | HandedOff
    | Asked
)
