"""What users hold: tasks they put and the bytes of these, for users whose quota says how much.

A task belongs to whom put it until it is gone, wherever it is moved to. That is written in its
note, in the transaction of the put, so that a replica and the next start know it as well. Others'
puts leave nothing. Must not be here: calls a second and connections (node/core/quotas.py).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from tandemq.model.bounds import row_bytes
from tandemq.model.errors import QueueError, failure
from tandemq.model.record import INSERT, INSERT_MANY
from tandemq_server.engine.notes import NOTE_HEADERS
from tandemq_server.spaces.index import Index

if TYPE_CHECKING:
    from tandemq_server.engine.ports import EnginePort, TubePort
    from tandemq_server.spaces.space import Row

#: Beside a task's headers, whose names cannot begin so: who put it, and how large it is.
USER, BYTES = "@user", "@bytes"


class Holding(NamedTuple):
    """What a user may hold; None for any amount."""

    tasks: int | None
    bytes: int | None


class UsageIndex(Index):
    """Of notes: tasks and bytes by user."""

    __slots__ = ("held",)

    def __init__(self) -> None:
        self.held: dict[str, list[int]] = {}

    def added(self, row: Row) -> None:
        self._count(row, 1)

    def removed(self, row: Row) -> None:
        self._count(row, -1)

    def changed(self, old: Row, new: Row) -> None:
        self._count(old, -1)
        self._count(new, 1)

    def cleared(self) -> None:
        self.held.clear()

    def _count(self, row: Row, sign: int) -> None:
        if len(row) <= NOTE_HEADERS or USER not in row[NOTE_HEADERS]:
            return
        user = row[NOTE_HEADERS][USER]
        held = self.held.setdefault(user, [0, 0])
        held[0] += sign
        held[1] += sign * int(row[NOTE_HEADERS][BYTES])
        if not held[0]:
            del self.held[user]


class Usage:
    """Of one engine. putter: whose puts are counted in the call at hand; None: nobody's."""

    def __init__(self, engine: EnginePort, indexes: tuple[UsageIndex, ...]) -> None:
        self.engine = engine
        self.indexes = indexes
        self.limits: Mapping[str, Holding] = {}

    def held(self, user: str) -> tuple[int, int]:
        """(tasks, bytes) of a user."""
        found = [one.held.get(user, (0, 0)) for one in self.indexes]
        return sum(one[0] for one in found), sum(one[1] for one in found)

    def counted(self, user: str) -> str | None:
        """The user, if what it holds is limited."""
        return user if user in self.limits else None

    def charge(self, user: str) -> None:
        """What the transaction at hand put is the user's. Raises code 32: that would be too much.

        Then the call is to be taken back, as after every error.
        """
        engine = self.engine
        new = [
            (tube, row, size_of(tube, row))
            for op in list(engine.store.ops)
            if op[0] in (INSERT, INSERT_MANY) and (tube := engine.tube_of_space.get(op[1]))
            for row in ((op[2],) if op[0] == INSERT else op[2])
        ]
        if not new:
            return
        for tube, _, _ in new:
            if not tube.keeps_notes:
                raise failure(
                    f"User {user} has a quota of tasks or bytes, which tube {tube.name} of type "
                    f"{tube.type} cannot count (users[].quota)"
                )
        self._check(user, len(new), sum(size for _, _, size in new))
        for tube, row, size in new:
            key, mine = (tube.id, row[0]), {USER: user, BYTES: str(size)}
            note = tube.notes.get(row[0])
            if note is None:
                tube.notebook.head(*key, mine)
            else:
                tube.notebook.space.set(key, NOTE_HEADERS, {**note[NOTE_HEADERS], **mine})

    def _check(self, user: str, tasks: int, size: int) -> None:
        limit = self.limits[user]
        held = self.held(user)
        for name, most, now, more in (
            ("tasks", limit.tasks, held[0], tasks),
            ("bytes", limit.bytes, held[1], size),
        ):
            if most is not None and now + more > most:
                raise over(user, name, f"{now} {name} held, {more} more, {most} allowed")


def over(user: str, quota: str, detail: str) -> QueueError:
    """The refusal of whoever is at a quota."""
    return failure(f"User {user} has reached its quota: {detail} (users[].quota.{quota})")


def size_of(tube: TubePort, row: Any) -> int:
    """Bytes of a task's payload; of a record of fields, of all of them."""
    raw = tube.space.raw
    payload = row[-1 if raw is None else raw]
    return len(payload) if type(payload) is bytes else row_bytes(row)
