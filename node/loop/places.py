"""Who has a place: connections of one port, of one address, and the places kept for peers.

Nothing is decided here by time. Sockets ask; whoever must go is told to.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Callable
from typing import Protocol

#: Of an IPv6 address so many bits name a network: one host has all the addresses behind them.
IPV6_NETWORK_BITS = 64


class Seated(Protocol):
    """A connection, as the places see it."""

    #: See `network_of`.
    address: str
    #: It has a place that is kept for peers and operators, and has not shown yet that it is one.
    late: bool

    def make_room(self) -> None:
        """It goes, so that another one can have its place."""
        ...


def network_of(address: str) -> str:
    """What counts as one address: an IPv4 address, or the IPv6 network a host is given."""
    try:
        found = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return address
    if isinstance(found, ipaddress.IPv4Address):
        return str(found)
    if found.ipv4_mapped is not None:
        return str(found.ipv4_mapped)
    return str(ipaddress.ip_network((found, IPV6_NETWORK_BITS), strict=False))


class Places:
    """Places for `most` connections, of which one address may take `of_one`.

    Beyond either, the eldest connection that has not logged in makes room; where there is none,
    the last `reserved` places (and as many more of one address) are for peers and operators.
    """

    def __init__(
        self, most: int, reserved: int, of_one: int, log: Callable[[str], None] = print
    ) -> None:
        self.most = most
        self.reserved = reserved
        self.of_one = of_one
        self._log = log
        self._taken: dict[str, int] = {}
        self._total = 0
        #: Who may have to go, the eldest first: altogether, and by address.
        self._unproved: dict[Seated, None] = {}
        self._unproved_of: dict[str, dict[Seated, None]] = {}
        #: What was said already; said again once there was room meanwhile.
        self._full = False
        self._full_of: set[str] = set()

    def enter(self, who: Seated) -> bool:
        """A connection was accepted; False when there is no place for it. Sets `who.late`."""
        here = self._taken.get(who.address, 0)
        self._tell(who.address, here)
        may_go = self._unproved_of.get(who.address)
        eldest: Seated | None = None
        who.late = False
        if here >= self.of_one:
            if may_go:
                eldest = next(iter(may_go))
                who.late = eldest.late
            elif here < self.of_one + self.reserved:
                who.late = True
            else:
                return False
        if eldest is None and self._total >= self.most - self.reserved:
            if self._unproved:
                eldest = next(iter(self._unproved))
                who.late = who.late or eldest.late
            elif self._total < self.most:
                who.late = True
            else:
                return False
        if eldest is not None:
            self.proved(eldest)
            eldest.make_room()
        self._taken[who.address] = here + 1
        self._total += 1
        return True

    def stranger(self, who: Seated) -> None:
        """It has a place and has not logged in: it goes first. So does one that is late."""
        self._unproved[who] = None
        self._unproved_of.setdefault(who.address, {})[who] = None

    def proved(self, who: Seated) -> None:
        """It may keep its place, or is about to leave it."""
        if self._unproved.pop(who, self) is None:
            of_one = self._unproved_of[who.address]
            del of_one[who]
            if not of_one:
                del self._unproved_of[who.address]

    def leave(self, who: Seated) -> None:
        """A connection that had entered is gone."""
        self.proved(who)
        self._total -= 1
        left = self._taken[who.address] - 1
        if left:
            self._taken[who.address] = left
        else:
            del self._taken[who.address]
        if left < self.of_one:
            self._full_of.discard(who.address)

    def _tell(self, address: str, here: int) -> None:
        """Say that there is no room, once until there is again."""
        full = self._total >= self.most
        if full and not self._full:
            self._log(
                f"connection limit reached: {self.most}; whoever has not logged in goes first, "
                "then new ones are refused"
            )
        self._full = full
        if here >= self.of_one and self.of_one < self.most and address not in self._full_of:
            self._full_of.add(address)
            self._log(
                f"{address}: connection limit of one address reached: {self.of_one}; of its "
                "connections whoever has not logged in goes first, then new ones are refused"
            )
