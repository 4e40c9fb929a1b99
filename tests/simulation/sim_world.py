"""Virtual time, one source of chance, and a network of streams that delays, stalls and cuts."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from random import Random
from typing import Any, Protocol

MS = 1_000
SECOND = 1_000_000
#: No scenario has as many events unless something spins.
EVENTS_MAX = 300_000
#: Where the virtual clock starts: a day in 2026, in µs since the epoch.
EPOCH_US = 1_780_000_000 * SECOND


class Timer:
    """Something that will happen, unless it is cancelled."""

    __slots__ = ("call",)

    def __init__(self, call: Callable[[], None] | None) -> None:
        self.call = call

    def cancel(self) -> None:
        self.call = None


class World:
    """Everything that happens, in the order of its moments; equal moments in order of planning."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.chance = Random(seed)
        self.now = 0
        self.lines: list[str] = []
        self.events = 0
        #: What somebody saw in the middle of a run that must not be; told when that event is over.
        self.broken = ""
        self._heap: list[tuple[int, int, Timer]] = []
        self._count = 0

    def at(self, moment: int, call: Callable[[], None]) -> Timer:
        timer = Timer(call)
        self._count += 1
        heapq.heappush(self._heap, (max(moment, self.now), self._count, timer))
        return timer

    def after(self, us: int, call: Callable[[], None]) -> Timer:
        return self.at(self.now + us, call)

    def run(self, until_us: int) -> None:
        heap = self._heap
        while heap and heap[0][0] <= until_us:
            self.now, _, timer = heapq.heappop(heap)
            call = timer.call
            if call is not None:
                self.events += 1
                if self.events > EVENTS_MAX:
                    raise AssertionError(f"{EVENTS_MAX} events: something goes round in circles")
                call()
                if self.broken:
                    raise AssertionError(self.broken)
        self.now = until_us

    def run_while(self, wanted: Callable[[], bool], seconds: float) -> bool:
        """Run until `wanted` is false; False when it never was in that time."""
        deadline = self.now + int(seconds * SECOND)
        while wanted():
            if self.now >= deadline:
                return False
            self.run(min(deadline, self.now + 20 * MS))
        return True

    def wrong(self, text: str) -> None:
        """A promise is broken here and now. Nobody who catches errors can hide it."""
        self.broken = self.broken or text

    def say(self, text: str) -> None:
        self.lines.append(f"{self.now / SECOND:9.4f} {text}")


class Receiver(Protocol):
    """The process at one end of a stream."""

    def deliver(self, call: Callable[[], None]) -> None:
        """Run `call` in that process, later if it stands still, never if it is gone."""
        ...


class Network:
    """Streams between named places. A cut direction holds bytes back until it is healed."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.cut: set[tuple[str, str]] = set()
        self.delay_us = (100, 2 * MS)
        self.streams: list[Stream] = []

    def delay(self) -> int:
        return self.world.chance.randint(*self.delay_us)

    def set_cut(self, source: str, target: str, cut: bool) -> None:
        (self.cut.add if cut else self.cut.discard)((source, target))
        if not cut:
            for stream in list(self.streams):
                stream.flow()

    def heal(self) -> None:
        for source, target in sorted(self.cut):
            self.set_cut(source, target, False)


class Stream:
    """One direction of a connection: bytes in order, maybe in other pieces, then its end."""

    def __init__(
        self,
        network: Network,
        places: tuple[str, str],
        receiver: Receiver,
        got: Callable[[bytes], None],
        ended: Callable[[], None],
    ) -> None:
        self.network = network
        self.places = places
        self.receiver = receiver
        self.got = got
        self.ended = ended
        self.queue: list[bytes | None] = []
        self.open = True
        self._busy = False
        network.streams.append(self)

    def write(self, data: bytes) -> None:
        if self.open and data:
            self.queue.append(data)
            self.flow()

    def close(self) -> None:
        """The end follows what was written."""
        if self.open:
            self.open = False
            self.queue.append(None)
            self.flow()

    def reset(self) -> None:
        """What is still on the way is lost, some of it in mid-frame; the other end learns of it."""
        self.open = False
        chance = self.network.world.chance
        sent = b"".join(part for part in self.queue if part is not None)
        kept = sent[: chance.randrange(len(sent))] if sent and chance.random() < 0.3 else b""
        self.queue = [kept, None] if kept else [None]
        self.flow()

    def flow(self) -> None:
        if self._busy or not self.queue or self.places in self.network.cut:
            return
        self._busy = True
        self.network.world.after(self.network.delay(), self._arrive)

    def _arrive(self) -> None:
        self._busy = False
        if not self.queue or self.places in self.network.cut:
            return
        data = self.queue.pop(0)
        if data is None:
            if self in self.network.streams:
                self.network.streams.remove(self)
            self.receiver.deliver(self.ended)
        else:
            # Everything written meanwhile may come in one read, or one write in two.
            chance = self.network.world.chance
            while self.queue and self.queue[0] is not None and chance.random() < 0.5:
                data += self.queue.pop(0) or b""
            if len(data) > 1 and chance.random() < 0.1:
                at = chance.randrange(1, len(data))
                self.queue.insert(0, data[at:])
                data = data[:at]
            got: Any = data
            self.receiver.deliver(lambda: self.got(got))
        self.flow()
