"""What is in this node, read for people: tubes, tasks, sessions; and tasks changed by hand.

Implements node.observe.inventory_answers on core and engine. Every read is bounded. Not here: HTTP.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any, TypeVar

from tandemq.model.errors import QueueError
from tandemq.model.task import STATE_NAMES
from tandemq_server.engine import altering, attempts, grants, pause
from tandemq_server.engine import by_hand as operator
from tandemq_server.engine.clients import EngineClient
from tandemq_server.engine.notes import failures_of
from tandemq_server.node.observe import inventory_answers as values
from tandemq_server.node.observe import rights, searching, sessions_view
from tandemq_server.node.observe.answers import LossBoundAnswer, OperationRefused, RetryLater
from tandemq_server.node.observe.history import Recorder
from tandemq_server.node.observe.metrics import SCAN_ROWS, counts_of, oldest_ready
from tandemq_server.node.observe.searching import shown_options
from tandemq_server.node.observe.tasks_view import shown_task

if TYPE_CHECKING:
    from tandemq_server.engine.tube import EngineTube
    from tandemq_server.node.core.core import Core
    from tandemq_server.node.observe.answers import Backend

#: How long a change waits to be as durable as the node promises, in seconds.
COMMIT_SECONDS = 10.0
#: Tasks changed before others get their turn of the loop.
SLICE = 200
#: The call of a client without a session, as an operator's is.
_NOBODY = EngineClient(0)
T = TypeVar("T")
_STATUS_OF = {name: status for status, name in STATE_NAMES.items()}


class NodeInventory:
    """See node.observe.inventory_answers.Inventory.

    now: the log's clock in µs. flush: end the turn. backend: asked about switch-overs.
    """

    def __init__(
        self,
        core: Core,
        now: Callable[[], int],
        flush: Callable[[], None],
        backend: Backend | None = None,
    ) -> None:
        self.core = core
        self.now = now
        self.flush = flush
        self.backend = backend
        self.recorder = Recorder(core)

    # -- tubes -----------------------------------------------------------------------------------

    def tubes(self, search: str, after: str, limit: int) -> values.TubePage:
        engine = self.core.engine
        names = sorted(name for name in engine.tubes if search.lower() in name.lower())
        page = [name for name in names if name > after][: limit + 1]
        longest = sessions_view.longest_taken(engine, self.now())
        scan = SCAN_ROWS
        found = []
        feeders = _feeders(engine.tubes)
        for name in page[:limit]:
            status, looked = self._tube(engine.tubes[name], longest, scan, feeders.get(name, ()))
            scan = max(0, scan - looked)
            found.append(status)
        more = page[limit - 1] if len(page) > limit else None
        return values.TubePage(tuple(found), len(names), more)

    def _tube(
        self, tube: EngineTube, longest: dict[int, float], scan: int, feeders: Sequence[str]
    ) -> tuple[values.TubeStatus, int]:
        tasks: dict[str, int] = {}
        oldest, looked, problem = None, 0, None
        try:
            tasks, _ = counts_of(tube)
            oldest, looked = oldest_ready(tube, self.now(), scan)
        except Exception as error:
            problem = f"the driver cannot count: {type(error).__name__}: {error}"
        wait, processing = self.recorder.means(tube)
        paused = pause.state(tube)
        return values.TubeStatus(
            tube.name,
            tube.type,
            tube.space.temporary,
            len(tube.space.rows),
            tasks.get("ready"),
            tasks.get("taken"),
            tasks.get("delayed"),
            tasks.get("buried"),
            tube.done,
            (tube.room.tasks if tube.room else tube.inner.capacity) or None,
            len(tube.waiters),
            len(tube.blocked),
            self.recorder.rates(tube),
            oldest,
            longest.get(tube.id),
            wait,
            processing,
            paused["puts"],
            paused["takes"],
            tuple(feeders),
            problem,
            self.recorder.failed_per_minute(tube),
            shown_options(tube.opts),
        ), looked

    def _find(self, field: str, name: str) -> EngineTube:
        tube = self.core.engine.tubes.get(name)
        if tube is None:
            raise values.UnknownTube(field, name)
        return tube

    # -- tasks -----------------------------------------------------------------------------------

    def tasks(self, query: values.TaskQuery) -> values.TaskPage:
        tube = self._find("tube", query.tube)
        name_at = _field(tube, "utube")
        status = None if query.state is None else _STATUS_OF[query.state]
        rows: list[Any] = []
        needle = query.search.lower()
        last = query.after
        following: int | None = None
        for task_id in self._ids(tube, status, query.after):
            if task_id is None:
                following = last
                break
            if len(rows) == query.limit:
                following = last
                break
            last = task_id
            row = tube.space.rows.get(task_id)
            if row is None or (status is not None and row[1] != status):
                continue
            if query.subqueue is not None and (name_at is None or row[name_at] != query.subqueue):
                continue
            if query.failed and not failures_of(tube.notes.get(task_id)):
                continue
            if needle and not searching.matches(tube, row, needle):
                continue
            rows.append(row)
        core, now = self.core, self.now()
        return values.TaskPage(
            tube.name, tuple(shown_task(core, tube, row, now) for row in rows), following
        )

    def _ids(self, tube: EngineTube, status: str | None, after: int) -> Iterator[int | None]:
        """Ids above `after` in ascending order; None when the scan stops short of the end."""
        rows = tube.space.rows
        if len(rows) <= SCAN_ROWS:
            yield from sorted(key for key in rows if key > after)
            return
        if status is not None and status != "r":
            found = list(islice(tube.driver.tasks_by_state(status), SCAN_ROWS + 1))
            if len(found) <= SCAN_ROWS:
                yield from sorted(row[0] for row in found if row[0] > after)
                return
        first = max(after + 1, 0)
        if first == 0:
            first = min(islice(rows, SCAN_ROWS))
        end = min(tube.space.next_id, first + SCAN_ROWS)
        yield from range(first, end)
        if end < tube.space.next_id:
            yield None

    # -- changing them ---------------------------------------------------------------------------

    async def change_tasks(self, order: values.TasksOrder) -> values.TasksResult:
        tube = self._find("tube", order.tube)
        target = None if order.to is None else self._find("to", order.to)
        self._must_run()
        ids, more = self._meant(tube, order)
        if order.dry_run:
            present = sum(1 for task_id in ids if task_id in tube.space.rows)
            return values.TasksResult(tube.name, order.action, True, present, 0, more, ())
        failed: list[values.TaskFailure] = []

        def change(some: list[int]) -> int:
            missed = [(one, self._act(tube, one, order.action, target)) for one in some]
            why_not = [values.TaskFailure(one, why) for one, why in missed if why is not None]
            failed.extend(why_not[: values.IDS_MAX - len(failed)])
            return len(some) - len(why_not)

        turns = []
        for start in range(0, max(len(ids), 1), SLICE):
            if start:
                await asyncio.sleep(0)
            turns.append(self._submit(partial(change, ids[start : start + SLICE])))
        await self._committed(turns[-1])
        done = sum(turn.result() for turn in turns)
        return values.TasksResult(
            tube.name, order.action, False, len(ids), done, more, tuple(failed)
        )

    def _must_run(self) -> None:
        if not self.core.engine.running:
            name, state = self.core.identity.name, self.core.state
            why = f"{name} is {state}: only a node that is RUNNING changes tasks"
            raise OperationRefused(why, (why,))

    async def change_tube(self, order: values.TubeOrder) -> values.TubeResult:
        tube = self._find("tube", order.tube)
        if order.to is not None:
            self._find("to", order.to)

        def change() -> int:
            if order.action == "redrive":
                return attempts.redrive(tube, _NOBODY, order.limit, order.to, lambda name: None)
            if order.action == "alter":
                altering.alter_tube(self.core.engine, tube.name, order.options)
                return 0
            pause.change(tube, _NOBODY, order.what, order.action == "pause")
            return 0

        moved = await self._change(tube, order.action, change)
        paused = pause.state(tube)
        return values.TubeResult(tube.name, order.action, paused["puts"], paused["takes"], moved)

    async def _change(self, tube: EngineTube, action: str, change: Callable[[], int]) -> int:
        """Do it in a turn of its own; returns once it is as durable as the node promises."""
        self._must_run()
        try:
            return await self._committed(self._submit(change))
        except RetryLater:
            raise
        except QueueError as error:
            raise OperationRefused(error.text, (error.text,)) from None
        except Exception as error:
            self.core.engine.report(f"tube {tube.name}: {action} failed", error)
            why = f"the driver failed: {type(error).__name__}: {error}"
            raise OperationRefused(why, (why,)) from None

    # -- rights ----------------------------------------------------------------------------------

    def grants(self) -> rights.Grants:
        held = sorted(rights.Grant(*one) for one in grants.held(self.core.engine))
        return rights.Grants(tuple(held))

    async def change_grant(self, order: rights.GrantOrder) -> rights.GrantResult:
        engine, tube = self.core.engine, self._find("tube", order.tube)
        args = {name: True for name in ("call", "truncate", "manage") if getattr(order, name)}

        def change() -> int:
            if order.action == "revoke":
                return grants.revoke(engine, tube, order.who, args, order.role)
            before = len(engine.grants.rows)
            grants.grant(engine, tube, order.who, args, order.role)
            return len(engine.grants.rows) - before

        changed = await self._change(tube, order.action, change)
        return rights.GrantResult(tube.name, order.who, order.role, order.action, changed)

    def _meant(self, tube: EngineTube, order: values.TasksOrder) -> tuple[list[int], bool]:
        if order.state is None:
            return list(dict.fromkeys(order.ids)), False
        rows = tube.driver.tasks_by_state(_STATUS_OF[order.state])
        ids = [row[0] for row in islice(rows, order.limit + 1)]
        return ids[: order.limit], len(ids) > order.limit

    def _act(
        self, tube: EngineTube, task_id: int, action: values.TaskAction, target: EngineTube | None
    ) -> str | None:
        """Why the task was left as it was, None when it was changed."""
        engine = self.core.engine
        if not engine.running:
            return "the node stopped serving meanwhile"
        for one in (tube, target):
            if one is not None and engine.tubes.get(one.name) is not one:
                return f"tube {one.name} was dropped meanwhile"
        try:
            operator.act(tube, task_id, action, target)
        except QueueError as error:
            return error.text
        except Exception as error:
            engine.report(f"tube {tube.name}: {action} of task {task_id} failed", error)
            return f"the driver failed: {type(error).__name__}: {error}"
        return None

    def _submit(self, change: Callable[[], T]) -> asyncio.Future[T]:
        """Do it in a turn of its own; what it answers is known once that is committed."""
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

        def told(result: T | None, error: Exception | None) -> None:
            if error is None:
                answer.set_result(result)
            else:
                answer.set_exception(error)

        self.core.submit(change, told, self.now())
        self.flush()
        return answer

    async def _committed(self, answer: asyncio.Future[T]) -> T:
        """Wait as every client's reply does: until what was changed is as durable as promised."""
        await asyncio.wait([answer], timeout=COMMIT_SECONDS)
        if not answer.done():
            raise RetryLater("it was changed here, but not confirmed in time")
        return answer.result()

    # -- the rest --------------------------------------------------------------------------------

    def sessions(self, after: int, limit: int) -> values.SessionPage:
        return sessions_view.page(self.core, self.now(), after, limit)

    def history(self, seconds: float) -> values.History:
        return self.recorder.history(seconds)

    async def outlook(self) -> values.Outlook:
        """A dry run of each switch-over, and what a forced promotion would cost."""
        assert self.backend is not None
        status = self.backend.status()
        candidates = []
        for node in self.backend.cluster().nodes:
            planned = None
            if node.name is not None:
                planned = await self.backend.switchover(node.name, True)
            forced: LossBoundAnswer | None = None
            if not node.writable:
                forced = self.backend.loss(node.name if not node.here else None)
            candidates.append(
                values.Candidate(
                    node.name or node.address, node.here, node.writable, planned, forced
                )
            )
        return values.Outlook(status.name, tuple(candidates))


def _feeders(tubes: dict[str, EngineTube]) -> dict[str, list[str]]:
    """The tubes whose dead letters come to a tube."""
    found: dict[str, list[str]] = {}
    for name, tube in sorted(tubes.items()):
        if tube.policy is not None and tube.policy.dead_letter:
            found.setdefault(tube.policy.dead_letter, []).append(name)
    return found


def _field(tube: EngineTube, name: str) -> int | None:
    names = [column[0] for column in tube.space.format]
    return names.index(name) if name in names else None
