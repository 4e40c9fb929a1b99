"""Operations that may outlast the request that asked for them.

The caller waits so long and no longer; what became of the operation stays in /v1/status. The same
request, asked twice, is one operation.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from dataclasses import asdict, dataclass
from typing import Any

from tandemq_server.admin.problems import Problem, problem_of

Report = Callable[[str, BaseException | None], None]


@dataclass(slots=True)
class Operation:
    """One of the API's changing requests. result: its answer; problem: why there is none."""

    id: int
    kind: str
    target: dict[str, Any]
    began: float
    ended: float | None = None
    result: dict[str, Any] | None = None
    problem: Problem | None = None
    #: It outlasted a request: how it ended is told by `ended_late`.
    late: bool = False

    @property
    def outcome(self) -> str:
        if self.ended is None:
            return "under_way"
        return "done" if self.problem is None else "failed"

    def body(self, now: float) -> dict[str, Any]:
        return {
            "id": self.id,
            "kind": self.kind,
            "target": self.target,
            "outcome": self.outcome,
            "seconds": round((self.ended or now) - self.began, 6),
            "result": self.result,
            "problem": None if self.problem is None else self.problem.body(),
        }


class Operations:
    """Starts operations, joins equal ones, remembers the last. `clock` counts seconds."""

    def __init__(self, wait_s: float, clock: Callable[[], float], report: Report) -> None:
        self.wait_s = wait_s
        self.clock = clock
        self.report = report
        self.last: Operation | None = None
        self._number = 0
        #: Told of an operation that ended after its caller was answered, in its caller's context.
        self.ended_late: Callable[[Operation], None] = lambda _operation: None
        #: How many callers have asked, joined ones included.
        self.asked = 0
        self._running: dict[str, tuple[Operation, asyncio.Task[None]]] = {}

    async def run(
        self, kind: str, target: dict[str, Any], start: Callable[[], Awaitable[Any]]
    ) -> Operation:
        """Run `start()`, or join the same one under way; back when it ended or after `wait_s`.

        The operation goes on when the caller is cancelled.
        """
        self.asked += 1
        key = kind + json.dumps(target, sort_keys=True)
        found = self._running.get(key)
        if found is None:
            self._number += 1
            operation = Operation(self._number, kind, target, self.clock())
            task = asyncio.create_task(self._run(operation, key, start), name=f"admin {kind}")
            self._running[key] = found = (operation, task)
            self.last = operation
        await asyncio.wait({found[1]}, timeout=self.wait_s)
        found[0].late = found[0].late or found[0].ended is None
        return found[0]

    async def _run(
        self, operation: Operation, key: str, start: Callable[[], Awaitable[Any]]
    ) -> None:
        try:
            result = await start()
            operation.result = {"lsn": result} if isinstance(result, int) else asdict(result)
        except asyncio.CancelledError:
            operation.problem = Problem("unavailable", "the node ends")
        except Exception as error:
            operation.problem = problem_of(error)
            if operation.problem is None:
                self.report(f"admin {operation.kind} failed", error)
                operation.problem = Problem("internal", "see the node's log")
        finally:
            operation.ended = self.clock()
            if operation.late:
                self.ended_late(operation)
            del self._running[key]

    async def stop(self) -> None:
        """Cancel what is under way: the node ends."""
        tasks = [task for _, task in self._running.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
