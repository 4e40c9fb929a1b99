"""A whole node from its settings: recovery, engine, listener, signals, orderly end.

Only this module knows everybody. `serve` returns the process's exit code.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import signal
import ssl
import sys
import uuid
from typing import TYPE_CHECKING, Any

import uvloop

from engine import admin
from engine.queue import Engine
from model.bounds import unmeasured_rows
from model.errors import QueueError, StorageError
from node import plugins
from node.backend import NodeBackend
from node.clock import LogClock, monotonic_us
from node.config import Settings
from node.connection import Connection
from node.core import Core
from node.dialer import Dialer
from node.doors import room_of
from node.housekeeping import Housekeeping
from node.identity import Identity, Limits
from node.logging import Logger
from node.memory import MemoryWatch
from node.peer_status import master_of, promise_of
from node.peering import Peering
from node.recovered import open_storage, settle_memory
from node.role import RoleKeeper, wished
from node.shell import FeedSocket, Shell
from node.snapshots import Snapshots, snapshot_now
from node.users import Users
from node.wal_writer import WalWriter
from node.workers import Workers
from statemachine.effects import Settled, Tick
from statemachine.roles import Role, Transition

if TYPE_CHECKING:
    from node.admin.server import AdminServer

#: A client that does not take its last replies is not waited for longer than this.
DRAIN_SECONDS = 3.0
#: A node that waits for its peers' word before it may serve is said to be ready after so long.
READY_SECONDS = 2.0
EXIT_OK, EXIT_REFUSED, EXIT_DISK = 0, 1, 5


def serve(settings: Settings) -> int:
    """Run a node until SIGTERM or SIGINT. Prints one line `ready HOST:PORT` once it serves.

    Returns 0 after an orderly end, 1 when something refuses to start, 5 when the log failed.
    """
    if not __debug__:
        print("tandemq refuses to run with assertions off (python -O)", file=sys.stderr)
        return EXIT_REFUSED
    logger = Logger(settings.log.level, settings.log.format)
    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            return runner.run(Node(settings, logger).run())
    except (StorageError, QueueError, plugins.PluginError, OSError) as error:
        logger.error(str(error) or type(error).__name__)
        return EXIT_REFUSED


class Node:
    """Everything one process holds."""

    def __init__(self, settings: Settings, logger: Logger) -> None:
        self.settings = settings
        self.logger = logger
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
        self.engine = Engine(plugins.load_drivers(settings.drivers), new_uuid, self.report)
        self.engine.functions = plugins.functions(settings)
        self.engine.callbacks = plugins.load_callbacks(settings.on_task_change)
        self.storage = open_storage(settings, self.engine, secrets.token_bytes, self.logger.info)
        try:
            return await self._serve()
        finally:
            self.storage.disk.release()

    async def _serve(self) -> int:
        settings, engine, storage = self.settings, self.engine, self.storage
        self.clock = LogClock(storage.last_time_us)
        engine.now = self.clock.now()
        tls = settings.tls.context() if settings.tls is not None else None
        self.core = core = self._core()
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
        core.handlers["box.snapshot"] = self._snapshot_call
        core.handlers["box.cfg"] = self._cfg_call
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
        self.backend = NodeBackend(
            settings,
            self.core,
            self.wal,
            self.storage,
            self.snapshots,
            self.role,
            self.peering,
            secrets.token_hex(4),
        )
        self.backend.turns = shell.turns
        self.backend.memory = self.memory = MemoryWatch(
            engine, settings.memory.high, settings.memory.max, self.report, self.logger.info
        )
        return await self._live(tls)

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
        self.core.other_master = lambda: master_of(peering)
        self.core.promise = lambda: promise_of(peering)
        self.dialer = Dialer(peering, settings, _peer_tls(settings))

    async def _live(self, tls: ssl.SSLContext | None) -> int:
        """From listening to the end. Signals count from the first moment."""
        settings = self.settings
        self._install_signals()
        host, port = await self.shell.listen(
            settings.listen_host, settings.listen_port, tls, settings.dialect
        )
        if settings.queue15_address is not None:
            await self.shell.listen(*settings.queue15_address, tls, "queue15")
        self.dialer.start()
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
            settle_memory()
            print(f"ready {host}:{port}", flush=True)
            self.logger.info(f"{settings.name} serves on {host}:{port} in state {self.core.state}")
        tasks.append(asyncio.create_task(Housekeeping(self).run()))
        await ending
        for task in (*tasks, begun):
            task.cancel()
        await self._end()
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
            Limits(
                limits.frame_bytes_max,
                limits.payload_bytes_max,
                limits.output_bytes_max,
                limits.nesting_max,
                min(limits.login_bytes_max, limits.frame_bytes_max),
            ),
            Users(settings),
            read_only_reply_nil=settings.compat.read_only_reply == "nil",
            open_links=bool(settings.peers) and settings.replication.user is None,
        )
        core.started_us = self.engine.now
        self.engine.unmeasured = unmeasured_rows(limits.payload_bytes_max)
        return core

    # -- role ------------------------------------------------------------------------------------

    async def _begin(self) -> None:
        """INIT to RUNNING; a node configured read-only stays in INIT and follows.

        With peers what is missing may come later: then the node serves once it has.
        """
        settings = self.settings
        self.role.observers += [self._create_tubes, self.workers.role_changed]
        settled = await wished(self.role, settings.read_only, command=False)
        if not settled.ok and not settings.peers:
            raise StorageError(str(settings.data_dir), 0, f"cannot serve: {settled.reason}")
        self.shell.flush()

    def _create_tubes(self, made: Transition) -> None:
        """Tubes of the configuration that are not there yet, whenever the node begins to serve."""
        if made.target is not Role.RUNNING:
            return
        for tube in self.settings.tubes:
            try:
                opts = {**tube.options, "if_not_exists": True}
                admin.create_tube(self.engine, tube.name, tube.type, opts)
            except QueueError as error:
                if not self.settings.peers:
                    raise
                self.report(f"tubes: {tube.name}: {error.text}")
        self.shell.ask_flush()

    def _arm_role(self, due_us: int | None) -> None:
        """Call the role when its next deadline has come."""
        if self._role_timer is not None:
            self._role_timer.cancel()
            self._role_timer = None
        if due_us is not None:
            wait = max(0.0, (due_us - self.clock.now()) / 1e6)
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
        seconds = min(0.25, self.settings.replication.heartbeat / 4)
        while True:
            await asyncio.sleep(seconds)
            self.peering.tick()
            self.shell.ask_flush()

    def _snapshot_for_downstream(self) -> None:
        def done(task: asyncio.Task[int]) -> None:
            if not task.cancelled() and task.exception() is None:
                self.peering.source.snapshot_ready()

        self.snapshots.start().add_done_callback(done)

    def _cfg_call(self, connection: Any, ticket: int, args: bytes) -> bytes | None:
        """`box.cfg{read_only = ...}`: the operator's switch over IPROTO."""
        read_only = plugins.read_only_argument(args)
        if read_only is None or read_only == self.core.read_only:
            return plugins.empty(ticket)

        def done(settled: Settled | None) -> None:
            if settled is None or not settled.ok:
                reason = "the node ends" if settled is None else settled.reason
                connection.deliver(ticket, plugins.failure(f"read_only: {reason}"))
            else:
                connection.send(plugins.empty(ticket))
            self.shell.ask_flush()

        self.role.wish(read_only, done=done)
        return None

    async def _start_admin(self, tls: ssl.SSLContext | None) -> None:
        """The admin API, if it is configured."""
        settings = self.settings
        self.admin_server: AdminServer | None = None
        if settings.admin_address is None:
            return
        # The web framework is loaded by those who want it: it costs more than the node to import.
        from node.admin.security import AdminConfig, AdminRefused
        from node.admin.server import AdminServer

        host, port = settings.admin_address
        token = os.environ.get(settings.admin_token_env) if settings.admin_token_env else None
        try:
            self.admin_server = AdminServer(
                self.backend,
                AdminConfig(host, port, token, tls, settings.admin_hosts),
                self.report,
            )
        except AdminRefused as error:
            raise plugins.PluginError(str(error)) from error
        bound = await self.admin_server.start()
        self.logger.info(f"admin API on {bound[0]}:{bound[1]}")

    # -- snapshots -------------------------------------------------------------------------------

    def _snapshot_call(self, connection: Any, ticket: int, args: bytes) -> bytes | None:
        """`box.snapshot()`: answers "ok" once the snapshot is on disk."""
        task = self.snapshots.start()

        def done(task: asyncio.Task[int]) -> None:
            error = None if task.cancelled() else task.exception()
            if task.cancelled() or error is not None:
                text = f"snapshot failed: {error or 'the node ends'}"
                self.report(text)
                connection.deliver(ticket, plugins.failure(text))
            else:
                connection.send(plugins.value(ticket, "ok"))
            self.shell.ask_flush()

        task.add_done_callback(done)
        return None

    # -- the end ---------------------------------------------------------------------------------

    def _install_signals(self) -> None:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self.ended.set)

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
        if self.admin_server is not None:
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
        self.logger.info("ended in good order")


def _peer_tls(settings: Settings) -> ssl.SSLContext | None:
    """Peers are spoken to as this node is: with TLS if it has it, showing its own certificate."""
    return settings.tls.peer_context() if settings.tls is not None and settings.peers else None


def new_uuid() -> bytes:
    return uuid.uuid4().bytes
