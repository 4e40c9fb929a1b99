"""What every arbiter can do, how it fails, and how a seat is written down.

Three outcomes of a swap: it was made (a reading), it was not (`SwapLost`, `ArbiterRefused`), nobody
knows (`Unreachable`). An adapter that cannot tell says the last; it never guesses.
"""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator
from typing import Any, Protocol

from tandemq.model.units import MIB
from tandemq_server.statemachine.seat import Seat, SeatReading

#: Clusters and nodes, in keys and paths.
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,62}")
ID = re.compile(r"[0-9a-f]{32}")
BY_MAX = 500
NUMBER_MAX = 2**63 - 1
#: Of an answer that is read at all, in bytes.
ANSWER_MAX = MIB


class ArbiterError(Exception):
    """str() is one line for people."""


class Unreachable(ArbiterError):
    """No answer in time. If a swap was asked for, nobody knows whether it was made."""


class ArbiterRefused(ArbiterError):
    """A clear no: nothing was changed, and asking again will not help by itself."""


class SwapLost(ArbiterError):
    """The register is not at the revision that was named: what was asked for is not in force."""

    def __init__(self, reading: SeatReading) -> None:
        super().__init__(f"the seat is at revision {reading.revision}: {told(reading.seat)}")
        self.reading = reading


class Arbiter(Protocol):
    """One register, and the keys of the nodes that live. Every answer comes within a known time.

    All but `watch` raise `Unreachable` and `ArbiterRefused`.
    """

    @property
    def name(self) -> str:
        """For people: "etcd at http://127.0.0.1:2379"."""
        ...

    async def read(self) -> SeatReading:
        """What is there now: no older than anything any node was told before it asked."""
        ...

    async def swap(self, revision: int, seat: Seat) -> SeatReading:
        """Write `seat` if the register is still at `revision`; the new reading.

        Raises `SwapLost`. After `Unreachable` the request may still be carried out later; another
        swap that is made, whatever it writes, keeps it from being so.
        """
        ...

    async def keep_alive(self, node: str) -> None:
        """Let the node's key live for another while; it is to be called about each second."""
        ...

    async def alive(self) -> frozenset[str]:
        """The nodes whose key lives."""
        ...

    def watch(self, revision: int) -> AsyncIterator[SeatReading]:
        """Each reading newer than `revision`, as soon as may be; in between some may be missing.

        Goes on by itself after a break, and never shows anything older than it has shown. Raises
        `Unreachable` when the break lasts, `ArbiterRefused` when the register went back in time.
        """
        ...

    async def close(self) -> None: ...


def told(seat: Seat | None) -> str:
    """A seat in a line, for people."""
    if seat is None:
        return "nobody has taken it yet"
    partner = f"{seat.partner} may be promoted" if seat.partner else "nobody may be promoted"
    return f"number {seat.no}, {seat.master} leads, {partner} ({seat.by})"


def went_back(name: str, now: int, before: int) -> ArbiterRefused:
    """What to say of a register that forgot."""
    return ArbiterRefused(
        f"{name}: the seat is at revision {now}, and was at {before} before: its data is gone, or "
        "was restored from an older copy"
    )


def seat_map(seat: Seat) -> dict[str, Any]:
    """A seat as JSON has it; what is for people only is made one line that fits.

    Raises `ArbiterRefused` when the seat is none.
    """
    by = "".join(c if c.isprintable() else " " for c in seat.by)[:BY_MAX]
    found = seat._replace(by=by)._asdict()
    try:
        seat_of(found)
    except ValueError as error:
        raise ArbiterRefused(f"the seat that was to be written: {error}") from None
    return found


def seat_of(value: Any) -> Seat:
    """A seat out of JSON, checked field by field; further fields are left alone.

    Raises ValueError with the reason.
    """
    if not isinstance(value, dict):
        raise ValueError("is not an object")
    for name in Seat._fields:
        if name not in value:
            raise ValueError(f"has no {name}")
    seat = Seat(*(value[name] for name in Seat._fields))
    for name in ("no", "since"):
        number = value[name]
        if type(number) is not int or not 0 <= number <= NUMBER_MAX:
            raise ValueError(f"{name} is not a whole number from 0 to 2^63 - 1")
    if not isinstance(seat.term_id, str) or not ID.fullmatch(seat.term_id):
        raise ValueError("term_id is not 32 hex digits")
    if not is_name(seat.master):
        raise ValueError("master is not the name of a node")
    if seat.partner is not None and not is_name(seat.partner):
        raise ValueError("partner is neither the name of a node nor null")
    if seat.partner == seat.master:
        raise ValueError("partner and master are the same node")
    if not isinstance(seat.by, str) or len(seat.by) > BY_MAX or not seat.by.isprintable():
        raise ValueError(f"by is not a line of at most {BY_MAX} characters")
    return seat


def is_name(value: Any) -> bool:
    return isinstance(value, str) and NAME.fullmatch(value) is not None


def as_json(value: Any) -> bytes:
    """Compact; text that is no Unicode cannot get in here."""
    return json.dumps(value, ensure_ascii=True, separators=(",", ":")).encode()
