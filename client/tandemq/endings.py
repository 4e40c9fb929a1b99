"""Ends of deliveries that reach the server while the worker goes on with the next one.

Here: starting them and waiting for all. Must not be here: what is taken, messages.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from typing import Any

from tandemq.client.errors import LeaseLost, TandemError
from tandemq.client.task import Task

log = logging.getLogger("tandemq")


class Endings:
    """Those of one connection; they reach the server in the order in which they were begun."""

    def __init__(self, spawn: Callable[[Coroutine[Any, Any, None]], Future[None]]) -> None:
        """`spawn` starts something in the thread of the connection."""
        self._spawn = spawn
        self._begun: list[Future[None]] = []

    def begin(
        self, task: Task, ending: Coroutine[Any, Any, None], after: Callable[[], object]
    ) -> None:
        """Start one; `after` is called when it is over, however it went."""
        self._begun = [one for one in self._begun if not one.done()]
        self._begun.append(self._spawn(_ended(task, ending, after)))

    def settle(self) -> None:
        """Wait until every one is answered or given up."""
        begun, self._begun = self._begun, []
        for one in begun:
            one.result()


async def _ended(
    task: Task, ending: Coroutine[Any, Any, None], after: Callable[[], object]
) -> None:
    """A loss is told, not raised: the work is done or was never begun."""
    try:
        await ending
    except LeaseLost as error:
        log.warning("%r was lost meanwhile, another worker has it: %s", task, error)
    except TandemError as error:
        task.tube.link.abandon(task.tube.name, task.id)
        log.error("%r is not acknowledged and will come again: %s", task, error)
    finally:
        after()
