"""The tube type queue15 as the engine is given it: what tasks do, and the tube that serves them."""

from __future__ import annotations

from typing import ClassVar

from tandemq_server.facades.queue15.tasks import Tasks
from tandemq_server.facades.queue15.tube import SpaceTube


class Queue15(Tasks):
    name: ClassVar[str] = "queue15"
    shape = SpaceTube
