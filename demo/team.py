"""Producers and workers that follow the master from node to node, over the stock connector.

Here: finding the node that serves, identifying there, sending again what was certainly refused.
Must not be here: judging, screens, processes, the operator's part (script.py).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Coroutine, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import asynctnt
from asynctnt.exceptions import TarantoolDatabaseError, TarantoolError

from demo.crowd import UNKNOWN_ERRORS, connect, disconnect
from demo.history import History, Hold, Outcome, Put
from demo.urls import host_of
from tandemq.client.errors import TandemError
from tandemq.client.find import find_writable, quietly
from tandemq.model.errors import ER_READONLY

_ASK_SECONDS = 1.0
_FOUND_SECONDS = 0.01
_TAKE_SECONDS = 0.5
_LOOK_SECONDS = 0.3


class NoMaster(Exception):
    """No node served for longer than anybody wants to wait."""


@dataclass(frozen=True, slots=True)
class TeamPlan:
    """What the team is to do. Times in seconds.

    rate: puts a second at most. put_seconds: after this no further URL is put, so that a slow
    machine ends in time, too. patience_seconds: without a master, or without any progress.
    """

    tube: str = "frontier"
    producers: int = 16
    workers: int = 16
    rate: float = 1_000.0
    put_seconds: float = 80.0
    fetch_seconds: float = 0.002
    patience_seconds: float = 30.0


class Guide:
    """Which node serves. Asked over connections of its own, one question for all who wait."""

    def __init__(self, ports: Mapping[str, int], patience_seconds: float) -> None:
        self._ports = ports
        self._patience = patience_seconds
        self._asking = asyncio.Lock()
        self._term = 0
        self._closing: set[asyncio.Task[None]] = set()
        self._found: tuple[str, float] = ("", 0.0)

    def port(self, name: str) -> int:
        return self._ports[name]

    async def master(self) -> str:
        """The name of the node that serves in the newest term. Raises NoMaster."""
        deadline = time.monotonic() + self._patience
        async with self._asking:
            while True:
                name, when = self._found
                if name and time.monotonic() - when < _FOUND_SECONDS:
                    return name
                if name := await self._ask():
                    self._found = (name, time.monotonic())
                    return name
                if time.monotonic() > deadline:
                    raise NoMaster(f"no node served for {self._patience:g} s")
                await asyncio.sleep(_FOUND_SECONDS)

    async def _ask(self) -> str:
        """The name of the node that serves in the newest term, "" for none."""
        nodes = [("127.0.0.1", port) for port in self._ports.values()]
        try:
            connection, node, self._term = await find_writable(nodes, {}, self._term, self._spawn)
        except TandemError:
            return ""
        await quietly(connection)
        port = int(node.rpartition(":")[2])
        return next(name for name, one in self._ports.items() if one == port)

    def _spawn(self, closing: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(closing)
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)

    async def close(self) -> None:
        await asyncio.gather(*self._closing, return_exceptions=True)


class Seat:
    """One connection that follows the master, with one session wherever it is.

    `node` is where it is connected now. A call raises what the connector raises; `move` comes
    back connected to a node that serves and known there by the same session.
    """

    def __init__(self, guide: Guide) -> None:
        self.node = ""
        self._guide = guide
        self._session: bytes | None = None
        self._connection: asynctnt.Connection | None = None

    async def call(self, name: str, arguments: list[Any]) -> Any:
        if self._connection is None or not self._connection.is_connected:
            await self.move()
        assert self._connection is not None
        return (await self._connection.call(name, arguments)).body

    async def move(self) -> None:
        """Raises NoMaster."""
        while True:
            await self.close()
            name = await self._guide.master()
            try:
                async with asyncio.timeout(_ASK_SECONDS):
                    port = self._guide.port(name)
                    self._connection = (await connect("127.0.0.1", port, 1))[0]
                    known = [] if self._session is None else [self._session]
                    body = (await self._connection.call("queue.identify", known)).body
                    self._session = body[0]
                self.node = name
                return
            except TarantoolDatabaseError as error:
                if error.code != ER_READONLY:
                    raise
                await asyncio.sleep(_FOUND_SECONDS)
            except UNKNOWN_ERRORS:
                await asyncio.sleep(_FOUND_SECONDS)

    def forget_session(self) -> None:
        """The next node sees somebody new; what the old session may hold comes back after ttr."""
        self._session = None

    async def close(self) -> None:
        if self._connection is not None:
            await disconnect([self._connection])
            self._connection = None


class Team:
    """One run over one cluster, writing into one history.

    Every host belongs to one producer, which has one put under way at a time: so the order of
    sending is the order of a host's URLs, also when a put must be sent again to another node.
    A put whose outcome is unknown is not sent again: the verdict says how many there were.
    """

    def __init__(self, guide: Guide, history: History, plan: TeamPlan) -> None:
        self._guide = guide
        self._history = history
        self._plan = plan
        self._position = 0
        self._slot = 0.0
        self._done = asyncio.Event()
        self._enough = False
        self._last_progress = time.monotonic()

    async def create_tube(self) -> None:
        seat = Seat(self._guide)
        await seat.call("queue.create_tube", [self._plan.tube, "utube", {"if_not_exists": True}])
        await seat.close()

    async def left_in_tube(self) -> int:
        """How many tasks the master counts in the tube, whatever their state."""
        seat = Seat(self._guide)
        try:
            body = await seat.call("queue.statistics", [self._plan.tube])
            return int(body[0]["tasks"]["total"])
        finally:
            await seat.close()

    async def run(self, urls: Sequence[str]) -> None:
        """Put and process them all, or until nothing moves. Raises NoMaster in a group."""
        shares: list[list[tuple[str, str]]] = [[] for _ in range(self._plan.producers)]
        places: dict[str, int] = {}
        for url in urls:
            host = host_of(url)
            shares[places.setdefault(host, len(places) % len(shares))].append((url, host))
        deadline = time.monotonic() + self._plan.put_seconds
        async with asyncio.TaskGroup() as group:
            for number in range(self._plan.workers):
                group.create_task(self._work(number))
            async with asyncio.TaskGroup() as producers:
                for share in shares:
                    producers.create_task(self._produce(iter(share), deadline))
            group.create_task(self._watch())

    def enough(self) -> None:
        """Put no further URL; `run` ends when those that were put are processed."""
        self._enough = True

    async def _watch(self) -> None:
        """All is put: it is over when the tube is empty, or when nothing moves any more."""
        while time.monotonic() - self._last_progress < self._plan.patience_seconds:
            try:
                if await self.left_in_tube() == 0 and self._history.in_hand == 0:
                    break
            except (*UNKNOWN_ERRORS, TarantoolError):
                pass
            await asyncio.sleep(_LOOK_SECONDS)
        self._done.set()

    # -- producers -------------------------------------------------------------------------------

    async def _produce(self, share: Iterator[tuple[str, str]], deadline: float) -> None:
        seat = Seat(self._guide)
        for url, host in share:
            await self._in_turn()
            if self._enough or time.monotonic() > deadline:
                break
            put = Put(self._position, url, host, Outcome.UNKNOWN)
            self._position += 1
            while not await self._put(seat, put):
                self._history.turned_away += 1
                await seat.move()
            self._history.record_put(put)
        await seat.close()

    async def _in_turn(self) -> None:
        """Wait for the next slot of the rate all producers share."""
        now = time.monotonic()
        self._slot = max(self._slot + 1 / self._plan.rate, now - 0.1)
        if self._slot > now:
            await asyncio.sleep(self._slot - now)

    async def _put(self, seat: Seat, put: Put) -> bool:
        """Send it once; False when it was certainly refused by a node that does not serve."""
        name = f"queue.tube.{self._plan.tube}:put"
        try:
            body = await seat.call(name, [put.url, {"utube": put.host}])
            put.task_id, put.outcome = int(body[0][0]), Outcome.OK
        except UNKNOWN_ERRORS as error:
            put.error = repr(error)
        except TarantoolDatabaseError as error:
            if error.code == ER_READONLY:
                return False
            put.outcome, put.error = Outcome.FAILED, str(error)
        except (TarantoolError, TypeError, IndexError) as error:
            put.outcome, put.error = Outcome.FAILED, str(error)
        put.node, put.answered_ns = seat.node, time.monotonic_ns()
        return True

    # -- workers ---------------------------------------------------------------------------------

    async def _work(self, number: int) -> None:
        seat, name = Seat(self._guide), f"queue.tube.{self._plan.tube}:take"
        while not self._done.is_set():
            self._history.waiting += 1
            try:
                body = await seat.call(name, [_TAKE_SECONDS])
            except UNKNOWN_ERRORS:
                # Perhaps a task was handed to this session, and nobody knows which one.
                seat.forget_session()
                continue
            except TarantoolDatabaseError as error:
                if error.code != ER_READONLY:
                    raise
                self._history.turned_away += 1
                await seat.move()
                continue
            finally:
                self._history.waiting -= 1
            if body and body[0] is not None:
                await self._process(seat, number, body[0], time.monotonic_ns())
        await seat.close()

    async def _process(
        self, seat: Seat, number: int, task: Sequence[object], taken_ns: int
    ) -> None:
        """Pretend to fetch one URL, then acknowledge it, on whichever node serves by then."""
        task_id, url = int(str(task[0])), str(task[2])
        self._history.in_hand += 1
        await asyncio.sleep(self._plan.fetch_seconds)
        hold = Hold(url, host_of(url), task_id, number, taken_ns, 0, Outcome.UNKNOWN)
        while not await self._ack(seat, hold):
            await seat.move()
        hold.node = seat.node
        self._history.in_hand -= 1
        self._history.record_hold(hold)
        self._last_progress = time.monotonic()

    async def _ack(self, seat: Seat, hold: Hold) -> bool:
        """Acknowledge once; False when it must be sent again, by the same session.

        After an ack that may have counted, the task may be somebody else's from that moment on.
        """
        sent_ns = time.monotonic_ns()
        unsure = bool(hold.error)
        try:
            await seat.call(f"queue.tube.{self._plan.tube}:ack", [hold.task_id])
        except UNKNOWN_ERRORS as error:
            hold.ended_ns, hold.error = hold.ended_ns or sent_ns, repr(error)
            return False
        except TarantoolError as error:
            if getattr(error, "code", None) == ER_READONLY:
                self._history.turned_away += 1
                return False
            hold.ended_ns = hold.ended_ns or sent_ns
            hold.outcome = Outcome.UNKNOWN if unsure else Outcome.FAILED
            hold.error = hold.error if unsure else str(error)
            return True
        hold.ended_ns, hold.outcome, hold.error = sent_ns, Outcome.OK, ""
        return True
