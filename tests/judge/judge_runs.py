"""Runs the judge, and makes histories for it: of a small queue of its own, honest or not."""

from __future__ import annotations

import json
import os
import random
import subprocess
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = ROOT / ".tools" / "judge" / "judge"
Line = dict[str, Any]


def program() -> Path:
    """The judge `make programs` built. Without it: skipped by name, or failed under CI=true."""
    if not PROGRAM.exists():
        reason = f"{PROGRAM} is missing: make programs builds it, if there is Go"
        if os.environ.get("CI") == "true":
            pytest.fail(reason)
        pytest.skip(reason)
    return PROGRAM


def write(path: Path, lines: Iterable[Line]) -> None:
    with path.open("w", encoding="utf-8") as file:
        for line in lines:
            file.write(json.dumps(line, separators=(",", ":")) + "\n")


def judge(*places: Path, options: tuple[str, ...] = ()) -> tuple[int, dict[str, Any], list[Any]]:
    """(exit code, totals, runs with findings)."""
    command = [str(program()), "-json", *options, *map(str, places)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600)
    if done.returncode == 2:
        return 2, {"error": done.stderr}, []
    *runs, totals = [json.loads(line) for line in done.stdout.splitlines()]
    return done.returncode, totals, runs


class Story:
    """Lines of one run, written by hand. Moments in milliseconds."""

    def __init__(self, promise: str = "kept", run: str = "told") -> None:
        self.run = run
        self.lines: list[Line] = [{"what": "run", "run": run, "source": "told", "promise": promise}]

    def op(self, kind: str, task: int | None, began: int, ended: int | None, **more: Any) -> Line:
        """A call of client w0 on task `task`, whose payload is the same number unless given."""
        outcome = "ok" if ended is not None else "unknown"
        line: Line = {"what": "op", "run": self.run, "client": "w0", "tube": "t", "type": "utube"}
        line |= {"kind": kind, "task": task, "payload": task, "outcome": outcome}
        line |= {"began_us": began * 1000, "ended_us": None if ended is None else ended * 1000}
        self.lines.append(line | more)
        return line

    def event(self, event: str, **more: Any) -> None:
        self.lines.append({"what": "event", "run": self.run, "event": event, **more})

    def drained(self, at: int) -> None:
        self.event("drained", tube="t", at_us=at * 1000)

    def found(self, home: Path) -> list[str]:
        """The word for each thing that is wrong."""
        path = home / "history.jsonl"
        write(path, self.lines)
        code, totals, runs = judge(path)
        assert code == (1 if runs else 0), (code, totals)
        return sorted(one["what"] for run in runs for one in run["findings"])


def clean(story: Story) -> Story:
    """Three tasks of one sub-queue: one after the other, one released once. Then all is empty."""
    for task in range(3):
        story.op("put", task, 10 + task, 12 + task, client="p", subqueue="k")
    story.op("take", 0, 20, 21)
    story.op("ack", 0, 30, 31)
    story.op("take", 1, 40, 41)
    story.op("release", 1, 50, 51)
    story.op("take", 1, 60, 61, client="w1")
    story.op("ack", 1, 70, 71, client="w1")
    story.op("take", 2, 80, 81)
    story.op("ack", 2, 90, 91)
    story.drained(200)
    return story


def without(story: Story, kind: str, task: int) -> Line:
    """Take the last such line out."""
    at = max(
        at
        for at, line in enumerate(story.lines)
        if line.get("kind") == kind and line["task"] == task
    )
    return story.lines.pop(at)


class ToyQueue:
    """A queue with sub-queues, and clients whose answers are sometimes lost. Its history is true.

    Every call has its effect at one moment between its two.
    """

    LANES = 4

    def __init__(self, run: str, seed: int) -> None:
        self.rng = random.Random(seed)
        self.story = Story(run=run)
        self.now = 0
        self.next_id = 0
        self.ready: dict[int, list[int]] = {lane: [] for lane in range(self.LANES)}
        self.held: dict[str, int] = {}

    def play(self, operations: int) -> list[Line]:
        while len(self.story.lines) < operations:
            self.step(f"w{self.rng.randrange(5)}")
        for client in list(self.held):
            self.finish(client, "ack", sure=True)
        while any(self.ready.values()):
            self.take("drain", sure=True)
            self.finish("drain", "ack", sure=True)
        self.story.drained(self.now + 10_000)
        return self.story.lines

    def step(self, client: str) -> None:
        if client in self.held:
            self.finish(client, "release" if self.rng.random() < 0.2 else "ack")
        elif self.rng.random() < 0.5:
            self.put()
        else:
            self.take(client)

    def moments(self, sure: bool = False) -> tuple[int, int | None]:
        """The effect is at `now`; None: the answer is lost."""
        self.now += 20
        began, ended = self.now - self.rng.randrange(15), self.now + self.rng.randrange(15)
        return began, None if not sure and self.rng.random() < 0.02 else ended

    def put(self) -> None:
        lane, task = self.rng.randrange(self.LANES), self.next_id
        self.next_id += 1
        began, ended = self.moments()
        line = self.story.op("put", task, began, ended, client="p", subqueue=str(lane))
        if ended is None:
            # Half of what nobody was told of was done. Which, the history does not say.
            self.story.lines[-1]["task"] = None
            if self.rng.random() < 0.5:
                return
        self.ready[lane].append(line["payload"])

    def take(self, client: str, sure: bool = False) -> None:
        busy = set(self.held.values())
        lanes = [at for at, tasks in self.ready.items() if tasks and not busy & set(tasks)]
        began, ended = self.moments(sure=True)
        if not lanes:
            self.story.op("take", None, began, ended, client=client)
            return
        task = self.ready[self.rng.choice(lanes)][0]
        self.held[client] = task
        self.story.op("take", task, began, ended, client=client)

    def finish(self, client: str, verb: str, sure: bool = False) -> None:
        task = self.held[client]
        began, ended = self.moments(sure)
        self.story.op(verb, task, began, ended, client=client)
        if ended is None and self.rng.random() < 0.5:
            # Not done; it is still in hand.
            return
        del self.held[client]
        if verb == "ack":
            lane = next(tasks for tasks in self.ready.values() if task in tasks)
            lane.remove(task)
