"""Task states as they stand in every task's second field, and the events they produce.

Only names and constants; what moves a task between states lives in the drivers.
"""

from __future__ import annotations

from tandemq.model.units import SECOND_US

READY = "r"
TAKEN = "t"
BURIED = "!"
DELAYED = "~"
DONE = "-"

STATE_NAMES = {
    READY: "ready",
    TAKEN: "taken",
    BURIED: "buried",
    DELAYED: "delayed",
    DONE: "done",
}

#: "No ttl" of the original: 100 years of 365 days, in seconds and in microseconds.
INFINITY_S = 3_153_600_000
INFINITY_US = INFINITY_S * SECOND_US
#: A deadline that never comes: what an unbounded moment is stored as.
NEVER_US = 2**64 - 1

#: One delivered task as clients see it: id, status, payload as raw MessagePack.
Task = tuple[int, str, bytes]
