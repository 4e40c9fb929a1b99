"""How far an operation walks through the house: calls made and files entered, of product code only.

`python -m tests.house.walks` prints the table of README.md beside it. Two whole nodes on a virtual
clock, network and disk; what is counted is therefore the same in every run.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

from tests.simulation.sim_clients import Call, Client, Connect, Script
from tests.simulation.sim_two import Two

ROOT = Path(__file__).resolve().parents[2]
NOT_PRODUCT = ("tests", ".venv", "benchmarks")


class Walk:
    """calls: functions of the product entered, generators as often as they go on; comprehensions
    are part of the function around them. files: those they stand in.
    """

    def __init__(self) -> None:
        self.calls = 0
        self.files: set[str] = set()
        self._known: dict[str, str] = {}

    def enter(self, frame: FrameType, event: str, _argument: Any) -> None:
        code = frame.f_code
        if event == "call" and code.co_name[0] != "<" and (name := self._product(code.co_filename)):
            self.calls += 1
            self.files.add(name)

    def _product(self, path: str) -> str:
        """The file's name in the repository, empty for anybody else's."""
        if path not in self._known:
            real = Path(path).resolve()
            # Methods that a dataclass makes have no file.
            inside = path[0] != "<" and real.is_relative_to(ROOT)
            name = str(real.relative_to(ROOT)) if inside else ""
            self._known[path] = "" if name.startswith(NOT_PRODUCT) else name
        return self._known[path]


@contextmanager
def walked() -> Iterator[Walk]:
    walk = Walk()
    sys.setprofile(walk.enter)
    try:
        yield walk
    finally:
        sys.setprofile(None)


def put(two: Two) -> Walk:
    return _called(two, (("queue.tube.jobs:put", b"one"),))


def take(two: Two) -> Walk:
    assert two.call(two.a, "queue.tube.jobs:put", b"one").ok
    return _called(two, (("queue.tube.jobs:take", 0),))


def take_that_waits(two: Two) -> Walk:
    """A consumer that waits 20 ms in vain: parked, and told so."""
    assert two.call(two.a, "queue.create_tube", "empty", "fifo").ok
    return _called(two, (("queue.tube.empty:take", 0.02),))


def flip(two: Two) -> Walk:
    """Both commands of a planned switch-over, until the other node serves."""
    with walked() as walk:
        for node, read_only in ((two.a, True), (two.b, False)):
            found = two.request(node, read_only)
            two.until(lambda found=found: found)
        two.until(lambda: two.serving() == ["b"])
    return walk


def _called(two: Two, calls: tuple[tuple[Any, ...], ...]) -> Walk:
    client = Client(two.world, two.network, two.machines, "walker")
    found: list[Any] = []
    walk = Walk()

    def script() -> Script:
        yield Connect("a")
        yield Call("queue.tube.jobs:put", (b"first",))  # what is bound once
        for name, *arguments in calls:
            sys.setprofile(walk.enter)
            found.append((yield Call(name, tuple(arguments))))
            sys.setprofile(None)

    client.run(script())
    two.until(lambda: len(found) == len(calls), 10)
    client.retire()
    assert all(one.error is None for one in found), found
    return walk


OPERATIONS: dict[str, Callable[[Two], Walk]] = {
    "put": put,
    "take": take,
    "take that waits 20 ms": take_that_waits,
    "flip": flip,
}


def measure(name: str) -> Walk:
    two = Two(1).start()
    two.run(0.5)
    return OPERATIONS[name](two)


def main() -> int:
    for name in OPERATIONS:
        walk = measure(name)
        sys.stdout.write(f"| {name} | {walk.calls} | {len(walk.files)} |\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
