"""A whole node from its settings: recovery, engine, listener, signals, orderly end.

Only this module knows everybody. `serve` returns the process's exit code.
"""

from __future__ import annotations

import asyncio
import gc
import os
import secrets
import signal
import ssl
import sys
import uuid
from collections.abc import Callable
from typing import TYPE_CHECKING

import uvloop

from tandemq.model.bounds import unmeasured_rows
from tandemq.model.errors import QueueError, StorageError
from tandemq.model.units import SECOND_US
from tandemq_server.config import Settings
from tandemq_server.engine.engine import Engine
from tandemq_server.facades.registered import FACADES, KNOWN
from tandemq_server.node import operator_calls
from tandemq_server.node.cluster import sharing
from tandemq_server.node.cluster.peering import Peering
from tandemq_server.node.cluster.promise import promise_of
from tandemq_server.node.cluster.role import RoleKeeper
from tandemq_server.node.core.connection import Connection
from tandemq_server.node.core.core import Core
from tandemq_server.node.core.identity import Identity
from tandemq_server.node.core.trail import Noted
from tandemq_server.node.core.users import Users
from tandemq_server.node.housekeeping import Housekeeping
from tandemq_server.node.loop import arbiter_joining, plugins
from tandemq_server.node.loop.clock import LogClock, monotonic_us
from tandemq_server.node.loop.dialer import Dialer, peer_tls
from tandemq_server.node.loop.doors import bounds_of, quotas_of, room_of
from tandemq_server.node.loop.log_lines import Logger
from tandemq_server.node.loop.memory import MemoryWatch
from tandemq_server.node.loop.recovered import announce, open_storage
from tandemq_server.node.loop.shell import FeedSocket, Shell
from tandemq_server.node.loop.snapshots import Snapshots, snapshot_now
from tandemq_server.node.loop.trail import trail_of
from tandemq_server.node.loop.wal_writer import WalWriter
from tandemq_server.node.reloading import Reloading, tokens_of
from tandemq_server.node.workers import Workers
from tandemq_server.statemachine.effects import Tick
from tandemq_server.statemachine.roles import Role, Transition

if TYPE_CHECKING:
    from tandemq_server.admin.server import AdminServer
    from tandemq_server.node.observe.backend import NodeBackend

#: A client that does not take its last replies is not waited for longer than this.
DRAIN_SECONDS = 3.0
#: A node that waits for its peers' word before it may serve is said to be ready after so long.
READY_SECONDS = 2.0
EXIT_OK, EXIT_REFUSED, EXIT_DISK = 0, 1, 5


def serve(settings: Settings, load: Callable[[], Settings] | None = None) -> int:
    """Run a node until SIGTERM or SIGINT. Prints one line `ready HOST:PORT` once it serves.

    `load()` gives the settings anew, for a reload. Returns 0 after an orderly end, 1 when something
    refuses to start, 5 when the log failed.
    """
    if not __debug__:
        print("tandemq refuses to run with assertions off (python -O)", file=sys.stderr)
        return EXIT_REFUSED
    logger = Logger(settings.log.level, settings.log.format)
    # What was imported stays: the collection before `ready` is for what is recovered.
    gc.freeze()
    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            return runner.run(Node(settings, logger, load).run())
    except (StorageError, QueueError, plugins.PluginError, OSError) as error:
        logger.error(str(error) or type(error).__name__)
        return EXIT_REFUSED


class Node:
    """Everything one process holds."""

    def __init__(
        self, settings: Settings, logger: Logger, load: Callable[[], Settings] | None = None
    ) -> None:
        self.settings = settings
        self.reloading = Reloading(self, load or (lambda: settings))
        self.logger = logger
        self.ready: Callable[[str, int], None] = announce  # told once where it listens
        self.exit_code = EXIT_OK
        self.ended = asyncio.Event()

    def report(self, text: str, error: BaseException | None = None) -> None:
        """One line in the log; a trace only for what should not happen."""
        if error is None:
            self.logger.warning(text)
        else:
            self.logger.exception(text, error)

    async def run(self) -> int:
        settings = self.settings
        self.engine = Engine(plugins.load_drivers(KNOWN, settings.drivers), new_uuid, self.report)
        self.engine.functions = plugins.functions(settings)
        self.engine.callbacks = plugins.load_callbacks(settings.on_task_change)
        self.storage = open_storage(settings, self.engine, secrets.token_bytes, self.logger.info)
        self.trail = trail_of(settings, self.logger.error)
        try:
            return await self._serve()
        finally:
            self.trail.close()
            self.storage.release()

    async def _serve(self) -> int:
        settings, engine, storage = self.settings, self.engine, self.storage
        self.clock = LogClock(storage.last_time_us)
        engine.now = self.clock.now()
        tls = settings.tls.context() if settings.tls is not None else None
        self.reloading.contexts += [tls] if tls is not None else []
        self.core = core = self._core()
        core.noted = self.trail.note
        self.logger.context = lambda: core.place(settings.name)
        self.wal = wal = WalWriter(
            storage.log, settings.wal.mode, lambda _turn: None, self._disk_failed
        )
        wal.durable_lsn = wal.written_lsn = engine.lsn
        wal.commit_lsn = core.commit_lsn = storage.recovered.commit_lsn
        self.shell = shell = Shell(
            core,
            wal,
            self.clock,
            lambda: secrets.token_bytes(32),
            room=room_of(settings.limits),
            log=self.logger.info,
        )
        self.snapshots = Snapshots(
            core,
            wal,
            storage.new_snapshot,
            storage.snapshot_proven,
            storage.snapshot_published,
            settings.snapshot.every_bytes,
            shell.flush,
            self.report,
        )
        operator_calls.add_to(core, self)
        self.role = RoleKeeper(
            core,
            storage,
            wal,
            settings,
            now=self.clock.now,
            flush=shell.flush,
            random_bytes=secrets.token_bytes,
            log=self.logger.info,
        )
        self._role_timer: asyncio.TimerHandle | None = None
        self.role.arm = self._arm_role
        self.workers = Workers(shell, engine.functions, self.report)
        self._join_peers()
        self.memory = MemoryWatch(
            engine, settings.memory.high, settings.memory.max, self.report, self.logger.info
        )
        self.backend = self._backend() if settings.admin_address is not None else None
        return await self._live(tls)

    def _backend(self) -> NodeBackend:
        """What the admin API sees. Without one nobody asks, and a tenth of the start is saved."""
        from tandemq_server.node.observe.backend import NodeBackend

        made = NodeBackend(
            self.settings,
            self.core,
            self.wal,
            self.storage,
            self.snapshots,
            self.role,
            self.peering,
            secrets.token_hex(4),
        )
        made.turns = self.shell.turns
        made.trail, made.memory = self.trail, self.memory
        made.reloader = self.reloading.reload
        made.later = asyncio.get_running_loop().call_later
        return made

    def _join_peers(self) -> None:
        """Both ends of links to other nodes; a node alone has none, and nothing to ship."""
        settings, storage = self.settings, self.storage
        loop = asyncio.get_running_loop()
        self.peering = peering = Peering(self.role, self.clock, monotonic_us, loop.call_soon)
        self.snapshots.served_until = peering.served_until
        peering.troubles.alarm = self.logger.error
        peering.source.snapshots = self.snapshots
        peering.source.want_snapshot = self._snapshot_for_downstream
        peering.replica.before_reload = self.snapshots.invalidate
        storage.retained = peering.source.retained_lsn
        if storage.log is not None:
            self.core.on_subscribe = self._subscribe
        self.core.other_master = self._other_master
        self.core.promise = lambda: promise_of(peering)
        peers = peer_tls(settings)
        self.reloading.contexts += [peers] if peers is not None else []
        self.dialer = Dialer(peering, settings, peers)

    def _other_master(self) -> tuple[str, str] | None:
        """Who serves in place of this node; asked when it refuses something, hence read late."""
        from tandemq_server.node.observe.peer_status import master_of

        return master_of(self.peering)

    async def _live(self, tls: ssl.SSLContext | None) -> int:
        """From listening to the end. Signals count from the first moment."""
        settings = self.settings
        self._install_signals()
        where = settings.listen_host, settings.listen_port
        host, port = await self.shell.listen(*where, tls, settings.dialect)
        if settings.queue15_address is not None:
            await self.shell.listen(*settings.queue15_address, tls, "queue15")
        self.dialer.start()
        arbiter = arbiter_joining.join(self.peering, self.shell.ask_flush, self.report)
        ending = asyncio.create_task(self.ended.wait())
        tasks = [asyncio.create_task(self._tick_links())]
        await self._start_admin(tls)
        begun = asyncio.create_task(self._begin())
        # Whether it may serve can depend on a peer that is not there yet: it listens meanwhile.
        patience = READY_SECONDS if settings.peers else None
        await asyncio.wait((begun, ending), timeout=patience, return_when=asyncio.FIRST_COMPLETED)
        if begun.done():
            begun.result()
        if not ending.done():
            self.ready(host, port)
            self.logger.info(f"{settings.name} serves on {host}:{port} in state {self.core.state}")
        tasks.append(asyncio.create_task(Housekeeping(self).run()))
        await ending
        for task in (*tasks, begun):
            task.cancel()
        await self._end()
        if arbiter is not None:
            await arbiter.stop()
        return self.exit_code

    def _core(self) -> Core:
        settings, limits = self.settings, self.settings.limits
        identity = Identity(
            settings.name,
            str(uuid.UUID(bytes=self.storage.meta.node)),
            str(uuid.UUID(bytes=self.storage.meta.cluster)),
            listen=settings.listen,
            pid=os.getpid(),
        )
        core = Core(
            self.engine,
            identity,
            bounds_of(limits),
            Users(settings),
            read_only_reply_nil=settings.compat.read_only_reply == "nil",
            older_peers=settings.replication.older_peers,
            facades=FACADES,
        )
        core.started_us = self.engine.now
        core.quotas.take(quotas_of(settings.users))
        self.engine.sessions.shared = settings.queue.shared_sessions
        self.engine.unmeasured = unmeasured_rows(limits.payload_bytes_max)
        return core

    # -- role ------------------------------------------------------------------------------------

    async def _begin(self) -> None:
        """INIT to RUNNING; a node configured read-only stays in INIT and follows.

        With peers what is missing may come later: then the node serves once it has.
        """
        settings = self.settings
        self.role.observers += [self._create_tubes, self.workers.role_changed, self.trail.role]
        settled = await arbiter_joining.begin(self.peering)
        if not settled.ok and not settings.peers:
            raise StorageError(str(settings.data_dir), 0, f"cannot serve: {settled.reason}")
        self.shell.flush()

    def _create_tubes(self, made: Transition) -> None:
        """Tubes of the configuration that are not there yet, whenever the node begins to serve."""
        if made.target is Role.RUNNING:
            sharing.begin(self.settings, self.engine, self.report)
            self.shell.ask_flush()

    def _arm_role(self, due_us: int | None) -> None:
        """Call the role when its next deadline has come."""
        if self._role_timer is not None:
            self._role_timer.cancel()
            self._role_timer = None
        if due_us is not None:
            wait = max(0.0, (due_us - self.clock.now()) / SECOND_US)
            loop = asyncio.get_running_loop()
            self._role_timer = loop.call_later(wait, self.role.feed, Tick())

    # -- links -----------------------------------------------------------------------------------

    def _subscribe(self, connection: Connection, reply: bytes) -> None:
        """The connection becomes the upstream's end of a link."""
        wire = FeedSocket(connection.transport, self.peering.window_bytes)
        wire.write(reply)
        connection.link = self.peering.accept(wire, connection.peer)

    async def _tick_links(self) -> None:
        """Heartbeats, silence, pair mode; often enough for the shortest of their times."""
        settings = self.settings
        seconds = min(0.25, settings.replication.heartbeat / 4, settings.failover.heartbeat / 4)
        while True:
            await asyncio.sleep(seconds)
            self.peering.tick()
            self.shell.ask_flush()

    def _snapshot_for_downstream(self) -> None:
        def done(task: asyncio.Task[int]) -> None:
            if task.cancelled():
                return
            if error := task.exception():
                self.peering.source.snapshot_failed(error)
            else:
                self.peering.source.snapshot_ready()

        self.snapshots.start().add_done_callback(done)

    async def _start_admin(self, tls: ssl.SSLContext | None) -> None:
        """The admin API, if it is configured."""
        settings = self.settings
        self.admin_server: AdminServer | None = None
        if settings.admin_address is None or self.backend is None:
            return
        # The web framework is loaded by those who want it: it costs more than the node to import.
        from tandemq_server.admin.security import AdminConfig, AdminRefused
        from tandemq_server.admin.server import AdminServer

        host, port = settings.admin_address
        token, second, reading = tokens_of(settings)
        try:
            self.admin_server = AdminServer(
                self.backend,
                AdminConfig(
                    *(host, port, token, tls, settings.admin_hosts),
                    second_token=second,
                    trail_token=reading,
                ),
                self.report,
            )
        except AdminRefused as error:
            raise plugins.PluginError(str(error)) from error
        bound = await self.admin_server.start()
        self.logger.info(f"admin API on {bound[0]}:{bound[1]}")

    # -- the end ---------------------------------------------------------------------------------

    def _install_signals(self) -> None:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._end_by, number)
        loop.add_signal_handler(signal.SIGHUP, self.reloading.on_signal)

    def _end_by(self, number: signal.Signals) -> None:
        self.trail.note(Noted("signal", "", "", "end", number.name))
        self.ended.set()

    def _disk_failed(self, error: StorageError) -> None:
        """Nothing more is acknowledged from here on; the process ends and says why."""
        self.exit_code = EXIT_DISK
        self.ended.set()
        self.logger.error(f"the log failed, nothing more is acknowledged: {error}")
        self.role.fault(str(error))

    async def _end(self) -> None:
        """Drain, make everything durable, close; at most a few seconds."""
        if self.wal.broken:
            for connection in list(self.core.connections.values()):
                if connection.transport is not None:
                    connection.transport.abort()
            return
        self.role.close()
        if self.admin_server is not None and self.backend is not None:
            self.backend.bus.close()
            await self.admin_server.stop()
        await self.dialer.stop()
        await self.workers.close(DRAIN_SECONDS)
        await self.shell.drain(DRAIN_SECONDS)
        self.peering.close()
        await self.snapshots.cancel()
        if self.storage.log is None and self.settings.snapshot.keep:
            writer = self.storage.new_snapshot(self.engine.lsn)
            snapshot_now(self.core, writer, self.engine.lsn)
            self.storage.snapshot_published(self.engine.lsn)
        self.wal.close()
        self.logger.info("stopped cleanly")


def new_uuid() -> bytes:
    return uuid.uuid4().bytes
