"""A task in hand: an `async with` block that acks, or releases, or buries."""

from __future__ import annotations

import asyncio
import logging
import math
import random
from collections.abc import Coroutine, Iterable
from types import TracebackType
from typing import TYPE_CHECKING, Any

from tandemq.client.errors import LeaseLost, Refused, TandemError, Unavailable, Unknown
from tandemq.client.strays import NOT_TAKEN
from tandemq.client.tracing import context_of, traced

if TYPE_CHECKING:
    from tandemq.client.tube import Tube

log = logging.getLogger("tandemq")
_NOT_FOUND, _BURIED = "not found", "!"
_REASON_BYTES = 1000
MAX_ATTEMPTS, BACKOFF = 5, 1.0


class Task:
    """One delivery of a task. `id`, `data`; `token`: the fencing token; `attempt`: 1 for the first.

    As `async with task:` it is touched while the block runs (if it has a ttr), acked when the block
    ends, and on an exception released with a growing delay, or buried after the last attempt (see
    Tube); the exception goes on. When the task is lost meanwhile, the block is cancelled and raises
    LeaseLost.
    """

    def __init__(self, tube: Tube, task_id: int, data: Any, told: dict[str, Any]) -> None:
        """`told`: the fourth field of a take that asked for `info`."""
        self.tube = tube
        self.id = task_id
        self.data = data
        self.token: int = told["token"]
        #: Whether the tube counts attempts (`max_attempts` at its creation); else this client does.
        self.counted = "attempts" in told
        failed = tube.link.failures.get((tube.name, task_id), 0)
        self.attempt: int = told["attempts"] if self.counted else failed + 1
        #: Seconds a worker has before the server gives the task to another, None: for ever.
        self.ttr: float | None = told.get("ttr") if tube.ttr is None else tube.ttr or None
        #: Why the last attempt failed, where the tube counts them.
        self.reason: str | None = told.get("reason")
        #: What the producer sent along, `traceparent` among them where it was traced.
        self.headers: dict[str, str] = told.get("headers", {})
        self.ended = False
        #: An ack, release or bury is under way: what is heard of the task meanwhile is that.
        self.ending = False
        #: After a block that failed: what becomes of the task, in words.
        self.next_try = ""
        self._told = told
        self._since = asyncio.get_running_loop().time()
        self._lost_by: str | None = None
        self._block: asyncio.Task[Any] | None = None
        self._cancelled = False
        self._toucher: asyncio.Task[None] | None = None
        tube.link.held[(tube.name, task_id)] = self

    def __repr__(self) -> str:
        return f"<Task {self.id} of {self.tube.name}, attempt {self.attempt}>"

    @property
    def trace_context(self) -> Any:
        """The producer's OpenTelemetry context, for `start_as_current_span(..., context=...)`.

        None without `opentelemetry-api` or headers.
        """
        return context_of(self.headers)

    async def ack(self) -> None:
        """Done. Repeated until known: gone from the tube after a lost answer counts as done.

        Raises LeaseLost, Unavailable, Unknown.
        """
        await self._end("ack", [self.id, {"token": self.token}])

    async def finish(self, puts: Iterable[tuple[Any, ...]]) -> list[int] | None:
        """Done, and `(tube, data)` or `(tube, data, options)` are put, in one transaction: the ids.

        None if it counted and the answer with the ids was lost. Raises LeaseLost, Unavailable,
        Unknown, and Refused (a tube that is not there, is full or paused): nothing was changed.
        """
        rows = [[*one[:2], options] if (options := traced(*one[2:])) else [*one] for one in puts]
        args = [self.id, rows, {"token": self.token}]
        answer = await self._end("finish", args)
        return None if answer is None else list(answer[0])

    async def release(self, delay: float | None = None, reason: str = "") -> None:
        """Back to the tube, after `delay` seconds where the type of tube knows delays.

        Without a delay as the tube's own retry policy says, or at once. `reason` is kept by tubes
        that count attempts. Raises LeaseLost, Unavailable, Unknown.
        """
        options = self._options(reason)
        if delay is not None:
            options["delay"] = delay
        answer = await self._end("release", [self.id, options])
        self.next_try = self._then(answer, delay)

    def _then(self, answer: list[Any] | None, delay: float | None) -> str:
        """What a release has led to, by the state the server answers with."""
        state = answer[0][1] if answer and answer[0] else ""
        if state == "-":
            return "given up: now a dead letter"
        if state == _BURIED:
            return "given up: buried until it is kicked"
        if state != "~":
            return "ready for the next try" if state else "nobody can say when it is tried again"
        within = self._told.get("retry_within")
        if delay is not None:
            return f"next try in {delay:.1f} s"
        return "next try after a while" if within is None else f"next try within {within:.1f} s"

    async def bury(self, reason: str = "") -> None:
        """Set aside until somebody kicks it. Raises LeaseLost, Unavailable, Unknown."""
        await self._end("bury", [self.id, self._options(reason)])

    async def touch(self, seconds: float) -> None:
        """`seconds` more to work. Raises LeaseLost, Refused (a tube without ttr), Unknown."""
        await self._touch(seconds, self.tube.timeout)

    async def _touch(self, seconds: float, timeout: float) -> None:
        self._check()
        args = [self.id, seconds, {"token": self.token}]
        try:
            await self.tube.call("touch", args, timeout=timeout)
        except Refused as error:
            self._translate(error)
            raise

    def _options(self, reason: str) -> dict[str, Any]:
        options: dict[str, Any] = {"token": self.token}
        if reason and self.counted:
            raw = reason.encode("utf-8", "replace")[:_REASON_BYTES]
            options["reason"] = raw.decode("utf-8", "ignore")
        return options

    def lost(self, reason: str) -> None:
        """Told from outside: another may have this task now. Cancels a running block."""
        if self.ended or self._lost_by is not None:
            return
        self._lost_by = reason
        self._forget()
        # The block itself, when its own call is what found out, gets an exception from that call.
        if self._block is not None and self._block is not asyncio.current_task():
            self._cancelled = True
            self._block.cancel()

    @property
    def is_lost(self) -> bool:
        """Whether the task is known to be no longer ours."""
        return self._lost_by is not None

    async def _end(self, method: str, args: list[Any]) -> list[Any] | None:
        """The answer of what ends this delivery; None: it counted and its answer was lost."""
        self._check()
        self.ending = True
        try:
            answer = await self._ask(method, args)
        finally:
            self.ending = False
        self.ended = True
        self._forget()
        if self._toucher is not None:
            self._toucher.cancel()
        if method != "release":
            self.tube.link.failures.pop((self.tube.name, self.id), None)
        return answer

    async def _ask(self, method: str, args: list[Any]) -> list[Any] | None:
        try:
            return await self.tube.call(method, args, repeat=True)
        except Refused as error:
            self._translate(error)
            raise
        except Unknown as error:
            if not isinstance(error.__cause__, Refused) or isinstance(error.__cause__, Unavailable):
                raise
            await self._settle(method, error)
        return None

    async def _settle(self, method: str, error: Unknown) -> None:
        """A repeat was refused: look whether the request before it was the reason."""
        text = str(error.__cause__)
        if NOT_TAKEN not in text and _NOT_FOUND not in text:
            raise error
        if method == "release":
            return  # not ours any more, which is what was wanted
        try:
            state = (await self.tube.call("peek", [self.id], repeat=True))[0][1]
        except Refused as gone:
            if _NOT_FOUND in str(gone) and method != "bury":
                return
            raise error from None
        if state == _BURIED and method == "bury":
            return
        self.lost(f"task {self.id} is there again after an unanswered {method}")
        raise LeaseLost(str(self._lost_by)) from error

    def _translate(self, error: Refused) -> None:
        if NOT_TAKEN in str(error) or _NOT_FOUND in str(error):
            self.lost(f"task {self.id}: {error}")
            raise LeaseLost(str(self._lost_by)) from error

    def _check(self) -> None:
        if self._lost_by is not None:
            raise LeaseLost(self._lost_by)
        if self.ended:
            raise Refused(f"task {self.id} was already ended")

    def _forget(self) -> None:
        held = self.tube.link.held
        if held.get((self.tube.name, self.id)) is self:
            del held[(self.tube.name, self.id)]

    async def __aenter__(self) -> Task:
        return await self.enter(asyncio.current_task())

    async def enter(self, block: asyncio.Task[Any] | None) -> Task:
        """Begin the block; `block` is what a loss cancels. Raises LeaseLost."""
        self._check()
        self._block = block
        self.tube.link.lookout.begin()
        if self.ttr:
            self._toucher = asyncio.create_task(self._keep(self.ttr))
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._block = None
        if self._lost_by is None:
            await _to_the_end(self._leave(error))
            return
        if self._toucher is not None:
            self._toucher.cancel()
        if self._cancelled:
            current = asyncio.current_task()
            others = 0 if current is None else current.uncancel()
            if isinstance(error, asyncio.CancelledError):
                if not others:
                    raise LeaseLost(self._lost_by) from None
                return
        if error is None:
            raise LeaseLost(self._lost_by)

    async def _leave(self, error: BaseException | None) -> None:
        """The block ended before the task was lost: say so to the server."""
        if self._toucher is not None:
            self._toucher.cancel()
            await asyncio.wait({self._toucher})
        if self.ended:
            return
        try:
            if error is None:
                await self.ack()
            else:
                await self._give_back(error)
        finally:
            if not self.ended and self._lost_by is None:
                self.tube.link.abandon(self.tube.name, self.id)

    async def _give_back(self, error: BaseException) -> None:
        """The block failed: release or bury; never hides the block's own exception."""
        reason = f"{type(error).__name__}: {error}"
        try:
            if not isinstance(error, Exception):
                await self.release(0)  # cancelled: not the task's fault
            elif self.attempt >= self._last_attempt():
                await self.bury(reason)
                self.next_try = "given up: buried until it is kicked"
            else:
                if not self.counted:
                    self.tube.link.failed(self.tube.name, self.id, self.attempt)
                await self.release(self._delay(), reason)
        except TandemError as second:
            log.warning(
                "task %d of %s could not be given back: %s", self.id, self.tube.name, second
            )

    def _last_attempt(self) -> float:
        """After which one it is for us to bury the task."""
        if self.tube.max_attempts is not None:
            return self.tube.max_attempts
        return math.inf if "max_attempts" in self._told else MAX_ATTEMPTS

    def _delay(self) -> float | None:
        """Seconds until the next attempt; None: the tube itself knows."""
        base = self.tube.backoff
        if base is None:
            if "retry" in self._told:
                return None
            base = BACKOFF
        most = min(base * 2.0 ** min(self.attempt - 1, 100), self.tube.backoff_max)
        return random.uniform(most / 2, most)

    async def _keep(self, ttr: float) -> None:
        """Touch every third of the ttr by what has passed, until the block ends or all is lost.

        Without an answer for a whole ttr the server has given the task to another by now. A touch
        that may have counted is told again: rather too much time than too little.
        """
        loop = asyncio.get_running_loop()
        counted = asked = self._since
        while True:
            await asyncio.sleep(max(0.0, min(asked + ttr / 3, counted + ttr) - loop.time()))
            asked = loop.time()
            left = counted + ttr - asked
            if left <= 0:
                self.lost(f"no touch was answered for {ttr:g} s, the ttr of task {self.id}")
                return
            try:
                await self._touch(asked - counted, min(left, ttr / 3))
                counted = asked
            except LeaseLost:
                return
            except TandemError as error:
                log.warning("task %d of %s is not touched: %s", self.id, self.tube.name, error)


async def _to_the_end(work: Coroutine[Any, Any, None]) -> None:
    """Await `work` whole even while being cancelled: no task is left half given back."""
    ending = asyncio.create_task(work)
    cancelled: asyncio.CancelledError | None = None
    while not ending.done():
        try:
            await asyncio.wait({ending})
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled is None:
        ending.result()
        return
    if not ending.cancelled() and (failure := ending.exception()) is not None:
        log.warning("at the end of a cancelled block: %s", failure)
    raise cancelled
