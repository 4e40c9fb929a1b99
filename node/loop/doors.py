"""How much of what a client sends is worked on at a time, and who waits.

Two kinds of room are shared here: bytes of requests that are not complete yet, and the loop's
turns; who has a place at all is in `places`. Sockets ask; what they are told depends on nothing
but counts and the time given.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from tandemq.model.units import KIB, MIB
from tandemq_server.node.core.identity import ClientBounds
from tandemq_server.node.core.quotas import UserQuota

if TYPE_CHECKING:
    from tandemq_server.config.sections import Limits, User

#: So much of what one read delivered is worked on before all others have their turn.
SLICE_BYTES = 4 * KIB
#: Of a connection whose slices take little time, so much: slices cost some percent of a long read.
QUICK_SLICE_BYTES, QUICK_SECONDS = 16 * KIB, 0.0005
#: So many quick ones make it one; a slow one counts as many against it, so that who mixes cheap
#: and dear requests gets a long slice rarely.
QUICK_SLICES, SLOW_COSTS = 8, 64
#: How long a turn may go on with what was left over from reads, in seconds.
TURN_SECONDS = 0.004
#: Wrong passwords of one address that cost it nothing, and how fast they are forgiven, a second.
FAILURES_FREE, FORGIVEN_PER_SECOND = 100.0, 5.0
#: Beyond, so long after each other its strangers are listened to, in seconds.
STRANGER_SECONDS = 0.2
#: Addresses that are remembered.
ADDRESSES_MAX = 10_000


@dataclass(frozen=True, slots=True)
class ConnectionBounds:
    """What connections may take together, and how long one may dawdle.

    handshake_s: over an unfinished frame, the first word or a login; idle_s: how long it may be
    silent later (None: for ever). Beyond connections_max none is let in, nor beyond per_address
    (None: four fifths of them) of one address; the last `reserved` of either are for peers and
    operators. input_bytes_max: of unfinished requests.
    """

    handshake_s: float = 10.0
    idle_s: float | None = None
    connections_max: int = 10_000
    reserved: int = 0
    input_bytes_max: int = 256 * MIB
    per_address: int | None = None

    @property
    def of_one_address(self) -> int:
        """Connections that one address may have."""
        if self.per_address is None:
            return self.connections_max - self.connections_max // 5
        return self.per_address


def room_of(limits: Limits) -> ConnectionBounds:
    """As configured. At most half of all places are kept for peers and operators."""
    return ConnectionBounds(
        limits.handshake_seconds,
        limits.idle_seconds,
        limits.connections_max,
        min(limits.connections_reserved, limits.connections_max // 2),
        limits.input_bytes_max,
        limits.connections_per_address,
    )


def bounds_of(limits: Limits) -> ClientBounds:
    """What one client may make the core hold, as configured."""
    return ClientBounds(
        limits.frame_bytes_max,
        limits.payload_bytes_max,
        limits.output_bytes_max,
        limits.nesting_max,
        min(limits.login_bytes_max, limits.frame_bytes_max),
    )


def quotas_of(users: Iterable[User]) -> dict[str, UserQuota]:
    """As configured, by user."""
    return {
        one.name: UserQuota(one.quota.tasks, one.quota.bytes, one.quota.rate, one.quota.connections)
        for one in users
        if one.quota is not None
    }


class SocketPort(Protocol):
    """A socket, as the rooms see it."""

    def starve(self) -> None:
        """Nothing more is read of it for now."""
        ...

    def feed(self) -> None:
        """It may be read again."""
        ...


class InputRoom:
    """Bytes of unfinished requests of all connections, `bytes_max` together.

    Beyond that only the eldest unfinished request goes on, so that one at least is finished.
    """

    def __init__(self, bytes_max: int) -> None:
        self.bytes_max = bytes_max
        self.bytes = 0
        self._held: OrderedDict[SocketPort, int] = OrderedDict()
        self._starved: OrderedDict[SocketPort, None] = OrderedDict()

    def hold(self, who: SocketPort, size: int) -> None:
        """`who` now holds `size` bytes of a request that is not complete (0: of none)."""
        self.bytes += size - self._held.get(who, 0)
        if size:
            self._held[who] = size
            if self.bytes > self.bytes_max and who is not next(iter(self._held)):
                self._starved[who] = None
                who.starve()
            return
        self._held.pop(who, None)
        self._starved.pop(who, None)
        self._feed()

    def _feed(self) -> None:
        if not self._starved:
            return
        eldest = next(iter(self._held), None)
        if eldest in self._starved:
            assert eldest is not None
            del self._starved[eldest]
            eldest.feed()
        while self._starved and self.bytes <= self.bytes_max:
            self._starved.popitem(last=False)[0].feed()


class Guesses:
    """Wrong passwords by address: from where too many came, strangers are heard one by one."""

    def __init__(self) -> None:
        #: address -> (failures not forgiven, when that was so, when the next stranger is heard)
        self._known: OrderedDict[str, tuple[float, float, float]] = OrderedDict()

    def failed(self, address: str, now: float) -> None:
        failures, at, heard = self._known.pop(address, (0.0, now, now))
        failures = max(0.0, failures - (now - at) * FORGIVEN_PER_SECOND) + 1
        self._known[address] = (min(failures, 2 * FAILURES_FREE), now, heard)
        if len(self._known) > ADDRESSES_MAX:
            self._known.popitem(last=False)

    def wait(self, address: str, now: float) -> float:
        """How long a stranger of this address waits before it is heard, in seconds."""
        known = self._known.get(address)
        if known is None:
            return 0.0
        failures, at, heard = known
        if failures - (now - at) * FORGIVEN_PER_SECOND < FAILURES_FREE:
            return 0.0
        heard = max(heard, now) + STRANGER_SECONDS
        self._known[address] = (failures, at, heard)
        return heard - now


class Slices:
    """How long the next slice of one connection may be, by what the last ones took."""

    __slots__ = ("bytes", "quick")

    def __init__(self) -> None:
        self.bytes = SLICE_BYTES
        self.quick = 0

    def took(self, size: int, seconds: float) -> None:
        """A slice of `size` bytes was worked on so long."""
        # A long one may take as long as it has bytes more.
        if seconds * SLICE_BYTES > QUICK_SECONDS * max(size, SLICE_BYTES):
            self.quick, self.bytes = -SLOW_COSTS, SLICE_BYTES
        elif self.quick < QUICK_SLICES:
            self.quick += 1
        else:
            self.bytes = QUICK_SLICE_BYTES


class Rotation:
    """Turns of the loop, shared: what reads left over goes on by user, nobody for long.

    A user with many connections has one share, and all strangers together have one.
    """

    def __init__(
        self, soon: Callable[[Callable[[], None]], object], clock: Callable[[], float]
    ) -> None:
        """`clock()`: seconds that go on while the loop's turn does."""
        self._soon = soon
        self.clock = clock
        self._waiting: OrderedDict[str, deque[Callable[[], bool]]] = OrderedDict()
        #: Since when, in this turn of the loop, reads have been worked on; 0 for none.
        self._began = 0.0
        self._asked = False

    def spent(self) -> bool:
        """Whether reads have had their share of this turn: what comes now waits."""
        now = self.clock()
        if not self._began:
            self._began = now
            self._ask()
            return False
        return now - self._began >= TURN_SECONDS

    def add(self, user: str, go_on: Callable[[], bool]) -> None:
        """`go_on()` works on a slice; True when there is more."""
        self._waiting.setdefault(user, deque()).append(go_on)
        self._ask()

    def _ask(self) -> None:
        if not self._asked:
            self._asked = True
            self._soon(self._run)

    def _run(self) -> None:
        self._asked = False
        self._began = 0.0
        waiting = self._waiting
        if not waiting:
            return
        until = self.clock() + TURN_SECONDS
        while waiting:
            user, queue = waiting.popitem(last=False)
            go_on = queue.popleft()
            if go_on():
                queue.append(go_on)
            if queue:
                # What came for the same user meanwhile is behind it.
                queue.extend(waiting.pop(user, ()))
                waiting[user] = queue
            if self.clock() >= until:
                break
        if waiting:
            self._ask()
