"""The seat's nouns: the register's content, where a node stands, what it is told and what it asks.

Plain values; what follows from what is in `statemachine.seat`.
"""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple


class Seat(NamedTuple):
    """The register's content.

    no: grows with each term, is the term's number; term_id: 32 hex characters. partner: the one
    node that may be promoted, because it confirmed everything that was acknowledged in this seat.
    since: microseconds since the epoch, by: who wrote it and why; both for people only.
    """

    no: int
    term_id: str
    master: str
    partner: str | None
    since: int
    by: str

    @property
    def lived(self) -> bool:
        """It shows that a cluster was founded under it: there was a partner, or a second term."""
        return self.partner is not None or self.no > 1


class SeatReading(NamedTuple):
    """What an arbiter holds. seat None: never written; revision: what a swap compares, then 0."""

    seat: Seat | None
    revision: int


class Stand(StrEnum):
    """Where a node stands. In all that lead but ALONE and OWING a reply needs `SeatView.needs`.

    TAKING: it has asked for the seat and confirms nothing any more. PARTING: it has asked to be
    alone. JOINING: it requires a confirmation again and waits until everything is confirmed;
    PAIRING: it is, and the node is to be named partner. OWING: an operator's force put it here
    while the arbiter did not answer, and the register is still to be told.
    """

    FOLLOWING = "following"
    TAKING = "taking"
    PAIRED = "paired"
    PARTING = "parting"
    ALONE = "alone"
    JOINING = "joining"
    PAIRING = "pairing"
    OWING = "owing"


#: A reply needs nobody else's confirmation.
UNCONFIRMED = frozenset({Stand.ALONE, Stand.OWING})
NEEDING = frozenset({Stand.PAIRED, Stand.PARTING, Stand.JOINING, Stand.PAIRING})
LEADING = UNCONFIRMED | NEEDING


class SeatView(NamedTuple):
    """All that a node knows of the seat.

    reading: the newest, None until the arbiter has answered since the process began. held: the
    seat this node leads under; needs: whose confirmation a reply waits for. asked: the swap under
    way, whose outcome is still to come. forced: the swap is an operator's force.
    """

    name: str
    stand: Stand = Stand.FOLLOWING
    reading: SeatReading | None = None
    held: Seat | None = None
    needs: str | None = None
    asked: Swap | None = None
    forced: bool = False


# -- events ----------------------------------------------------------------------------------------


class Heard(NamedTuple):
    """A linearizable read, or a watch, showed this."""

    reading: SeatReading


class Won(NamedTuple):
    """The swap was carried out."""

    swap: Swap
    reading: SeatReading


class Lost(NamedTuple):
    """The register held another revision; nothing was changed."""

    swap: Swap
    reading: SeatReading


class Silent(NamedTuple):
    """Nobody knows whether the swap was, or will yet be, carried out."""

    swap: Swap


class Lead(NamedTuple):
    """The node is to open a term. known: the highest term number any log here has shown."""

    term_id: str
    known: int
    by: str
    forced: bool = False


class Starved(NamedTuple):
    """Nobody confirms, for as long as is borne; or an operator said that it may go alone."""

    by: str


class InStep(NamedTuple):
    """A follower keeps up. behind: acknowledged records it has not confirmed in this very term."""

    node: str
    behind: int
    by: str


class Stranded(NamedTuple):
    """For longer than is borne neither the partner nor the arbiter was heard."""

    reason: str


class Rested(NamedTuple):
    """The node leads no more, whatever the reason."""


class Seed(NamedTuple):
    """An operator says that the register, which went back in time, is to name this term again."""

    reading: SeatReading
    by: str


Event = Heard | Won | Lost | Silent | Lead | Starved | InStep | Stranded | Rested | Seed

# -- effects ---------------------------------------------------------------------------------------


class Swap(NamedTuple):
    """Ask the arbiter: where the revision is still this, the content becomes `seat`."""

    revision: int
    seat: Seat


class Read(NamedTuple):
    """Ask the arbiter what it holds."""


class Confirm(NamedTuple):
    """Whether a master's records may be confirmed from here on."""

    yes: bool


class Needs(NamedTuple):
    """Whose confirmation a reply waits for from here on; None: this node's own disk is enough."""

    node: str | None


class Open(NamedTuple):
    """Open the term of this seat, and serve."""

    seat: Seat


class Refuse(NamedTuple):
    """The term that was asked for is not opened."""

    reason: str


class StepDown(NamedTuple):
    """ENDING at once: what is not acknowledged by now must never be."""

    reason: str


Effect = Swap | Read | Confirm | Needs | Open | Refuse | StepDown
