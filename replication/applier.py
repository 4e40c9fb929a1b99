"""The downstream's end of one connection: messages in, decisions and acknowledgements out.

It refuses anything that does not continue the log it follows, and confirms only what is durable.
"""

from __future__ import annotations

from tandemq_server.replication.decisions import (
    Alarm,
    Asked,
    Broken,
    Decision,
    HandedOff,
    Idle,
    Resubscribe,
    Rewind,
    SeenTerm,
    SubscribeRefused,
)
from tandemq_server.replication.followed import FollowedLog
from tandemq_server.replication.lineage import Lineage
from tandemq_server.replication.messages import (
    AGAIN,
    BOOTSTRAP,
    CONTINUE,
    IDLE,
    NO_CLUSTER,
    PROTOCOL_VERSION,
    REFUSE,
    REWIND,
    SELF,
    SILENT,
    WRONG_CLUSTER,
    Ack,
    Ask,
    Bye,
    Fence,
    Frame,
    Handoff,
    Heartbeat,
    Hello,
    LinkError,
    Message,
    SnapshotBegin,
    SnapshotChunk,
    SnapshotEnd,
    Welcome,
)
from tandemq_server.replication.pulse import ClockOffset, LagClock, Pulse
from tandemq_server.replication.standing import standing_of


class Applier:
    """One connection to an upstream, from HELLO to its end.

    upstream: its WELCOME, None before. feeding: frames or a snapshot are promised. upstream_last:
    the end of its log as last heard. Each connection gets its own Applier on the node's one
    FollowedLog.
    """

    def __init__(
        self, log: FollowedLog, cluster_id: bytes, node_id: bytes, node_name: str, pulse: Pulse
    ) -> None:
        self.log = log
        self.cluster_id = cluster_id
        self.node_id = node_id
        self.node_name = node_name
        self.pulse = pulse
        self.clock = ClockOffset()
        self.upstream: Welcome | None = None
        self.heartbeat: Heartbeat | None = None
        self.feeding = False
        self.closed = ""
        self.upstream_last = 0
        self.last_lag_us = 0
        self._generation = log.generation
        #: The first LSN that was not here when this upstream began to send.
        self._begun = log.last_lsn + 1
        #: The last LSN this upstream is known to have, too: all that may be confirmed to it.
        self._shared_lsn = 0
        self._acked = (0, 0, 0)
        self._lag = LagClock()

    # -- sending ---------------------------------------------------------------------------------

    def hello(self, state: str, read_only: bool, wal_mode: str = "") -> Hello:
        """The first message of the connection."""
        log = self.log
        return Hello(
            PROTOCOL_VERSION,
            self.cluster_id,
            self.node_id,
            self.node_name,
            log.lineage,
            log.last_lsn,
            log.durable_lsn,
            state,
            read_only,
            log.commit_lsn,
            log.acked_mark,
            log.snapshot.partial,
            wal_mode,
            *log.known,
        )

    def ack(self) -> Ack | None:
        """What to confirm now, None when nothing changed since the last time."""
        log = self.log
        if not self.feeding or self.closed:
            return None
        durable = applied = 0
        if log.generation == self._generation:
            durable = min(log.durable_lsn, self._shared_lsn)
            applied = min(log.applied_lsn, self._shared_lsn)
        state = (durable, applied, log.snapshot.received)
        if state == self._acked:
            return None
        self._acked = state
        return Ack(log.position_term(durable), *state)

    def tick(self, now_us: int, beat: Heartbeat) -> tuple[list[Message], list[Decision]]:
        """Time passed; `beat` goes out when it is due. A silent upstream is given up."""
        if self.closed:
            return [], []
        due = self.pulse.tick(now_us)
        if self.pulse.dead(now_us):
            reason = f"nothing heard for {self.pulse.age_us(now_us) // 1000} ms"
            self.closed = reason
            return [Bye(SILENT, reason)], [Resubscribe(reason)]
        return ([beat] if due else []), []

    # -- receiving -------------------------------------------------------------------------------

    def receive(self, message: Message, now_us: int, clock_us: int) -> list[Decision]:
        """`now_us`: monotonic; `clock_us`: this node's log clock. Both at arrival.

        Raises `LinkError`: close the connection, nothing of the message was used.
        """
        if self.closed:
            return []
        self.pulse.heard(now_us)
        if isinstance(message, Welcome):
            return self._welcome(message, now_us)
        if isinstance(message, Bye):
            self.closed = message.reason or "the upstream closed the link"
            if message.code == AGAIN:
                return [Resubscribe(message.reason)]
            return [SubscribeRefused(message.code, message.reason)]
        if self.upstream is None:
            raise LinkError(f"{type(message).__name__} before WELCOME")
        if isinstance(message, Heartbeat):
            return self._heartbeat(message, now_us, clock_us)
        if isinstance(message, Fence):
            return [SeenTerm(message.term_number, message.term_id, False)]
        if isinstance(message, Ask):
            return [Asked(message.read_only, message.reason)]
        if isinstance(message, Handoff):
            self._upstream_at(message.barrier_lsn, now_us)
            return [HandedOff(message.term_number, message.barrier_lsn)]
        return self._data(message, now_us)

    def installed(self) -> None:
        """The snapshot of this connection is installed (after `FollowedLog.installed`)."""
        self._generation = self.log.generation
        self._shared_lsn = self.log.last_lsn
        self._begun = self.log.last_lsn + 1

    def _data(self, message: Message, now_us: int) -> list[Decision]:
        log = self.log
        if not self.feeding:
            raise LinkError(f"{type(message).__name__} on a link that feeds nothing")
        if log.generation != self._generation:
            return self._close(Resubscribe("the log was cut or replaced meanwhile"))
        if isinstance(message, Frame):
            return self._frame(message, now_us)
        if isinstance(message, SnapshotBegin):
            return self._closing(log.snapshot.begin(message, log.last_lsn, self))
        if isinstance(message, SnapshotChunk):
            return self._closing(log.snapshot.chunk(message, self))
        if isinstance(message, SnapshotEnd):
            return self._closing(log.snapshot.end(message, self))
        raise LinkError(f"{type(message).__name__} is not for a downstream")

    def _frame(self, message: Frame, now_us: int) -> list[Decision]:
        log = self.log
        if log.snapshot.joining:
            if log.snapshot.comes_over(self):
                raise LinkError("a frame before the snapshot is installed")
            return self._close(Resubscribe("another link brings a snapshot"))
        decisions, shared = log.frames(message.data, message.term_id, self._begun)
        if shared:
            self._shared_lsn = max(self._shared_lsn, shared)
            self._upstream_at(shared, now_us)
        return self._closing(decisions)

    def _closing(self, decisions: list[Decision]) -> list[Decision]:
        for decision in decisions:
            if isinstance(decision, (Alarm, Resubscribe, Broken)):
                self.closed = decision.reason
        return decisions

    def _close(self, decision: Resubscribe | SubscribeRefused) -> list[Decision]:
        self.closed = decision.reason
        return [decision]

    def _welcome(self, welcome: Welcome, now_us: int) -> list[Decision]:
        if self.upstream is not None:
            raise LinkError("a second WELCOME on one connection")
        self.upstream = welcome
        last = welcome.lineage.last
        seen: list[Decision] = []
        if last is not None and welcome.cluster_id == self._cluster_of(welcome):
            terms = welcome.lineage.terms
            standing = standing_of(terms, welcome.commit_lsn, welcome.writable)
            seen.append(SeenTerm(last.number, last.id, welcome.writable, standing))
        if welcome.answer == REFUSE:
            return [*seen, *self._close(SubscribeRefused(welcome.code, welcome.reason))]
        # The upstream checks the same; a follower does not rely on its good manners.
        if welcome.node_id == self.node_id:
            return self._close(SubscribeRefused(SELF, "the upstream is this very node"))
        if welcome.cluster_id != self._cluster_of(welcome):
            reason = f"the upstream belongs to cluster {welcome.cluster_id.hex()}"
            return self._close(SubscribeRefused(WRONG_CLUSTER, reason))
        self._upstream_at(welcome.last_lsn, now_us)
        return [*seen, *self._answer(welcome)]

    def _cluster_of(self, welcome: Welcome) -> bytes:
        """The only cluster id acceptable; a node without one takes the upstream's."""
        return welcome.cluster_id if self.cluster_id == NO_CLUSTER else self.cluster_id

    def _answer(self, welcome: Welcome) -> list[Decision]:
        log = self.log
        if welcome.answer == CONTINUE:
            if welcome.lsn != log.last_lsn + 1:
                # Another link moved the log between HELLO and now.
                return self._close(Resubscribe(f"LSN {welcome.lsn} is not next here any more"))
            self.feeding = True
            self._shared_lsn = log.last_lsn
            self._begun = log.last_lsn + 1
            dropped = log.snapshot.not_needed()
            log.committed(welcome.commit_lsn, _last_id(welcome.lineage), welcome.lineage)
            return self._closing(dropped)
        if welcome.answer == BOOTSTRAP:
            self.feeding = True
            log.committed(welcome.commit_lsn, _last_id(welcome.lineage), welcome.lineage)
            return []
        if welcome.answer == IDLE:
            return [Idle(welcome.reason)]
        assert welcome.answer == REWIND
        if welcome.lsn > log.last_lsn:
            return self._close(Resubscribe("told to rewind to where the log does not reach"))
        lost = max(0, min(log.acked_mark, log.last_lsn) - welcome.lsn)
        self.closed = welcome.reason
        cut = log.last_lsn - welcome.lsn
        return [Rewind(welcome.lsn, cut, lost, welcome.reason, welcome.lineage)]

    def _heartbeat(self, beat: Heartbeat, now_us: int, clock_us: int) -> list[Decision]:
        assert self.upstream is not None
        old, self.heartbeat = self.heartbeat, beat
        changed = old is None or (old.term_id, old.writable) != (beat.term_id, beat.writable)
        if old is not None and beat.writable:
            changed = changed or old.standing != beat.standing
        self.clock.heard(beat.clock_us, clock_us)
        self._upstream_at(beat.last_lsn, now_us)
        self.last_lag_us = self.lag_us(now_us)
        if self.feeding:
            self.log.committed(beat.commit_lsn, beat.term_id, self.upstream.lineage)
        seen = SeenTerm(beat.term_number, beat.term_id, beat.writable, beat.standing)
        return [seen] if changed else []

    # -- lag -------------------------------------------------------------------------------------

    def _upstream_at(self, lsn: int, now_us: int) -> None:
        self.upstream_last = max(self.upstream_last, lsn)
        self._lag.grew(lsn, now_us)

    @property
    def lag_records(self) -> int:
        """Records the upstream is known to have that are not in the log here."""
        return max(0, self.upstream_last - self.log.last_lsn)

    @property
    def lag_bytes(self) -> int:
        """An estimate: so many records of the mean size seen."""
        return round(self.lag_records * self.log.record_bytes)

    def lag_us(self, now_us: int) -> int:
        """How long ago the upstream was first known to have what is not in the log here."""
        return self._lag.lag_us(self.log.last_lsn, now_us)


def _last_id(lineage: Lineage) -> bytes:
    return lineage.last.id if lineage.last is not None else b""
