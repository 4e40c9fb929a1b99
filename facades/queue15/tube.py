"""A space of queue15 as a tube of the engine: tubes in it are lanes."""

from __future__ import annotations

from typing import ClassVar

from tandemq_server.engine.lanes import LaneTube
from tandemq_server.engine.ports import LayoutPort
from tandemq_server.facades.queue15.layout import Layout15
from tandemq_server.facades.queue15.tasks import Tasks


class SpaceTube(LaneTube):
    keeps_notes: ClassVar[bool] = False
    __slots__ = ()

    @property
    def tasks(self) -> Tasks:
        """The driver, by the name of what it does here."""
        tasks = self.inner
        assert isinstance(tasks, Tasks)
        return tasks

    def layout(self) -> LayoutPort:
        return Layout15(self.tasks)
