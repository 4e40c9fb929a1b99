"""One node in the simulation: the real engine, core, log, replication and role; a virtual rim.

What `node.shell`, `node.dialer` and `node.main` do with a loop and sockets is done here with the
world's events. The disk survives the process; a power cut takes what was not synced.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sim_rim import PeerWire, Process, ServerSide, VirtualSyncer
from sim_world import EPOCH_US, MS, SECOND, Network, Stream, Timer, World

from drivers import BUILT_IN
from engine.queue import Engine
from model.errors import StorageError
from node.clock import LogClock
from node.config import Settings
from node.connection import Connection
from node.core import Core, Turn
from node.identity import Identity, Limits
from node.pauses import Pauses
from node.peering import Peering
from node.recovered import open_storage
from node.role import RoleKeeper
from node.snapshots import snapshot_now
from node.wal_writer import WalWriter
from replication.messages import Ack
from statemachine.effects import Settled, Tick
from statemachine.roles import Transition
from storage.memory import MemoryDisk

if TYPE_CHECKING:
    from collections.abc import Sequence

TICK_US = 200 * MS


class Everybody:
    def may(self, user: str, call: str) -> bool:
        return True

    def dialect(self, user: str) -> str | None:
        return None

    def grantees(self, user: str) -> tuple[str, ...]:
        return (user,)

    def authenticate(self, user: str, method: str, data: bytes, salt: bytes) -> bool:
        return False

    def guest_may(self) -> bool:
        return True


class SimNode:
    """A machine with a disk, and at most one process on it."""

    def __init__(self, world: World, network: Network, name: str, peers: Sequence[str]) -> None:
        self.world = world
        self.network = network
        self.name = name
        self.peer_names = list(peers)
        self.machines: dict[str, SimNode] = {}
        self.disk = MemoryDisk(where=name)
        self.read_only = False
        self.options: dict[str, Any] = {}
        #: How far this machine's wall clock is off, in µs.
        self.skew_us = 0
        self.alive = False
        self.paused = False
        self.incarnation = 0
        self.observers: list[Callable[[SimNode, Transition], None]] = []
        self._held: list[Callable[[], None]] = []

    # -- process ---------------------------------------------------------------------------------

    def soon(self, us: int, call: Callable[[], None]) -> Timer:
        """Run `call` in this very process after a while."""
        incarnation = self.incarnation

        def run() -> None:
            if self.incarnation == incarnation and self.alive:
                self.deliver(call)

        return self.world.after(us, run)

    def deliver(self, call: Callable[[], None]) -> None:
        if self.paused:
            self._held.append(call)
        elif self.alive:
            call()
            if self.alive and (self.engine.records or self.core.dirty):
                self.ask_flush()

    def say(self, text: str) -> None:
        self.world.say(f"{self.name}: {text}")

    def report(self, text: str, error: BaseException | None = None) -> None:
        if error is not None:
            raise AssertionError(f"{self.name}: {text}") from error
        self.say(text)

    def settings(self) -> Settings:
        replication = {"heartbeat": 0.5, "lease": 2.0, "startup_timeout": 10.0, "ack": "local"}
        replication.update(self.options.get("replication", {}))
        return Settings.model_validate(
            {
                "name": self.name,
                "listen": f"{self.name}:1",
                "data_dir": Path("/nowhere") / self.name,
                "read_only": self.read_only,
                "peers": tuple(f"{name}:1" for name in self.peer_names),
                "queue": {"ttr": self.options.get("ttr", 5.0), "in_replicaset": True},
                "wal": {"mode": self.options["wal_mode"], "segment_bytes": 65_536},
                "snapshot": {"keep": 1},
                "compat": self.options.get("compat", {}),
                "replication": replication,
            }
        )

    def start(self) -> None:
        """Begin a process on the disk as it is."""
        assert not self.alive
        self.incarnation += 1
        self.alive, self.paused = True, False
        self._held = []
        world, chance = self.world, self.world.chance
        self.engine = Engine(BUILT_IN, lambda: chance.randbytes(16), self.report)
        settings = self.settings()
        try:
            self.storage = open_storage(
                settings, self.engine, chance.randbytes, self.say, self.disk
            )
        except StorageError as error:
            self.alive = False
            raise AssertionError(f"{self.name} does not recover: {error}") from error
        mono = lambda: world.now  # noqa: E731
        wall = lambda: EPOCH_US + world.now + self.skew_us  # noqa: E731
        self.clock = LogClock(self.storage.last_time_us, wall, mono)
        self.engine.now = self.clock.now()
        ids = (self.storage.meta.node, self.storage.meta.cluster)
        self.core = Core(
            self.engine,
            Identity(self.name, "0" * 36, "0" * 36, pid=1),
            Limits(),
            Everybody(),
        )
        assert all(len(one) == 16 for one in ids)
        self.wal = WalWriter(
            self.storage.log,
            settings.wal.mode,
            self.release,
            self.failed,
            VirtualSyncer(self),
            mono,
        )
        self.wal.durable_lsn = self.wal.written_lsn = self.engine.lsn
        self.wal.commit_lsn = self.core.commit_lsn = self.storage.recovered.commit_lsn
        self._flush_asked = False
        self._timer: Timer | None = None
        self._role_timer: Timer | None = None
        self._dials: dict[str, bool] = {}
        self._next_id = 0
        self.role = RoleKeeper(
            self.core,
            self.storage,
            self.wal,
            settings,
            now=self.clock.now,
            flush=self.flush,
            random_bytes=chance.randbytes,
            log=self.say,
        )
        self.role.arm = self._arm_role
        self.peering = Peering(self.role, self.clock, mono, lambda call: self.soon(0, call))
        self.peering.source.want_snapshot = lambda: self.soon(10 * MS, self._serve_snapshot)
        committed = self.wal.on_commit
        self.wal.on_commit = lambda lsn: (self._check_commit(lsn), committed(lsn))[1]
        self.storage.retained = self.peering.source.retained_lsn
        self.role.observers.append(lambda made: [see(self, made) for see in self.observers])
        self.pauses = Pauses(
            self.core, mono, self.clock.now, lambda call: self.soon(50 * MS, call), lambda _s: None
        )
        self.peering.redial = lambda: self.soon(0, self._dial_all)
        self.soon(TICK_US, self._tick)
        self._dial_all()
        # A link may stand before the node is told what it is to be, or after.
        early = (world.seed + self.incarnation) % 2
        self.soon(30 * MS * early, lambda: self.role.wish(self.read_only, command=False))

    def _check_commit(self, lsn: int) -> None:
        """In pair mode, unless it was decided otherwise, two disks hold what is committed."""
        if self.wal.gate is None or self.wal.gate.solo:
            return
        logs = [other.storage.log for other in self.machines.values() if other is not self]
        held = max((log.last_lsn for log in logs if log is not None), default=0)
        if self.wal.mode == "fsync":
            held = max((log.synced_lsn for log in logs if log is not None), default=0)
        assert held >= lsn, f"P1: LSN {lsn} is committed in pair mode, on one disk"

    def kill(self) -> None:
        """kill -9: what was written to files stays, everything else is gone."""
        if not self.alive:
            return
        self.say("killed")
        self.alive = self.paused = False
        self._held = []
        for connection in list(self.core.connections.values()):
            connection.transport.out.reset()
        for link in self.peering.links():
            link.wire.out.reset()  # type: ignore[attr-defined]
        self.disk._handles.clear()

    def end(self) -> None:
        """An orderly end: the links are told, what was written leaves, the process is gone."""
        self.role.close()
        self.peering.close()
        self.say("ended")
        self.alive = False

    def power_cut(self) -> None:
        self.kill()
        self.say("power cut")
        self.disk.crash(self.world.chance)

    def pause(self) -> None:
        if self.alive:
            self.say("paused")
            self.paused = True

    def resume(self) -> None:
        if self.alive and self.paused:
            self.say("resumed")
            self.paused = False
            held, self._held = self._held, []
            for call in held:
                self.deliver(call)

    def failed(self, error: StorageError) -> None:
        """The log failed: nothing is acknowledged any more, the process ends."""
        self.say(f"the log failed: {error}")
        self.role.fault(str(error))
        self.soon(0, self.kill)

    # -- the turn, as node.shell has it ----------------------------------------------------------

    def ask_flush(self) -> None:
        if not self._flush_asked:
            self._flush_asked = True
            self.soon(0, self._flush_turn)

    def _flush_turn(self) -> None:
        self._flush_asked = False
        self.flush()

    def flush(self) -> None:
        turn = self.core.flush()
        self._send(turn.prompt)
        if turn.frame is not None or turn.replies:
            self.wal.submit(turn, self.core.engine.now)
        self._arm()

    def release(self, turn: Turn) -> None:
        if self.role.reigning and (self.wal.mode == "fsync" or self.wal.gate is not None):
            gate = self.wal.gate
            lsn = self.wal.durable_lsn if gate is None else gate.commit_lsn
            assert turn.last_lsn <= lsn, "P1: answered before it is committed"
        self._send(turn.replies)

    def _send(self, replies: list[tuple[Connection, bytes]]) -> None:
        for connection, data in replies:
            if not connection.lost and connection.transport is not None:
                connection.transport.write(data)

    def _arm(self) -> None:
        serves = self.engine.running and not self.pauses.reading
        due = self.engine.next_due() if serves else None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if due is not None:
            wait = max(0, due - self.clock.now())
            self._timer = self.soon(min(wait + 500, 3600 * SECOND), self._ring)

    def _ring(self) -> None:
        self.core.advance(self.clock.now())
        self.flush()

    def _arm_role(self, due_us: int | None) -> None:
        if self._role_timer is not None:
            self._role_timer.cancel()
            self._role_timer = None
        if due_us is not None:
            wait = max(0, due_us - self.clock.now())
            self._role_timer = self.soon(wait, lambda: self.role.feed(Tick()))

    def _tick(self) -> None:
        self.clock.slew()
        self.pauses.look()
        self.peering.tick()
        self.wal.settle()
        if self.alive:
            self.soon(TICK_US, self._tick)

    # -- clients ---------------------------------------------------------------------------------

    def accept(self, out: Stream, where: str) -> Connection:
        self._next_id += 1
        connection = Connection(self.core, self._next_id, bytes(32), where, False)
        connection.transport = ServerSide(self, connection, out)
        connection.socket = None
        self.core.connect(connection)
        return connection

    def received(self, connection: Connection, data: bytes) -> None:
        if not connection.lost and not connection.closing:
            self.core.receive(connection, data, self.clock.now())

    def lost(self, connection: Connection) -> None:
        if connection.id in self.core.connections:
            self.core.disconnect(connection, self.clock.now())
            connection.transport = None

    # -- peers -----------------------------------------------------------------------------------

    def _dial_all(self) -> None:
        for name in self.peer_names:
            self._dial(name, 0)

    def _dial(self, name: str, pause_us: int) -> None:
        """One attempt is under way for each peer, or a link stands."""
        address = f"{name}:1"
        if self._dials.get(name) or self.peering.peers[address].link is not None:
            return
        self._dials[name] = True
        self.soon(pause_us + 2 * self.network.delay(), lambda: self._reach(name, address))

    def _reach(self, name: str, address: str) -> None:
        self._dials[name] = False
        peer, cut = self.machines[name], self.network.cut
        if self.peering.peers[address].link is not None:
            return
        if (self.name, name) in cut or (name, self.name) in cut or (peer.alive and peer.paused):
            self.peering.tried(address, "does not answer")
            self._dial(name, SECOND)
            return
        if not peer.alive:
            self.peering.tried(address, "cannot be reached")
            self._dial(name, 300 * MS)
            return
        self._connect(peer, name, address)

    def _connect(self, peer: SimNode, name: str, address: str) -> None:
        links: dict[str, Any] = {}

        def again() -> None:
            refused = self.peering.peers[address].refused
            self.soon(500 * MS if refused else 20 * MS, lambda: self._dial(name, 0))

        def down_got(data: bytes) -> None:
            links["follow"].receive(data)

        def down_ended() -> None:
            links["follow"].lost()
            outward.open = False
            again()

        mine, its = self.incarnation, peer.incarnation
        inward = Stream(self.network, (name, self.name), Process(self, mine), down_got, down_ended)
        outward = Stream(
            self.network,
            (self.name, name),
            Process(peer, its),
            lambda data: links["feed"].receive(data),
            lambda: links["feed"].lost(),
        )
        links["feed"] = peer.peering.accept(PeerWire(inward, lambda: None), self.name)
        link = links["follow"] = self.peering.connect(address, PeerWire(outward, again))
        confirm = link.applier.ack

        def checked() -> Ack | None:
            ack = confirm()
            log = self.storage.log
            if ack is not None and log is not None and self.wal.mode == "fsync":
                assert ack.durable_lsn <= log.synced_lsn, "P1: confirmed before it is on the disk"
            return ack

        link.applier.ack = checked  # type: ignore[method-assign]

    # -- operator --------------------------------------------------------------------------------

    def wish(
        self,
        read_only: bool,
        force: bool = False,
        done: Callable[[Settled | None], None] = lambda _settled: None,
    ) -> None:
        self.deliver(lambda: self.role.wish(read_only, force=force, done=done))

    def snapshot(self) -> None:
        """A whole snapshot in one go, then the log behind it is trimmed."""
        self.flush()
        if self.wal.broken or not self.engine.store.lineage:
            return
        end = self.wal.written_lsn
        writer = None
        try:
            writer = self.storage.new_snapshot(end)
            self.storage.snapshot_proven(snapshot_now(self.core, writer, end))
            self.storage.snapshot_published(end)
        except StorageError as error:
            self.say(f"snapshot failed: {error}")
            if writer is not None:
                writer.abort()

    def _serve_snapshot(self) -> None:
        self.snapshot()
        self.peering.source.snapshot_ready()
