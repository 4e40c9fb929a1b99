"""Queue sessions: a UUID shared by connections, owner of taken tasks, outliving them for `ttr`.

A session gets a row in `_queue_shared_sessions` when it is first needed: by `identify` or by a
take. A connection that only puts, peeks or reads leaves nothing behind.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING
from uuid import UUID

from tandemq.model.errors import failure
from tandemq.model.record import KIND_SESSION
from tandemq_server.engine import settings
from tandemq_server.engine.session_times import LATER, SessionTimes
from tandemq_server.engine.system_spaces import (
    SHARED_ACTIVE,
    SHARED_EXPIRES,
    SHARED_USER,
    SHARED_UUID,
    shared_space,
)

if TYPE_CHECKING:
    from tandemq_server.engine.clients import EngineClient
    from tandemq_server.engine.ports import EnginePort
    from tandemq_server.spaces.space import Row


class Sessions:
    """All sessions of a node.

    members: live connections by session. explicit: sessions somebody asked the UUID of, which are
    kept for `ttr` after the last connection went even if they hold no task. shared: a session may
    be claimed by other users than its own, too.
    """

    def __init__(self, engine: EnginePort, new_uuid: Callable[[], bytes]) -> None:
        self.engine = engine
        self.new_uuid = new_uuid
        self.members: dict[bytes, dict[EngineClient, None]] = {}
        self.explicit: set[bytes] = set()
        self.shared = False
        self.times = SessionTimes()
        self.space = engine.store.add(shared_space(self.times))

    def expires_us(self, session: bytes) -> int:
        """When a session that waits for its owner ends, on the clock on the wall."""
        return int(self.space.rows[session][SHARED_EXPIRES]) + self.times.later

    def of(self, client: EngineClient) -> bytes:
        """The client's session, made on the spot (inside the current transaction) if needed."""
        session = client.session
        if session is None:
            session = self.new_uuid()
            self._join(client, session)
            self.space.insert((session, 0, True, client.user))
        return session

    def _join(self, client: EngineClient, session: bytes) -> None:
        client.session = session
        self.members.setdefault(session, {})[client] = None

    def identify(self, client: EngineClient, session: bytes | None) -> bytes:
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
            if row is None or not self._may_claim(client, row):
                # The same words: who guesses learns nothing.
                raise failure(f"The UUID {UUID(bytes_le=session)} is unknown.")
            if client.session != session:
                self.leave(client)
                self._join(client, session)
            self._activate(session, client)
        self.explicit.add(session)
        engine.commit(KIND_SESSION, session)
        return session

    def _may_claim(self, client: EngineClient, row: Row) -> bool:
        """A session is its user's; rows of older versions do not say whose they are."""
        if self.shared or client.session == row[SHARED_UUID] or len(row) <= SHARED_USER:
            return True
        return bool(row[SHARED_USER] == client.user)

    def _activate(self, session: bytes, client: EngineClient) -> None:
        row = self.space.rows.get(session)
        if row is None:
            self.space.insert((session, 0, True, client.user))
        elif not row[SHARED_ACTIVE]:
            self.space.set(session, SHARED_EXPIRES, 0, SHARED_ACTIVE, True)

    def leave(self, client: EngineClient) -> None:
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
            times = self.times
            if times.later and not times.waiting:
                # Nobody waits who was given time: the two clocks are one again.
                settings.put(self.engine, LATER, 0)
            self.space.set(session, SHARED_EXPIRES, expires - times.later, SHARED_ACTIVE, False)

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
        for session in list(self.times.active):
            if session not in self.members:
                self._over(session)

    def restart(self, ttr_us: int) -> None:
        """A node starts to serve (inside the start's transaction).

        Sessions that may still be claimed become inactive for `ttr`; without ttr all are gone.
        Those of connections that stayed over a change of roles are theirs as before.
        """
        engine, members = self.engine, self.members
        for session, clients in members.items():
            self._activate(session, next(iter(clients)))
        self.prolong(engine.frozen_us)
        known = self.times.active if ttr_us else self.space.rows
        for session in [one for one in known if one not in members]:
            if ttr_us:
                self._retire(session, engine.now + ttr_us)
            else:
                self.space.delete(session)

    def prolong(self, by_us: int, since: int | None = None) -> bool:
        """Sessions that wait for their owner wait longer. Whether there is one.

        Inside the caller's transaction. Who left after `since` lost nothing; without it nobody
        can have left in that time, so that it began when the last one did, or later.
        """
        times, ttr_us = self.times, self.engine.ttr_us
        latest = self.engine.now + ttr_us - times.later
        late: list[tuple[int, bytes]] = []
        if since is not None:
            late = list(times.waiting.irange((since + ttr_us - times.later + 1,), (latest + 1,)))
        elif at := times.waiting.bisect_left((latest + 1,)):
            by_us = min(by_us, latest - times.waiting[at - 1][0])
        if by_us <= 0 or not times.waiting:
            return False
        for expires, session in late:
            self.space.set(session, SHARED_EXPIRES, expires - by_us)
        settings.put(self.engine, LATER, times.later + by_us)
        return True
