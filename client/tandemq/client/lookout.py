"""Hearing at once of tasks in hand that somebody else ends: deleted, buried, given back.

One call waits at the server while tasks are in hand. A node that does not know it, or a user who
may not make it, costs the speed alone: the next touch tells, too.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from asynctnt.exceptions import TarantoolDatabaseError

from tandemq.client.find import BROKEN, LOADING, PROBE_SECONDS, READ_ONLY

if TYPE_CHECKING:
    from tandemq.client.link import MasterLink

CALL = "queue.lost"
#: How long a call waits, how many tasks it names, how long after a failure the next one comes.
WAIT_SECONDS, HELD_MAX, PAUSE_SECONDS = 30.0, 10_000, 1.0


class LossWatch:
    """Of one link; runs while tasks are in hand."""

    def __init__(self, link: MasterLink) -> None:
        self.link = link
        #: Whether the server tells.
        self.told = True
        self._running: asyncio.Task[None] | None = None

    def begin(self) -> None:
        """A task came into our hands."""
        if self.told and (self._running is None or self._running.done()):
            self._running = self.link.spawn(self._run())

    async def _run(self) -> None:
        while self.link.held and self.told and not self.link.closed:
            try:
                if not await self._ask():
                    await asyncio.sleep(PAUSE_SECONDS)
            except TarantoolDatabaseError as error:
                self.told = error.code in (READ_ONLY, LOADING)
                await asyncio.sleep(PAUSE_SECONDS)
            except BROKEN:
                await asyncio.sleep(PAUSE_SECONDS)

    async def _ask(self) -> bool:
        """False: there is nobody to ask just now."""
        link = self.link
        connection = link.usable
        if connection is None:
            return False
        held = [[*key, task.token] for key, task in link.held.items() if not task.ending]
        answer = await connection.call(
            CALL, [WAIT_SECONDS, held[:HELD_MAX]], timeout=WAIT_SECONDS + PROBE_SECONDS
        )
        for tube, task_id, token, why in (answer.body or [[]])[0]:
            task = link.held.get((tube, task_id))
            if task is not None and task.token == token and not task.ending:
                task.lost(f"task {task_id} of {tube}: {why}")
        return True
