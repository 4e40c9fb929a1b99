"""Starts the node under a profiler; profile_server.py runs this as the node's process.

Here: installing the profiler, and writing what it saw when the node ends. Must not be here: load.
`python -m benchmarks.profile_launch MODE FILE serve ...`, MODE being `calls` (cProfile: exact
counts, but Python calls look dearer than they are) or `samples` (each millisecond of CPU time).
"""

from __future__ import annotations

import cProfile
import json
import signal
import sys
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from importlib import import_module
from importlib.metadata import entry_points
from pathlib import Path
from types import FrameType
from typing import cast

SAMPLE_SECONDS = 0.001
"""Asked for; the kernel's tick makes it 4 ms of CPU time on many machines."""

START, STOP = signal.SIGUSR1, signal.SIGUSR2
_DEPTH_MAX = 60


def entry() -> Callable[[], object]:
    """What the `tandemq` command calls, from the installed distribution or the source tree."""
    for point in entry_points(group="console_scripts", name="tandemq"):
        return cast("Callable[[], object]", point.load())
    return cast("Callable[[], object]", import_module("tandemq_server.node.main").main)


class Sampler:
    """Counts where the main thread is, by line and by function, each time its CPU timer fires."""

    def __init__(self) -> None:
        self.total = 0
        self.lines: Counter[str] = Counter()
        self.own: Counter[str] = Counter()
        self.under: Counter[str] = Counter()

    def __call__(self, _number: int, frame: FrameType | None) -> None:
        if frame is None:
            return
        self.total += 1
        self.lines[f"{_name(frame)}:{frame.f_lineno}"] += 1
        self.own[_name(frame)] += 1
        seen, depth = set(), 0
        while frame is not None and depth < _DEPTH_MAX:
            seen.add(_name(frame))
            frame, depth = frame.f_back, depth + 1
        self.under.update(seen)


def _name(frame: FrameType) -> str:
    path = Path(frame.f_code.co_filename)
    return f"{path.parent.name}/{path.name} {frame.f_code.co_qualname}"


def profile_calls(path: Path) -> None:
    """Run the node with cProfile on from START to STOP, and leave a pstats file."""
    profiler = cProfile.Profile()
    signal.signal(START, lambda _number, _frame: profiler.enable())
    signal.signal(STOP, lambda _number, _frame: profiler.disable())
    try:
        with suppress(SystemExit):
            entry()()
    finally:
        profiler.disable()
        profiler.dump_stats(path)


def profile_samples(path: Path) -> None:
    """Run the node, sampling its main thread from START to STOP, and leave a JSON file."""
    sampler = Sampler()

    def switch(number: int, _frame: FrameType | None) -> None:
        seconds = SAMPLE_SECONDS if number == START else 0.0
        signal.setitimer(signal.ITIMER_PROF, seconds, seconds)

    signal.signal(signal.SIGPROF, sampler)
    signal.signal(START, switch)
    signal.signal(STOP, switch)
    try:
        with suppress(SystemExit):
            entry()()
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        content = {
            "total": sampler.total,
            "own": sampler.own,
            "under": sampler.under,
            "lines": sampler.lines,
        }
        path.write_text(json.dumps(content), encoding="utf-8")


if __name__ == "__main__":
    mode, file, *words = sys.argv[1:]
    sys.argv = ["tandemq", *words]
    (profile_calls if mode == "calls" else profile_samples)(Path(file))
