"""How many tasks wait in rescue files to be put again: what an alert is for.

A cut may have had nothing in it but the record of a term. Read on a thread, and only when something
has changed.
"""

from __future__ import annotations

from pathlib import Path

from tandemq.log.disk import RESCUE_PREFIX, Disk
from tandemq.model.errors import StorageError
from tandemq.model.record import FrameError
from tandemq_server.node.loop.rescue_files import Cut, RescueFiles, Unreadable, load_replayed
from tandemq_server.node.observe.replaying import is_done
from tandemq_server.replication.rescue import RescueError


class RescuedTasks:
    """count: as last looked; a cut that cannot be read counts as one."""

    def __init__(self, disk: Disk, directory: Path) -> None:
        self.count = 0
        self._disk, self._directory = disk, directory
        self._seen: tuple[tuple[str, int], ...] = ()

    def look(self) -> None:
        """Count anew if a file came, went or grew. Raises StorageError."""
        names = sorted(name for name in self._disk.list() if name.startswith(RESCUE_PREFIX))
        seen = tuple((name, self._disk.size(name)) for name in names)
        if seen == self._seen:
            return
        files = RescueFiles(self._disk)
        strays = sum(not files.in_log(name) for name in files.strays())
        self.count = strays + sum(self._of(files, cut) for cut in files.cuts())
        self._seen = seen

    def _of(self, files: RescueFiles, cut: Cut) -> int:
        if isinstance(cut, Unreadable):
            return 1
        try:
            tasks = files.plan(cut).tasks
            put = load_replayed(self._directory, cut.name).put
        except (StorageError, RescueError, FrameError, ValueError):
            return 1
        return sum(not is_done(task) and (task.space_id, task.task_id) not in put for task in tasks)
