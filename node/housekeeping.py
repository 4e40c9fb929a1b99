"""What a node does now and then beside serving: watch its log's size, its directory, its history.

Nothing here may hold up the loop: what asks the operating system much does so on a thread.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from tandemq.model.errors import StorageError
from tandemq_server.node.loop.memory import FULL, LOOK_SECONDS, TRIM_SECONDS, give_back

if TYPE_CHECKING:
    from tandemq_server.node.main import Node

#: How often rescue files are counted anew, in seconds; those of this node's own cuts count at once.
RECOUNT_SECONDS = 60.0


class Housekeeping:
    """Endless tasks of one node."""

    def __init__(self, node: Node) -> None:
        self.shell = node.shell
        self.snapshots = node.snapshots
        self.backend = node.backend
        self.storage = node.storage
        self.memory = node.memory
        self.report = node.report

    async def run(self) -> None:
        """Until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self.shell.sweep())
            group.create_task(self._every_second())
            group.create_task(self._recount())
            group.create_task(self._watch_memory())

    async def _watch_memory(self) -> None:
        waited = 0.0
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            if self.memory.look():
                self.shell.core.engine.wake()
                self.shell.flush()
            # What tasks left behind is given back only when somebody asks.
            waited = waited + LOOK_SECONDS if self.memory.state == FULL else 0.0
            if waited >= TRIM_SECONDS:
                waited = 0.0
                await asyncio.to_thread(give_back)

    async def _every_second(self) -> None:
        while True:
            await asyncio.sleep(1.0)
            self.snapshots.maybe()
            if self.backend is not None:
                self.backend.sample()

    async def _recount(self) -> None:
        """What others did to the rescue files: a directory may hold thousands of them."""
        while True:
            try:
                await asyncio.to_thread(self.storage.count_rescues)
                if self.backend is not None:
                    await asyncio.to_thread(self.backend.rescued.look)
            except StorageError as error:
                self.report(f"rescue files were not counted: {error}")
            counted = self.storage.rescue_files
            for _ in range(int(RECOUNT_SECONDS)):
                await asyncio.sleep(1.0)
                if self.storage.rescue_files != counted:
                    break
