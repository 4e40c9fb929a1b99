"""One node without its rim: requests in, records and replies out, in the order they must leave.

`receive` decodes and executes what one read delivered; `flush` hands over what the turn changed
(one frame) and whom to answer once it is as durable as the mode promises. No I/O, no clock.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar

from tandemq.model.errors import ER_PROC_LUA, QueueError, no_such_proc
from tandemq.model.record import encode_frames
from tandemq_server.engine import admin
from tandemq_server.engine.clients import EMPTY
from tandemq_server.engine.engine import Engine
from tandemq_server.engine.tube import EngineTube
from tandemq_server.node.core import (
    calls,
    import_calls,
    module_calls,
    read_only,
    requests,
    space_calls,
    strangers,
    trail,
    tube_calls,
)
from tandemq_server.node.core.connection import Connection
from tandemq_server.node.core.facade import Facade
from tandemq_server.node.core.identity import Accounts, ClientBounds, Identity
from tandemq_server.node.core.permits import Permits
from tandemq_server.node.core.schema_view import SchemaView
from tandemq_server.node.core.turn import Turn
from tandemq_server.wire import replies as wire_replies
from tandemq_server.wire.constants import CALL, CALL_16
from tandemq_server.wire.overlong import NAME_BYTES_MAX
from tandemq_server.wire.replies import error_reply

#: A reply larger than this is counted towards the connection's output limit at once.
_LARGE_REPLY = 65_536
T = TypeVar("T")


class Core(Permits):
    """Requests of all connections against one engine.

    state: one of INIT STARTUP RUNNING ENDING WAITING. term, term_id: under which records are
    written. commit_lsn: what is as durable as the mode promises (told by the rim). operations:
    calls the rim provides (snapshot, role) as `name -> f(connection, ticket, args)`.
    """

    def __init__(
        self,
        engine: Engine,
        identity: Identity,
        limits: ClientBounds,
        accounts: Accounts,
        *,
        read_only_reply_nil: bool = False,
        older_peers: bool = False,
        facades: Sequence[Facade] = (),
    ) -> None:
        super().__init__(engine, accounts)
        self.identity = identity
        self.limits = limits
        self.read_only_reply_nil = read_only_reply_nil
        #: Peers of a version that proves nothing may follow, too.
        self.older_peers = older_peers
        self.state = "INIT"
        self.read_only = False
        #: What `queue.cfg` asked of this node while it did not serve; applied when it does.
        self.asked_cfg: admin.Cfg = (None, None)
        self.started_us = 0
        self.term = 0
        self.term_id = bytes(16)
        self.commit_lsn = 0
        self.dirty: list[Connection] = []
        self.prompt: list[tuple[Connection, bytes]] = []
        self.uncommitted: list[Callable[[], None]] = []
        self.connections: dict[int, Connection] = {}
        self.handlers: dict[str, calls.Handler] = {}
        self.tables: dict[tuple[str, str], dict[bytes, calls.Handler]] = {}
        self.watched: dict[str, Any] = {}
        self.schema = SchemaView(engine, self.allowed)
        self.errors = 0
        #: Asked before any deadline is handled: after a pause sockets are read first.
        self.may_tick: Callable[[], bool] = lambda: True
        #: What leases have not got back yet of a pause; from now on it is the caller's to give.
        self.unpaid_us: Callable[[], int] = lambda: 0
        #: Answers SUBSCRIBE and makes the connection a link; None where there is nothing to ship.
        self.on_subscribe: Callable[[Connection, bytes], None] | None = None
        #: (name, address) of another node that serves; the wal.mode an acknowledgement stands for.
        self.other_master: Callable[[], tuple[str, str] | None] = lambda: None
        self.promise: Callable[[], str] = lambda: "unknown"
        self.handlers.update(module_calls.handlers(self))
        self.handlers.update(import_calls.handlers(self))
        self.facades = tuple(facades)
        for facade in self.facades:
            self.handlers.update(facade.handlers(self))
        engine.on_tube = self._tube_changed
        engine.on_grants_changed = self.forget_tables
        for tube in engine.tubes.values():
            self._tube_changed(tube, True)
        self.status_changed()

    # -- call tables -----------------------------------------------------------------------------

    def _tube_changed(self, tube: EngineTube, appears: bool) -> None:
        table = calls.TubeCalls(tube, self.limits)
        more = tube_calls.MoreCalls(self, tube, table.check_payload)
        found = {
            f"queue.tube.{tube.name}:{method}": handler
            for method, handler in (*table.handlers(), *more.handlers())
        }
        for facade in self.facades:
            found = facade.of_tube(self, tube, found)
        for name, handler in found.items():
            if appears:
                self.handlers[name] = handler
            else:
                self.handlers.pop(name, None)
        wire_replies.use_schema(self.engine.schema_version)
        self.forget_tables()

    def forget_tables(self) -> None:
        """Rights, tubes or the role changed: every name is looked up afresh."""
        for table in self.tables.values():
            table.clear()
        self.forget_permits()
        self.schema.forget()

    def dialect_of(self, connection: Connection) -> str:
        """Its user's dialect, or that of the listener it came by."""
        return self.accounts.dialect(connection.user) or connection.dialect

    def table_of(self, connection: Connection) -> dict[bytes, calls.Handler]:
        return self.tables.setdefault((connection.user, self.dialect_of(connection)), {})

    def identify(self, node_id: str, cluster_id: str) -> None:
        """The node has joined a cluster: from here on it is known under these ids."""
        self.identity = replace(self.identity, node_id=node_id, cluster_id=cluster_id)

    def find(self, connection: Connection, name: bytes) -> calls.Handler:
        """The handler of a call this user may make now; remembered until something changes.

        Raises 42 (checked before existence) or 33; on a node that does not serve, the handler
        of a changing call answers so.
        """
        if len(name) > NAME_BYTES_MAX:
            # Hardly looked at: it may be as long as a request.
            raise no_such_proc(name[:100].decode("utf-8", "replace") + "...")
        text = name.decode("utf-8", "surrogateescape").removeprefix("_G.")
        if text.startswith("box.queue."):
            text = text.removeprefix("box.")
        for facade in self.facades:
            text = facade.renamed(self.dialect_of(connection), text, self.handlers)
        reads = space_calls.may_read(self, connection, text)
        if not reads and not any(one.in_part(self, connection.user, text) for one in self.facades):
            self.must(connection, text)
        handler = self.handlers.get(text) or space_calls.reader(self, text)
        if handler is None:
            broken = self._why_broken(text)
            raise broken or no_such_proc(text)
        if not self.engine.running and not self.serves_always(text):
            handler = read_only.refusal(self, text)
        handler = self.quotas.guarded(connection.user, text, trail.watched(self, text, handler))
        self.table_of(connection)[name] = handler
        return handler

    def _why_broken(self, text: str) -> QueueError | None:
        name = text.removeprefix("queue.tube.").rpartition(":")[0]
        if name not in self.engine.broken:
            return None
        return QueueError(
            ER_PROC_LUA, f"Tube {name} is not served: {self.engine.broken[name]}", "LuajitError"
        )

    def serves_always(self, text: str) -> bool:
        if text.startswith("queue.tube."):
            return text.rpartition(":")[2] in calls.READING | tube_calls.READING
        for facade in self.facades:
            reads = facade.reads(text)
            if reads is not None:
                return reads
        return text not in (
            "tandem.import",
            "queue.create_tube",
            "queue.alter_tube",
            "queue.identify",
            "queue.lost",
        )

    # -- connections -----------------------------------------------------------------------------

    def connect(self, connection: Connection) -> None:
        self.entered(connection)
        self.connections[connection.id] = connection

    def log_in(self, connection: Connection, user: str) -> None:
        connection.user = user
        self.entered(connection)

    def entered(self, connection: Connection) -> None:
        """What follows from who a connection's user is, and what that user may."""
        connection.calls = self.table_of(connection)
        connection.stranger = strangers.is_stranger(self, connection)
        limits = self.limits
        connection.decoder.frame_bytes_max = (
            limits.login_bytes_max if connection.stranger else limits.frame_bytes_max
        )

    def disconnect(self, connection: Connection, now: int) -> None:
        """The socket is gone: waits end, the session's clock starts."""
        if self.connections.pop(connection.id, None) is None:
            return
        connection.lost = True
        self.advance(now)
        self.engine.disconnect(connection)

    # -- one turn --------------------------------------------------------------------------------

    def advance(self, now: int) -> None:
        """Time moved to `now` (µs): whatever is due happens before anything else."""
        engine = self.engine
        if now > engine.now:
            engine.now = now
        if wire_replies.schema_in_use() != engine.schema_version:
            wire_replies.use_schema(engine.schema_version)
        timers, waits, now = engine.store.timers, engine.waits.heap, engine.now
        due = (timers and timers[0][0] <= now) or (waits and waits[0][0] <= now)
        if due and engine.running and self.may_tick():
            engine.tick()

    def receive(self, connection: Connection, data: bytes, now: int) -> None:
        """Execute every request that `data` completes."""
        self.advance(now)
        engine = self.engine
        woken = engine.woken
        table = connection.calls
        large = 0
        found = (
            strangers.requests_of(connection, data)
            if connection.stranger
            else connection.decoder.feed(data)
        )
        for sync, rtype, name, args in found:
            try:
                if rtype == CALL or rtype == CALL_16:
                    handler = table.get(name)
                    if handler is None:
                        handler = self.find(connection, name)
                    reply = handler(connection, sync * 2 + (rtype == CALL_16), args)
                else:
                    reply = requests.execute(self, connection, sync, rtype, name, args)
                    table = connection.calls
                    if connection.closing:
                        break
            except QueueError as error:
                engine.store.rollback()
                self.errors += 1
                reply = error_reply(sync, error)
            except Exception as error:
                reply = self._failed(sync, error)
            if reply is not None:
                connection.out.append(reply)
                if len(reply) > _LARGE_REPLY:
                    large += len(reply)
                    if large > self.limits.output_bytes_max:
                        self.close(connection, "output limit reached: replies are not read")
                        connection.out.clear()
                        break
            if woken:
                engine.wake()
        if connection.decoder.lost is not None and not connection.closing:
            connection.out.append(error_reply(0, connection.decoder.lost))
            self.close(connection, f"framing lost: {connection.decoder.lost.text}")
        if connection.out and not connection.dirty:
            connection.dirty = True
            self.dirty.append(connection)

    def close(self, connection: Connection, reason: str) -> None:
        """Say what is in `out`, then close."""
        connection.closing = True
        connection.reason = reason
        if not connection.dirty:
            connection.dirty = True
            self.dirty.append(connection)

    def _failed(self, sync: int, error: Exception) -> bytes:
        """Something broke that is nobody's argument: a custom driver, or a bug of ours."""
        self.engine.store.rollback()
        self.errors += 1
        text = f"{type(error).__name__}: {error}"
        self.engine.report(f"call failed: {text}", error)
        return error_reply(sync, QueueError(ER_PROC_LUA, f"Internal error: {text}", "LuajitError"))

    def flush(self) -> Turn:
        """What the turn changed and whom it answers, after the frame, if any. An error is fatal."""
        engine = self.engine
        if engine.store.torn:
            raise RuntimeError("a failed call could not be taken back")
        turn = Turn()
        if engine.records:
            records = engine.take_records()
            first_lsn = engine.lsn - len(records) + 1
            frames = encode_frames(records, self.term, self.term_id, first_lsn, self.commit_lsn)
            turn.frame, turn.first_lsn, turn.last_lsn = frames.pop()
            turn.before = frames
        for connection, reply in self.prompt:
            if connection.closing:
                connection.out.insert(0, reply)
            else:
                turn.prompt.append((connection, reply))
        self.prompt.clear()
        if self.dirty:
            dirty, self.dirty = self.dirty, []
            replies = turn.replies
            for connection in dirty:
                connection.dirty = False
                out = connection.out
                if out or connection.closing:
                    replies.append((connection, out[0] if len(out) == 1 else b"".join(out)))
                    connection.out = []
        if self.uncommitted:
            turn.committed, self.uncommitted = self.uncommitted, []
        return turn

    # -- changes that no connection asked for ------------------------------------------------------

    def submit(
        self, change: Callable[[], T], told: Callable[[T | None, Exception | None], None], now: int
    ) -> None:
        """Do `change`, and tell its result once it is committed. `flush` is to follow.

        An error takes back all that `change` did, and is told at once in place of the result.
        Nothing is told when the node ends, or leads no more, before the commit.
        """
        self.advance(now)
        try:
            result = change()
        except Exception as error:
            self.engine.store.rollback()
            told(None, error)
            return
        self.engine.wake()
        self.when_committed(partial(told, result, None))

    def when_committed(self, tell: Callable[[], None]) -> None:
        """Call it when what this turn did, and all before, is as durable as the mode promises."""
        self.uncommitted.append(tell)

    # -- state -----------------------------------------------------------------------------------

    def place(self, name: str) -> dict[str, object]:
        """Where this node of that name stands: what each line of its log says of it."""
        return {"node": name, "state": self.state, "term": self.term, "lsn": self.engine.lsn}

    def set_state(self, state: str) -> None:
        """The role changed: calls are looked up afresh, watchers are told."""
        self.state = state
        self.forget_tables()
        self.status_changed()

    def status_changed(self) -> None:
        self.publish(
            "box.status",
            {
                "is_ro": self.state != "RUNNING",
                "is_ro_cfg": self.read_only,
                # Nobody can connect before everything is loaded.
                "status": "running",
            },
        )

    def publish(self, key: str, value: Any) -> None:
        """A watched value changed."""
        if value is None:
            self.watched.pop(key, None)
        else:
            self.watched[key] = value
        for connection in list(self.connections.values()):
            for event in connection.watchers.changed(key, value):
                connection.send(event)

    def shutdown(self) -> None:
        """Tell who watches, and answer everybody who waits, so that clients can leave."""
        self.publish("box.shutdown", True)
        self.engine.wake_all(EMPTY)
