"""The way to the cluster: which node is writable, as which session, and how each call ended.

Here: finding, following, repeating, deadlines. Must not be here: what is asked (tube.py, task.py).
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any

import asynctnt
from asynctnt.exceptions import TarantoolDatabaseError, TarantoolError
from tenacity import AsyncRetrying, RetryCallState, retry_if_exception, wait_random_exponential

from tandemq.client.errors import Refused, TandemError, Unavailable, Unknown

if TYPE_CHECKING:
    from tandemq.client.task import Task

log = logging.getLogger("tandemq")
logging.getLogger("asynctnt").setLevel(logging.CRITICAL)  # every failure is told by us

READ_ONLY, LOADING, DENIED, CREDENTIALS = 7, 116, 42, 47
PROBE_SECONDS, GRACE_SECONDS, ATTEMPT_SECONDS = 2.0, 0.1, 5.0
PAUSE = wait_random_exponential(multiplier=0.05, max=1.0)
_BROKEN = (TarantoolError, OSError, TimeoutError, asyncio.TimeoutError)
_VSPACE, _BY_NAME = 281, 2


def addresses(text: str) -> list[tuple[str, int]]:
    """Nodes out of `host:port,host:port`. Raises `ValueError` naming the wrong part."""
    found = []
    for part in text.split(","):
        host, _, port = part.strip().rpartition(":")
        if not host or not port.isdigit() or not 0 < int(port) < 65536:
            raise ValueError(f"nodes are host:port with commas between, not {part.strip()!r}")
        found.append((host.strip("[]"), int(port)))
    return found


class Link:
    """One session with a cluster, over one connection to whichever node is writable."""

    def __init__(
        self,
        nodes: list[tuple[str, int]],
        user: str | None,
        password: str | None,
        session: bytes | None,
        on_switch: Callable[[str], None] | None,
    ) -> None:
        self.nodes = nodes
        self.login = {"username": user, "password": password}
        self.session = session
        #: A session others may share: what is taken in it is not only ours.
        self.shared = session is not None
        self.on_switch = on_switch
        self.node = ""
        self.term = 0
        #: Tasks in hand by (tube, id).
        self.held: dict[tuple[str, int], Task] = {}
        #: Failures of tasks in tubes that do not count attempts, by (tube, id).
        self.failures: dict[tuple[str, int], int] = {}
        self._connection: asynctnt.Connection | None = None
        self._lock = asyncio.Lock()
        self._take_lost = False
        self._closed = False
        self._background: set[asyncio.Task[None]] = set()

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """Let something end by itself; `close` ends it at the latest."""
        task = asyncio.create_task(work)
        self._background.add(task)
        task.add_done_callback(self._background.discard)

    async def call(
        self,
        name: str,
        args: list[Any],
        timeout: float,
        *,
        repeat: bool = False,
        wait: float = 0.0,
        take: bool = False,
    ) -> list[Any]:
        """The values a call returned. Seconds; `wait`: how long the server may well take.

        What was surely not done is repeated until `timeout`; what may have been done only with
        `repeat`. Raises Refused, Unavailable, Unknown; Unknown as well when a repeat was refused.
        """
        loop = asyncio.get_running_loop()
        limit = loop.time() + timeout + wait
        unknown: Unknown | None = None

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
                        return await self._once(name, args, limit, ATTEMPT_SECONDS + wait, repeat)
                    except Unknown as error:
                        unknown = unknown or error
                        self._take_lost |= take
                        raise
        except Refused as error:
            if unknown is None:
                raise
            raise Unknown(f"{unknown}; then: {error}") from error
        raise AssertionError("tenacity ends with a value or an error")

    async def _once(
        self, name: str, args: list[Any], limit: float, patience: float, repeat: bool
    ) -> list[Any]:
        loop = asyncio.get_running_loop()
        connection = await self._writable(limit)
        left = limit - loop.time()
        if left <= 0:
            raise Unavailable(f"{name}: no time left to ask {self.node}")
        try:
            answer = await connection.call(
                name, args, timeout=min(left, patience) if repeat else left
            )
        except TarantoolDatabaseError as error:
            if error.code in (READ_ONLY, LOADING):
                await self._drop(connection)
                raise Unavailable(f"{self.node} is read-only", error.code) from None
            raise Refused(error.message, error.code) from None
        except _BROKEN as error:
            await self._drop(connection)
            reason = str(error) or type(error).__name__
            raise Unknown(f"{name}: no answer from {self.node}: {reason}") from error
        return list(answer.body or [])

    async def _writable(self, limit: float) -> asynctnt.Connection:
        """The connection to the writable node, made anew if need be. Raises Unavailable."""
        try:
            async with asyncio.timeout_at(limit), self._lock:
                found = self._connection
                if found is not None and found.is_connected:
                    return found
                if self._closed:
                    raise Refused("the client is closed")
                await self._close()
                found, node, term = await self._find()
                try:
                    await self._identify(found)
                    await self._return_orphans(found)
                except TarantoolDatabaseError as error:
                    await _quietly(found)
                    kind = Unavailable if error.code in (READ_ONLY, LOADING) else Refused
                    raise kind(f"{node}: {error.message}", error.code) from None
                except BaseException as error:
                    await _quietly(found)
                    if isinstance(error, _BROKEN):
                        raise Unavailable(f"{node}: {error!r}") from None
                    raise
                self._connection = found
                self._arrived(node, term)
                return found
        except TimeoutError:
            names = ", ".join(f"{host}:{port}" for host, port in self.nodes)
            raise Unavailable(f"no writable node among {names} in time") from None

    def _arrived(self, node: str, term: int) -> None:
        before, self.node, self.term = self.node, node, term
        if before and before != node:
            text = f"switched from {before} to {node}, term {term}"
            if self.on_switch is not None:
                self.on_switch(text)
            else:
                log.warning(text)
        elif not before:
            log.info("connected to %s, term %d", node, term)

    async def _find(self) -> tuple[asynctnt.Connection, str, int]:
        """Ask all nodes at once; of those that are RUNNING, the one of the newest term."""
        asking = {asyncio.create_task(self._probe(host, port)) for host, port in self.nodes}
        best: tuple[asynctnt.Connection, str, int] | None = None
        reasons: list[str] = []
        try:
            while asking:
                limit = PROBE_SECONDS if best is None else GRACE_SECONDS
                done, asking = await asyncio.wait(
                    asking, timeout=limit, return_when=asyncio.FIRST_COMPLETED
                )
                if not done:
                    break
                for task in done:
                    try:
                        found = task.result()
                    except Unavailable as error:
                        reasons.append(str(error))
                        continue
                    if best is None:
                        best = found
                    elif found[2] > best[2]:
                        await _quietly(best[0])
                        best = found
                    else:
                        await _quietly(found[0])
        except BaseException:
            if best is not None:
                await _quietly(best[0])
            raise
        finally:
            for task in asking:
                task.cancel()
            for left in await asyncio.gather(*asking, return_exceptions=True):
                if isinstance(left, tuple):
                    await _quietly(left[0])
        if best is None:
            raise Unavailable("no writable node: " + ("; ".join(reasons) or "none answered"))
        return best

    async def _probe(self, host: str, port: int) -> tuple[asynctnt.Connection, str, int]:
        node = f"{host}:{port}"
        connection = asynctnt.Connection(
            host=host,
            port=port,
            fetch_schema=False,
            auto_refetch_schema=False,
            reconnect_timeout=0,
            connect_timeout=PROBE_SECONDS,
            **self.login,
        )
        try:
            await connection.connect()
            answer = await connection.call("box.info", [], timeout=PROBE_SECONDS)
            queue = answer.body[0]["queue"]
            if queue["state"] != "RUNNING":
                raise Unavailable(f"{node} is {queue['state']}")
            if queue["term"] < self.term:
                raise Unavailable(f"{node} is of an older term than one already seen")
            return connection, node, queue["term"]
        except TarantoolDatabaseError as error:
            await _quietly(connection)
            kind = Refused if error.code in (DENIED, CREDENTIALS) else Unavailable
            raise kind(f"{node}: {error.message}", error.code) from None
        except _BROKEN as error:
            await _quietly(connection)
            raise Unavailable(f"{node}: {str(error) or type(error).__name__}") from None
        except BaseException:
            await _quietly(connection)
            raise

    async def _identify(self, connection: asynctnt.Connection) -> None:
        """Be the same session as before; if it has ended, all tasks in hand are lost."""
        if self.session is not None:
            try:
                await connection.call("queue.identify", [self.session], timeout=PROBE_SECONDS)
                return
            except TarantoolDatabaseError as error:
                if "is unknown" not in error.message:
                    raise
                log.warning("the session has ended; tasks in hand are lost: %d", len(self.held))
                for task in list(self.held.values()):
                    task.lost("its session ended while no node could be reached")
        answer = await connection.call("queue.identify", [], timeout=PROBE_SECONDS)
        self.session, self.shared, self._take_lost = _raw(answer.body[0]), False, False

    async def _return_orphans(self, connection: asynctnt.Connection) -> None:
        """Release what a take whose answer never came has taken for us.

        Needs the right to read `_queue` and `_queue_taken_2`; without it such a task waits for its
        ttr, or for the end of this session.
        """
        if not self._take_lost or self.shared:
            return
        try:
            tubes = {row[1]: row[0] for row in await _rows(connection, "_queue")}
            for row in await _rows(connection, "_queue_taken_2"):
                tube, task_id = tubes.get(row[0]), row[1]
                if _raw(row[3]) == self.session and (tube, task_id) not in self.held:
                    log.info("releasing task %s of %s: its take had no answer", task_id, tube)
                    await connection.call(f"queue.tube.{tube}:release", [task_id])
        except TarantoolDatabaseError as error:
            if error.code in (READ_ONLY, LOADING):
                raise
            log.warning("tasks of unanswered takes stay taken for now: %s", error.message)
        self._take_lost = False

    async def _drop(self, connection: asynctnt.Connection) -> None:
        if self._connection is connection:
            self._connection = None
        await _quietly(connection)

    async def _close(self) -> None:
        found, self._connection = self._connection, None
        if found is not None:
            await _quietly(found)

    async def close(self) -> None:
        """Disconnect for good; calls in flight end as Unknown."""
        self._closed = True
        await self._close()
        for task in list(self._background):
            task.cancel()
        await asyncio.gather(*self._background, return_exceptions=True)


async def _rows(connection: asynctnt.Connection, space: str) -> list[Any]:
    found = await connection.select(_VSPACE, [space], index=_BY_NAME)
    if not found.body:
        return []
    return list((await connection.select(found.body[0][0], [])).body)


def _raw(text: str | bytes) -> bytes:
    return text if isinstance(text, bytes) else text.encode("utf-8", "surrogateescape")


async def _quietly(connection: asynctnt.Connection) -> None:
    with contextlib.suppress(*_BROKEN, TandemError):
        await connection.disconnect()
