"""Pausing a tube: puts, takes or both, until somebody resumes them; over restarts and promotions.

While puts are paused a put is refused with a text that says so; while takes are paused the tube
looks empty, so that workers wait as they do at an empty one and go on when it is resumed. All else
goes on: what is taken can be acked, and tasks come back, expire, or become dead letters.

While the memory is full (`Pauses.fill`) puts are refused in the same way, on this node alone:
that is in no record. A tube whose puts wait for room lets them wait.

The gate stands where the driver stood, so that a tube nobody paused does not ask whether it is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NoReturn

from tandemq.model.errors import failure
from tandemq.model.record import KIND_CONFIG
from tandemq_server.drivers.base import DriverMisuse
from tandemq_server.engine import room
from tandemq_server.engine.system_spaces import CatalogueIndex
from tandemq_server.spaces.space import IndexShape, Row, Space

if TYPE_CHECKING:
    from tandemq_server.engine.clients import EngineClient
    from tandemq_server.engine.ports import EnginePort, TubePort

PAUSED_ID = 523
PAUSED_TUBE, PAUSED_PUTS, PAUSED_TAKES = range(3)
WHAT = ("puts", "takes")


class Gate:
    """A driver that accepts no new tasks, or offers none; everything else passes through."""

    def __init__(self, tube: TubePort, puts: bool, takes: bool) -> None:
        self._driver = tube.inner
        self._tube = tube
        if puts:
            self.put = self.put_many = self.check_put = self.add = self._refuse
        elif tube.engine.full:
            self.put = self.put_many = self.add = self._refuse
            if room.waits(tube):
                # Fewer than none: whoever may wait for room waits.
                self.capacity = -1
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
        check_puts(self._tube)
        raise AssertionError("nothing is the matter with puts")


def check_puts(tube: TubePort) -> None:
    """Raise what a put into a paused tube, or a full node, is told."""
    row = tube.engine.pauses.space.rows.get(tube.id)
    if row is not None and row[PAUSED_PUTS]:
        raise refusal(tube.name)
    if tube.engine.full:
        raise DriverMisuse(tube.engine.full)


def refusal(name: str) -> DriverMisuse:
    return DriverMisuse(f"Puts into tube {name} are paused until queue.tube.{name}:resume('puts')")


class Pauses:
    """The paused tubes of a node: a row each, gone when both puts and takes go on."""

    def __init__(self, engine: EnginePort) -> None:
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
            self._set(tube, False, False)

    def apply(self, tube: TubePort) -> None:
        """Put the gate before the tube's driver, or take it away."""
        row = self.space.rows.get(tube.id)
        self._set(tube, *((False, False) if row is None else (row[PAUSED_PUTS], row[PAUSED_TAKES])))

    def _set(self, tube: TubePort, puts: bool, takes: bool) -> None:
        gate: Any = Gate(tube, puts, takes) if puts or takes or self.engine.full else tube.inner
        tube.driver = gate

    def fill(self, why: str) -> None:
        """The node is full, and puts are told why; "": it has room again, who waits is served."""
        engine = self.engine
        engine.full = why
        for tube in engine.tubes.values():
            self.apply(tube)
            if tube.blocked and not why:
                engine.woken.append(tube)


class _PauseIndex(CatalogueIndex):
    """Ids of tubes are not ids of tasks: a row may come again under the same one."""

    __slots__ = ()

    def changed(self, old: Row, new: Row) -> None:
        self.appears(new)


def state(tube: TubePort) -> dict[str, bool]:
    """{puts, takes}: whether they are paused."""
    row = tube.engine.pauses.space.rows.get(tube.id)
    return {
        "puts": row is not None and row[PAUSED_PUTS],
        "takes": row is not None and row[PAUSED_TAKES],
    }


def change(tube: TubePort, client: EngineClient, what: Any, pause: bool) -> dict[str, bool]:
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


def forget_tube(tube: TubePort) -> None:
    """The tube is being dropped (inside the transaction)."""
    if tube.id in tube.engine.pauses.space.rows:
        tube.engine.pauses.space.delete(tube.id)
