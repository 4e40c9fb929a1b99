"""Putting rows into a cluster: finds the writable node, keeps frames in flight, follows a switch.

One connection, frames in order, each answered before it is forgotten. What was in flight when the
node went is sent again, in order, to whoever is writable next; keys keep the server from storing
it twice. Frames are waited for beside that: a frame leaves when it is there, and a node that goes
is noticed however long the next one takes. No Spark here.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Coroutine, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import asynctnt
from asynctnt.exceptions import ErrorCode, TarantoolDatabaseError, TarantoolError

from tandemq.client.errors import Refused, Unavailable
from tandemq.client.find import LOADING, READ_ONLY, find_writable
from tandemq.client.tls import Tls

#: [[payload, options], ...] of one put_many.
Frame = list[list[Any]]
#: Frames on their way, each with its answer to come.
Waiting = deque[tuple[Frame, asyncio.Future[Any]]]
PROBE_SECONDS = 5.0
PAUSE_SECONDS = 0.2


class TargetError(Exception):
    """The cluster cannot take the rows; the text says why and how many it has taken."""


@dataclass
class Put:
    """What came of a partition: tasks the cluster has, rows it refused with the reason."""

    stored: int = 0
    refused: list[tuple[list[Any], str]] = field(default_factory=list)
    resent: int = 0


def addresses(text: str) -> list[tuple[str, int]]:
    """Servers out of `host:port,host:port`. Raises `ValueError`."""
    found = []
    for part in text.split(","):
        host, colon, port = part.strip().rpartition(":")
        if not colon or not host or not port.isdigit():
            raise ValueError(f"servers are host:port with commas between, not {part.strip()!r}")
        found.append((host, int(port)))
    return found


class Target:
    """One writer's way to the cluster."""

    def __init__(
        self,
        servers: list[tuple[str, int]],
        tube: str,
        user: str | None = None,
        password: str | None = None,
        timeout_s: float = 60.0,
        window: int = 8,
        tls: Tls | None = None,
    ) -> None:
        self.servers = servers
        self.tube = tube
        self.login = {"username": user, "password": password}
        self.timeout_s = timeout_s
        self.window = window
        self.tls = tls
        self.connection: asynctnt.Connection | None = None
        self.failure = "no server answered"
        #: The newest term ever seen: a node of an older one is superseded.
        self.term = 0
        #: Since when frames are lost or sent away, all of them; None while they are answered.
        self._failing_since: float | None = None
        #: Whether the rows of a frame are on their way one by one: the next frame is behind them.
        self._row_by_row = False
        self._closing: set[asyncio.Task[None]] = set()

    async def connect(self) -> asynctnt.Connection:
        """A connection to the node that is RUNNING in the newest term, now or ever seen.

        Raises `TargetError` after the timeout.
        """
        deadline = time.monotonic() + self.timeout_s
        while True:
            try:
                found, _, self.term = await find_writable(
                    self.servers,
                    self.login,
                    self.term,
                    self._spawn,
                    self.tls,
                    request_timeout=self.timeout_s,
                )
            except Unavailable as error:
                self.failure = str(error)
            except Refused as error:
                raise TargetError(str(error)) from error
            else:
                self.connection = found
                return found
            if time.monotonic() > deadline:
                names = ", ".join(f"{host}:{port}" for host, port in self.servers)
                raise TargetError(
                    f"no writable node among {names} for {self.timeout_s:g} s ({self.failure})"
                )
            await asyncio.sleep(PAUSE_SECONDS)

    def _spawn(self, closing: Coroutine[Any, Any, None]) -> None:
        """A node that is slow to answer is let go without being waited for."""
        task = asyncio.get_running_loop().create_task(closing)
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)

    async def _close(self, connection: asynctnt.Connection | None) -> None:
        if connection is not None:
            try:
                await connection.disconnect()
            except (OSError, TarantoolError):
                return

    async def put_all(self, frames: Iterable[Frame], told: Callable[[int], None]) -> Put:
        """Put every frame; `told` hears the number of tasks after each. Raises `TargetError`."""
        done, waiting = Put(), Waiting()
        try:
            await self.connect()
            await self._put(iter(frames), waiting, done, told)
        except TargetError as error:
            open_rows = sum(len(frame) for frame, _ in waiting)
            raise TargetError(
                f"{error}; of this partition {done.stored} rows are stored and {open_rows} were "
                "sent without an answer: the same jobId puts what is missing, and only that"
            ) from error
        finally:
            for _, answer in waiting:
                answer.cancel()
            await asyncio.gather(*(answer for _, answer in waiting), return_exceptions=True)
            await self._close(self.connection)
        return done

    async def _put(
        self, frames: Iterator[Frame], waiting: Waiting, done: Put, told: Callable[[int], None]
    ) -> None:
        """Send frames as they come, wait for answers as they are due, both at once."""
        loop = asyncio.get_running_loop()
        # Whoever makes the frames may take minutes for one: never in the loop.
        maker = ThreadPoolExecutor(1)
        coming: asyncio.Future[Frame | None] | None = None
        settling: asyncio.Task[None] | None = None
        more = True
        try:
            while more or waiting:
                if more and coming is None and len(waiting) < self.window:
                    coming = loop.run_in_executor(maker, next, frames, None)
                if waiting and settling is None:
                    settling = loop.create_task(self._settle(waiting, done))
                open_ones = {one for one in (coming, settling) if one and not one.done()}
                await asyncio.wait(open_ones, return_when=asyncio.FIRST_COMPLETED)
                if settling is not None and settling.done():
                    settling.result()
                    settling = None
                    told(done.stored)
                if coming is not None and coming.done() and self._may_send:
                    frame, coming = coming.result(), None
                    more = frame is not None
                    if frame is not None:
                        waiting.append((frame, self._send(frame)))
        finally:
            left = [one for one in (coming, settling) if one is not None]
            for one in left:
                one.cancel()
            await asyncio.gather(*left, return_exceptions=True)
            # Who still makes a frame is not waited for: the task has failed already.
            maker.shutdown(wait=False, cancel_futures=True)

    @property
    def _may_send(self) -> bool:
        """Whether the next frame would come behind all before it."""
        return self.connection is not None and not self._row_by_row

    def _send(self, frame: Frame) -> asyncio.Future[Any]:
        """The answer to come; that the connection is over already is told by it, too."""
        assert self.connection is not None
        return asyncio.ensure_future(self._call(self.connection, frame))

    async def _call(self, connection: asynctnt.Connection, frame: Frame) -> Any:
        return await connection.call(f"queue.tube.{self.tube}:put_many", [frame])

    async def _settle(self, waiting: Waiting, done: Put) -> None:
        """Wait for the oldest frame; send all again where the node went away under it."""
        while True:
            frame, answer = waiting[0]
            try:
                await self._answered(answer)
                done.stored += len(frame)
                self._failing_since = None
            except TarantoolDatabaseError as error:
                if error.code not in (READ_ONLY, LOADING):
                    self._failing_since = None
                    await self._refused(waiting, done, error)
                    return
                self.failure = error.message
                await self._give_up_in_time()
                await self._resend(waiting, done)
                continue
            except (TimeoutError, OSError, TarantoolError) as error:
                self.failure = str(error) or type(error).__name__
                await self._give_up_in_time()
                await self._resend(waiting, done)
                continue
            waiting.popleft()
            return

    async def _give_up_in_time(self) -> None:
        """A node that serves and loses, or sends away, every frame would be tried for ever."""
        now = time.monotonic()
        if self._failing_since is None:
            self._failing_since = now
            return
        if now - self._failing_since > self.timeout_s:
            raise TargetError(
                f"no frame was taken by the node that serves, for {self.timeout_s:g} s "
                f"({self.failure}): the node's log says why; may this user put without logging in?"
            )
        await asyncio.sleep(PAUSE_SECONDS)

    async def _answered(self, answer: asyncio.Future[Any]) -> None:
        """Wait for the answer as long as the node shows signs of life. Raises what it failed with.

        A machine that went without a word (power, network) would else be waited for to the end of
        the timeout, though another node may be writable by now.
        """
        assert self.connection is not None
        while not (await asyncio.wait({answer}, timeout=PROBE_SECONDS))[0]:
            await self.connection.ping(timeout=PROBE_SECONDS)
        answer.result()

    async def _resend(self, waiting: Waiting, done: Put) -> None:
        frames = [frame for frame, _ in waiting]
        # Nothing is sent until all of these are on their way again.
        lost, self.connection = self.connection, None
        await self._close(lost)
        for _, answer in waiting:
            answer.cancel()
        await asyncio.gather(*(answer for _, answer in waiting), return_exceptions=True)
        await self.connect()
        done.resent += sum(map(len, frames))
        waiting.clear()
        waiting.extend([(frame, self._send(frame)) for frame in frames])

    async def _refused(self, waiting: Waiting, done: Put, error: TarantoolDatabaseError) -> None:
        """A frame is all or nothing: one that is refused goes again, row by row."""
        frame, _ = waiting.popleft()
        if len(frame) == 1:
            if error.code == ErrorCode.ER_NO_SUCH_PROC:
                raise TargetError(f"tube {self.tube}: {error.message}") from error
            done.refused.append((frame[0], error.message))
            return
        # The frames behind it are on their way already; each row still comes before the next frame
        # that has not been sent.
        self._row_by_row = True
        for row in frame:
            alone = Waiting([([row], self._send([row]))])
            await self._settle(alone, done)
        self._row_by_row = False
