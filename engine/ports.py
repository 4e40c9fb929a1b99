"""What the parts of the engine see of the whole: a tube, the engine, and each other.

Sessions, keys, policies, room and the rest are told here what they may ask for and whom they may
call back; none of them knows the classes behind it. Must not be here: anything that runs.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from typing import Any, ClassVar, Protocol

from tandemq_server.drivers.base import Driver
from tandemq_server.engine.clients import EngineClient, Line, Waiter
from tandemq_server.engine.notes import TaskNotes
from tandemq_server.engine.session_times import SessionTimes
from tandemq_server.engine.system_spaces import TakenSpace
from tandemq_server.engine.waits import Waits
from tandemq_server.spaces.space import Row, Space
from tandemq_server.spaces.store import Store


class Used(Protocol):
    """Bytes of payload in a tube."""

    total: int


class RoomPort(Protocol):
    """The limits of one tube; 0 = none."""

    tasks: int
    bytes: int
    rejects: bool

    @property
    def used(self) -> Used | None: ...
    def refusal(self, tube: TubePort) -> Exception:
        """What a put that finds no room is told."""


class RetryPort(Protocol):
    def delay(self, attempts: int, chance: float) -> int:
        """µs to wait after so many failed attempts."""


class PolicyPort(Protocol):
    """Attempts, dead letters, retries."""

    @property
    def max_attempts(self) -> int: ...
    @property
    def dead_letter(self) -> str | None: ...
    @property
    def retry(self) -> RetryPort | None: ...


class LayoutPort(Protocol):
    """How tuples of another server become rows of a tube.

    fixed: so many fields are decoded, what follows is payload; None for all of them.
    text_keys: keys may be text, so that none of them says how many tasks there were.
    """

    @property
    def fixed(self) -> int | None: ...
    @property
    def text_keys(self) -> bool: ...
    def row(self, fields: list[Any], payload: bytes, now: int) -> tuple[Row, Any]:
        """The row, and its key there. Raises code 32 for a tuple that is not of this layout."""


class TubePort(Line, Protocol):
    """One tube, as whoever does a part of its work sees it; `engine.tube.EngineTube` is one."""

    keeps_notes: ClassVar[bool]
    name: str
    id: int
    type: str
    opts: dict[str, Any]
    space: Space
    inner: Driver
    driver: Driver
    normalize: Callable[[Row], Row] | None
    put_options: frozenset[str]
    release_options: frozenset[str]
    notebook: TaskNotes
    notes: dict[int, Row]
    taken: TakenSpace
    calls: dict[str, int]
    done: int
    callback: Callable[[Row, str], None] | None
    waiters: OrderedDict[int, Waiter]
    blocked: OrderedDict[int, Waiter]

    @property
    def engine(self) -> EnginePort: ...
    @property
    def policy(self) -> PolicyPort | None: ...
    @property
    def room(self) -> RoomPort | None: ...
    def check_owner(self, client: EngineClient, task_id: int, token: Any) -> None:
        """Raise unless the client's session holds the task."""

    def own(self, task_id: int, client: EngineClient, session: bytes) -> None: ...
    def shown(self, row: Row) -> Row: ...
    def peek(self, task_id: Any) -> Row: ...
    def bury(
        self, client: EngineClient, task_id: Any, opts: Any = None, token: Any = None
    ) -> Row: ...
    def delete(self, client: EngineClient, task_id: Any) -> Row: ...
    def give_back(self, task_id: int, opts: dict[str, Any] | None, reason: str = ...) -> Row: ...
    def layout(self) -> LayoutPort | None: ...

    def cancel(self, waiter: Waiter) -> None: ...
    def statistics(self) -> dict[str, Any]: ...
    def serve(self) -> None:
        """Something became possible: pair it with who waits for it."""

    # What happened, told after its commit.

    def delivered(self, client: EngineClient, row: Row, token: bool | str) -> Row: ...
    def notify(self, row: Row, event: str) -> None: ...
    def tell(self, row: Row, event: str) -> None: ...
    def tell_put(self, row: Row) -> None: ...


class SessionsPort(Protocol):
    times: SessionTimes
    space: Space
    members: dict[bytes, dict[EngineClient, None]]
    new_uuid: Callable[[], bytes]

    def of(self, client: EngineClient) -> bytes:
        """The client's session, made on the spot if needed."""

    def prolong(self, by_us: int, since: int | None = None) -> bool: ...
    def restart(self, ttr_us: int) -> None: ...
    def left_meanwhile(self) -> None: ...


class KeysPort(Protocol):
    def of(self, tube: TubePort) -> Space: ...
    def forget_tube(self, tube: TubePort) -> None: ...


class LookoutPort(Protocol):
    """Whoever wants to know that a task was taken from him."""

    def tell(
        self, tube: TubePort, owner: Row | None, client: EngineClient | None, why: str
    ) -> None: ...
    def tell_all(
        self, tube: TubePort, owners: Iterable[Row | None], client: Any, why: str
    ) -> None: ...


class UsagePort(Protocol):
    def counted(self, user: str) -> str | None:
        """The user, if what it holds is limited."""


class PausesPort(Protocol):
    space: Space


class EnginePort(Protocol):
    """The node's queue, as its parts see it; `engine.engine.Engine` is it."""

    now: int
    lsn: int
    full: str
    running: bool
    in_replicaset: bool
    schema_version: int
    ttr_us: int
    ttr_s: float | int
    last_delivery: int
    frozen_us: int
    frozen_until: int
    unmeasured: int
    putter: str | None
    store: Store
    taken: TakenSpace
    config: Space
    grants: Space
    catalogue: Space
    notes: tuple[TaskNotes, TaskNotes]
    woken: list[TubePort]
    arrived: list[tuple[TubePort, Row]]
    waits: Waits
    drivers: dict[str, type[Driver]]
    broken: dict[str, str]
    report: Callable[..., None]
    chance: Callable[[], float]
    functions: Callable[[str], Callable[..., Any]]

    @property
    def tubes(self) -> Mapping[str, TubePort]: ...
    @property
    def sessions(self) -> SessionsPort: ...
    @property
    def keys(self) -> KeysPort: ...
    @property
    def lookout(self) -> LookoutPort: ...
    @property
    def pauses(self) -> PausesPort: ...
    @property
    def usage(self) -> UsagePort: ...
    @property
    def tube_of_space(self) -> Mapping[int, TubePort]: ...
    def commit(self, kind: int, session: bytes | None) -> None:
        """What the call changed becomes one record."""

    def event_kind(self, event: str) -> int: ...
    def owns_tasks(self, session: bytes) -> bool: ...
    def release_tasks_of(self, session: bytes) -> None: ...
    def park(
        self, client: EngineClient, ticket: Any, tube: Line, wait_us: int, token: bool | str
    ) -> Waiter: ...
    def unpark(self, waiter: Waiter) -> Waiter: ...
    def wake(self) -> None: ...
    def configure(self, ttr: float | None, in_replicaset: bool | None) -> None: ...
