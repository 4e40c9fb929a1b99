"""The dimensions of a wide plan: each may be switched on and off by its name.

SIM_WITH and SIM_WITHOUT (names, commas between) change what is on. Whatever stands in OFF waits
for the fault of the product that is named beside it.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from dataclasses import replace
from random import Random

from tests.simulation.sim_plan import WIDE_RUN_US, Action, Plan
from tests.simulation.sim_sizes import KIB, MIB, small
from tests.simulation.sim_tubes import DEAD, SPACE15
from tests.simulation.sim_world import MS, SECOND

Widening = Callable[[Plan, Random], Plan]

#: Off for the time being, and why.
OFF: dict[str, str] = {}


def widen(plan: Plan) -> Plan:
    """The plan with all dimensions that are on and that its seed draws."""
    taken = []
    for name in sorted(enabled()):
        chance = Random(f"{plan.seed}/{name}")
        share, change = DIMENSIONS[name]
        if chance.random() < share:
            plan = change(plan, chance)
            taken.append(name)
    actions = tuple(sorted(plan.actions, key=lambda action: action.at))
    return replace(plan, actions=actions, dimensions=frozenset(taken))


def enabled() -> set[str]:
    on = set(DIMENSIONS) - set(OFF)
    on |= _words("SIM_WITH")
    on -= _words("SIM_WITHOUT")
    assert on <= set(DIMENSIONS), on - set(DIMENSIONS)
    return on


def _words(variable: str) -> set[str]:
    return {word for word in os.environ.get(variable, "").split(",") if word}


def _more(plan: Plan, *actions: Action) -> Plan:
    return replace(plan, actions=plan.actions + actions)


def _when(chance: Random) -> int:
    return chance.randint(0, WIDE_RUN_US)


def _node(plan: Plan, chance: Random) -> str:
    return chance.choice(plan.nodes)


# -- sizes -----------------------------------------------------------------------------------------


def small_sizes(plan: Plan, chance: Random) -> Plan:
    return replace(plan, sizes=small(chance))


def payloads(plan: Plan, chance: Random) -> Plan:
    """Mostly small, some of a few segments; one run in thirty has one of up to 3 MiB."""
    drawn = [(1, 30)] * 6 + [(100, 2_000)] * 4 + [(4_000, 20_000)]
    if chance.random() < 1 / 30:
        drawn = [(1, 30)] * 30 + [(MIB // 2, 3 * MIB)]
        sizes = replace(plan.sizes, portion=256 * KIB, chunk=256 * KIB, window=MIB)
        plan = replace(plan, sizes=sizes)
    return replace(plan, payloads=tuple(drawn))


def short_logs(plan: Plan, chance: Random) -> Plan:
    """A snapshot every few segments, and the log behind it trimmed.

    Who is away for long needs a snapshot, and may have parted from a log nobody has any more.
    """
    snapshot = chance.choice((8 * KIB, 16 * KIB, 64 * KIB))
    retain = chance.choice((8 * KIB, 32 * KIB, MIB))
    return replace(plan, sizes=replace(plan.sizes, snapshot=snapshot, retain=retain))


# -- disks -----------------------------------------------------------------------------------------


def pages(plan: Plan, chance: Random) -> Plan:
    """A power cut leaves any of the unsynced pages."""
    return replace(plan, sizes=replace(plan.sizes, page=chance.choice((512, 4 * KIB))))


def traps(plan: Plan, chance: Random) -> Plan:
    """The process or the machine dies before the k-th operation of something."""
    return _trapped(plan, chance, ("roll", "snapshot", "trim", "bootstrap", "install"))


def cut_traps(plan: Plan, chance: Random) -> Plan:
    """Likewise, while it saves and cuts the end of its log; somebody forces, so that it does."""
    if len(plan.nodes) == 2:
        plan = _more(plan, Action(_when(chance), "force", _node(plan, chance)))
    return _trapped(plan, chance, ("rewind", "rescue"))


def _trapped(plan: Plan, chance: Random, regions: tuple[str, ...]) -> Plan:
    for _ in range(chance.randint(1, 4)):
        region = chance.choice(regions)
        fate = "power" if plan.power_safe and chance.random() < 0.5 else "kill"
        value = (region, chance.randint(1, chance.choice((4, 12, 40))), fate)
        action = Action(
            _when(chance), "trap", _node(plan, chance), chance.randint(5 * MS, 2 * SECOND), value
        )
        plan = _more(plan, action)
    return plan


def dies_in_recovery(plan: Plan, chance: Random) -> Plan:
    """A restart that ends before its k-th operation, and is tried again."""
    for _ in range(chance.randint(1, 3)):
        fate = "power" if plan.power_safe and chance.random() < 0.5 else "kill"
        value = (chance.randint(1, 40), fate)
        action = Action(
            _when(chance), "bad_start", _node(plan, chance), chance.randint(5 * MS, SECOND), value
        )
        plan = _more(plan, action)
    return plan


def disk_errors(plan: Plan, chance: Random) -> Plan:
    """Any operation may fail once, also in recovery."""
    operations = ["create", "rename", "truncate", "append", "remove", "sync_dir", "overwrite"]
    operations += ["read", "open", "settle", "list", "size", "close"]
    if plan.power_safe:
        operations += ["sync"] * 4
    for _ in range(chance.randint(1, 3)):
        value = (
            chance.choice(operations),
            chance.choice((errno.EIO, errno.ENOSPC)),
            chance.randint(1, 6),
        )
        lasts = chance.randint(5 * MS, 2 * SECOND)
        plan = _more(plan, Action(_when(chance), "disk_error", _node(plan, chance), lasts, value))
    return plan


def disk_full(plan: Plan, chance: Random) -> Plan:
    """Full, and for so long that restarts meet it too."""
    lasts = chance.randint(500 * MS, 4 * SECOND)
    return _more(plan, Action(_when(chance), "full", _node(plan, chance), lasts))


def slow_disks(plan: Plan, chance: Random) -> Plan:
    """Syncs that take up to ten seconds."""
    slowest = chance.choice((20 * MS, 200 * MS, SECOND, 10 * SECOND))
    lasts = chance.randint(500 * MS, 3 * SECOND)
    value = (slowest // 10, slowest)
    return _more(plan, Action(_when(chance), "slow", _node(plan, chance), lasts, value))


# -- the load --------------------------------------------------------------------------------------


def calls(plan: Plan, chance: Random) -> Plan:
    """Keys, batches, delays, ttl, touch, bury, dead letters, capacity, pauses, records."""
    kinds = ("fifo", "fifottl", "utube", "utubettl", "limfifottl", "xqueue")
    tubes = tuple(chance.sample(kinds, 2))
    if chance.random() < 0.5:
        tubes = (DEAD, *tubes)
    return replace(plan, calls=True, tubes=tubes)


def finishes(plan: Plan, _chance: Random) -> Plan:
    """Workers ack and put the next task in one call."""
    return plan


def bulk(plan: Plan, _chance: Random) -> Plan:
    """Somebody moves, kicks, deletes and sends back tasks by filter; workers release in batches."""
    tubes = plan.tubes if DEAD in plan.tubes else (DEAD, *plan.tubes)
    return replace(plan, calls=True, tubes=tubes)


def queue15(plan: Plan, _chance: Random) -> Plan:
    """The last tube is a space of the calls of 1.5."""
    return replace(plan, tubes=(*plan.tubes[:-1], SPACE15))


def done(plan: Plan, _chance: Random) -> Plan:
    """Tasks of 1.5 that are done stay until their ttl."""
    return plan


def tokens(plan: Plan, _chance: Random) -> Plan:
    """Workers name each delivery by its token."""
    return plan


def altered(plan: Plan, _chance: Random) -> Plan:
    """Somebody alters tubes while they are in use."""
    return replace(plan, calls=True)


def truncated(plan: Plan, _chance: Random) -> Plan:
    """Somebody empties a tube in use."""
    return replace(plan, calls=True)


def dropped(plan: Plan, _chance: Random) -> Plan:
    """A tube is made, used and dropped again and again."""
    return replace(plan, calls=True)


# -- nodes -----------------------------------------------------------------------------------------


def all_down(plan: Plan, chance: Random) -> Plan:
    at = _when(chance)
    for node in plan.nodes:
        fate = "power" if plan.power_safe and chance.random() < 0.5 else "kill"
        value = chance.choice(("same", "same", "same", "writable"))
        at += chance.choice((0, 0, chance.randint(0, 100 * MS)))
        plan = _more(plan, Action(at, fate, node, chance.randint(50 * MS, 2 * SECOND), value))
    return plan


def three_nodes(plan: Plan, chance: Random) -> Plan:
    """A third node, that dies and comes back like the others."""
    lasts = chance.randint(5 * MS, 3 * SECOND)
    actions = [
        Action(_when(chance), "kill", "c", lasts, "same"),
        Action(_when(chance), chance.choice(("switch", "promote", "pause")), "c", lasts),
    ]
    quiet = tuple(action for action in plan.actions if action.kind != "force")
    return _more(replace(plan, nodes=("a", "b", "c"), actions=quiet), *actions)


def three_forced(plan: Plan, chance: Random) -> Plan:
    """Likewise, and somebody promotes by force: two masters feed the third."""
    forces = [Action(_when(chance), "force", _node(plan, chance)) for _ in range(2)]
    return _more(plan, *forces) if len(plan.nodes) == 3 else plan


def old_disks(plan: Plan, chance: Random) -> Plan:
    """A node returns with a copy of its own disk of some time before."""
    node = _node(plan, chance)
    kept, at = sorted((_when(chance), _when(chance)))
    lasts = chance.randint(5 * MS, 2 * SECOND)
    return _more(plan, Action(kept, "keep_disk", node), Action(at, "old_disk", node, lasts))


def empty_disks(plan: Plan, chance: Random) -> Plan:
    """A node returns with an empty disk."""
    lasts = chance.randint(5 * MS, 2 * SECOND)
    return _more(plan, Action(_when(chance), "empty_disk", _node(plan, chance), lasts))


def configurations(plan: Plan, chance: Random) -> Plan:
    """Nodes that are restarted with another `ack`, `solo_after` or `wal.mode`."""
    for _ in range(chance.randint(1, 3)):
        own = {} if plan.power_safe else {"wal_mode": chance.choice(("write", "fsync"))}
        links = {"ack": chance.choice(("local", "pair")), "solo_after": chance.choice((0.5, 5.0))}
        lasts = chance.randint(5 * MS, SECOND)
        action = Action(_when(chance), "config", _node(plan, chance), lasts, (own, links))
        plan = _more(plan, action)
    return plan


def peers(plan: Plan, chance: Random) -> Plan:
    """Nodes that are restarted with other peers: another address, one more, one less.

    Whoever comes to two nodes, or is left out by two of three, follows and never leads meanwhile;
    the two are told at one moment: they must not take each other for the only ones by themselves.
    """
    if len(plan.nodes) == 2 and chance.random() < 0.6:
        return _joined(plan, chance)
    if len(plan.nodes) == 3:
        led = ("switch", "promote", "force", "demote")
        quiet = (one for one in plan.actions if one.node != "c" or one.kind not in led)
        plan = _pair_told(replace(plan, actions=tuple(quiet)), chance, _when(chance), ())
    for _ in range(chance.randint(1, 3)):
        node = _node(plan, chance)
        known = [other for other in plan.nodes if other != node]
        if len(plan.nodes) == 3 and node != "c":
            continue
        if chance.random() < 0.3:
            # Announced, and not there yet.
            known.append("z")
        names = tuple(name + chance.choice(("", ".2", ".3")) for name in known)
        plan = _more(plan, _told(chance, _when(chance), node, names))
    return plan


def _joined(plan: Plan, chance: Random) -> Plan:
    """A third node starts and follows; the two are told of it later, or when all is healed."""
    at = chance.randint(0, WIDE_RUN_US // 2)
    plan = _more(replace(plan, nodes=(*plan.nodes, "c"), joining=("c",)), Action(at, "join", "c"))
    if chance.random() < 0.7:
        plan = _pair_told(plan, chance, chance.randint(at, WIDE_RUN_US), ("c",))
    for kind in ("kill", "pause", "cut"):
        if chance.random() < 0.3:
            lasts = chance.randint(5 * MS, 2 * SECOND)
            moment = chance.randint(at + 1, WIDE_RUN_US)
            plan = _more(plan, Action(moment, kind, "c", lasts, "same"))
    return plan


def _pair_told(plan: Plan, chance: Random, at: int, others: tuple[str, ...]) -> Plan:
    pair = (("a", "b"), ("b", "a"))
    return _more(plan, *(_told(chance, at, node, (other, *others)) for node, other in pair))


def _told(chance: Random, at: int, node: str, names: tuple[str, ...]) -> Action:
    return Action(at, "peers", node, chance.randint(5 * MS, SECOND), names)


def drift(plan: Plan, chance: Random) -> Plan:
    """Clocks that run apart, and step; two steps are less than the window of a key."""
    ppm = tuple(chance.randint(-300, 300) for _ in range(3))
    steps = [
        Action(_when(chance), "skew", _node(plan, chance), 0, chance.randint(-1700, 1700))
        for _ in range(chance.randint(0, 3))
    ]
    return _more(replace(plan, drift_ppm=ppm), *steps)


#: Name: (share of the seeds that have it, what it does).
DIMENSIONS: dict[str, tuple[float, Widening]] = {
    "a_small_sizes": (1.0, small_sizes),
    "all_down": (0.2, all_down),
    "b_payloads": (1.0, payloads),
    "bad_start": (0.25, dies_in_recovery),
    "calls": (0.6, calls),
    "cut_traps": (0.3, cut_traps),
    "configurations": (0.15, configurations),
    "empty_disks": (0.15, empty_disks),
    "old_disks": (0.15, old_disks),
    "a_three_nodes": (0.12, three_nodes),
    "b_three_forced": (1.0, three_forced),
    "disk_errors": (0.3, disk_errors),
    "disk_full": (0.15, disk_full),
    "drift": (0.3, drift),
    "finishes": (0.3, finishes),
    "pages": (0.5, pages),
    "short_logs": (0.6, short_logs),
    "slow_disks": (0.2, slow_disks),
    "traps": (0.6, traps),
    "y_altered": (0.15, altered),
    "y_bulk": (0.15, bulk),
    "y_done": (0.5, done),
    "y_dropped": (0.15, dropped),
    "y_queue15": (0.15, queue15),
    "y_tokens": (0.25, tokens),
    "y_truncated": (0.1, truncated),
    "z_peers": (0.15, peers),
}
#: Came later: off where a seed is to be what it was before.
LATER = (
    "y_altered",
    "y_bulk",
    "y_done",
    "y_dropped",
    "y_queue15",
    "y_tokens",
    "y_truncated",
    "z_peers",
)
