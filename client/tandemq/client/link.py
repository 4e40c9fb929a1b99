"""The way to the cluster: one session, over one connection, and how each call ended.

Here: following, repeating, deadlines, what is in hand. Must not be here: who is writable
(find.py), what is asked (tube.py, task.py).
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import OrderedDict
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any

import asynctnt
from asynctnt.exceptions import TarantoolDatabaseError, TarantoolNotConnectedError
from tenacity import AsyncRetrying, RetryCallState, retry_if_exception, wait_random_exponential

from tandemq.client.dial import CLOSE_SECONDS
from tandemq.client.errors import (
    Refused,
    TandemError,
    Unavailable,
    Unknown,
    read_only,
    refusal,
)
from tandemq.client.find import (
    BROKEN,
    LOADING,
    PROBE_SECONDS,
    READ_ONLY,
    find_writable,
    quietly,
)
from tandemq.client.lookout import LossWatch
from tandemq.client.strays import raw, release, rows
from tandemq.client.tls import Tls

if TYPE_CHECKING:
    from tandemq.client.task import Task

log = logging.getLogger("tandemq")

#: How long one try of a call that may be repeated waits; how long calls under way have to end on
#: a connection that is left; how often a client with tasks in hand looks after its connection.
ATTEMPT_SECONDS, SETTLE_SECONDS, WATCH_SECONDS = 5.0, 1.0, 1.0
PAUSE = wait_random_exponential(multiplier=0.05, max=1.0)
FAILURES_MAX = 10_000


class MasterLink:
    """One session with a cluster, over one connection to whichever node is writable."""

    def __init__(
        self,
        nodes: list[tuple[str, int]],
        user: str | None,
        password: str | None,
        session: bytes | None,
        on_switch: Callable[[str], None] | None,
        tls: Tls | None = None,
    ) -> None:
        self.nodes = nodes
        self.tls = tls
        self.login = {"username": user, "password": password}
        self.session = session
        #: A session others may share: what is taken in it is not only ours.
        self.shared = session is not None
        self.on_switch = on_switch
        self.node = ""
        self.term = 0
        #: Tasks in hand by (tube, id).
        self.held: dict[tuple[str, int], Task] = {}
        #: Failures of tasks in tubes that do not count attempts, by (tube, id); the latest ones.
        self.failures: OrderedDict[tuple[str, int], int] = OrderedDict()
        self._connection: asynctnt.Connection | None = None
        self._lock = asyncio.Lock()
        #: Calls whose answer is awaited, on the current connection or on the one before.
        self._flying = 0
        self._landed = asyncio.Event()
        self._landed.set()
        self._heard = 0.0
        #: Why the connection is not simply used: a call had no answer in time; the node is
        #: read-only or gone; the session may hold tasks we do not know of, to be given back.
        self._doubtful = False
        self._left = False
        self._strays = False
        self._closed = False
        self._trouble = ""
        self._background: set[asyncio.Task[None]] = set()
        self._watching: asyncio.Task[None] | None = None
        self.lookout = LossWatch(self)

    def spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Let something end by itself; `close` ends it at the latest."""
        task = asyncio.create_task(work)
        self._background.add(task)
        task.add_done_callback(self._background.discard)
        return task

    def failed(self, tube: str, task_id: int, attempts: int) -> None:
        """Remember how often a task failed here."""
        self.failures[tube, task_id] = attempts
        self.failures.move_to_end((tube, task_id))
        if len(self.failures) > FAILURES_MAX:
            self.failures.popitem(last=False)

    def abandon(self, tube: str, task_id: int) -> None:
        """Nobody will ask about this task again: still held at the next look, it is given back."""
        self.held.pop((tube, task_id), None)
        self._strays = True

    async def call(
        self,
        name: str,
        args: list[Any],
        timeout: float,
        *,
        repeat: bool = False,
        wait: float = 0.0,
        receive: Callable[[list[Any]], None] | None = None,
    ) -> list[Any]:
        """The values a call returned. Seconds; `wait`: how long the server may well take.

        What was surely not done is repeated until `timeout`; what may have been done only with
        `repeat`. `receive`: this is a take, and that gets the answer the moment it comes.

        Raises Refused, Unavailable, Unknown; Unknown as well when a repeat was refused. TypeError
        for arguments that MessagePack cannot hold: nothing was sent.
        """
        loop = asyncio.get_running_loop()
        limit = loop.time() + timeout + wait
        patience = ATTEMPT_SECONDS + wait if repeat else timeout + wait
        unknown: Unknown | None = None
        try:
            return await self._once(name, args, limit, patience, receive)
        except Unavailable:
            pass  # and again, below: most calls need none of that
        except Unknown as error:
            if not repeat:
                raise
            unknown = error

        def again(error: BaseException) -> bool:
            return isinstance(error, Unavailable) or (repeat and isinstance(error, Unknown))

        def pause(state: RetryCallState) -> float:
            return max(0.0, min(PAUSE(state), limit - loop.time()))

        retrying = AsyncRetrying(
            retry=retry_if_exception(again),
            wait=pause,
            stop=lambda _state: loop.time() >= limit,
            reraise=True,
        )
        try:
            async for attempt in retrying:
                with attempt:
                    try:
                        return await self._once(name, args, limit, patience, receive)
                    except Unknown as error:
                        unknown = unknown or error
                        raise
        except Refused as error:
            if unknown is None:
                raise
            raise Unknown(f"{unknown}; then: {error}", error.code, name) from error
        raise AssertionError("tenacity ends with a value or an error")

    async def _once(
        self,
        name: str,
        args: list[Any],
        limit: float,
        patience: float,
        receive: Callable[[list[Any]], None] | None,
    ) -> list[Any]:
        loop = asyncio.get_running_loop()
        connection = await self._writable(limit)
        left = min(limit - loop.time(), patience)
        if left <= 0:
            raise Unavailable(f"no time left to ask {self.node}", call=name)
        try:
            answering = connection.call(name, args, timeout=left)
        except TarantoolNotConnectedError as error:
            raise Unavailable(f"{self.node}: {error}") from None  # nothing was sent
        self._flying += 1
        self._landed.clear()
        try:
            answer = list((await answering).body or [])
            if receive is not None:
                receive(answer)
        except TarantoolDatabaseError as error:
            if error.code in (READ_ONLY, LOADING):
                # Others may still get their answers on it: `_writable` lets them.
                self._leave(connection)
                raise read_only(self.node, error.code, name) from None
            raise refusal(error.message, error.code, name) from None
        except BROKEN as error:
            self._strays |= receive is not None
            if isinstance(error, TimeoutError):
                self._doubtful = True
            else:
                self._leave(connection)
            reason = str(error) or type(error).__name__
            raise Unknown(f"no answer from {self.node}: {reason}", call=name) from error
        except asyncio.CancelledError:
            self._strays |= receive is not None
            raise
        finally:
            self._flying -= 1
            if not self._flying:
                self._landed.set()
        self._heard = loop.time()
        return answer

    def _leave(self, connection: asynctnt.Connection) -> None:
        """Make no further calls on this connection; the next call finds another one."""
        if self._connection is connection:
            self._left = True

    async def _writable(self, limit: float) -> asynctnt.Connection:
        """The connection to the writable node, made anew if need be. Raises Unavailable."""
        found = self._connection
        doubts = self._doubtful or self._left or self._strays
        if found is not None and not doubts and found.is_connected:
            return found
        try:
            async with asyncio.timeout_at(limit), self._lock:
                return await self._renew()
        except TimeoutError:
            names = ", ".join(f"{host}:{port}" for host, port in self.nodes)
            why = f": {self._trouble}" if self._trouble else ""
            raise Unavailable(f"no writable node among {names} in time{why}") from None

    async def _renew(self) -> asynctnt.Connection:
        """`_writable`, one at a time: ask the node that is in doubt, or find another one."""
        found = self._connection
        if found is not None:
            usable = found.is_connected and not self._left and not self._strays
            if usable and (not self._doubtful or await self._answers(found)):
                self._doubtful = False
                return found
            await self._settle(found)
        if self._closed:
            raise Refused("the client is closed")
        try:
            found, node, term = await find_writable(
                self.nodes, self.login, self.term, self.spawn, self.tls
            )
        except Refused as error:
            self._trouble = str(error)
            raise
        try:
            # What was answered in an old term may be lost: acked there, and still taken here.
            self._strays |= 0 < self.term != term
            await self._identify(found)
            await self._return_strays(found)
            if self._closed:
                raise Refused("the client is closed")
        except TarantoolDatabaseError as error:
            await quietly(found)
            raise refusal(f"{node}: {error.message}", error.code, "queue.identify") from None
        except BaseException as error:
            await quietly(found)
            if isinstance(error, BROKEN):
                raise Unavailable(f"{node}: {error!r}") from None
            raise
        self._connection, self._doubtful, self._left = found, False, False
        self._arrived(node, term)
        return found

    async def _answers(self, connection: asynctnt.Connection) -> bool:
        try:
            await connection.ping(timeout=PROBE_SECONDS)
        except BROKEN:
            return False
        self._heard = asyncio.get_running_loop().time()
        return True

    async def _settle(self, connection: asynctnt.Connection) -> None:
        """Let the calls under way end, then disconnect, and see that none is left.

        Afterwards every task that reached us is in `held`: what the session holds beside is lost.
        """
        if connection.is_connected:
            await self._all_landed()
        await quietly(connection)
        self._connection = None
        await self._all_landed()

    async def _all_landed(self) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(SETTLE_SECONDS):
                await self._landed.wait()

    def _arrived(self, node: str, term: int) -> None:
        before, self.node, self.term, self._trouble = self.node, node, term, ""
        if not before:
            log.info("connected to %s, term %d", node, term)
            self._watching = self.spawn(self._watch())
        elif before != node:
            text = f"switched from {before} to {node}, term {term}"
            if self.on_switch is None:
                log.warning(text)
                return
            try:
                self.on_switch(text)
            except Exception:
                log.exception("on_switch failed; %s", text)

    async def _watch(self) -> None:
        """While tasks are in hand a lost connection is replaced even if nobody calls.

        Else the session would run out, and the tasks with it, while they are worked on.
        """
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(WATCH_SECONDS)
            if not self.held:
                continue
            if loop.time() - self._heard > WATCH_SECONDS:
                self._doubtful = True
            try:
                await self._writable(loop.time() + 2 * PROBE_SECONDS)
            except TandemError as error:
                log.info("tasks in hand: %d; %s", len(self.held), error)

    @property
    def usable(self) -> asynctnt.Connection | None:
        """The connection, unless it is being left."""
        found = self._connection
        return None if found is None or self._left or not found.is_connected else found

    async def _identify(self, connection: asynctnt.Connection) -> None:
        """Be the same session as before; if it has ended, all tasks in hand are lost."""
        if self.session is not None:
            try:
                await connection.call("queue.identify", [self.session], timeout=PROBE_SECONDS)
                return
            except TarantoolDatabaseError as error:
                if "is unknown" not in error.message or not self.node:
                    raise  # the session we were told to join is not there
                log.warning("the session has ended; tasks in hand are lost: %d", len(self.held))
                for task in list(self.held.values()):
                    task.lost("its session ended while no node could be reached")
        answer = await connection.call("queue.identify", [], timeout=PROBE_SECONDS)
        self.session, self.shared, self._strays = raw(answer.body[0]), False, False

    async def _return_strays(self, connection: asynctnt.Connection) -> None:
        """Release what this session holds and we do not: its take, or its ack, was lost.

        Needs the right to read `_queue` and `_queue_taken_2`; without it such a task waits for its
        ttr, or for the end of this session. In a shared session it may be somebody else's.
        """
        if self._strays and not self.shared:
            try:
                tubes = {row[1]: row[0] for row in await rows(connection, "_queue")}
                for row in await rows(connection, "_queue_taken_2"):
                    tube, task_id = tubes.get(row[0]), row[1]
                    if tube is None or raw(row[3]) != self.session:
                        continue
                    if (tube, task_id) not in self.held:
                        log.info("releasing task %s of %s: its take or ack was lost", task_id, tube)
                        await release(connection, tube, task_id, row[4])
            except TarantoolDatabaseError as error:
                if error.code in (READ_ONLY, LOADING):
                    raise
                log.warning(
                    "tasks whose take or ack was lost stay taken for now: %s", error.message
                )
        self._strays = False

    @property
    def closed(self) -> bool:
        """Whether `close` was called."""
        return self._closed

    async def close(self) -> None:
        """Disconnect for good; calls in flight end as Unknown."""
        self._closed = True
        found, self._connection = self._connection, None
        if found is not None:
            await quietly(found)
        if self._watching is not None:
            self._watching.cancel()
        if left := list(self._background):
            # Nodes still being asked are let to answer, or their connections would stay open.
            _, late = await asyncio.wait(left, timeout=CLOSE_SECONDS)
            for task in late:
                task.cancel()
            await asyncio.gather(*left, return_exceptions=True)
