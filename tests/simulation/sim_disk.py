"""The weather over one machine's disk: time that syncs take, death in the middle, what is durable.

Everything here is seen from outside: operations and the files they touch, never the code that
asked for them. The layout of a log frame's header is written down once more on purpose.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tandemq_server.storage.memory import MemoryDisk
from tests.simulation.sim_threads import Died, current
from tests.simulation.sim_world import MS

if TYPE_CHECKING:
    from tests.simulation.sim_node import SimNode

#: Magic, body length, CRC, term, first LSN, records, commit LSN.
_HEADER = struct.Struct(">4sIIIQIQ")
_FRAME_MAGIC = b"TQf1"
_SEGMENT_HEADER = 1024
#: A loop that waits longer for its disk stands still as seen from outside.
STALL_US = 5 * MS

#: What a node is in the middle of, by its first operation on the disk.
REGIONS: dict[str, Callable[[str, str], bool]] = {
    "recovery": lambda _op, _name: True,
    "roll": lambda op, name: op == "create" and name.endswith(".wal"),
    "snapshot": lambda op, name: op == "create" and name.endswith(".snap.inprogress"),
    "trim": lambda op, name: op == "remove" and name.endswith(".wal"),
    "rewind": lambda op, name: op == "create" and ".note" in name,
    "rescue": lambda op, name: op == "create" and name.endswith(".wal.inprogress"),
    "bootstrap": lambda op, name: op == "create" and name.startswith("incoming"),
    "install": lambda op, name: op == "rename" and name.startswith("incoming"),
}


class Weather:
    """Hooks of one machine's disk. `sync_us`: from, to."""

    def __init__(self, node: SimNode) -> None:
        self.node = node
        self.sync_us = (200, 3 * MS)
        self._trap: tuple[Callable[[str, str], bool], int, Callable[[], None]] | None = None
        self._countdown: int | None = None
        #: How often each region was entered, over the whole run.
        self.entered: dict[str, int] = dict.fromkeys(REGIONS, 0)

    def over(self, disk: MemoryDisk) -> None:
        """Be the weather of this disk from now on."""
        disk.watch = self._watch
        disk.during_sync = self._during_sync

    def set_trap(self, region: str, nth: int, death: Callable[[], None]) -> None:
        """Before the n-th operation from the next one on that begins `region`: `death()`."""
        self._trap, self._countdown = (REGIONS[region], nth, death), None

    def clear(self) -> None:
        self._trap = self._countdown = None

    def _watch(self, operation: str, name: str) -> None:
        node = self.node
        if not node.alive:
            raise Died
        if self._trap is None:
            return
        begins, nth, death = self._trap
        if self._countdown is None:
            if not begins(operation, name):
                return
            self._countdown = nth
        self._countdown -= 1
        if self._countdown <= 0:
            self.clear()
            node.say(f"dies before {operation} of {name}")
            death()
            raise Died

    def _during_sync(self, _name: str) -> None:
        took = self.node.world.chance.randint(*self.sync_us)
        thread = current(self.node)
        if thread is not None:
            thread.wait(took)
        elif took > STALL_US:
            self.node.stall(took)


class Frames:
    """What the frames on a disk say, read byte by byte as far as they have grown."""

    def __init__(self) -> None:
        #: By file object: (where reading goes on, [(end, last LSN)]).
        self._known: dict[int, tuple[Any, int, list[tuple[int, int]]]] = {}

    def last_lsn(self, disk: MemoryDisk, synced: bool) -> int:
        """The last LSN that is on the disk; `synced`: that a power cut cannot take."""
        entries = disk._durable if synced else disk._entries
        best = max((_lsn(n) for n in entries if n.endswith(".snap") and "/" not in n), default=0)
        logs = sorted(n for n in entries if n.endswith(".wal") and "/" not in n)
        for name in reversed(logs):
            file = entries[name]
            found = self._read(file)
            size = file.durable_size if synced else len(file.data)
            if file.lost:
                size = min(size, file.lost[0][0])
            for end, lsn in reversed(found):
                if end <= size:
                    return max(best, lsn)
        return max(best, _lsn(logs[0]) - 1 if logs else 0)

    def _read(self, file: Any) -> list[tuple[int, int]]:
        _file, at, found = self._known.get(id(file), (file, _SEGMENT_HEADER, []))
        data = file.data
        if found and (len(data) < found[-1][0] or not _same(data, found)):
            at, found = _SEGMENT_HEADER, []
        while at + _HEADER.size <= len(data):
            magic, length, _, _, first, count, _ = _HEADER.unpack_from(data, at)
            if magic != _FRAME_MAGIC or at + _HEADER.size + length > len(data):
                break
            at += _HEADER.size + length
            found.append((at, first + count - 1))
        self._known[id(file)] = (file, at, found)
        return found


def _same(data: bytearray, found: list[tuple[int, int]]) -> bool:
    """The last frame known stands where it stood."""
    at = found[-2][0] if len(found) > 1 else _SEGMENT_HEADER
    magic, length, _, _, first, count, _ = _HEADER.unpack_from(data, at)
    end = at + _HEADER.size + length
    return magic == _FRAME_MAGIC and (end, first + count - 1) == found[-1]


def _lsn(name: str) -> int:
    return int(name.partition(".")[0])
