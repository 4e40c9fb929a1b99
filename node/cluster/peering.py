"""All links of this node, and what they do to it: frames in and out, rewinds, snapshots, facts.

Pure like the core it serves: sockets are `Wire`s, time and chance are arguments, the disk is the
storage's. The rim dials peers and hands over what it connected.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from tandemq.model.record import Span, decode_header
from tandemq.model.terms import Term
from tandemq.model.units import SECOND_US
from tandemq_server.node.cluster.asking import Asking, known_at
from tandemq_server.node.cluster.facts import against, facts_of
from tandemq_server.node.cluster.failover.keeper import SeatKeeper
from tandemq_server.node.cluster.follow import UpstreamLink
from tandemq_server.node.cluster.links import Feed, Link, Wire
from tandemq_server.node.cluster.peers import PeerState
from tandemq_server.node.cluster.replica import Replica
from tandemq_server.node.cluster.source import Source
from tandemq_server.node.cluster.troubles import Troubles, end_of
from tandemq_server.replication.commit import PAIR, CommitPoint, GoSolo
from tandemq_server.replication.messages import (
    AGAIN,
    ENDED,
    NO_CLUSTER,
    STOPPING,
    Handoff,
    Heartbeat,
)
from tandemq_server.replication.pulse import Pulse
from tandemq_server.replication.standing import Outcome
from tandemq_server.statemachine import effects as fx
from tandemq_server.statemachine.promotion import Facts
from tandemq_server.statemachine.roles import Role
from tandemq_server.storage.log import Log

if TYPE_CHECKING:
    from tandemq_server.node.cluster.rim import Clock
    from tandemq_server.node.cluster.role import RoleKeeper


class Peering:
    """Both ends of every link.

    mono(): µs for durations. later(f): run f in a later turn of the loop. redial(): peers without
    a link are to be tried now. observers are told when a peer changed. source, replica: what
    downstreams get from this node, and what upstreams do to it.
    """

    def __init__(
        self,
        role: RoleKeeper,
        clock: Clock,
        mono: Callable[[], int],
        later: Callable[[Callable[[], None]], object],
    ) -> None:
        self.role = role
        self.core, self.wal, self.storage = role.core, role.wal, role.storage
        self.settings, self.say = role.settings, role.log
        self.clock, self.mono, self.later = clock, mono, later
        self.redial: Callable[[], None] = lambda: None
        self.observers: list[Callable[[], None]] = []
        self.peers = {address: PeerState(address) for address in self.settings.peers}
        self.feeds: list[Feed] = []
        self.following = False
        #: When, by the log's clock, a master was last known to lead.
        self.master_alive_us = role.storage.last_time_us
        self.source = Source(self)
        self.replica = Replica(self)
        self.asking = Asking(self)
        role.links = self
        #: Who may lead, where an arbiter says so; None without one.
        self.seat = SeatKeeper(self) if self.settings.failover.arbiter is not None else None
        self.window_bytes = self.settings.replication.window_bytes
        self.closing = False
        #: The id of the last term opened by this process, until it offers the lead to a peer.
        self.own_lead = b""
        self.troubles = Troubles(self)
        #: Why the last link to each end was over, as last logged.
        self._told: dict[str, str] = {}
        self.wal.on_durable = self._durable
        self.wal.on_commit = self._committed
        self.wal.listeners.append(self._frame_written)

    # -- this node -------------------------------------------------------------------------------

    @property
    def log(self) -> Log:
        assert self.storage.log is not None, "a node without a log has no links"
        return self.storage.log

    @property
    def node_id(self) -> bytes:
        return self.storage.meta.node

    @property
    def cluster_id(self) -> bytes:
        return self.storage.meta.cluster

    @property
    def blank(self) -> bool:
        """Nothing is here yet: the node joins whatever cluster feeds it."""
        return not self.core.engine.store.lineage

    @property
    def emptied(self) -> bool:
        """A rewind left nothing here: all is in rescue files until somebody feeds this node."""
        return self.blank and self.storage.rescue_files > 0

    def led_until(self, moment_us: int) -> None:
        """A master is known to have lived at this moment of the log's clock."""
        self.master_alive_us = max(self.master_alive_us, moment_us)

    def served_until(self) -> int:
        """Until when somebody is known to have served: until now, if it is this node."""
        return self.core.engine.now if self.core.engine.running else self.master_alive_us

    def hello_cluster(self) -> bytes:
        return NO_CLUSTER if self.blank and not self.storage.missing_lsn else self.cluster_id

    def new_pulse(self) -> Pulse:
        settings, failover = self.settings.replication, self.settings.failover
        beat, silence = settings.heartbeat, settings.lease
        if self.seat is not None:
            beat, silence = failover.heartbeat, failover.silence
        return Pulse(self.mono(), int(beat * SECOND_US), int(silence * SECOND_US))

    # -- links come and go -----------------------------------------------------------------------

    def accept(self, wire: Wire, address: str) -> Feed:
        """A downstream has connected and may follow."""
        feed = Feed(self, wire, address)
        self.feeds.append(feed)
        return feed

    def connect(self, address: str, wire: Wire) -> UpstreamLink:
        """A peer was reached and lets this node follow."""
        log = self.replica.log if self.following else self.replica.own_log()
        link = UpstreamLink(self, wire, address, log, not self.following)
        self.peers[address].link = link
        self.peers[address].refused_us = 0
        return link

    def tried(self, address: str, problem: str, dead: bool = False) -> None:
        """An attempt to reach a peer has failed; logged once for each reason.

        dead: it was refused or reset, as where no process listens.
        """
        peer = self.peers[address]
        peer.tried = True
        peer.refused_us = (peer.refused_us or self.mono()) if dead else 0
        if problem != peer.problem:
            peer.problem = problem
            self.say(f"peer {address}: {problem}")
        self.peer_changed()

    def link_ended(self, link: Link, code: int) -> None:
        if isinstance(link, Feed):
            if link in self.feeds:
                self.feeds.remove(link)
            if link.hello is not None and self.wal.gate is not None and self._feed_of(link) is None:
                self.wal.gate.link_down(link.hello.node_id)
            if code == ENDED and link.hello is not None:
                self._left(link, link.hello.node_id)
        elif isinstance(link, UpstreamLink):
            peer = self.peers[link.address]
            if peer.link is link:
                peer.ended(link, code, self.mono())
        if self.seat is not None:
            self.seat.watch.ended(link)
        if not self.troubles.ended(link, code):
            self._tell_end(link)
        self.peer_changed()

    def _left(self, feed: Feed, node_id: bytes) -> None:
        """A downstream's process ends: that is news of the peer it is."""
        for peer in self.peers.values():
            if peer.node_id == node_id and peer.link is None:
                peer.left(feed, self.mono())

    def _tell_end(self, link: Link) -> None:
        """One line for each cause, not for each retry; a link that stood makes it news again."""
        if not link.problem or self.closing or (isinstance(link, UpstreamLink) and link.probe):
            return
        end = end_of(link)
        if self._told.get(end) != link.problem:
            self._told[end] = link.problem
            self.say(f"link to {end} ended: {link.problem}")

    def stands(self, link: Link, what: str) -> None:
        """Frames begin to flow over a link."""
        end = end_of(link)
        self._told.pop(end, None)
        if not self.troubles.of(end):
            # Else it is one more try: its outcome is news, not that it began.
            self.say(what)

    def _feed_of(self, gone: Feed) -> Feed | None:
        """Another live link to the same downstream."""
        assert gone.hello is not None
        node = gone.hello.node_id
        return next(
            (f for f in self.feeds if f.relay is not None and f.hello and f.hello.node_id == node),
            None,
        )

    def peer_changed(self) -> None:
        self.role.progress()
        for observer in self.observers:
            observer()

    def close(self) -> None:
        """The node ends: its links say so."""
        self.closing = True
        code = STOPPING if self.role.leading else ENDED
        for link in self.links():
            link.end(code, f"{self.settings.name} ends")

    def links(self) -> list[Link]:
        follows = [peer.link for peer in self.peers.values() if peer.link is not None]
        return [*self.feeds, *follows]

    def tick(self) -> None:
        """Several times a second: heartbeats, silence, pair mode."""
        now = self.mono()
        for link in self.links():
            if not link.ended:
                link.tick(now)
        self.troubles.tick(now)
        if self.wal.gate is not None:
            found = self.wal.gate.tick(now)
            if found is not None and self.seat is not None:
                self.seat.mode(found)
            elif found is not None:
                solo = isinstance(found, GoSolo)
                why = found.reason if isinstance(found, GoSolo) else "a replica keeps up again"
                self.say(f"pair mode: {'going on alone' if solo else 'confirmed again'}: {why}")
                self.role.reopen(solo)
        if self.seat is not None:
            self.seat.tick(now)
        self.asking.tick(now)

    # -- role ------------------------------------------------------------------------------------

    def check(self, again: bool = False) -> None:
        """A promotion is considered: every peer is asked afresh.

        again: it is being considered, and what was answered until now does not count any more.
        """
        for link in self.links():
            link.asked_us = 0
        if again:
            return
        for peer in self.peers.values():
            peer.tried = False
        if self.seat is not None:
            self.seat.check()
        self.redial()

    def facts(self) -> Facts:
        """What is known when a promotion is considered."""
        if self.role.role is Role.STARTUP:
            self.asking.ask_all()
        return facts_of(self)

    @property
    def may_go_alone(self) -> bool:
        """Pair mode may acknowledge without a replica although no operator says so."""
        return self.settings.replication.solo_after is not None

    def solo_after_us(self) -> int | None:
        seconds = self.settings.replication.solo_after
        return None if seconds is None else int(seconds * SECOND_US)

    def stop_following(self) -> None:
        self.following = False
        # The last master's clock may be ahead of what was heard of it.
        self.clock.at_least(self.core.engine.now)
        self._end_follows(f"{self.settings.name} is about to lead")

    def _end_follows(self, reason: str) -> None:
        for peer in self.peers.values():
            if peer.link is not None:
                peer.link.again = True
                peer.link.end(STOPPING, reason)

    def follow(self) -> None:
        """Subscribe to every peer, from where the log ends now."""
        self.following = self.wal.following = True
        self.wal.gate = None
        self.replica.begin()
        self._end_follows(f"{self.settings.name} follows again")
        self.redial()

    def term_opened(self, term: Term, alone: bool) -> None:
        """This node opened a term: it leads, and in pair mode asks replicas to confirm.

        alone: in pair mode, not even that; somebody decided so.
        """
        wal, now = self.wal, self.mono()
        wal.following = False
        if self.storage.missing_lsn:
            self.replica.found_again("is given up by force; *.damaged holds it")
        self.own_lead = term.id
        if self.settings.replication.ack == PAIR or self.seat is not None:
            self._part_from_others()
            gate = wal.gate
            if gate is None:
                gate = CommitPoint(PAIR, self.solo_after_us(), wal.commit_lsn)
                for feed in self.feeds:
                    if feed.hello is not None and feed.relay is not None:
                        gate.link_up(feed.hello.node_id)
            gate.open_term(term.id, alone, now)
            if self.seat is not None:
                self.seat.gate_for(gate)
            gate.own(wal.durable_lsn, now)
            wal.gate = gate
        for feed in [feed for feed in self.feeds if feed.idle]:
            feed.end(AGAIN, f"{self.settings.name} leads now")

    def _part_from_others(self) -> None:
        """Downstreams fed before this node led were not asked how they make things durable."""
        for feed in list(self.feeds):
            if feed.relay and feed.hello and not self.source.confirms_alike(feed.hello):
                feed.end(AGAIN, f"{self.settings.name} leads now, in another wal.mode")

    def publish_final(self, lsn: int, next_term: int) -> None:
        for feed in list(self.feeds):
            if feed.relay is not None:
                feed.send(Handoff(next_term, lsn))

    def state_changed(self) -> None:
        """Peers hear of it at once, not with the next heartbeat."""
        for link in self.links():
            if known_at(link) is not None:
                link.send(self.asking.heartbeat(link))

    def seen_term(
        self,
        number: int,
        term_id: bytes,
        writable: bool,
        node: str,
        outcome: Outcome | None = None,
    ) -> None:
        """A peer lives in that term; outcome: of the log here against its, where that is known."""
        rival = None if outcome is None else outcome in (Outcome.BELOW, Outcome.CONFLICT)
        conflict = outcome is Outcome.CONFLICT
        self.role.feed(fx.TermSeen(number, term_id, writable, node, rival, conflict))

    # -- the log, as it grows --------------------------------------------------------------------

    def _durable(self, lsn: int) -> None:
        if self.following:
            self.replica.durable(lsn)

    def _committed(self, lsn: int) -> None:
        self.core.commit_lsn = lsn
        self.role.committed(lsn)

    def _frame_written(self, frames: bytes, last_lsn: int) -> None:
        if not self.feeds:
            return
        span = Span(decode_header(frames).first_lsn, last_lsn)
        now, term_id = self.mono(), self.core.term_id
        for feed in list(self.feeds):
            feed.live(span, frames, term_id, now)

    def greeted(self, feed: Feed) -> None:
        assert feed.hello is not None
        self.replica.told(feed.hello)
        for peer in self.peers.values():
            if peer.node_id == feed.hello.node_id:
                peer.heard()
        for other in list(self.feeds):
            if other is not feed and other.hello and other.hello.node_id == feed.hello.node_id:
                other.end(AGAIN, "the same node has connected again")
        if feed.relay is not None:
            self.stands(feed, f"feeding {feed.name} from LSN {feed.relay.next_lsn}")
        if feed.relay is not None and self.wal.gate is not None:
            self.wal.gate.link_up(feed.hello.node_id)
        if feed.bootstrapping:
            self.source.serve_waiting()
        self.peer_changed()

    def beat(self, feed: Feed, beat: Heartbeat) -> None:
        outcome = against(self, beat.standing, beat.writable)
        self.seen_term(beat.term_number, beat.term_id, beat.writable, feed.name, outcome)
        self.peer_changed()

    def restart_links(self, why: str) -> None:
        """The log was cut or replaced: whoever stood on it asks anew."""
        for link in self.links():
            if isinstance(link, UpstreamLink):
                link.again = True
            link.end(AGAIN, f"{self.settings.name}: {why}")
