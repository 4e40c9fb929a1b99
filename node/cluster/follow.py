"""The downstream's end of one connection to a peer, joined to this node; see `links.py`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tandemq_server.node.cluster.links import Link, Wire
from tandemq_server.replication.applier import Applier
from tandemq_server.replication.decisions import (
    Append,
    Broken,
    Decision,
    Idle,
    Resubscribe,
    SubscribeRefused,
)
from tandemq_server.replication.followed import FollowedLog
from tandemq_server.replication.handshake import is_known
from tandemq_server.replication.messages import (
    AGAIN,
    GARBAGE,
    STOPPING,
    UNKNOWN_NODE,
    Frame,
    Handoff,
    Heartbeat,
    Message,
    Welcome,
)

if TYPE_CHECKING:
    from tandemq_server.node.cluster.peering import Peering


class UpstreamLink(Link):
    """The downstream's end of one connection to a peer.

    probe: this node leads and follows nobody; the link only carries terms and states.
    """

    def __init__(
        self, peering: Peering, wire: Wire, address: str, log: FollowedLog, probe: bool
    ) -> None:
        super().__init__(peering, wire, address)
        self.probe = probe
        self.refused = 0
        self.again = False
        self.applier = Applier(
            log,
            peering.hello_cluster(),
            peering.node_id,
            peering.settings.name,
            peering.new_pulse(),
        )
        #: The upstream stopped writing at the end of its log (HANDOFF), after its last heartbeat.
        self.handed_off = False
        core = peering.core
        #: The state this node said it is in when the link began.
        self._greeted_in = core.state
        self.send(self.applier.hello(core.state, core.read_only, peering.wal.mode))

    @property
    def upstream(self) -> Welcome | None:
        return self.applier.upstream

    @property
    def name(self) -> str:
        upstream = self.applier.upstream
        return upstream.node_name if upstream is not None else self.address

    @property
    def writable(self) -> bool:
        """As far as was heard, the peer leads."""
        upstream = self.applier.upstream
        if self.handed_off or upstream is None:
            return False
        return self.beat.writable if self.beat is not None else upstream.writable

    def receive(self, data: bytes) -> None:
        """What a read delivered. What breaks off amid it leaves log and memory apart."""
        try:
            super().receive(data)
        except Exception as error:
            self.peering.wal.broke(f"following {self.name}", error)

    def take(self, message: Message) -> None:
        peering, applier = self.peering, self.applier
        if type(message) is Frame:
            # Nearly every message: the log goes on.
            decisions = applier.receive(message, peering.mono(), 0)
            self.peer_lsn = applier.upstream_last
            self._decided(decisions)
            return
        if isinstance(message, Welcome) and not self._is_known(message):
            return
        decisions = applier.receive(message, peering.mono(), peering.clock.own())
        if isinstance(message, Heartbeat):
            self.heard_beat(message)
            self.handed_off = False
            peering.replica.heard_clock(self)
        elif isinstance(message, Handoff):
            self.handed_off = True
        self.peer_lsn = applier.upstream_last
        if isinstance(message, Welcome) and not applier.closed:
            peering.replica.welcomed(self, message)
            # Before the log is touched: who leads there decides what this node may become.
            peering.peer_changed()
            if self.ended:
                return
        self._decided(decisions)
        if self.ended:
            return
        if isinstance(message, Welcome) and peering.core.state != self._greeted_in:
            # What changed while the greetings crossed was told to nobody here: a switch-over would
            # wait for the next heartbeat.
            self.send(peering.asking.heartbeat(self))
        if isinstance(message, (Heartbeat, Handoff)):
            peering.peer_changed()
        if self.probe and applier.feeding:
            # Whoever feeds a node that leads does not know its term yet, or is ahead of it.
            self.end(STOPPING, f"{peering.settings.name} leads, it follows nobody")

    def _is_known(self, welcome: Welcome) -> bool:
        """Whether the configuration knows who would feed this node; ends the link if not."""
        known = self.peering.settings.replication.known_nodes
        if is_known(known, welcome.node_id, welcome.node_name):
            return True
        self.refused = UNKNOWN_NODE
        who = f"{welcome.node_name} ({welcome.node_id.hex()})"
        self.end(UNKNOWN_NODE, f"node {who} is not among replication.known_nodes")
        return False

    def _decided(self, decisions: list[Decision]) -> None:
        for decision in decisions:
            if type(decision) is Append:
                if not self.probe:
                    self.peering.replica.append(self, decision)
            elif isinstance(decision, Broken):
                self.end(GARBAGE, decision.reason)
            elif isinstance(decision, Resubscribe):
                self.again = True
                self.end(AGAIN, decision.reason)
            elif isinstance(decision, SubscribeRefused):
                self.refused = decision.code or GARBAGE
                self.end(decision.code, decision.reason, tell=False)
            elif isinstance(decision, Idle):
                self.problem = ""
            elif not self._only_told(decision):
                self.peering.replica.carry_out(self, decision)
            if self.ended:
                return

    def _only_told(self, decision: object) -> bool:
        """Done here already, or nothing a node that leads would do."""
        return self.probe and not self.peering.replica.harmless(decision)

    def taken(self) -> None:
        self.peering.replica.settle(self)
        if not self.probe and not self.ended:
            self.peering.wal.committed(self.applier.log.commit_lsn)
        self.confirm()

    def confirm(self) -> None:
        """Say how far the log is durable here, if that is news."""
        if not self.ended and (ack := self.applier.ack()) is not None:
            self.send(ack)

    def tick(self, now: int) -> None:
        messages, decisions = self.applier.tick(now, self.peering.asking.heartbeat(self))
        self.send(*messages)
        for decision in decisions:
            assert isinstance(decision, Resubscribe)
            self.end(0, decision.reason, tell=False)
