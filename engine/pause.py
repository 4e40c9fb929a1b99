"""Pausing a tube: puts, takes or both, until somebody resumes them; over restarts and promotions.

While puts are paused a put is refused with a text that says so; while takes are paused the tube
looks empty, so that workers wait as they do at an empty one and go on when it is resumed. All else
goes on: what is taken can be acked, and tasks come back, expire, or become dead letters.

The gate stands where the driver stood, so that a tube nobody paused does not ask whether it is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NoReturn

from drivers.base import DriverMisuse
from engine.system_spaces import CatalogueIndex
from model.errors import failure
from model.record import KIND_CONFIG
from spaces.space import IndexShape, Row, Space

if TYPE_CHECKING:
    from drivers.base import Driver
    from engine.clients import Client
    from engine.queue import Engine
    from engine.tube import Tube

PAUSED_ID = 523
PAUSED_TUBE, PAUSED_PUTS, PAUSED_TAKES = range(3)
WHAT = ("puts", "takes")


class Gate:
    """A driver that accepts no new tasks, or offers none; everything else passes through."""

    def __init__(self, driver: Driver, name: str, puts: bool, takes: bool) -> None:
        self._driver = driver
        self._name = name
        if puts:
            self.put = self.put_many = self.check_put = self.add = self._refuse
        if takes:
            self.take = self._none
            self.take_many = self._none_of_many
            self.take_from = self._none_of_lane

    def __getattr__(self, name: str) -> Any:
        return getattr(self._driver, name)

    def _none(self, _now: int) -> None:
        """Nothing is ready."""

    def _none_of_many(self, _count: int, _now: int) -> list[Row]:
        return []

    def _none_of_lane(self, _lane: str, _now: int) -> None:
        """Nothing is ready there."""

    def _refuse(self, *_args: Any) -> NoReturn:
        raise refusal(self._name)


def refusal(name: str) -> DriverMisuse:
    return DriverMisuse(f"Puts into tube {name} are paused until queue.tube.{name}:resume('puts')")


class Pauses:
    """The paused tubes of a node: a row each, gone when both puts and takes go on."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.space = engine.store.add(
            Space(
                PAUSED_ID,
                "_tandem_paused",
                (("tube_id", "unsigned"), ("puts", "boolean"), ("takes", "boolean")),
                indexes=(_PauseIndex(self._row_in, self._row_out, self._emptied),),
                shapes=(IndexShape("tube_id", [(0, "unsigned")]),),
            )
        )

    # Rows come and go on every road: by a call, from the log, from the master, by an undo.

    def _row_in(self, row: Row) -> None:
        for tube in self.engine.tubes.values():
            if tube.id == row[PAUSED_TUBE]:
                self.apply(tube)

    def _row_out(self, row: Row) -> None:
        self._row_in(row)

    def _emptied(self) -> None:
        for tube in self.engine.tubes.values():
            tube.driver = tube.inner

    def apply(self, tube: Tube) -> None:
        """Put the gate before the tube's driver, or take it away."""
        row = self.space.rows.get(tube.id)
        if row is None:
            tube.driver = tube.inner
        else:
            gate: Any = Gate(tube.inner, tube.name, row[PAUSED_PUTS], row[PAUSED_TAKES])
            tube.driver = gate


class _PauseIndex(CatalogueIndex):
    """Ids of tubes are not ids of tasks: a row may come again under the same one."""

    __slots__ = ()

    def changed(self, old: Row, new: Row) -> None:
        self.appears(new)


def state(tube: Tube) -> dict[str, bool]:
    """{puts, takes}: whether they are paused."""
    row = tube.engine.pauses.space.rows.get(tube.id)
    return {
        "puts": row is not None and row[PAUSED_PUTS],
        "takes": row is not None and row[PAUSED_TAKES],
    }


def change(tube: Tube, client: Client, what: Any, pause: bool) -> dict[str, bool]:
    """Pause or resume "puts", "takes" or (None) both; what is paused then. Saying so again is fine.

    Puts that wait for room are refused when puts are paused; takes that wait go on waiting.
    """
    if what is not None and what not in WHAT:
        raise failure(f"Invalid argument: {what} (expected 'puts', 'takes' or nothing for both)")
    engine = tube.engine
    before = state(tube)
    wanted = {one: pause if what in (None, one) else before[one] for one in WHAT}
    if wanted == before:
        return wanted
    space = engine.pauses.space
    if tube.id in space.rows:
        space.delete(tube.id)
    if any(wanted.values()):
        space.insert((tube.id, wanted["puts"], wanted["takes"]))
    engine.commit(KIND_CONFIG, client.session)
    while wanted["puts"] and tube.blocked:
        waiter = engine.unpark(tube.blocked.popitem(last=False)[1])
        waiter.client.deliver(waiter.ticket, refusal(tube.name))
    engine.woken.append(tube)
    return wanted


def forget_tube(tube: Tube) -> None:
    """The tube is being dropped (inside the transaction)."""
    if tube.id in tube.engine.pauses.space.rows:
        tube.engine.pauses.space.delete(tube.id)
