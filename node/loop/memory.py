"""How much memory this process has in use, how much there is, and what follows from it.

One of the few places that ask the operating system. Looked at by a timer, never by a call.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from pathlib import Path

from tandemq_server.config.units import show_bytes
from tandemq_server.engine.engine import Engine

#: How often is looked, in seconds.
LOOK_SECONDS = 0.25
#: How often the C library is asked to give back what was freed, while memory is full, in seconds.
TRIM_SECONDS = 2.0
#: A mark once passed counts until so much of it is in use again: no flapping at the edge.
BELOW = 0.95
OK, HIGH, FULL = range(3)


def used_bytes() -> int:
    """Resident memory of this process; 0 where that cannot be told."""
    try:
        pages = Path("/proc/self/statm").read_bytes().split()[1]
    except (OSError, IndexError):
        return 0
    return int(pages) * os.sysconf("SC_PAGE_SIZE")


def total_bytes(root: Path = Path("/")) -> int:
    """What this process may have at most: of the machine, or less in a control group (v1, v2).

    0 where that cannot be told.
    """
    found = list(_group_limits(root))
    with contextlib.suppress(OSError, ValueError, IndexError):
        lines = (root / "proc/meminfo").read_text().splitlines()
        found += [int(line.split()[1]) * 1024 for line in lines if line.startswith("MemTotal:")]
    return min(found, default=0)


def _group_limits(root: Path) -> list[int]:
    """The limits of this process's control group and of every group around it."""
    found: list[int] = []
    try:
        lines = (root / "proc/self/cgroup").read_text().splitlines()
    except OSError:
        return found
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if controllers == "":
            top, name = root / "sys/fs/cgroup", "memory.max"
        elif "memory" in controllers.split(","):
            top, name = root / "sys/fs/cgroup/memory", "memory.limit_in_bytes"
        else:
            continue
        # In a container the path may be the host's, and the top is our own group.
        here = top / path.lstrip("/")
        while True:
            # "max" and absent files are no limit; v1 has a huge number for none.
            with contextlib.suppress(OSError, ValueError):
                found.append(int((here / name).read_text()))
            if here == top or top not in here.parents:
                break
            here = here.parent
    return found


def give_back() -> None:
    """Return freed memory to the system, where the C library can. May take a while."""
    import ctypes  # a node that has room never needs it

    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)


def bound(text: str | None, total: int) -> int:
    """Bytes of a setting, "512MiB" normalised to a number or "80%" of `total`; 0 for none."""
    if text is None:
        return 0
    if text.endswith("%"):
        return int(total * float(text[:-1]) / 100)
    return int(text)


class MemoryWatch:
    """Warns above `memory.high`, and has puts refused above `memory.max`.

    high, limit: settings as `bound` has them. used(): bytes. warn, say: one line.
    """

    def __init__(
        self,
        engine: Engine,
        high: str | None,
        limit: str | None,
        warn: Callable[[str], None],
        say: Callable[[str], None],
        used: Callable[[], int] = used_bytes,
        total: int | None = None,
    ) -> None:
        total = total_bytes() if total is None else total
        self.engine = engine
        self.limit = bound(limit, total)
        self.high = bound(high, total)
        if self.limit:
            self.high = min(self.high, self.limit)
        self.warn = warn
        self.say = say
        self.read = used
        self.limit_text = f"{limit}, {show_bytes(self.limit)}" if limit else ""
        self.used = used()
        self.state = OK

    def look(self) -> bool:
        """Whether puts became possible again: who waits for room can be served."""
        self.used = self.read()
        before, now = self.state, self._state()
        if now == before:
            return False
        self.state = now
        if now == FULL:
            self.engine.pauses.fill(self._refusal())
        elif before == FULL:
            self.engine.pauses.fill("")
        self._tell(before)
        return before == FULL

    def _state(self) -> int:
        for state, mark in ((FULL, self.limit), (HIGH, self.high)):
            if mark and self.used >= mark * (BELOW if self.state >= state else 1.0):
                return state
        return OK

    def _refusal(self) -> str:
        return (
            f"Memory of the node is full (memory.max {self.limit_text}): no put until tasks are "
            "acknowledged or deleted, or the setting is raised"
        )

    def _tell(self, before: int) -> None:
        used = f"{self.used >> 20} MiB of memory in use"
        if self.state == FULL:
            self.warn(f"{used}, memory.max is {self.limit_text}: puts are refused")
        elif before == FULL:
            self.say(f"{used}, below memory.max again: puts are accepted")
        elif self.state == HIGH:
            text = f"{used}, above memory.high ({self.high >> 20} MiB)"
            self.warn(f"{text}; at memory.max puts will be refused" if self.limit else text)
        else:
            self.say(f"{used}, below memory.high again")
