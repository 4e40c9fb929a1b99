"""What goes wrong in a scenario, and when: a list made from the seed before anything runs.

A narrow plan has the failures of the first kind; a wide one adds dimensions. Each draws from a
generator of its own, so that switching one on or off leaves the others as they were.
"""

from __future__ import annotations

import errno
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any

from tests.simulation.sim_sizes import Sizes
from tests.simulation.sim_world import MS, SECOND

RUN_US = 10 * SECOND
WIDE_RUN_US = 5 * SECOND
NODES = ("a", "b")


@dataclass(frozen=True, slots=True)
class Action:
    """at: µs from the start of the faults; lasts: µs until it is undone, for what can be."""

    at: int
    kind: str
    node: str = ""
    lasts: int = 0
    value: Any = None

    def __str__(self) -> str:
        what = " ".join(str(part) for part in (self.kind, self.node, self.value or "") if part)
        lasts = f" for {self.lasts / SECOND:.3f} s" if self.lasts else ""
        return f"{self.at / SECOND:.3f} {what}{lasts}"


@dataclass(frozen=True, slots=True)
class Plan:
    """Everything a scenario does by itself. tubes: name -> type; sizes of payloads are weights."""

    seed: int
    wal_mode: str
    ack: str
    solo_after: float | None
    ttr: float
    tubes: tuple[str, ...]
    workers: int
    actions: tuple[Action, ...]
    wide: bool = False
    #: All kinds of calls, not only puts, takes, acks and releases.
    calls: bool = False
    nodes: tuple[str, ...] = NODES
    #: Those of them that no other one knows of at first, and that start later.
    joining: tuple[str, ...] = ()
    puts: int = 40
    sizes: Sizes = field(default_factory=Sizes)
    drift_ppm: tuple[int, ...] = (0, 0, 0)
    #: (bytes from, to) of payloads, one of which each put draws.
    payloads: tuple[tuple[int, int], ...] = ((1, 1),)
    dimensions: frozenset[str] = frozenset()
    #: An arbiter says who may lead, and nobody forces anything.
    seated: bool = False

    @property
    def never_alone(self) -> bool:
        """Pair mode on all nodes for all the time, and nobody goes on alone but by the seat."""
        if self.seated:
            return True
        changes = any(action.kind == "config" for action in self.actions)
        return self.ack == "pair" and self.solo_after is None and not changes

    @property
    def power_safe(self) -> bool:
        """Whether a power cut may happen: `write` mode promises nothing for it."""
        return self.wal_mode == "fsync"

    def __str__(self) -> str:
        head = (
            f"seed {self.seed}: wal {self.wal_mode}, ack {self.ack}, solo_after {self.solo_after}, "
            f"ttr {self.ttr}, tubes {', '.join(self.tubes)}, {self.workers} workers"
        )
        if self.wide:
            head += (
                f", drift {self.drift_ppm}, {', '.join(sorted(self.dimensions))}\n  {self.sizes}"
            )
        return "\n".join([head, *(f"  {action}" for action in self.actions)])


#: (kind, how often it is drawn).
_KINDS = (
    ("switch", 6),
    ("promote", 2),
    ("force", 3),
    ("demote", 1),
    ("kill", 4),
    ("power", 3),
    ("pause", 2),
    ("cut", 3),
    ("cut_out", 1),
    ("cut_in", 1),
    ("drop_clients", 2),
    ("skew", 1),
    ("snapshot", 2),
    ("disk_error", 2),
)


def make_plan(seed: int, wide: bool = True) -> Plan:
    plan = _narrow(seed, WIDE_RUN_US if wide else RUN_US)
    if not wide:
        return plan
    from tests.simulation.sim_dimensions import widen

    return widen(replace(plan, wide=True, puts=32))


def _narrow(seed: int, run_us: int) -> Plan:
    chance = Random(seed)
    wal_mode = chance.choice(("write", "fsync"))
    ack = chance.choice(("local", "local", "pair"))
    drawn: list[str] = []
    for kind, weight in _KINDS:
        if kind == "power" and wal_mode == "write":
            # A power cut may take what was acknowledged in write mode: that mode says so.
            continue
        drawn += [kind] * weight
    actions: list[Action] = []
    at = chance.randint(0, 500 * MS)
    while at < run_us:
        actions.append(_action(chance, chance.choice(drawn), at, wal_mode))
        quiet = chance.random() < 0.25
        close = chance.random() < 0.4
        at += chance.randint(1, 30 * MS) if close else chance.randint(200 * MS, 2 * SECOND)
        if quiet:
            at += 2 * SECOND
    return Plan(
        seed,
        wal_mode,
        ack,
        chance.choice((0.5, 1.0, None)) if ack == "pair" else 5.0,
        chance.choice((1.0, 5.0)),
        tuple(chance.sample(("fifo", "fifottl", "utube", "utubettl"), 2)),
        chance.randint(1, 3),
        tuple(actions),
    )


def _action(chance: Random, kind: str, at: int, wal_mode: str) -> Action:
    node = chance.choice(NODES)
    lasts, value = 0, None
    if kind in ("kill", "power", "pause", "cut", "cut_out", "cut_in"):
        lasts = chance.randint(5 * MS, 4 * SECOND)
    if kind in ("kill", "power"):
        # Whoever restarts a node may have changed its configuration.
        value = chance.choice(("same", "same", "writable", "read-only"))
    elif kind == "skew":
        value = chance.randint(-600, 600)
    elif kind == "disk_error":
        operation = chance.choice(("sync", "append"))
        if wal_mode == "write":
            # A failed sync drops pages; what only the process was to survive may be in them.
            operation = "append"
        value = (operation, chance.choice((errno.EIO, errno.ENOSPC)), chance.randint(1, 4))
        lasts = chance.randint(5 * MS, 2 * SECOND)
    return Action(at, kind, node, lasts, value)
