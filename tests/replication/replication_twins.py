"""Two or more nodes in memory and the links between them, for tests of both ends at once.

A node is a list of frames and what it remembers of them; a link carries bytes, cut anywhere.
"""

from __future__ import annotations

import zlib
from collections import Counter, deque
from collections.abc import Iterator
from itertools import count
from random import Random
from typing import Any

import msgpack

from tandemq.model.record import (
    HEADER_SIZE,
    KIND_NOOP,
    KIND_TERM,
    TERM,
    FrameHeader,
    Record,
    Span,
    decode_body,
    decode_header,
    encode_frame,
    frame_body,
)
from tandemq.model.terms import Term
from tandemq_server.replication import decisions
from tandemq_server.replication.applier import Applier
from tandemq_server.replication.codec import MessageDecoder, encode
from tandemq_server.replication.followed import FollowedLog
from tandemq_server.replication.handshake import Upstream, answer
from tandemq_server.replication.lineage import Lineage
from tandemq_server.replication.messages import (
    AGAIN,
    BOOTSTRAP,
    CONTINUE,
    Ack,
    Heartbeat,
    Hello,
    Message,
    SnapshotBegin,
    Welcome,
)
from tandemq_server.replication.pulse import Pulse
from tandemq_server.replication.relay import LogFrame, Mode, Relay

CLUSTER = b"C" * 16
#: Five bytes each in MessagePack, so that a seed gives the same frames after any other test.
_serial = count(1_000_000)


def term_id(number: int, salt: int = 0) -> bytes:
    return number.to_bytes(2, "big") + salt.to_bytes(2, "big") + b"t" * 12


def frames_of(data: bytes) -> Iterator[bytes]:
    """The frames of one message."""
    at = 0
    while at < len(data):
        end = at + HEADER_SIZE + decode_header(data, at).length
        yield data[at:end]
        at = end


class Node:
    """A node without disk: `frames` is its log, `history` every record it holds, by LSN."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.id = name.encode().ljust(16, b".")
        self.frames: list[tuple[FrameHeader, bytes, bytes]] = []
        self.first_lsn = 1
        self.history: dict[int, tuple[bytes, Any]] = {}
        self.log = FollowedLog(Lineage(), 0, 0)
        self.writable = self.accept_loss = False
        self.links: list[Link] = []
        self.rescued: list[tuple[int, bytes, Any]] = []
        self.alarms: list[str] = []
        self.refusals: list[tuple[int, str]] = []
        self.seen: list[decisions.SeenTerm] = []
        self.installs = 0
        self.met: Counter[str] = Counter()
        self.snapshot_file = bytearray()

    # -- writing ---------------------------------------------------------------------------------

    @property
    def last_lsn(self) -> int:
        return self.log.last_lsn

    @property
    def lineage(self) -> Lineage:
        return self.log.lineage

    def promote(self, number: int | None = None, solo: bool = False, salt: int = 0) -> Term:
        """Open a term; every link on which this node follows ends first."""
        for link in [link for link in self.links if link.down is self]:
            link.cut()
        last = self.lineage.last
        number = number if number is not None else self.lineage.number + 1
        new = Term(
            number,
            term_id(number, salt),
            last.id if last is not None else None,
            self.last_lsn + 1,
            self.name,
            solo,
        )
        self.log.lineage = self.lineage.extend(new)
        self.writable = True
        self._commit_frame([(0, KIND_TERM, None, [(TERM, *new)])])
        return new

    def write(self, records: int = 1) -> None:
        assert self.writable
        self._commit_frame([(next(_serial), KIND_NOOP, None, []) for _ in range(records)])

    def _commit_frame(self, records: list[Record]) -> None:
        last = self.lineage.last
        assert last is not None
        data = encode_frame(records, last.number, last.id, self.last_lsn + 1, self.log.commit_lsn)
        self.log.last_lsn += len(records)
        self.store(data, last.id)

    def store(self, data: bytes, frame_term: bytes) -> None:
        """Append a frame, remember its records, ship it to whoever follows."""
        header = decode_header(data)
        self.frames.append((header, data, frame_term))
        records = decode_body(frame_body(data, 0, header, frame_term), header.count)
        for lsn, record in enumerate(records, header.first_lsn):
            assert lsn not in self.history
            self.history[lsn] = (frame_term, record)
        self.log.applied_lsn = header.last_lsn
        for link in self.links:
            if link.up is self and link.relay is not None:
                link.to_down(link.relay.live(header, data, frame_term, 0))

    def sync(self) -> None:
        self.log.flushed(self.last_lsn, self.log.generation)

    def trim(self, before_lsn: int) -> None:
        while self.frames and self.frames[0][0].last_lsn < before_lsn:
            self.first_lsn = self.frames.pop(0)[0].last_lsn + 1

    # -- losing ----------------------------------------------------------------------------------

    def lose_after(self, lsn: int) -> list[tuple[int, bytes, Any]]:
        """What is beyond `lsn` leaves the log. Returns it."""
        lost = [(at, *self.history.pop(at)) for at in sorted(self.history) if at > lsn]
        kept = [frame for frame in self.frames if frame[0].last_lsn <= lsn]
        whole = len(kept) == len(self.frames) or self.frames[len(kept)][0].first_lsn > lsn
        if not whole:
            header, data, frame_term = self.frames[len(kept)]
            records = decode_body(frame_body(data, 0, header, frame_term), header.count)
            part = encode_frame(
                records[: lsn - header.first_lsn + 1],
                header.term,
                frame_term,
                header.first_lsn,
                header.commit_lsn,
            )
            kept.append((decode_header(part), part, frame_term))
        self.frames = kept
        self.first_lsn = min(self.first_lsn, lsn + 1)
        return lost

    def restart(self, keep_lsn: int) -> None:
        """Power cut: what is not durable goes, but for `keep_lsn`; roles and links are gone."""
        self.cut_links()
        self.writable = False
        last = max(self.log.durable_lsn, min(keep_lsn, self.last_lsn))
        mark = self.log.acked_mark
        self.lose_after(last)
        self.log = FollowedLog(
            self.lineage.cut_after(last), last, last, min(self.log.commit_lsn, last), mark
        )

    def cut_links(self) -> None:
        for link in list(self.links):
            link.cut()

    # -- carrying out ----------------------------------------------------------------------------

    def carry_out(self, todo: list[decisions.Decision], link: Link) -> None:
        self.met.update(type(decision).__name__ for decision in todo)
        for decision in todo:
            match decision:
                case decisions.Append(data=data, span=span, term=term):
                    for frame in frames_of(data):
                        self.store(frame, term.id)
                    self.log.applied(span.last_lsn)
                case decisions.Broken(reason=reason):
                    raise AssertionError(f"a frame was damaged on the way: {reason}")
                case decisions.Rewind(to_lsn=to_lsn):
                    self.cut_links()
                    self.writable = False
                    self.rescued += self.lose_after(to_lsn)
                    self.log.rewound(to_lsn)
                case decisions.StartSnapshot(at=at):
                    del self.snapshot_file[at:]
                    assert len(self.snapshot_file) == at
                case decisions.WriteSnapshot(offset=offset, data=data):
                    assert offset == len(self.snapshot_file)
                    self.snapshot_file += data
                case decisions.DropSnapshot():
                    self.snapshot_file.clear()
                case decisions.InstallSnapshot(end_lsn=end_lsn):
                    self._install(end_lsn, link)
                case decisions.Alarm(reason=reason):
                    self.alarms.append(reason)
                    link.cut()
                case decisions.Resubscribe() | decisions.SubscribeRefused() as closing:
                    if isinstance(closing, decisions.SubscribeRefused):
                        self.refusals.append((closing.code, closing.reason))
                    link.cut()
                case decisions.SeenTerm() as seen:
                    self.seen.append(seen)
                case decisions.Idle() | decisions.HandedOff():
                    pass

    def _install(self, end_lsn: int, link: Link) -> None:
        terms, history = msgpack.unpackb(bytes(self.snapshot_file), strict_map_key=False)
        self.snapshot_file.clear()
        self.history = {lsn: (found[0], found[1]) for lsn, found in history.items()}
        self.frames = []
        self.first_lsn = end_lsn + 1
        self.log.installed(Lineage(terms), end_lsn)
        for other in [other for other in self.links if other is not link]:
            other.cut()
        link.applier.installed()
        self.installs += 1

    def snapshot(self) -> tuple[SnapshotBegin, bytes]:
        history = {lsn: [found[0], found[1]] for lsn, found in self.history.items()}
        data = msgpack.packb([[list(term) for term in self.lineage], history])
        name = f"{self.last_lsn:020d}-{self.name}.snap"
        return SnapshotBegin(self.last_lsn, len(data), name, zlib.crc32(data)), data

    def upstream(self, **changes: Any) -> Upstream:
        fields = {
            "cluster_id": CLUSTER,
            "node_id": self.id,
            "node_name": self.name,
            "lineage": self.lineage,
            "first_lsn": self.first_lsn,
            "last_lsn": self.last_lsn,
            "commit_lsn": self.log.commit_lsn,
            "state": "RUNNING" if self.writable else "WAITING",
            "writable": self.writable,
            "accept_loss": self.accept_loss,
            **changes,
        }
        return Upstream(**fields)

    def beat(self, clock_us: int = 0) -> Heartbeat:
        last = self.lineage.last
        return Heartbeat(
            last.number if last else 0,
            last.id if last else bytes(16),
            "RUNNING" if self.writable else "WAITING",
            self.last_lsn,
            self.log.commit_lsn,
            clock_us,
            not self.writable,
            self.writable,
        )


class Link:
    """A connection on which `down` follows `up`. Bytes wait in `pipes` until they are delivered."""

    def __init__(self, up: Node, down: Node, rng: Random, **relay: Any) -> None:
        self.up, self.down, self.rng = up, down, rng
        self.relay: Relay | None = None
        self.relay_options = relay
        self.snapshot_data = b""
        self.applier = Applier(down.log, CLUSTER, down.id, down.name, Pulse(0))
        self.pipes: tuple[deque[bytes], deque[bytes]] = (deque(), deque())
        self.decoders = (MessageDecoder(), MessageDecoder())
        self.alive = True
        self.welcome: Welcome | None = None
        up.links.append(self)
        if down is not up:
            down.links.append(self)
        self.to_up([self.applier.hello("WAITING", True)])

    def cut(self) -> None:
        """The connection is gone, with whatever was under way."""
        if self.alive:
            self.alive = False
            for node in (self.up, self.down):
                if self in node.links:
                    node.links.remove(self)

    def to_down(self, messages: list[Message]) -> None:
        self.pipes[0].extend(encode(message) for message in messages)

    def to_up(self, messages: list[Message]) -> None:
        self.pipes[1].extend(encode(message) for message in messages)

    def deliver(self, down: bool) -> None:
        """Some bytes arrive at one end."""
        pipe = self.pipes[0 if down else 1]
        if not self.alive or not pipe:
            return
        data = pipe.popleft()
        at = len(data) if self.rng.random() < 0.7 else self.rng.randrange(1, len(data) + 1)
        if at < len(data):
            pipe.appendleft(data[at:])
        for message in self.decoders[0 if down else 1].feed(data[:at]):
            if not self.alive:
                return
            if down:
                self.down.carry_out(self.applier.receive(message, 0, 0), self)
            else:
                self._at_upstream(message)

    def work(self) -> None:
        """What both ends do on their own: confirm, read the log, read the snapshot."""
        if not self.alive:
            return
        ack = self.applier.ack()
        if ack is not None:
            self.to_up([ack])
        relay = self.relay
        if relay is None:
            return
        lsn = relay.wants_read()
        if lsn is not None:
            if lsn < self.up.first_lsn:
                self.to_down(relay.gone(self.up.first_lsn))
            else:
                room = relay.read_bytes
                part: list[LogFrame] = []
                for frame in self.up.frames:
                    if frame[0].last_lsn >= lsn:
                        part.append(frame)
                        room -= len(frame[1])
                        if room <= 0:
                            break
                if part and self.rng.random() < 0.5:
                    part = [joined([one for one in part if one[2] == part[0][2]])]
                self.to_down(relay.feed(part))
        wanted = relay.wants_snapshot()
        if wanted is not None:
            offset, size = wanted
            self.to_down(relay.feed_snapshot(self.snapshot_data[offset : offset + size]))

    def _at_upstream(self, message: Message) -> None:
        if isinstance(message, Hello):
            welcome = self.welcome = answer(message, self.up.upstream())
            self.to_down([welcome])
            if welcome.answer == CONTINUE:
                self.relay = Relay(welcome.lsn, self.up.last_lsn, Pulse(0), **self.relay_options)
            elif welcome.answer == BOOTSTRAP:
                begin, self.snapshot_data = self.up.snapshot()
                relay = Relay(
                    self.up.last_lsn + 1, self.up.last_lsn, Pulse(0), **self.relay_options
                )
                self.relay = relay
                self.to_down(relay.snapshot(begin, message.partial))
        elif isinstance(message, Ack) and self.relay is not None:
            self.relay.ack(message, 0)

    @property
    def over(self) -> bool:
        return not self.alive or (self.relay is not None and self.relay.mode is Mode.GONE)


def joined(frames: list[LogFrame]) -> LogFrame:
    """Frames of one term as a file has them."""
    span = Span(frames[0][0].first_lsn, frames[-1][0].last_lsn)
    return span, b"".join(data for _, data, _ in frames), frames[0][2]


def settle(up: Node, down: Node, rng: Random, **relay: Any) -> None:
    """Connect, and connect again when asked to, until `down` is at the end of `up`'s log."""
    refused = len(down.refusals)
    for _ in range(12):
        link = Link(up, down, rng, **relay)
        for _ in range(20_000):
            down.sync()
            link.work()
            link.deliver(True)
            link.deliver(False)
            if not link.alive or (not any(link.pipes) and link.welcome is not None and idle(link)):
                break
        link.cut()
        if down.last_lsn == up.last_lsn and down.lineage == up.lineage:
            return
        if down.refusals[refused:]:
            return
    raise AssertionError(f"{down.name} does not settle on {up.name}")


def idle(link: Link) -> bool:
    """Nothing more would happen by itself."""
    relay = link.relay
    if relay is None:
        return True
    return relay.mode is Mode.LIVE and relay.acked_lsn == relay.tail_lsn


def same(one: Node, other: Node) -> bool:
    return one.history == other.history and one.lineage == other.lineage


def check_prefix(one: Node, other: Node) -> None:
    """Up to the point where the lineages part, both hold the same records."""
    fork = one.lineage.common_point(other.lineage, one.last_lsn, other.last_lsn)
    for lsn in range(1, fork + 1):
        assert one.history[lsn] == other.history[lsn], f"LSN {lsn} differs below the fork {fork}"


__all__ = ["AGAIN", "CLUSTER", "Link", "Node", "check_prefix", "same", "settle", "term_id"]
