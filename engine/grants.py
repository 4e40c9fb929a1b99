"""Rights given at run time: rows of `_tandem_grants`, which go with their tube.

A row is who (a user's name, or `role:` and a role's) and what may be called, by its full name.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from tandemq.model.errors import failure
from tandemq.model.record import KIND_GRANT
from tandemq.model.rights import ROLE
from tandemq_server.engine.arguments import lua_type

if TYPE_CHECKING:
    from tandemq_server.engine.ports import EnginePort, TubePort

PREFIX, PREFIX_15, SPACE = "queue.tube", "queue15", "space:"
#: What comes with the right to call, whatever the tube.
SHARED_CALLS = ("queue.identify", "queue.statistics", "queue.lost")
SHARED_SPACES = ("space:_queue",)
CALLS = (
    "put",
    "take",
    "touch",
    "ack",
    "release",
    "peek",
    "bury",
    "kick",
    "delete",
    "put_many",
    "take_many",
    "ack_many",
    "release_many",
    "info",
    "finish",
    "list",
)
#: The same for tubes of type queue15, by their own names.
CALLS_15 = (
    *("put", "urgent", "put_unique", "take", "ack", "release", "requeue", "bury", "done"),
    *("touch", "dig", "unbury", "kick", "delete", "peek", "meta", "statistics", "statistic"),
)
#: And of tubes that keep records.
CALLS_RECORDS = (
    *("put", "take", "ack", "release", "bury", "touch", "dig", "kick", "kill", "wait"),
    *("stats", "get", "select", "len", "count"),
)
MANAGE = ("info", "list", "pause", "resume", "redrive", "bulk", "alter")
#: First words of names that mean something here; under any other a grant reaches nothing.
OURS = frozenset({"queue", "queue15", "box", "tandem", "xqueue", "_G"})
_FOREIGN = re.compile(r"[A-Za-z_]\w*(\.\w+)*")
OPTIONS = ("call", "truncate", "manage", "prefix")


def grant(engine: EnginePort, tube: TubePort, who: Any, args: Any, role: bool = False) -> None:
    """Give a user (or role) rights on a tube: to read its spaces, and to call with `call`."""
    name, calls = _wanted(tube, who, args, role)
    for call in (f"{SPACE}{tube.space.name}", *SHARED_SPACES, *calls):
        if (name, call) not in engine.grants.rows:
            engine.grants.insert((name, call))
    engine.commit(KIND_GRANT, None)


def revoke(engine: EnginePort, tube: TubePort, who: Any, args: Any, role: bool = False) -> int:
    """Take back what `grant` gave, of the same options; without any, all of this tube.

    Returns how many rights were taken. One that was never given is no error.
    """
    name, calls = _wanted(tube, who, args, role)
    rows = engine.grants.rows
    before = len(rows)
    if args in (None, [], {}):
        gone = [key for key in rows if key[0] == name and _is_of(tube, key[1])]
    else:
        gone = [(name, call) for call in calls if call not in SHARED_CALLS]
        gone = [key for key in gone if key in rows]
    _delete(engine, gone)
    engine.commit(KIND_GRANT, None)
    return before - len(rows)


def forget_tube(engine: EnginePort, tube: TubePort) -> None:
    """The tube goes, and with it whatever was granted on it; inside the caller's transaction."""
    _delete(engine, [key for key in engine.grants.rows if _is_of(tube, key[1])])


def held(engine: EnginePort) -> list[tuple[str, bool, str]]:
    """All grants: (name, whether it is a role's, what may be called)."""
    return [
        (who.removeprefix(ROLE), who.startswith(ROLE), call) for who, call in engine.grants.rows
    ]


def _wanted(tube: TubePort, who: Any, args: Any, role: bool) -> tuple[str, list[str]]:
    """The name rows stand under, and the calls that `args` stands for."""
    if type(who) is not str or not who or (not role and who.startswith(ROLE)):
        raise failure("Invalid user: expected a name")
    if args is None or args == []:
        args = {}
    if type(args) is not dict:
        raise failure(f"Invalid options of grant: expected a map, got {lua_type(args)}")
    for option in args:
        if option not in OPTIONS:
            raise failure(f"Unknown option {option}")
    prefix = _prefix(args.get("prefix"))
    calls: list[str] = []
    if args.get("call"):
        calls += [*SHARED_CALLS, *(f"{prefix}.{tube.name}:{method}" for method in CALLS)]
        calls += [f"{PREFIX_15}.{tube.name}:{m}" for m in CALLS_15 if tube.type == "queue15"]
        calls += [f"box.space.{tube.name}:{m}" for m in CALLS_RECORDS if tube.inner.records]
    if args.get("truncate"):
        calls.append(f"{prefix}.{tube.name}:truncate")
        calls += [f"{PREFIX_15}.{tube.name}:truncate"] if tube.type == "queue15" else []
        calls += [f"box.space.{tube.name}:truncate"] if tube.inner.records else []
    if args.get("manage"):
        calls += [f"{prefix}.{tube.name}:{method}" for method in MANAGE]
    return (ROLE + who if role else who), calls


def _prefix(given: Any) -> str:
    """Under which name the granted calls stand. Names of ours could be those of another tube's."""
    if given is None or given == "" or given in (PREFIX, "box.queue.tube", "_G.queue.tube"):
        return PREFIX
    if type(given) is str and _FOREIGN.fullmatch(given) and given.partition(".")[0] not in OURS:
        return given
    raise failure(f"Invalid value of prefix: {str(given)[:100]} (expected {PREFIX})")


def _is_of(tube: TubePort, call: str) -> bool:
    """Whether a right is on this tube and nothing else."""
    if call.startswith(SPACE):
        return call == f"{SPACE}{tube.space.name}"
    head = call.rpartition(":")[0]
    if head.partition(".")[0] not in OURS:
        return head.endswith(f".{tube.name}")
    return head in (f"{PREFIX}.{tube.name}", f"{PREFIX_15}.{tube.name}", f"box.space.{tube.name}")


def _delete(engine: EnginePort, keys: list[tuple[str, str]]) -> None:
    """And what came with every grant, of users who hold no other."""
    for key in keys:
        engine.grants.delete(key)
    shared = {*SHARED_CALLS, *SHARED_SPACES}
    rows = engine.grants.rows
    for who in {key[0] for key in keys}:
        left = {call for name, call in rows if name == who}
        if left <= shared:
            for call in left:
                engine.grants.delete((who, call))
