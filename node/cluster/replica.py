"""What upstreams do to this node: frames, rewinds, snapshots, and the state loaded anew.

One for all links, so that two upstreams can never apply one record twice. A disk that fails ends
the node, as everywhere.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING
from uuid import UUID

from tandemq.model.errors import StorageError
from tandemq.model.terms import last_term
from tandemq_server.node.cluster.facts import against
from tandemq_server.node.cluster.follow import UpstreamLink
from tandemq_server.replication import decisions as d
from tandemq_server.replication.followed import FollowedLog
from tandemq_server.replication.known import Mark
from tandemq_server.replication.lineage import Lineage
from tandemq_server.replication.messages import AGAIN, DIVERGED, GARBAGE, Hello, Welcome
from tandemq_server.replication.rescue import RescueNote
from tandemq_server.spaces.store import ApplyError
from tandemq_server.statemachine.roles import Role

if TYPE_CHECKING:
    from tandemq_server.node.cluster.peering import Peering


class Replica:
    """This node as a downstream.

    log: as all links see it. before_reload(): the state in memory is about to be replaced.
    """

    def __init__(self, peering: Peering) -> None:
        self.peering = peering
        self.core = peering.core
        self.wal = peering.wal
        self.storage = peering.storage
        self.say = peering.say
        self.before_reload: Callable[[], None] = lambda: None
        #: Logs that differ where they must not; snapshots that arrived and could not be read.
        self.alarms = self.unreadable = 0
        self.rewinds = 0
        #: Kept over every log this node follows with, and on the disk.
        self.known = peering.storage.known
        self.log = self.own_log()
        self._busy: UpstreamLink | None = None
        #: Frames were written since the writer was last told.
        self._fresh = False

    def own_log(self) -> FollowedLog:
        """The log as it is now, for a node that begins to follow or asks who leads."""
        wal, core = self.wal, self.core
        return FollowedLog(
            Lineage(core.engine.store.lineage),
            wal.written_lsn,
            min(wal.durable_lsn, wal.written_lsn),
            min(core.commit_lsn, wal.written_lsn),
            self.storage.missing_lsn,
            known=self.known,
        )

    def remember(self) -> None:
        """Whatever is known to be acknowledged and not here must outlive this process."""
        if self.log.known != self.known:
            self.known = self.log.known
            try:
                self.storage.remember(self.known)
            except StorageError as error:
                self.wal.fail(error)

    def told(self, hello: Hello) -> None:
        """A downstream has heard of more than it may have itself."""
        if hello.known_lsn and hello.cluster_id == self.peering.cluster_id:
            log = self.log if self.peering.following else self.own_log()
            log.learn(Mark(hello.known_lsn, hello.known_number, hello.known_id))
            self.log.known = log.known
            self.remember()

    def begin(self) -> None:
        """The node begins to follow: the log it ends with now is what upstreams continue."""
        self.log = self.own_log()

    def durable(self, lsn: int) -> None:
        """The log is durable up to `lsn`: say so to whoever feeds it."""
        log = self.log
        log.flushed(min(lsn, log.last_lsn), log.generation)
        if 0 < self.storage.missing_lsn <= log.durable_lsn:
            self.found_again("is here again")
        for peer in self.peering.peers.values():
            if peer.link is not None and peer.link is not self._busy:
                peer.link.confirm()

    def found_again(self, how: str) -> None:
        """Nothing is waited for any more of what could not be read here."""
        self.say(f"what was up to LSN {self.storage.missing_lsn} {how}")
        self.storage.found_again()

    def heard_clock(self, link: UpstreamLink) -> None:
        """Deadlines in the log are moments of the master's log clock: keep that one."""
        offset = link.applier.clock.offset_us
        peer = self.peering.peers[link.address]
        peer.lag_us = link.applier.last_lag_us
        self.remember()
        if self.peering.following and link.applier.feeding and link.writable and offset is not None:
            self.peering.clock.follow(offset)
            assert link.beat is not None
            if link.beat.state == Role.RUNNING.value:
                self.peering.led_until(link.beat.clock_us)

    def harmless(self, decision: object) -> bool:
        """Whether a node that leads may hear of it."""
        return isinstance(decision, (d.SeenTerm, d.HandedOff, d.Asked))

    def append(self, link: UpstreamLink, run: d.Append) -> None:
        """Write and apply frames. `settle` is to follow, once for all that one read brought."""
        self._busy = link
        try:
            self._append(run)
        except Exception as error:
            # Whatever it was: log and memory need not agree any more.
            self.wal.broke("applying the upstream's records", error)
        finally:
            self._busy = None

    def settle(self, link: UpstreamLink) -> None:
        """What was appended counts: it is durable, or is synced next."""
        if self._fresh:
            self._fresh = False
            self._busy = link
            self.wal.reached()
            self._busy = None

    def carry_out(self, link: UpstreamLink, decision: d.Decision) -> None:
        self.settle(link)
        self._busy = link
        try:
            match decision:
                case d.SeenTerm():
                    outcome = against(self.peering, decision.standing, decision.writable)
                    self.peering.seen_term(
                        decision.number, decision.id, decision.writable, link.name, outcome
                    )
                case d.HandedOff():
                    self.say(f"{link.name} stopped writing at LSN {decision.barrier_lsn}")
                case d.Asked():
                    self.peering.asking.ordered(
                        decision.read_only, f"{link.name}: {decision.reason}"
                    )
                case d.Rewind():
                    self._rewind(link, decision)
                case d.Alarm():
                    self.alarms += 1
                    link.end(DIVERGED, decision.reason)
                case d.InstallSnapshot():
                    self._install(link, decision)
                case d.StartSnapshot() | d.WriteSnapshot() | d.DropSnapshot():
                    self._snapshot_part(link, decision)
                case _:
                    raise AssertionError(f"unknown decision {decision}")
        except Exception as error:
            self.wal.broke(f"{type(decision).__name__} of the upstream", error)
        finally:
            self._busy = None

    def welcomed(self, link: UpstreamLink, welcome: Welcome) -> None:
        """A peer was reached; a node that held nothing belongs to the cluster that feeds it."""
        peer = self.peering.peers[link.address]
        peer.heard()
        peer.tried, peer.problem, peer.refused = True, "", 0
        peer.name, peer.node_id = welcome.node_name, welcome.node_id
        if self.peering.seat is not None:
            self.peering.seat.watch.connected(link.name)
        if link.applier.feeding and not link.probe:
            self.peering.stands(link, f"following {link.name} from LSN {welcome.lsn}")
        if (
            link.applier.feeding
            and self.peering.blank
            and self.peering.cluster_id != welcome.cluster_id
        ):
            self._before_cut()
            self.storage.adopt_cluster(welcome.cluster_id)
            self._reloaded()
            self.core.identify(
                str(UUID(bytes=self.peering.node_id)), str(UUID(bytes=self.peering.cluster_id))
            )
            self.say(f"joined cluster {welcome.cluster_id.hex()} of {welcome.node_name}")
        self.remember()

    def _append(self, run: d.Append) -> None:
        data, (first_lsn, last_lsn), frames, records, term, opens_term = run
        core, engine, log = self.core, self.core.engine, self.peering.log
        if opens_term or log.term is None:
            log.open_term(term, first_lsn)
        time_us = records[-1][0]
        if opens_term and first_lsn <= self.storage.missing_lsn:
            self.found_again(f"lost against term {term.number}; *.damaged holds it")
        if not self.wal.append(data, first_lsn, last_lsn, time_us, frames, records[0][0]):
            return
        self._fresh = True
        try:
            engine.store.apply_all(records)
        except ApplyError as error:
            raise StorageError(
                self.storage.disk.where,
                0,
                f"records from LSN {first_lsn} on, of the upstream, do not fit: {error}",
            ) from error
        engine.lsn = last_lsn
        engine.now = max(engine.now, time_us)
        self.peering.led_until(time_us)
        core.term, core.term_id = term.number, term.id
        self.log.applied(last_lsn)
        self.wal.appended(data, last_lsn)
        if opens_term and term.number > self.peering.role.fiber.notes.known_number:
            # Nobody has spoken of it before: it is not history that is caught up with, and whoever
            # opened it serves, though its first heartbeat may come later.
            self.peering.seen_term(term.number, term.id, True, term.node)

    def _snapshot_part(self, link: UpstreamLink, part: d.Decision) -> None:
        storage = self.storage
        if isinstance(part, d.StartSnapshot):
            self.say(f"{link.name} sends a snapshot of {part.size} bytes, {part.at} are here")
            storage.begin_incoming(part.at)
        elif isinstance(part, d.WriteSnapshot):
            storage.write_incoming(part.offset, part.data)
        elif isinstance(part, d.DropSnapshot):
            self.say(f"the snapshot under way is dropped: {part.reason}")
            storage.drop_incoming()

    # -- the log is cut or replaced --------------------------------------------------------------

    def _rewind(self, link: UpstreamLink, cut: d.Rewind) -> None:
        engine, followed = self.core.engine, self.log
        self.rewinds += 1
        self.say(
            f"rewinding to LSN {cut.to_lsn} as {link.name} says: {cut.cut} records leave the log "
            f"for rescue files, {cut.cut_acknowledged} of them acknowledged ({cut.reason})"
        )
        note = RescueNote(
            self.peering.cluster_id,
            self.peering.node_id,
            Lineage(engine.store.lineage),
            cut.to_lsn + 1,
            followed.last_lsn,
            followed.acked_mark,
            self.peering.clock.now(),
            cut.reason,
            {tube.space.id: (name, tube.space.driver) for name, tube in engine.tubes.items()},
            options={
                tube.space.id: tube.opts for tube in engine.tubes.values() if tube.inner.records
            },
            numbers={tube.id: tube.space.id for tube in engine.tubes.values()},
        )
        self._before_cut()
        self.storage.rewind(cut.to_lsn, note)
        self._reloaded()
        if engine.lsn == cut.to_lsn:
            followed.rewound(cut.to_lsn)
        else:
            self.say("no snapshot here is old enough: everything is rescued, starting from nothing")
            self.log = self.own_log()
        link.again = True
        self.peering.restart_links("its log was cut")

    def _install(self, link: UpstreamLink, done: d.InstallSnapshot) -> None:
        problem = self.storage.incoming_problem(done.end_lsn)
        if problem is not None:
            self.say(f"ALARM: the snapshot of {link.name} cannot be read, put aside: {problem}")
            self.unreadable += 1
            self.log.snapshot.forget()
            link.end(GARBAGE, f"the snapshot cannot be read: {problem}")
            return
        self._before_cut()
        self.storage.install(done.end_lsn)
        self._reloaded()
        self.log.installed(Lineage(self.core.engine.store.lineage), done.end_lsn)
        link.applier.installed()
        if 0 < self.storage.missing_lsn <= done.end_lsn:
            self.found_again("is in the snapshot")
        self.say(f"installed the snapshot of {link.name}, up to LSN {done.end_lsn}")
        for other in self.peering.links():
            if other is not link:
                other.end(AGAIN, "its log was replaced")

    def _before_cut(self) -> None:
        self.before_reload()
        self.wal.pause()

    def _reloaded(self) -> None:
        core, engine = self.core, self.core.engine
        self.wal.replaced(self.peering.log, engine.lsn)
        core.commit_lsn = min(core.commit_lsn, engine.lsn)
        core.term, core.term_id = last_term(engine.store.lineage)
        core.forget_tables()
