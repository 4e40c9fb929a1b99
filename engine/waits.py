"""When waiting calls end: a heap of their deadlines, apart from the timers that are rows' business.

Most calls are answered long before; what they leave in the heap goes once there is much of it.
"""

from __future__ import annotations

from heapq import heapify, heappop
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tandemq_server.engine.clients import Waiter

#: Entries more than the live ones before the heap is swept.
SLACK = 64


class Waits:
    """heap: (deadline µs, waiter's id, waiter); only those still parked with their client count.

    live: how many those are. Every call that waits comes and goes, so the engine writes both itself
    and asks for a sweep.
    """

    __slots__ = ("heap", "live")

    def __init__(self) -> None:
        self.heap: list[tuple[int, int, Waiter]] = []
        self.live = 0

    def sweep(self) -> None:
        """Drop the entries of calls that wait no longer."""
        heap = self.heap
        heap[:] = [entry for entry in heap if entry[2] in entry[2].client.waits]
        heapify(heap)

    def first(self) -> Waiter | None:
        """Whose deadline comes next."""
        heap = self.heap
        while heap:
            waiter = heap[0][2]
            if waiter in waiter.client.waits:
                return waiter
            heappop(heap)
        return None
