"""Random changes of meaning: any field of any record, and whether the audit notices.

`python -m tests.audit.changes [COUNT]` prints the share that is found and what is not, by field.
"""

from __future__ import annotations

import copy
import random
import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tandemq.model.record import CREATE, INSERT, INSERT_MANY, KIND_NAMES, OP_NAMES, SET, TERM
from tandemq.pipeline.judge.local import audit
from tests.audit.rewrite import Edited, read
from tests.audit.scenes import SCENES
from tests.audit.stage import Stage

#: Names of fields by driver and by system space, as far as they have one.
TTL = ("id", "status", "next_event", "ttl", "ttr", "pri", "created")
FIELDS = {
    "fifo": ("id", "status", "payload"),
    "utube": ("id", "status", "utube", "payload"),
    "fifottl": (*TTL, "payload"),
    "limfifottl": (*TTL, "payload"),
    "utubettl": (*TTL, "utube", "payload"),
    512: ("name", "id", "space", "type", "options"),
    514: ("tube", "task", "connection", "session", "token"),
    516: ("session", "expires", "active"),
    517: ("name", "value"),
    519: ("tube", "key", "task", "expires"),
    521: ("tube", "task", "attempts", "reason", "time", "from", "from_id", "from_attempts",
          "headers"),
    523: ("tube", "puts", "takes"),
}  # fmt: skip
SPACES = {512: "tubes", 514: "owner", 516: "session", 517: "setting", 518: "grant", 519: "key",
          521: "note", 523: "pause"}  # fmt: skip


def changed(value: Any, chance: random.Random) -> Any:
    """Another value of the same type."""
    if value is None:
        return chance.choice([1, "x", b"s" * 16])
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        step = chance.choice([1, -1, 1000, -1000, 1_000_000, 60_000_000])
        return value + step if value + step >= 0 else value + 1
    if isinstance(value, str):
        return chance.choice(["x", "r", "t", "!", "~", value + "y"])
    if isinstance(value, bytes):
        at = chance.randrange(max(len(value), 1))
        return value[:at] + bytes([(value[at] if value else 0) ^ 1]) + value[at + 1 :]
    if isinstance(value, float):
        return value + 1.5
    if isinstance(value, list):
        return [*value, 1]
    return {**value, "x": 1}


def places(log: Edited) -> list[tuple[str, Callable[[Edited, random.Random], None]]]:
    """Every field of every record: (what it is, how to change it)."""
    drivers = {op[1]: op[3] for entry in log.entries for op in entry.ops if op[0] == CREATE}
    found: list[tuple[str, Callable[[Edited, random.Random], None]]] = []

    def add(name: str, at: int, path: tuple[int, ...]) -> None:
        def change(one: Edited, chance: random.Random) -> None:
            holder: Any = one.entries[at].record
            for step in path[:-1]:
                holder = holder[step]
            holder[path[-1]] = changed(holder[path[-1]], chance)

        found.append((name, change))

    for at, entry in enumerate(log.entries):
        kind = KIND_NAMES[entry.record[1]]
        for field, name in enumerate(("time", "kind", "session")):
            add(f"record {name} of {kind}", at, (field,))
        for number, op in enumerate(entry.ops):
            _op(add, at, number, op, kind, drivers)
    return found


def _op(add: Any, at: int, number: int, op: list[Any], kind: str, drivers: dict[int, str]) -> None:
    space = op[1] if isinstance(op[1], int) else 0
    what = SPACES.get(space) or drivers.get(space, "")
    names: Any = FIELDS.get(space) or FIELDS.get(drivers.get(space, ""), ())

    def name(field: int) -> str:
        said = names[field] if field < len(names) else f"field {field}"
        return f"{what} {said} by {kind}"

    add(f"op of {OP_NAMES.get(op[0])}", at, (3, number, 0))
    if op[0] == TERM:
        for field in range(1, len(op)):
            add(f"term field {field}", at, (3, number, field))
        return
    add(f"op space of {what}", at, (3, number, 1))
    if op[0] == INSERT:
        for field in range(len(op[2])):
            add(name(field), at, (3, number, 2, field))
    elif op[0] == INSERT_MANY:
        for row in range(len(op[2])):
            for field in range(len(op[2][row])):
                add(name(field), at, (3, number, 2, row, field))
    elif op[0] == SET:
        add(f"{what} key of {kind}", at, (3, number, 2))
        for pair in range(3, len(op), 2):
            add(f"{what} field number of {kind}", at, (3, number, pair))
            add(name(op[pair]), at, (3, number, pair + 1))
    elif len(op) > 2:
        for field in range(2, len(op)):
            add(f"{what} {OP_NAMES.get(op[0])} {field}", at, (3, number, field))


#: Whatever a producer may ask for, and what only names something: no log can tell that it was
#: another one. The reason of a failure, a connection's number, a key, a header, a right likewise.
FREE = (
    "payload by put", "pri by put", "ttr by put", "utube by put", "record session of put",
    "connection by", "reason by", "key by", "headers by", "grant", "setting value",
    "expires by put", "xqueue field",
    "options by", "op of create", "create field", "term field 4",
)  # fmt: skip


def free(name: str) -> bool:
    """Whether no rule can find it by nature."""
    return any(one in name for one in FREE)


def tried(count: int, seed: int, root: Path) -> tuple[Counter[str], Counter[str]]:
    """(changes that were found, changes that were not), by what was changed."""
    chance = random.Random(seed)
    logs: dict[str, Edited] = {}
    spots: dict[str, Any] = {}
    hit: Counter[str] = Counter()
    missed: Counter[str] = Counter()
    names = sorted(SCENES)
    while hit.total() + missed.total() < count:
        scene = chance.choice(names)
        if scene not in logs:
            stage = Stage(root / "scenes" / scene)
            SCENES[scene](stage)
            stage.close()
            logs[scene] = read(root / "scenes" / scene)
            spots[scene] = places(logs[scene])
        name, change = chance.choice(spots[scene])
        log = logs[scene].copy()
        before = copy.deepcopy([entry.record for entry in log.entries])
        change(log, chance)
        after = [entry.record for entry in log.entries]
        if before == after or any(record[1] not in range(256) for record in after):
            continue
        try:
            path = log.write(root / "one")
        except (ValueError, TypeError, OverflowError, StopIteration):
            continue
        verdict = audit([str(path)])
        (missed if verdict.ok and not verdict.warnings else hit)[name] += 1
        shutil.rmtree(path)
    return hit, missed


def main(count: int) -> None:
    with tempfile.TemporaryDirectory() as root:
        hit, missed = tried(count, 18, Path(root))
    total = hit.total() + missed.total()
    fixed = sum(number for name, number in missed.items() if not free(name))
    asked = fixed + sum(number for name, number in hit.items() if not free(name))
    print(f"{total} changes: {hit.total() / total:.1%} found")
    print(f"of {asked} that a log can show: {1 - fixed / asked:.1%} found")
    for name, number in missed.most_common(60):
        print(f"{number:5}  {'free' if free(name) else '    '}  {name}")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 1000)
