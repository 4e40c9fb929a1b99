"""Queue sessions: a UUID shared by connections, owner of taken tasks, outliving them for `ttr`.

A session gets a row in `_queue_shared_sessions` when it is first needed: by `identify` or by a
take. A connection that only puts, peeks or reads leaves nothing behind.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING
from uuid import UUID

from engine.system_spaces import SHARED_ACTIVE, SHARED_EXPIRES, CatalogueIndex, shared_space
from model.errors import failure
from model.record import KIND_SESSION

if TYPE_CHECKING:
    from engine.clients import Client
    from engine.queue import Engine
    from spaces.space import Row

#: Kind of a session's entry among the timers (see spaces.store).
TIMER_SESSION = -2


class Sessions:
    """All sessions of a node.

    members: live connections by session. explicit: sessions somebody asked the UUID of, which are
    kept for `ttr` after the last connection went even if they hold no task.
    """

    def __init__(self, engine: Engine, new_uuid: Callable[[], bytes]) -> None:
        self.engine = engine
        self.new_uuid = new_uuid
        self.members: dict[bytes, dict[Client, None]] = {}
        self.explicit: set[bytes] = set()
        self.space = engine.store.add(
            shared_space(CatalogueIndex(self._row_in, self._row_out, self._emptied))
        )

    # Timers follow the rows, so that a replica has them ready when it is promoted.

    def _row_in(self, row: Row) -> None:
        if not row[SHARED_ACTIVE]:
            self.engine.store.timers.add((row[SHARED_EXPIRES], TIMER_SESSION, row[0]))

    def _row_out(self, row: Row) -> None:
        if not row[SHARED_ACTIVE]:
            self.engine.store.timers.discard((row[SHARED_EXPIRES], TIMER_SESSION, row[0]))

    def _emptied(self) -> None:
        timers = self.engine.store.timers
        others = [entry for entry in timers if entry[1] != TIMER_SESSION]
        timers.clear()
        timers.update(others)

    def of(self, client: Client) -> bytes:
        """The client's session, made on the spot (inside the current transaction) if needed."""
        session = client.session
        if session is None:
            session = self.new_uuid()
            self._join(client, session)
            self.space.insert((session, 0, True))
        return session

    def _join(self, client: Client, session: bytes) -> None:
        client.session = session
        self.members.setdefault(session, {})[client] = None

    def identify(self, client: Client, session: bytes | None) -> bytes:
        """Tell the connection's session, or move the connection to another one.

        Raises `Invalid UUID format.` and `The UUID ... is unknown.` (code 32).
        """
        engine = self.engine
        if session is None:
            session = self.of(client)
        else:
            if len(session) != 16:
                raise failure("Invalid UUID format.")
            row = self.space.rows.get(session)
            if row is None:
                raise failure(f"The UUID {UUID(bytes_le=session)} is unknown.")
            if client.session != session:
                self.leave(client)
                self._join(client, session)
            self._activate(session)
        self.explicit.add(session)
        engine.commit(KIND_SESSION, session)
        return session

    def _activate(self, session: bytes) -> None:
        row = self.space.rows.get(session)
        if row is None:
            self.space.insert((session, 0, True))
        elif not row[SHARED_ACTIVE]:
            self.space.set(session, SHARED_EXPIRES, 0, SHARED_ACTIVE, True)

    def leave(self, client: Client) -> None:
        """The connection gives up its session; the last one to go starts the clock, or ends it."""
        session = client.session
        if session is None:
            return
        client.session = None
        members = self.members.get(session)
        if members is None:
            return
        members.pop(client, None)
        if members:
            return
        del self.members[session]
        if self.engine.running:
            self._over(session)

    def _over(self, session: bytes) -> None:
        """Nobody is connected for a session any more."""
        engine = self.engine
        if engine.ttr_us and (session in self.explicit or engine.owns_tasks(session)):
            self._retire(session, engine.now + engine.ttr_us)
            engine.commit(KIND_SESSION, session)
        else:
            self.end(session)

    def _retire(self, session: bytes, expires: int) -> None:
        row = self.space.rows.get(session)
        if row is not None and row[SHARED_ACTIVE]:
            self.space.set(session, SHARED_EXPIRES, expires, SHARED_ACTIVE, False)

    def end(self, session: bytes) -> None:
        """Release the session's tasks and forget it, in one transaction."""
        engine = self.engine
        if session in self.space.rows:
            self.space.delete(session)
        self.explicit.discard(session)
        engine.release_tasks_of(session)

    def expire(self, session: bytes) -> None:
        """The time to re-attach ran out."""
        self.end(session)

    def left_meanwhile(self) -> None:
        """Connections that went between the promotion and this moment: their clock starts now.

        The promotion may wait long for its commit, and nothing is changed by who leaves then.
        """
        gone = [row[0] for row in self.space.rows.values() if row[SHARED_ACTIVE]]
        for session in gone:
            if session not in self.members:
                self._over(session)

    def restart(self, ttr_us: int) -> None:
        """A node starts to serve (inside the start's transaction).

        Sessions that may still be claimed become inactive for `ttr`; without ttr all are gone.
        Those of connections that stayed over a change of roles are theirs as before.
        """
        for session in self.members:
            self._activate(session)
        for session, row in list(self.space.rows.items()):
            if session in self.members:
                continue
            if not ttr_us:
                self.space.delete(session)
            elif row[SHARED_ACTIVE]:
                self._retire(session, self.engine.now + ttr_us)
            else:
                self.explicit.add(session)
                self._thaw(session, row[SHARED_EXPIRES], ttr_us)

    def prolong(self, by_us: int) -> int:
        """Sessions that wait for their owner wait longer, never more than ttr from now on.

        Inside the caller's transaction. Number of sessions.
        """
        if by_us <= 0:
            return 0
        latest = self.engine.now + self.engine.ttr_us
        changed = 0
        for session, row in list(self.space.rows.items()):
            if not row[SHARED_ACTIVE]:
                later = min(row[SHARED_EXPIRES] + by_us, latest)
                if later > row[SHARED_EXPIRES]:
                    self.space.set(session, SHARED_EXPIRES, later)
                    changed += 1
        return changed

    def _thaw(self, session: bytes, expires: int, ttr_us: int) -> None:
        """While nobody reigned the session could not be claimed: that time does not count."""
        later = min(expires + self.engine.frozen_us, self.engine.now + ttr_us)
        if later > expires:
            self.space.set(session, SHARED_EXPIRES, later)
