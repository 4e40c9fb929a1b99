"""Histories of the stories for the outside judge: tests/judge/FORMAT.md says what a line means.

What was cut is read as an operator reads it: `tandemq rescue list` and `rescue show`.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.chaos.chaos_history import Attempt, History, Loss
from tests.chaos.chaos_load import TUBES, sub_queue, value_of
from tests.cluster.cluster_nodes import TANDEMQ

Line = dict[str, Any]


#: A task from before the fork that changed hands in what was cut, and is there still.
AS_BEFORE = "as before the cut"


def microseconds(moment: float) -> int:
    return int(moment * 1e6)


def operator(*command: str) -> list[Line]:
    """What a command says, a JSON document a line."""
    done = subprocess.run([TANDEMQ, *command, "--json"], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def cut_tasks(directory: Path) -> Iterator[Line]:
    """(tube, task, payload or None) of every cut of a data directory."""
    for cut in operator("rescue", "list", str(directory)):
        for row in operator("rescue", "show", str(directory), cut["name"]):
            found = {"tube": row["tube"], "task": row["id"], "file": cut["name"]}
            if row["what"] == "will run again":
                yield found | {"kinds": ["take", "ack"]}
            elif row["what"].startswith(AS_BEFORE):
                yield found | {"kinds": ["take", "touch", "release", "bury"]}
            else:
                yield found | {"payload": value_of(row["payload"])}


def lines(
    name: str, history: History, local: bool, directories: list[Path], replay: str
) -> Iterator[Line]:
    """Everything the judge wants of one story. local: a forced promotion may undo what was said."""
    promise = "rescued" if local else "kept"
    run = {"run": name}
    yield run | {"what": "run", "source": "chaos", "promise": promise, "replay": replay}
    for attempt in history.attempts:
        yield run | _operation(attempt)
    event = run | {"what": "event"}
    for session, since, until in history.leases:
        moments = {"from_us": microseconds(since), "to_us": microseconds(until)}
        yield event | {"event": "lease_may_end", "session": session} | moments
    for tube, moment in history.drained.items():
        yield event | {"event": "drained", "tube": tube, "at_us": microseconds(moment)}
    if history.losses:
        cut = [row for directory in directories for row in cut_tasks(directory)]
        for loss in history.losses:
            yield from (event | line for line in _loss(loss, history, cut))


def _operation(attempt: Attempt) -> Line:
    sub = sub_queue(attempt.value) if attempt.value is not None else None
    unknown = attempt.outcome == "unknown"
    return {
        "what": "op",
        "kind": attempt.kind,
        "client": attempt.client,
        "session": attempt.session,
        "node": attempt.node,
        "tube": attempt.tube,
        "type": TUBES[attempt.tube],
        "subqueue": sub if "utube" in TUBES[attempt.tube] else None,
        "task": attempt.task,
        "payload": attempt.value,
        "began_us": microseconds(attempt.began),
        "ended_us": None if unknown else microseconds(attempt.ended),
        "outcome": attempt.outcome,
        **{key: value for key, value in attempt.more.items() if key != "subqueue"},
    }


def _loss(loss: Loss, history: History, cut: list[Line]) -> Iterator[Line]:
    """What one forced promotion may have undone of what `loss.node` said."""
    moments = {"from_us": microseconds(loss.since), "to_us": microseconds(loss.until)}
    where = {"node": loss.node} | moments
    yield {"event": "cut"} | where
    for row in cut:
        yield {"event": "undone"} | row | where
    # A take that was cut with nothing after it is in no list: the task was never away.
    for attempt in history.attempts:
        if (
            attempt.kind == "take"
            and attempt.task is not None
            and loss.covers(attempt.node, attempt.ended)
        ):
            yield {
                "event": "lease_may_end",
                "session": attempt.session,
                "tube": attempt.tube,
                "task": attempt.task,
                "from_us": microseconds(attempt.began),
                "to_us": microseconds(attempt.ended),
            }


def write(home: Path, name: str, text: Iterator[Line]) -> None:
    home.mkdir(parents=True, exist_ok=True)
    with (home / f"{name}.jsonl").open("w", encoding="utf-8") as file:
        for line in text:
            file.write(json.dumps(line, separators=(",", ":")) + "\n")
