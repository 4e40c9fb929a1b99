"""One node in the simulation: the real engine, core, log, replication and role; a virtual rim.

What `shell`, `dialer` and `main` of `node` do with a loop and sockets is done here with the
world's events. The disk survives the process; a power cut takes what was not synced.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tandemq.model.errors import StorageError
from tandemq_server.config import Settings
from tandemq_server.engine.engine import Engine
from tandemq_server.facades.registered import FACADES, KNOWN
from tandemq_server.node.cluster.pauses import ProcessPauses
from tandemq_server.node.cluster.peering import Peering
from tandemq_server.node.cluster.role import RoleKeeper
from tandemq_server.node.core.connection import Connection
from tandemq_server.node.core.core import Core
from tandemq_server.node.core.identity import ClientBounds, Identity
from tandemq_server.node.core.turn import Turn
from tandemq_server.node.loop.clock import LogClock
from tandemq_server.node.loop.plugins import load_drivers
from tandemq_server.node.loop.recovered import open_storage
from tandemq_server.node.loop.snapshots import Snapshots
from tandemq_server.node.loop.wal_writer import WalWriter
from tandemq_server.statemachine.effects import Settled, Tick
from tandemq_server.statemachine.roles import Role, Transition
from tandemq_server.storage.memory import MemoryDisk
from tests.simulation.sim_dial import Dialing
from tests.simulation.sim_disk import Frames, Weather
from tests.simulation.sim_rim import ServerSide
from tests.simulation.sim_service import Service
from tests.simulation.sim_threads import Died, Thread, VirtualLoop, VirtualPool, VirtualSyncer
from tests.simulation.sim_world import EPOCH_US, MS, SECOND, Network, Stream, Timer, World

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.simulation.sim_arbiter import SimArbiter

TICK_US = 200 * MS
#: What a test that says nothing of it has: nothing is small, no snapshot is taken by itself.
OPTIONS: dict[str, Any] = {
    "ttr": 5.0,
    "wal_mode": "fsync",
    "keep": 1,
    "segment_bytes": 65_536,
    "window_bytes": 16 << 20,
    "retain_bytes": 1 << 30,
    "snapshot_bytes": None,
    "page_bytes": 0,
    "replication": {},
    "compat": {},
    "init": False,
    "failover": {},
}


class Everybody:
    def may(self, user: str, call: str) -> bool:
        return True

    def dialect(self, user: str) -> str | None:
        return None

    def grantees(self, user: str) -> tuple[str, ...]:
        return (user,)

    def authenticate(self, user: str, method: str, data: bytes, salt: bytes) -> bool:
        return False

    def link_secrets(self, user: str) -> tuple[bytes, ...]:
        return ()

    def guest_may(self) -> bool:
        return True


#: Looked up once: it goes through everything that is installed.
_DRIVERS = load_drivers(KNOWN, {})


class SimNode(Dialing):
    """A machine with a disk, and at most one process on it."""

    def __init__(self, world: World, network: Network, name: str, peers: Sequence[str]) -> None:
        self.world = world
        self.network = network
        self.name = name
        self.peer_names = list(peers)
        self.machines: dict[str, SimNode] = {}
        self.weather = Weather(self)
        self.frames = Frames()
        self.threads: list[Thread] = []
        #: Disks this machine had before: what was saved from them is not forgotten.
        self.old_disks: list[MemoryDisk] = []
        self._lost_lsn = 0
        self._last_words: list[Any] = []
        #: Confirmations on their way, true when they were said: the stream, the LSN.
        self.confirmations: list[tuple[Any, int]] = []
        #: Reads that its disk was made to fail.
        self.read_faults = 0
        self.use_disk(MemoryDisk(where=name))
        self.read_only = False
        #: An error is aimed at its disk.
        self.ill = False
        self.options: dict[str, Any] = {}
        #: How far this machine's wall clock is off, in µs.
        self.skew_us = 0
        #: How much faster than the world's its clocks run, in millionths.
        self.drift_ppm = 0
        #: Who says whose the seat is; None where nobody does.
        self.arbiter: SimArbiter | None = None
        self.alive = False
        self.paused = False
        self.service = Service(world)
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
            try:
                with self._turn():
                    call()
            except Died:
                return
            except StorageError as error:
                if not self.disk_is_ill:
                    raise
                # As an event loop does with an error of a callback.
                self.say(f"a callback failed: {error}")
            if self.alive and (self.engine.records or self.core.dirty):
                self.ask_flush()

    @contextlib.contextmanager
    def _turn(self) -> Iterator[None]:
        """Whatever asks for the running loop in here gets this node's."""
        before = asyncio._get_running_loop()
        asyncio._set_running_loop(self.loop)
        try:
            yield
        finally:
            asyncio._set_running_loop(before)

    def use_disk(self, disk: MemoryDisk) -> None:
        self.disk = disk
        self.weather.over(disk)

    def say(self, text: str) -> None:
        self.world.say(f"{self.name}: {text}")

    def report(self, text: str, error: BaseException | None = None) -> None:
        if error is not None:
            raise AssertionError(f"{self.name}: {text}") from error
        self.say(text)

    @property
    def option(self) -> dict[str, Any]:
        return {**OPTIONS, **self.options}

    def settings(self) -> Settings:
        options = self.option
        replication = {"heartbeat": 0.5, "lease": 2.0, "startup_timeout": 10.0}
        settings = Settings.model_validate(
            {
                "name": self.name,
                "listen": f"{self.name}:1",
                "data_dir": Path("/nowhere") / self.name,
                "read_only": self.read_only,
                "peers": tuple(f"{name}:1" for name in self.peer_names),
                "queue": {"ttr": options["ttr"], "in_replicaset": True},
                "wal": {"mode": options["wal_mode"]},
                "snapshot": {"keep": options["keep"]},
                "compat": options["compat"],
                "init": options["init"],
                "failover": {
                    **({"arbiter": "witness", "cluster": "sim"} if self.arbiter else {}),
                    **options["failover"],
                },
                "replication": {**replication, **options["replication"]},
            }
        )
        # Smaller than anybody may configure: what is rare at real sizes happens in every run.
        wal = settings.wal.model_copy(update={"segment_bytes": options["segment_bytes"]})
        window = {"window_bytes": options["window_bytes"], "retain_bytes": options["retain_bytes"]}
        links = settings.replication.model_copy(update=window)
        return settings.model_copy(update={"wal": wal, "replication": links})

    def start(self) -> None:
        """Begin a process on the disk as it is; it may die at once, of an injected error too."""
        assert not self.alive
        self.incarnation += 1
        self.alive, self.paused = True, False
        self._held = []
        self.loop = VirtualLoop(self)
        with contextlib.suppress(Died), self._turn():
            self._start()

    def _start(self) -> None:
        world, chance = self.world, self.world.chance
        self.engine = Engine(dict(_DRIVERS), lambda: chance.randbytes(16), self.report)
        settings = self.settings()
        try:
            self.storage = open_storage(
                settings, self.engine, chance.randbytes, self.say, self.disk
            )
        except StorageError as error:
            self.alive = False
            if not self.disk_is_ill:
                raise AssertionError(f"{self.name} does not recover: {error}") from error
            self.say(f"does not start: {error}")
            raise Died from error
        mono = lambda: world.now + world.now * self.drift_ppm // 1_000_000  # noqa: E731
        wall = lambda: EPOCH_US + mono() + self.skew_us  # noqa: E731
        self.clock = LogClock(self.storage.last_time_us, wall, mono)
        self.engine.now = self.clock.now()
        ids = (self.storage.meta.node, self.storage.meta.cluster)
        self.core = Core(
            self.engine,
            Identity(self.name, "0" * 36, "0" * 36, pid=1),
            ClientBounds(payload_bytes_max=16 << 20),
            Everybody(),
            facades=FACADES,
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
        self._committed = self.wal.commit_lsn
        self._flush_asked = False
        self._ticks = 0
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
        self._take_snapshots()
        committed = self.wal.on_commit
        self.wal.on_commit = lambda lsn: (self._check_commit(lsn), committed(lsn))[1]
        self.storage.retained = self.peering.source.retained_lsn
        self.role.observers.append(lambda made: self.service.leading(made.target is Role.RUNNING))
        self.role.observers.append(lambda made: [see(self, made) for see in self.observers])
        self.pauses = ProcessPauses(
            self.core, mono, self.clock.now, lambda call: self.soon(50 * MS, call), lambda _s: None
        )
        self.peering.redial = lambda: self.soon(0, self._dial_all)
        self.soon(TICK_US, self._tick)
        self._dial_all()
        # A link may stand before the node is told what it is to be, or after.
        early = (world.seed + self.incarnation) % 2
        if self.arbiter is not None:
            self.arbiter.join(self)
            self.soon(0, lambda: self.role.request(True, command=False, by_seat=True))
        else:
            self.soon(30 * MS * early, lambda: self.role.request(self.read_only, command=False))

    def _take_snapshots(self) -> None:
        """As node.main has it: beside the load, by size of the log and for downstreams."""
        self.snapshots = Snapshots(
            self.core,
            self.wal,
            self.storage.new_snapshot,
            self.storage.snapshot_proven,
            self.storage.snapshot_published,
            self.option["snapshot_bytes"],
            self.flush,
            self.say,
        )
        self.snapshots.served_until = self.peering.served_until
        pool = VirtualPool(self)
        self.snapshots._pool = pool  # type: ignore[assignment]

        def before_reload() -> None:
            # A snapshot whose end is being written is waited for.
            pool.finish()
            self.snapshots.invalidate()

        self.peering.replica.before_reload = before_reload
        self.peering.source.want_snapshot = lambda: self.snapshot(for_downstream=True)

    def on_disk(self, synced: bool) -> int:
        """The last LSN this machine's disk holds, as told by the disk itself."""
        return self.frames.last_lsn(self.disk, synced)

    def lose_disk(self) -> None:
        """This process has ended, and its disk goes. What it said of it may be on its way still."""
        self._lost_lsn = self.on_disk(synced=True)
        self._last_words = [one for one in self.network.streams if one.places[0] == self.name]
        self.old_disks.append(self.disk)

    def said_before_its_disk_went(self) -> int:
        """How far a confirmation may go that was sent before it, until the last arrived."""
        under_way = any(one in self.network.streams for one in self._last_words)
        return self._lost_lsn if under_way else 0

    def said_before_it_cut(self, to: str, lsn: int) -> bool:
        """What it told `to` was true, and a force that it heard of since had it cut and saved."""
        self.confirmations = [one for one in self.confirmations if one[0] in self.network.streams]
        told = any(one.places[1] == to and said >= lsn for one, said in self.confirmations)
        saved = [name.split("-") for name in self.disk._entries if name.startswith("rescue/")]
        return told and any(int(parts[1]) <= lsn for parts in saved if len(parts) == 3)

    def _check_commit(self, lsn: int) -> None:
        """In pair mode, unless it was decided otherwise, two disks hold what is committed."""
        if lsn <= self._committed:
            return
        gate = self.wal.gate
        if gate is None or gate.solo or gate.slack:
            self._committed = lsn
            return
        synced = self.wal.mode == "fsync"
        others = [other for other in self.machines.values() if other is not self]
        held = max(
            max(other.on_disk(synced), other.said_before_its_disk_went()) for other in others
        )
        if held < lsn and not any(one.said_before_it_cut(self.name, lsn) for one in others):
            self.world.wrong(f"P1: LSN {lsn} is committed in pair mode, on one disk")
        self._committed = lsn

    def kill(self) -> None:
        """kill -9: what was written to files stays, everything else is gone."""
        if not self.alive:
            return
        self.say("killed")
        self.alive = self.paused = False
        self.service.ended()
        self._held = []
        for thread in list(self.threads):
            thread.end()
        self.threads.clear()
        self.loop.end()
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
        self.service.ended()

    def power_cut(self) -> None:
        self.kill()
        self.say("power cut")
        self.disk.crash(self.world.chance, self.option["page_bytes"])

    def stall(self, us: int) -> None:
        """The loop waits for its disk: from outside the process stands still."""
        if self.alive and not self.paused:
            self.paused = True
            self.service.pausing(True)
            self.world.after(us, self.resume)

    @property
    def disk_is_ill(self) -> bool:
        """An injected fault of the disk may still be what an operation meets."""
        return self.ill or self.disk.full

    def heal_disk(self) -> None:
        self.disk._faults.clear()
        self.disk.full = self.ill = False
        self.weather.clear()
        self.weather.sync_us = (200, 3 * MS)

    def pause(self) -> None:
        if self.alive:
            self.say("paused")
            self.paused = True
            self.service.pausing(True)

    def resume(self) -> None:
        if self.alive and self.paused:
            self.say("resumed")
            self.paused = False
            self.service.pausing(False)
            held, self._held = self._held, []
            for call in held:
                self.deliver(call)

    def failed(self, error: StorageError) -> None:
        """The log failed: nothing is acknowledged any more, the process ends."""
        self.say(f"the log failed: {error}")
        self.role.fault(str(error))
        self.soon(0, self.kill)

    # -- the turn, as node.loop.shell has it -------------------------------------------------

    def ask_flush(self) -> None:
        if not self._flush_asked:
            self._flush_asked = True
            self.soon(0, self._flush_turn)

    def _flush_turn(self) -> None:
        self._flush_asked = False
        self.flush()

    def flush(self) -> None:
        turn = self.core.flush()
        self.service.answered(turn, self.core.term_id, self.engine.lsn)
        self._send(turn.prompt)
        if turn.frame is not None or turn.replies or turn.committed:
            self.wal.submit(turn, self.core.engine.now)
        self._arm()

    def release(self, turn: Turn) -> None:
        if self.role.leading and (self.wal.mode == "fsync" or self.wal.gate is not None):
            gate = self.wal.gate
            here = self.on_disk(self.wal.mode == "fsync")
            if turn.last_lsn > here:
                self.world.wrong(f"P1: {self.name} answered {turn.last_lsn}, its disk has {here}")
            pair = gate is not None and not gate.solo and not gate.slack
            if pair and turn.last_lsn > self._committed:
                self.world.wrong(
                    f"P1: {self.name} answered {turn.last_lsn} before two disks had it"
                )
        self._send(turn.replies)
        for tell in turn.committed:
            tell()

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
        self._ticks += 1
        if self._ticks % 5 == 0 and self.alive and self.engine.store.lineage:
            self.snapshots.maybe()
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

    # -- operator --------------------------------------------------------------------------------

    def request(
        self,
        read_only: bool,
        force: bool = False,
        done: Callable[[Settled | None], None] = lambda _settled: None,
    ) -> None:
        self.deliver(lambda: self.role.request(read_only, force=force, done=done))

    def snapshot(self, for_downstream: bool = False) -> None:
        """A snapshot beside the load, then the log behind it is trimmed."""
        if self.wal.broken or not self.engine.store.lineage:
            return

        def done(task: asyncio.Task[int]) -> None:
            if task.cancelled() or task.exception() is not None:
                error = None if task.cancelled() else task.exception()
                self.say(f"snapshot failed: {error}")
                if error is not None and for_downstream:
                    self.peering.source.snapshot_failed(error)
            elif for_downstream:
                self.peering.source.snapshot_ready()

        self.snapshots.start().add_done_callback(done)
