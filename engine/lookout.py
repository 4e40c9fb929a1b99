"""Workers that want to know at once when a task leaves their hands by somebody else's doing.

A call waits here, one for each connection, until a task of its session is deleted, buried or given
back by another, or its ttr comes. It is in no record: who asks again names what he holds, and is
told what he missed. Must not be here: taking tasks away.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from tandemq.model.errors import failure
from tandemq_server.engine import arguments
from tandemq_server.engine.clients import EMPTY, PENDING, EngineClient, Waiter, _Sentinel
from tandemq_server.engine.system_spaces import TAKEN_SESSION, TAKEN_TASK, TAKEN_TIME

if TYPE_CHECKING:
    from tandemq_server.engine.ports import EnginePort, TubePort
    from tandemq_server.spaces.space import Row

#: Tasks named by one call.
HELD_MAX = 10_000
#: [tube, task, token, why]
Lost = list[Any]


class Lookout:
    """Who waits, by session. The engine parks and ends such calls as it does those of a tube."""

    def __init__(self, engine: EnginePort) -> None:
        self.engine = engine
        self.name = "queue.lost"
        self.blocked: Mapping[int, Waiter] = {}
        self.waiters: OrderedDict[int, Waiter] = OrderedDict()
        self._of: dict[bytes, dict[int, Waiter]] = {}

    def wait(
        self, client: EngineClient, ticket: Any, timeout: Any, held: Any
    ) -> list[Lost] | _Sentinel:
        """`queue.lost(timeout, [[tube, id, token], ...])`: those no longer held, or wait for one.

        Raises code 32 for anything else than that.
        """
        wait_us = arguments.timeout_us(timeout)
        gone = self._missed(client, held)
        if gone or not wait_us or client.session is None:
            return gone
        waiter = self.engine.park(client, ticket, self, wait_us, False)
        waiter.data = client.session  # the client may join another one meanwhile
        self.waiters[waiter.id] = waiter
        self._of.setdefault(client.session, {})[waiter.id] = waiter
        return PENDING

    def _missed(self, client: EngineClient, held: Any) -> list[Lost]:
        if held is None:
            held = []
        if type(held) is not list or len(held) > HELD_MAX:
            raise failure(f"Invalid tasks of lost: expected at most {HELD_MAX} [tube, id, token]")
        gone: list[Lost] = []
        for one in held:
            if type(one) is not list or len(one) != 3 or type(one[0]) is not str:
                raise failure("Invalid tasks of lost: expected an array of [tube, id, token]")
            name, task_id, token = one
            tube = self.engine.tubes.get(name)
            owner = None
            if tube is not None and type(task_id) is int:
                owner = self.engine.taken.rows.get((tube.id, task_id))
            if (
                owner is None
                or owner[TAKEN_SESSION] != client.session
                or owner[TAKEN_TIME] != token
            ):
                gone.append([name, task_id, token, "it is no longer held"])
        return gone

    def cancel(self, waiter: Waiter) -> None:
        """The call waits no longer."""
        self.waiters.pop(waiter.id, None)
        session = waiter.data
        group = self._of.get(session) if session is not None else None
        if group is not None and group.pop(waiter.id, None) is not None and not group:
            del self._of[session]  # type: ignore[arg-type]

    def timed_out(self, waiter: Waiter, blocked: bool) -> _Sentinel:
        """Nothing was lost meanwhile."""
        return EMPTY

    def tell(
        self, tube: TubePort, owner: Row | None, client: EngineClient | None, why: str
    ) -> None:
        """`owner`'s task was taken from him by `client`, which is committed: None for nobody's."""
        if owner is None or not self._of or owner[TAKEN_SESSION] not in self._of:
            return
        if client is not None and client.session == owner[TAKEN_SESSION]:
            return
        for waiter in list(self._of[owner[TAKEN_SESSION]].values()):
            self.cancel(waiter)
            self.engine.unpark(waiter)
            lost = [tube.name, owner[TAKEN_TASK], owner[TAKEN_TIME], why]
            waiter.client.deliver(waiter.ticket, [lost])  # type: ignore[list-item]

    def tell_all(self, tube: TubePort, owners: Iterable[Row | None], client: Any, why: str) -> None:
        """`tell` of many: who waits hears of the first, and of the others when he asks again."""
        for owner in owners:
            self.tell(tube, owner, client, why)

    def answer_all(self, outcome: Any) -> None:
        """The node stops serving."""
        for waiter in list(self.waiters.values()):
            self.cancel(waiter)
            self.engine.unpark(waiter)
            waiter.client.deliver(waiter.ticket, outcome)
