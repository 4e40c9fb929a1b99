"""The contract of a tube driver, built-in or custom.

A driver keeps its tasks in one space, so whatever it does is logged, replicated and recovered
without its help. It returns changed rows; the engine does ownership, statistics, callbacks,
waiting consumers and replies.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from typing import Any, ClassVar

from tandemq.model.errors import ER_PROC_LUA, QueueError
from tandemq.model.record import SET
from tandemq.model.task import DONE, STATE_NAMES, TAKEN
from tandemq_server.spaces.space import Row, Space
from tandemq_server.spaces.status_index import StatusIndex

#: (event name, row after it): what a deadline did, in the order it happened.
Event = tuple[str, Row]

#: Put options some driver understands; a driver ignores those of the others.
KNOWN_PUT_OPTIONS = frozenset({"pri", "ttl", "ttr", "delay", "utube", "timeout"})

METHODS = (
    "create_space",
    "new",
    "start",
    "stop",
    "normalize_task",
    "put",
    "take",
    "delete",
    "release",
    "bury",
    "kick",
    "peek",
    "touch",
    "tasks_by_state",
    "truncate",
)


class DriverMisuse(QueueError):
    """The caller's mistake as a driver sees it: told to the caller, nothing changed."""

    __slots__ = ()

    def __init__(self, text: str, code: int = ER_PROC_LUA) -> None:
        super().__init__(code, text, "LuajitError" if code == ER_PROC_LUA else "ClientError")


class Driver(ABC):
    """One tube's task logic over its space.

    `now` is the log's clock in µs everywhere. Rows are tuples whose first two fields are the task
    id (int) and its status (one character, `model.task`); the payload is raw MessagePack and
    stands last unless `normalize_task` says otherwise. The engine checks that a task exists, and
    who owns it, before it calls release, delete, bury or touch. Raise `DriverMisuse` for a bad
    argument before changing anything; any other exception is rolled back, reported to the caller
    as the driver's failure, and harms no other tube.
    """

    #: What `create_tube` calls this type, unless it is configured under another name.
    name: ClassVar[str] = ""
    #: Options of `create_tube` and of a call on a task that only this driver knows.
    tube_options: ClassVar[frozenset[str]] = frozenset()
    task_options: ClassVar[frozenset[str]] = frozenset()
    #: Whether `release` understands `delay`, of a taken task and of one its ttr just made ready.
    delays: ClassVar[bool] = False
    #: Whether the space holds many tubes, called lanes: then `take_from` is asked, not `take`, and
    #: this field of a row names its lane.
    lanes: ClassVar[bool] = False
    lane_field: ClassVar[int] = 2
    #: Whether its rows are records of a layout of their own, which only its options tell.
    records: ClassVar[bool] = False
    #: What serves a tube of it instead of the engine's own: a class that is called as `Tube` is.
    shape: ClassVar[Callable[..., Any] | None] = None
    #: Largest number of tasks, all states counted; 0 = no limit. A put beyond it waits.
    capacity: int = 0

    @classmethod
    def check_options(cls, opts: dict[str, Any]) -> dict[str, Any]:
        """Validate options of `create_tube` and fill in defaults. Raises `DriverMisuse`."""
        return opts

    @classmethod
    def functions(cls, opts: dict[str, Any]) -> list[str]:
        """Functions of the node, as `module:function`, that checked options name."""
        return []

    @classmethod
    @abstractmethod
    def create_space(cls, space_id: int, name: str, opts: dict[str, Any], temporary: bool) -> Space:
        """Build the (empty) space; called again with the same arguments at every start."""

    @classmethod
    def new(cls, space: Space, opts: dict[str, Any]) -> Driver:
        """Construct an instance over a space built by `create_space`."""
        return cls(space, opts)

    def __init__(self, space: Space, opts: dict[str, Any]) -> None:
        self.space = space
        self.opts = opts

    def start(self, now: int) -> None:  # noqa: B027
        """The node begins to serve: after STARTUP, before the first call."""

    def stop(self) -> None:  # noqa: B027
        """The node stops serving: in ENDING, after the last call."""

    def normalize_task(self, row: Row) -> tuple[int, str, bytes]:
        """What clients see: id, status, payload."""
        return row[0], row[1], row[-1]

    @abstractmethod
    def put(self, data: bytes, opts: dict[str, Any] | None, now: int) -> Row:
        """Store a new task."""

    def check_put(self, opts: dict[str, Any] | None) -> None:  # noqa: B027
        """Refuse bad options of a put that is to wait for room, or one in a batch, beforehand."""

    @abstractmethod
    def take(self, now: int) -> Row | None:
        """Turn the next ready task into a taken one; None when there is none.

        A task that outlived a deadline nobody has handled yet must not be delivered: return its
        row as it stands, still ready; the engine calls `expire` and asks again.
        """

    @abstractmethod
    def delete(self, task_id: int, now: int) -> Row:
        """Remove a task in any state; its last row with status done."""

    def take_from(self, lane: str, now: int) -> Row | None:
        """`take` of a driver with lanes: the next ready task of one of them."""
        raise NotImplementedError

    def add(self, *args: Any) -> Row:
        """A new task of a lane, in the driver's own words; refused while puts are paused."""
        raise NotImplementedError

    def holds(self, lane: str) -> bool:
        """Whether a lane has tasks."""
        raise NotImplementedError

    def present(self, row: Row) -> Any:
        """What a client is told of a task, for drivers with lanes."""
        return list(self.normalize_task(row))

    @abstractmethod
    def release(self, task_id: int, opts: dict[str, Any] | None, now: int) -> Row:
        """Give a taken task back."""

    @abstractmethod
    def bury(self, task_id: int, now: int) -> Row:
        """Set a task aside until it is kicked."""

    @abstractmethod
    def kick(self, count: int, now: int) -> list[Row]:
        """Make up to `count` buried tasks ready; the rows that changed."""

    def kick_one(self, task_id: int, now: int) -> Row:
        """Make one buried task ready, out of turn; a driver need not be able to."""
        raise DriverMisuse(f"the {self.name} driver kicks tasks only in their order")

    def peek(self, task_id: int) -> Row | None:
        return self.space.rows.get(task_id)

    @abstractmethod
    def touch(self, task_id: int, delta_us: int, now: int) -> Row:
        """Give a taken task `delta_us` more time, or refuse with `DriverMisuse`."""

    def prolong(self, task_id: int, by_us: int, now: int) -> Row | None:
        """Nobody could acknowledge a taken task for `by_us`: its ttr ends so much later.

        A ttl goes on meanwhile, and still ends the lease. The new row; None where nothing changed.
        """
        return None

    @abstractmethod
    def tasks_by_state(self, status: str) -> Iterator[Row]:
        """Tasks of one state, in the order they would be served."""

    def truncate(self) -> None:
        self.space.truncate()

    def counts(self) -> dict[str, int]:
        """Number of taken, buried, ready and delayed tasks. Override it to answer in O(1)."""
        return {
            name: sum(1 for _ in self.tasks_by_state(status))
            for status, name in STATE_NAMES.items()
            if status != DONE
        }

    # Batches: all or nothing is the engine's business; override only to be faster.

    def put_many(self, items: list[tuple[bytes, dict[str, Any] | None]], now: int) -> list[Row]:
        return [self.put(data, opts, now) for data, opts in items]

    def take_many(self, count: int, now: int) -> list[Row]:
        """Up to `count` tasks; an overdue one (see `take`) ends the batch, or stands alone."""
        rows: list[Row] = []
        while len(rows) < count and (row := self.take(now)) is not None:
            if row[1] != TAKEN:
                return rows or [row]
            rows.append(row)
        return rows

    def delete_many(self, ids: list[int], now: int) -> list[Row]:
        return [self.delete(task_id, now) for task_id in ids]

    def expire(self, task_id: int, now: int) -> list[Event]:
        """One due deadline of one task (see spaces.index.DeadlineIndex); what came of it.

        The deadline must be gone afterwards: the row removed, or changed in the index's field.
        The built-in events are "delete" with "ttl", "ttr" and "delay"; none is fine, too.
        """
        raise NotImplementedError


def check_driver(name: str, driver: Any) -> None:
    """Raise `DriverMisuse` unless `driver` is a class with every method of the contract."""
    for method in ("create_space", "new"):
        if not callable(getattr(driver, method, None)):
            raise DriverMisuse(
                'tube control methods must contain functions "create_space" and "new"'
            )
    for method in METHODS:
        found = getattr(driver, method, None)
        if not callable(found) or getattr(found, "__isabstractmethod__", False):
            raise DriverMisuse(
                f'The "{name}" driver does not have an implementation of method "{method}".'
            )
    if not (isinstance(driver, type) and issubclass(driver, Driver)):
        raise DriverMisuse(f'The "{name}" driver must be a subclass of drivers.base.Driver')


class StatusDriver(Driver):
    """What the built-in drivers share: a status index and rows whose status is field 1."""

    status: StatusIndex

    def __init__(self, space: Space, opts: dict[str, Any]) -> None:
        super().__init__(space, opts)
        status = space.indexes[0]
        assert isinstance(status, StatusIndex)
        self.status = status

    def delete(self, task_id: int, now: int) -> Row:
        row = self.space.delete(task_id)
        return (row[0], "-", *row[2:])

    def _move(self, row: Row, status: str) -> Row:
        new = (row[0], status, *row[2:])
        space = self.space
        space.update(row[0], row, new, (SET, space.id, row[0], 1, status))
        return new

    def bury(self, task_id: int, now: int) -> Row:
        return self._move(self.space.rows[task_id], "!")

    def kick(self, count: int, now: int) -> list[Row]:
        rows: list[Row] = []
        while len(rows) < count and (row := self.status.first_buried()) is not None:
            rows.append(self._move(row, "r"))
        return rows

    def kick_one(self, task_id: int, now: int) -> Row:
        return self._move(self.space.rows[task_id], "r")

    def tasks_by_state(self, status: str) -> Iterator[Row]:
        return self.status.by_status(status)

    def counts(self) -> dict[str, int]:
        return self.status.counts()


def sub_queue_name(opts: dict[str, Any] | None) -> str:
    """The sub-queue's name as text; scalars are rendered, a missing one is called "nil"."""
    value = opts.get("utube") if opts else None
    if type(value) is str:
        return value
    if value is None:
        return "nil"
    if value is True or value is False:
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    if isinstance(value, float):
        return str(int(value)) if value.is_integer() else repr(value)
    if isinstance(value, bytes):
        return value.decode("utf-8", "surrogateescape")
    raise DriverMisuse("Invalid value of utube: expected a string, a number or a boolean")
