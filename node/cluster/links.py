"""The two ends of one link, joined to this node: messages in, their consequences, messages out.

`Feed` is the upstream's end, `follow.Follow` the downstream's. Bytes come from a `Wire`,
whatever it is; what a link decides is done by the node's one `Peering`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from tandemq.model.record import Span
from tandemq_server.node.cluster.pace import FLIGHT_BYTES, Pace, on_this_machine
from tandemq_server.replication.codec import MessageDecoder, encode
from tandemq_server.replication.messages import (
    AGAIN,
    BOOTSTRAP,
    CONTINUE,
    DIVERGED,
    GARBAGE,
    REFUSE,
    Ack,
    Ask,
    Bye,
    Fence,
    Heartbeat,
    Hello,
    LinkError,
    Message,
    SnapshotBegin,
)
from tandemq_server.replication.pulse import Pulse
from tandemq_server.replication.relay import READ_BYTES, Mode, Relay

if TYPE_CHECKING:
    from tandemq_server.node.cluster.peering import Peering


class Wire(Protocol):
    """A connected socket: ordered bytes out; `close` sends what was written first."""

    def write(self, data: bytes) -> None: ...

    def close(self) -> None: ...


class Link:
    """What both ends share. problem: why the link ended, empty while it lives."""

    def __init__(self, peering: Peering, wire: Wire, address: str) -> None:
        self.peering = peering
        self.wire = wire
        self.address = address
        self.decoder = MessageDecoder()
        self.problem = ""
        self.ended = False
        self.beat: Heartbeat | None = None
        #: When, by `peering.mono`, the peer was last asked for an answer; 0 for never.
        self.asked_us = 0
        #: The peer's end of log and whether it writes, newer than its last heartbeat.
        self.peer_lsn = 0

    @property
    def name(self) -> str:
        return self.address

    def tick(self, now: int) -> None:
        """Several times a second; now: µs of `peering.mono`."""
        raise NotImplementedError

    def send(self, *messages: Message) -> None:
        if self.ended:
            return
        for message in messages:
            self.wire.write(encode(message))

    def receive(self, data: bytes) -> None:
        """What a read delivered. Garbage ends the link, what came before it counts."""
        if self.ended:
            return
        try:
            for message in self.decoder.feed(data):
                self.take(message)
                if self.ended:  # by what was taken
                    break  # type: ignore[unreachable]
        except LinkError as error:
            self.end(error.code, error.reason)
        self.taken()

    def take(self, message: Message) -> None:
        raise NotImplementedError

    def taken(self) -> None:
        """Everything a read delivered was taken."""

    def heard_beat(self, beat: Heartbeat) -> None:
        """The peer's newest word; whoever is about to serve is answered at once."""
        self.beat = beat
        if beat.asks:
            self.peering.asking.answer(self)

    @property
    def answered(self) -> bool:
        """The last word came after the peer had heard the question; older nodes cannot tell."""
        if self.beat is None:
            return False
        return not self.beat.sent_us or self.beat.heard_us >= self.asked_us > 0

    def end(self, code: int, reason: str, tell: bool = True) -> None:
        """Close the link, with a BYE unless the other side said it."""
        if self.ended:
            return
        if tell:
            self.send(Bye(code, reason))
        self.problem = reason
        self.ended = True
        self.wire.close()
        self.peering.link_ended(self, code)

    def lost(self, reason: str = "the connection was lost") -> None:
        """The socket is gone."""
        if not self.ended:
            self.problem = reason
            self.ended = True
            self.peering.link_ended(self, 0)


class Feed(Link):
    """The upstream's end: from HELLO on it hands the log to one downstream, or waits idle."""

    def __init__(self, peering: Peering, wire: Wire, address: str) -> None:
        super().__init__(peering, wire, address)
        self.pulse: Pulse = peering.new_pulse()
        self.hello: Hello | None = None
        self.relay: Relay | None = None
        #: A snapshot for this downstream is still to be written.
        self.bootstrapping = False
        self._pumping = False
        self._snapshot: str | None = None
        paced = on_this_machine(address)
        self._pace = Pace(peering.wal.bytes_written, peering.mono()) if paced else None

    @property
    def name(self) -> str:
        return self.hello.node_name if self.hello is not None else self.address

    @property
    def idle(self) -> bool:
        return self.hello is not None and self.relay is None and not self.bootstrapping

    # -- from the downstream ---------------------------------------------------------------------

    def take(self, message: Message) -> None:
        now = self.peering.mono()
        self.pulse.heard(now)
        if self.hello is None:
            if not isinstance(message, Hello):
                raise LinkError(f"{type(message).__name__} before HELLO")
            self._greet(message)
        elif isinstance(message, Ack):
            self._acked(message, now)
        elif isinstance(message, Heartbeat):
            self.heard_beat(message)
            self.peer_lsn = message.last_lsn
            if self.relay is not None:
                self.relay.heard(now)
            self.peering.beat(self, message)
        elif isinstance(message, Fence):
            self.peering.seen_term(message.term_number, message.term_id, False, self.name)
        elif isinstance(message, Ask):
            self.peering.asking.ordered(message.read_only, f"{self.name}: {message.reason}")
        elif isinstance(message, Bye):
            self.peering.source.left(self.relay, message.code)
            self.end(message.code, message.reason or "the downstream left", tell=False)
        else:
            raise LinkError(f"{type(message).__name__} is not for an upstream")

    def _greet(self, hello: Hello) -> None:
        peering = self.peering
        self.hello = hello
        self.peer_lsn = hello.last_lsn
        outcome = peering.source.outcome(hello)
        welcome = peering.source.welcome(hello)
        self.send(welcome)
        if welcome.answer == REFUSE:
            self.end(welcome.code, welcome.reason, tell=False)
        elif welcome.answer == CONTINUE:
            log = peering.log
            backlog = peering.source.bytes_from(welcome.lsn)
            self.relay = Relay(
                welcome.lsn,
                log.last_lsn,
                self.pulse,
                window_bytes=peering.window_bytes,
                read_bytes=min(READ_BYTES, peering.window_bytes),
                backlog_bytes=backlog,
            )
        elif welcome.answer == BOOTSTRAP:
            self.bootstrapping = True
        if not self.ended:
            peering.greeted(self)
        # The peer's term may be newer than the one that leads here. That is told last, so that
        # the answer still speaks of the log it was made for.
        last = hello.lineage.last
        if last is not None and hello.cluster_id == peering.cluster_id:
            leads = hello.state == "RUNNING"
            peering.seen_term(last.number, last.id, leads, hello.node_name, outcome)
        self.pump()

    def _acked(self, ack: Ack, now: int) -> None:
        relay = self.relay
        if relay is None:
            return
        relay.ack(ack, now)
        assert self.hello is not None
        self.peer_lsn = max(self.peer_lsn, ack.durable_lsn)
        self.peering.source.confirmed(self.hello.node_id, ack)
        self.pump()

    # -- to the downstream -----------------------------------------------------------------------

    def live(self, span: Span, frames: bytes, term_id: bytes, now: int) -> None:
        """Frames were appended to this node's log."""
        if self.relay is not None:
            self.send(*self.relay.live(span, frames, term_id, now))
            if self.relay.mode is Mode.CATCH_UP:
                self.pump()

    def pump(self) -> None:
        """Read for a downstream that is behind: a portion soon, the next in a later turn."""
        if not self._pumping and self._wants():
            self._pumping = True
            self.peering.later(self._portion)

    def _wants(self) -> bool:
        relay = self.relay
        if relay is None or self.ended:
            return False
        return relay.wants_read() is not None or relay.wants_snapshot() is not None

    def _portion(self) -> None:
        self._pumping = False
        relay = self.relay
        if relay is None or self.ended:
            return
        if (lsn := relay.wants_read()) is not None:
            size, pace = relay.read_bytes, self._pace
            if pace is not None:
                if relay.in_flight_bytes >= FLIGHT_BYTES:
                    # Its next confirmation asks again.
                    return
                size = pace.portion(self.peering.wal.bytes_written, self.peering.mono(), size)
                if not size:
                    # The next write, confirmation or tick asks again.
                    return
            run = self.peering.source.read_log(lsn, size)
            if run is None:
                self._gone(relay.gone(self.peering.source.first_lsn))
                return
            if pace is not None:
                pace.sent(len(run[1]))
            self.send(*relay.feed([run]))
            if relay.mode is Mode.GONE:
                # The frame that holds what is wanted could not be cut there.
                self.peering.source.look(relay.next_lsn, 0)
                self.end(DIVERGED, relay.reason, tell=False)
                return
        elif (wanted := relay.wants_snapshot()) is not None:
            assert self._snapshot is not None
            data = self.peering.source.read_snapshot(self._snapshot, *wanted)
            if data is None:
                self._gone(relay.end(AGAIN, f"{self._snapshot} is gone: there is a newer one"))
                return
            self.send(*relay.feed_snapshot(data))
        self.pump()

    def _gone(self, messages: list[Message]) -> None:
        self.send(*messages)
        self.end(AGAIN, self.relay.reason if self.relay else "", tell=False)

    def send_snapshot(self, begin: SnapshotBegin) -> None:
        """The snapshot this downstream waits for is there."""
        assert self.hello is not None
        self.bootstrapping = False
        self._snapshot = begin.name
        tail = self.peering.log.last_lsn
        self.relay = Relay(
            tail + 1,
            tail,
            self.pulse,
            window_bytes=self.peering.window_bytes,
            read_bytes=min(READ_BYTES, self.peering.window_bytes),
        )
        self.send(*self.relay.snapshot(begin, self.hello.partial))
        self.pump()

    def tick(self, now: int) -> None:
        if self.hello is None:
            if self.pulse.dead(now):
                self.end(GARBAGE, "no HELLO came")
            self.pulse.tick(now)
            return
        beat = self.peering.asking.heartbeat(self)
        if self.relay is not None:
            self.send(*self.relay.tick(now, beat))
            if self.relay.mode is Mode.GONE:
                self.end(0, self.relay.reason, tell=False)
            else:
                self.pump()
            return
        due = self.pulse.tick(now)
        if self.pulse.dead(now):
            self.end(0, f"nothing heard for {self.pulse.age_us(now) // 1000} ms", tell=False)
        elif due:
            self.send(beat)
