"""The log that docs/cookbook.md asks its questions of: three hours of a shop, the same every time.

Mail's server is down for a while in the second hour, and the queue goes over to its other node.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from benchmarks.logmaker import Consumer, LogMaker

STEP_US = 15_000_000
STEPS = 3 * 240
DOWN = range(260, 340)
SWITCH = 420
#: Of each tube: tasks put in a hundred steps, and steps a worker has a task.
TUBES = {"orders": (60, 1), "mail": (35, 2), "thumbs": (18, 4)}


class Shop:
    """One producer, and a worker for each tube."""

    def __init__(self, home: Path) -> None:
        self.maker = LogMaker(home, segment_bytes=65_536)
        self.maker.open_term()
        self.maker.tube("dead")
        self.tubes = {
            "orders": self.maker.tube("orders"),
            "mail": self.maker.tube("mail", "fifottl", ttr=120, max_attempts=3, dead_letter="dead"),
            "thumbs": self.maker.tube("thumbs", "utube", max_attempts=2, dead_letter="dead"),
        }
        #: Of each worker: its task, and the step in which it is done.
        self.held: dict[str, tuple[int, int]] = {}
        self.puts = 0

    def step(self, number: int) -> None:
        for worker, (name, (often, long)) in enumerate(TUBES.items(), 1):
            if self.maker.random.randrange(100) < often:
                self.put(name)
            if name in self.held and self.held[name][1] <= number:
                self.end(name, worker, self.held.pop(name)[0], number)
            if name not in self.held:
                task = self.maker.take(self.tubes[name], worker)
                if task is not None:
                    lasts = long + self.maker.random.randrange(long + 1)
                    self.held[name] = (task, number + lasts)
        self.maker.turn(STEP_US)

    def switch(self) -> None:
        """The other node leads: all connect anew, and what they held is given back."""
        engine = self.maker.engine
        engine.running = False
        for client in self.maker.clients:
            engine.disconnect(client)
        self.maker.clients = [Consumer(number) for number in range(5, 9)]
        self.maker.open_term(2, "b")
        self.held.clear()

    def put(self, name: str) -> None:
        self.puts += 1
        # A producer that was not answered in time, and gave no key, puts once more.
        times = 2 if self.puts % 150 == 0 else 1
        more: dict[str, Any] = {"utube": f"shelf{self.puts % 3}"} if name == "thumbs" else {}
        for _ in range(times):
            self.maker.put(self.tubes[name], f"{name}-{self.puts}", **more)

    def end(self, name: str, worker: int, task: int, number: int) -> None:
        tube, client = self.tubes[name], self.maker.clients[worker]
        chance = self.maker.random.randrange(100)
        if name == "mail" and number in DOWN:
            tube.release(client, task, {"delay": 30})
        elif name == "mail" and chance < 3:
            return  # hangs: its time to run ends
        elif name == "orders" and chance < 2:
            tube.bury(client, task)
        elif chance < (16 if name == "thumbs" else 6):
            tube.release(client, task)
        else:
            tube.ack(client, task)


def write(home: Path) -> None:
    """A node's data directory."""
    shop = Shop(home)
    for number in range(STEPS):
        if number == SWITCH:
            shop.switch()
        shop.step(number)
    shop.maker.close()
