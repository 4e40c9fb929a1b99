"""What a node does now and then beside serving: watch its log's size, its directory, its history.

Nothing here may hold up the loop: what asks the operating system much does so on a thread.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

from model.errors import StorageError

if TYPE_CHECKING:
    from node.backend import NodeBackend
    from node.recovered import Storage
    from node.shell import Shell
    from node.snapshots import Snapshots

#: How often rescue files are counted anew, in seconds; those of this node's own cuts count at once.
RECOUNT_SECONDS = 60.0


class Housekeeping:
    """Endless tasks of one node. report(text): one line in the log."""

    def __init__(
        self,
        shell: Shell,
        snapshots: Snapshots,
        backend: NodeBackend,
        storage: Storage,
        report: Callable[[str], None],
    ) -> None:
        self.shell = shell
        self.snapshots = snapshots
        self.backend = backend
        self.storage = storage
        self.report = report

    async def run(self) -> None:
        """Until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self.shell.sweep())
            group.create_task(self._every_second())
            group.create_task(self._recount())

    async def _every_second(self) -> None:
        while True:
            await asyncio.sleep(1.0)
            self.snapshots.maybe()
            self.backend.sample()

    async def _recount(self) -> None:
        """What others did to the rescue files: a directory may hold thousands of them."""
        while True:
            await asyncio.sleep(RECOUNT_SECONDS)
            try:
                await asyncio.to_thread(self.storage.count_rescues)
            except StorageError as error:
                self.report(f"rescue files were not counted: {error}")
