"""Putting rows into a cluster: finds the writable node, keeps frames in flight, follows a switch.

One connection, frames in order, each answered before it is forgotten. What was in flight when the
node went is sent again, in order, to whoever is writable next; keys keep the server from storing
it twice. No Spark here.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Coroutine, Iterable
from dataclasses import dataclass, field
from typing import Any

import asynctnt
from asynctnt.exceptions import ErrorCode, TarantoolDatabaseError, TarantoolError

from tandemq.client.errors import Refused, Unavailable
from tandemq.client.find import find_writable
from tandemq.client.tls import Tls

#: [[payload, options], ...] of one put_many.
Frame = list[list[Any]]
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
        #: Since when connections are lost under every frame; None while frames are taken.
        self._failing_since: float | None = None
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
        done = Put()
        waiting: deque[tuple[Frame, asyncio.Future[Any]]] = deque()
        try:
            await self.connect()
            for frame in frames:
                waiting.append((frame, self._send(frame)))
                if len(waiting) >= self.window:
                    await self._settle(waiting, done)
                    told(done.stored)
            while waiting:
                await self._settle(waiting, done)
                told(done.stored)
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

    def _send(self, frame: Frame) -> asyncio.Future[Any]:
        """The answer to come; that the connection is over already is told by it, too."""
        assert self.connection is not None
        return asyncio.ensure_future(self._call(self.connection, frame))

    async def _call(self, connection: asynctnt.Connection, frame: Frame) -> Any:
        return await connection.call(f"queue.tube.{self.tube}:put_many", [frame])

    async def _settle(self, waiting: deque[tuple[Frame, asyncio.Future[Any]]], done: Put) -> None:
        """Wait for the oldest frame; send all again where the node went away under it."""
        while True:
            frame, answer = waiting[0]
            try:
                await self._answered(answer)
                done.stored += len(frame)
                self._failing_since = None
            except TarantoolDatabaseError as error:
                if error.code != ErrorCode.ER_READONLY:
                    await self._refused(waiting, done, error)
                    return
                self.failure = error.message
                await self._resend(waiting, done)
                continue
            except (TimeoutError, OSError, TarantoolError) as error:
                self.failure = str(error) or type(error).__name__
                self._give_up_in_time()
                await self._resend(waiting, done)
                continue
            waiting.popleft()
            return

    def _give_up_in_time(self) -> None:
        """A node that takes calls and hangs up on every frame would be tried for ever."""
        now = time.monotonic()
        if self._failing_since is None:
            self._failing_since = now
        elif now - self._failing_since > self.timeout_s:
            raise TargetError(
                f"every connection was lost before a frame was taken, for {self.timeout_s:g} s "
                f"({self.failure}): the node's log says why; may this user put without logging in?"
            )

    async def _answered(self, answer: asyncio.Future[Any]) -> None:
        """Wait for the answer as long as the node shows signs of life. Raises what it failed with.

        A machine that went without a word (power, network) would else be waited for to the end of
        the timeout, though another node may be writable by now.
        """
        assert self.connection is not None
        while not (await asyncio.wait({answer}, timeout=PROBE_SECONDS))[0]:
            await self.connection.ping(timeout=PROBE_SECONDS)
        answer.result()

    async def _resend(self, waiting: deque[tuple[Frame, asyncio.Future[Any]]], done: Put) -> None:
        frames = [frame for frame, _ in waiting]
        await self._close(self.connection)
        for _, answer in waiting:
            answer.cancel()
        await asyncio.gather(*(answer for _, answer in waiting), return_exceptions=True)
        await self.connect()
        done.resent += sum(map(len, frames))
        waiting.clear()
        waiting.extend([(frame, self._send(frame)) for frame in frames])

    async def _refused(
        self,
        waiting: deque[tuple[Frame, asyncio.Future[Any]]],
        done: Put,
        error: TarantoolDatabaseError,
    ) -> None:
        """A frame is all or nothing: one that is refused goes again, row by row."""
        frame, _ = waiting.popleft()
        if len(frame) == 1:
            if error.code == ErrorCode.ER_NO_SUCH_PROC:
                raise TargetError(f"tube {self.tube}: {error.message}") from error
            done.refused.append((frame[0], error.message))
            return
        # The frames behind it are on their way already; each row still comes before the next frame
        # that has not been sent.
        for row in frame:
            alone: deque[tuple[Frame, asyncio.Future[Any]]] = deque()
            alone.append(([row], self._send([row])))
            await self._settle(alone, done)
