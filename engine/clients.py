"""Who calls: a connection as the engine sees it, and what it waits for.

The rim subclasses `EngineClient` and turns outcomes into bytes; the engine never sees a socket.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

if TYPE_CHECKING:
    from tandemq.model.errors import QueueError
    from tandemq_server.spaces.space import Row


class _Sentinel:
    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        self.name = name

    def __repr__(self) -> str:
        return self.name


#: The call was parked: its outcome comes through `EngineClient.deliver`.
PENDING = _Sentinel("PENDING")
#: The call returned nothing: an empty result array.
EMPTY = _Sentinel("EMPTY")
#: The call returned an explicit nil.
NIL = _Sentinel("NIL")


class Delivery(tuple[Any, ...]):
    """A taken task for somebody who asked for its fencing token: id, status, token, payload."""

    __slots__ = ()


class Values(tuple[Any, ...]):
    """An outcome of several values, or of one that is no task of the usual shape."""

    __slots__ = ()


class EngineClient:
    """One connection.

    id: connection number; session: UUID of its queue session (16 bytes), None until it needs one.
    waits: everything it waits for, cancelled when it goes.
    """

    __slots__ = ("id", "session", "user", "waits")
    #: A worker of the node itself: it does not keep a tube from being dropped.
    inside: ClassVar[bool] = False

    def __init__(self, client_id: int, user: str = "guest") -> None:
        self.id = client_id
        self.user = user
        self.session: bytes | None = None
        self.waits: dict[Waiter, None] = {}

    def deliver(self, ticket: Any, outcome: Row | list[Row] | _Sentinel | QueueError) -> None:
        """The outcome of a parked call: a task row, a batch of them, EMPTY, NIL or an error."""
        raise NotImplementedError


class Line(Protocol):
    """Where a parked call waits: a tube, or whoever tells of lost tasks. Called by the engine."""

    @property
    def blocked(self) -> Mapping[int, Waiter]:
        """Puts that wait for room, by number."""

    def cancel(self, waiter: Waiter) -> None:
        """The call waits no longer."""

    def timed_out(self, waiter: Waiter, blocked: bool) -> Any:
        """What a call is told whose wait has come to its end; `blocked`: it waited for room."""


class Waiter:
    """A parked call: a take that waits for a task, or a put that waits for room.

    deadline: µs of the log's clock, None = for ever. token: the take asked for a fencing token,
    or, as "info", for everything known of the task.
    many: the take asked for up to so many tasks in one reply (0: for one, plainly).
    ttr: how long the task is to be held, µs, of a take of records.
    lane: the tube within a space of tubes. data, opts: the task of a parked put.
    """

    __slots__ = (
        "client",
        "data",
        "deadline",
        "id",
        "lane",
        "many",
        "opts",
        "ticket",
        "token",
        "ttr",
        "tube",
    )

    def __init__(
        self,
        waiter_id: int,
        client: EngineClient,
        ticket: Any,
        tube: Line,
        deadline: int | None,
        token: bool | str = False,
    ) -> None:
        self.id = waiter_id
        self.client = client
        self.ticket = ticket
        self.tube = tube
        self.deadline = deadline
        self.token = token
        self.many = 0
        self.ttr: int | None = None
        self.lane: str | None = None
        self.data: bytes | None = None
        self.opts: dict[str, Any] | None = None
