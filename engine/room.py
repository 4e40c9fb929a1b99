"""Room in a tube: how many tasks, and how many bytes of payload, it holds at most.

limfifottl counts tasks as the original does; the options `capacity`, `capacity_bytes` and
`overflow` give the same to every type. What enters by other roads than a put (dead letters, tasks
sent back or moved by hand) always finds room.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from tandemq.model.errors import QueueError, failure
from tandemq.model.task import NEVER_US
from tandemq_server.engine import arguments
from tandemq_server.engine.clients import NIL, PENDING, _Sentinel
from tandemq_server.spaces.index import Index
from tandemq_server.spaces.space import Row, Space

if TYPE_CHECKING:
    from tandemq_server.drivers.base import Driver
    from tandemq_server.engine.clients import EngineClient
    from tandemq_server.engine.ports import TubePort

REJECT, WAIT = "reject", "wait"


class PayloadBytes(Index):
    """The sum of all payloads, kept by whoever changes rows, on masters and replicas alike."""

    __slots__ = ("field", "rows", "total")

    def __init__(self, field: int) -> None:
        self.field = field
        self.total = 0
        self.rows: dict[Any, Row] = {}

    def attach(self, space: Space) -> None:
        self.rows = space.rows

    def added(self, row: Row) -> None:
        self.total += len(row[self.field])

    def removed(self, row: Row) -> None:
        self.total -= len(row[self.field])

    def changed_many(self, old: Sequence[Row], new: Sequence[Row]) -> None:
        """States change in bulk, payloads do not."""

    def cleared(self) -> None:
        self.total = 0

    def check(self) -> None:
        assert self.total == sum(len(row[self.field]) for row in self.rows.values())


class Room:
    """The limits of one tube. tasks, bytes: 0 = no limit."""

    __slots__ = ("bytes", "rejects", "tasks", "used")

    def __init__(
        self, tasks: int, most_bytes: int, rejects: bool, used: PayloadBytes | None
    ) -> None:
        self.tasks = tasks
        self.bytes = most_bytes
        self.rejects = rejects
        self.used = used

    def refusal(self, tube: TubePort) -> QueueError:
        """What a put that finds no room is told where it is not to wait."""
        held = f"Tube {tube.name} is full: {len(tube.space.rows)} tasks"
        limits = [f"capacity {self.tasks}"] if self.tasks else []
        if self.used is not None:
            held += f" of {self.used.total} bytes"
            limits.append(f"capacity_bytes {self.bytes}")
        return failure(f"{held} ({', '.join(limits)})")


def measure(space: Space, opts: dict[str, Any]) -> Space:
    """A tube's space, with its payloads measured where `capacity_bytes` asks for it."""
    if opts.get("capacity_bytes"):
        field = -1 if space.raw is None else space.raw
        space.indexes = (*space.indexes, PayloadBytes(field))
    return space


def remeasure(space: Space, opts: dict[str, Any]) -> None:
    """The options of a tube changed: its payloads are measured from now on, or no longer."""
    others = tuple(index for index in space.indexes if not isinstance(index, PayloadBytes))
    if not opts.get("capacity_bytes"):
        space.indexes = others
    elif len(others) == len(space.indexes):
        measured = PayloadBytes(-1 if space.raw is None else space.raw)
        measured.attach(space)
        measured.added_many(list(space.rows.values()))
        space.indexes = (*others, measured)


def of(space: Space, driver: Driver, opts: dict[str, Any]) -> Room | None:
    """The limits that a tube's options set, checked when it was created; None for none.

    A driver that has a capacity of its own keeps it; `driver.capacity` is what every put looks at.
    """
    tasks = driver.capacity or opts.get("capacity") or 0
    most = opts.get("capacity_bytes") or 0
    overflow = opts.get("overflow")
    if (
        type(tasks) is not int
        or not (tasks or most)
        or (driver.capacity and not (most or overflow))
    ):
        return None
    rejects = overflow == REJECT or (overflow is None and not driver.capacity)
    driver.capacity = tasks or NEVER_US
    used = next((index for index in space.indexes if isinstance(index, PayloadBytes)), None)
    return Room(tasks, most, rejects, used)


def has(tube: TubePort, count: int, size: int) -> bool:
    """Whether `count` more tasks of `size` bytes in all fit a tube that has a limit."""
    if len(tube.space.rows) + count > tube.driver.capacity:
        return False
    room = tube.room
    return room is None or room.used is None or room.used.total + size <= room.bytes


def waits(tube: TubePort) -> bool:
    """Whether a put that finds no room may wait for it."""
    return not tube.room.rejects if tube.room is not None else tube.inner.capacity > 0


def check_may_wait(tube: TubePort, wait_us: int) -> None:
    """Raise what a put that finds no room is told, where it is neither to wait nor to get nil."""
    if tube.room is not None and tube.room.rejects:
        raise tube.room.refusal(tube)
    if tube.engine.full and not wait_us:
        raise failure(tube.engine.full)


def no_room_for(tube: TubePort, count: int, size: int) -> QueueError:
    """A batch does not fit as a whole."""
    if tube.engine.full:
        return failure(tube.engine.full)
    room = tube.room
    if room is None or room.used is None:
        return failure(f"No room for {count} tasks (capacity {tube.driver.capacity})")
    limit = f"capacity {room.tasks}, " if room.tasks else ""
    limit += f"capacity_bytes {room.bytes}"
    return failure(f"No room for {count} tasks of {size} bytes ({limit})")


def check_alone(tube: TubePort, size: int) -> None:
    """Refuse a task that would not fit even the empty tube: waiting would not help it."""
    room = tube.room
    if room is not None and room.used is not None and size > room.bytes:
        raise failure(
            f"A task of {size} bytes never fits tube {tube.name} (capacity_bytes {room.bytes})"
        )


def wait(
    tube: TubePort, client: EngineClient, ticket: Any, data: bytes, opts: dict[str, Any] | None
) -> _Sentinel:
    """A put of a full tube: an error, NIL, or PENDING where its `timeout` lets it wait."""
    wait_us = arguments.timeout_us((opts or {}).get("timeout", 0))
    tube.driver.check_put(opts)
    check_alone(tube, len(data))
    check_may_wait(tube, wait_us)
    if not wait_us:
        return NIL
    waiter = tube.engine.park(client, ticket, tube, wait_us, False)
    waiter.data, waiter.opts = data, opts
    tube.blocked[waiter.id] = waiter
    return PENDING
