"""A task in hand: an `async with` block that acks, or releases, or buries."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
from types import TracebackType
from typing import TYPE_CHECKING, Any

from tandemq.client.errors import LeaseLost, Refused, TandemError, Unavailable, Unknown

if TYPE_CHECKING:
    from tandemq.client.tube import Tube

log = logging.getLogger("tandemq")
_NOT_TAKEN, _NOT_FOUND = "Task was not taken", "not found"


class Task:
    """One delivery of a task. `id`, `data`; `token`: the fencing token; `attempt`: 1 for the first.

    As `async with task:` it is touched while the block runs (in a tube with a ttr), acked when the
    block ends, and on an exception released with a growing delay, or buried after the tube's
    `max_attempts`; the exception goes on. When the task is lost meanwhile, the block is cancelled
    and raises LeaseLost.
    """

    def __init__(
        self, tube: Tube, task_id: int, data: Any, token: int, attempts: int | None
    ) -> None:
        self.tube = tube
        self.id = task_id
        self.data = data
        self.token = token
        #: Whether the tube counts attempts (`max_attempts` at its creation); else this client does.
        self.counted = attempts is not None
        failed = tube.link.failures.get((tube.name, task_id), 0)
        self.attempt = attempts if attempts is not None else failed + 1
        self.ended = False
        self._reason: str | None = None
        self._block: asyncio.Task[Any] | None = None
        self._cancelled = False
        self._toucher: asyncio.Task[None] | None = None
        tube.link.held[(tube.name, task_id)] = self

    def __repr__(self) -> str:
        return f"<Task {self.id} of {self.tube.name}, attempt {self.attempt}>"

    async def ack(self) -> None:
        """Done. Repeated until known: gone from the tube after a lost answer counts as done.

        Raises LeaseLost, Unavailable, Unknown.
        """
        await self._end("ack", [self.id, {"token": self.token}])

    async def release(self, delay: float = 0.0, reason: str = "") -> None:
        """Back to the tube, after `delay` seconds where the type of tube knows delays.

        `reason` is kept by tubes that count attempts.

        Raises LeaseLost, Unavailable, Unknown.
        """
        options: dict[str, Any] = {"token": self.token}
        if delay > 0:
            options["delay"] = delay
        if reason and self.counted:
            options["reason"] = reason[:255]
        await self._end("release", [self.id, options])

    async def bury(self, reason: str = "") -> None:
        """Set aside until somebody kicks it. The server asks no token for this: only a loss that is
        known here already is refused. Raises LeaseLost, Unavailable, Unknown.
        """
        told = [{"reason": reason[:255]}] if reason and self.counted else []
        await self._end("bury", [self.id, *told])

    async def touch(self, seconds: float) -> None:
        """`seconds` more to work. Raises LeaseLost, Refused (a tube without ttr), Unknown."""
        self._check()
        try:
            await self.tube.call("touch", [self.id, seconds, {"token": self.token}])
        except Refused as error:
            self._translate(error)
            raise

    def lost(self, reason: str) -> None:
        """Told from outside: another may have this task now. Cancels a running block."""
        if self.ended or self._reason is not None:
            return
        self._reason = reason
        self._forget()
        if self._block is not None:
            self._cancelled = True
            self._block.cancel()

    @property
    def is_lost(self) -> bool:
        """Whether the task is known to be no longer ours."""
        return self._reason is not None

    async def _end(self, method: str, args: list[Any]) -> None:
        self._check()
        try:
            await self.tube.call(method, args, repeat=True)
        except Refused as error:
            self._translate(error)
            raise
        except Unknown as error:
            if not isinstance(error.__cause__, Refused) or isinstance(error.__cause__, Unavailable):
                raise
            await self._settle(method, error)
        self.ended = True
        self._forget()
        if method != "release":
            self.tube.link.failures.pop((self.tube.name, self.id), None)

    async def _settle(self, method: str, error: Unknown) -> None:
        """A repeat was refused: look whether the request before it was the reason."""
        text = str(error.__cause__)
        if _NOT_TAKEN not in text and _NOT_FOUND not in text:
            raise error
        if method != "ack":
            return  # not ours any more, which is what was wanted
        try:
            await self.tube.call("peek", [self.id], repeat=True)
        except Refused as gone:
            if _NOT_FOUND in str(gone):
                return
            raise error from None
        self.lost(f"task {self.id} is there again after an unanswered ack")
        raise LeaseLost(str(self._reason)) from error

    def _translate(self, error: Refused) -> None:
        if _NOT_TAKEN in str(error) or _NOT_FOUND in str(error):
            self.lost(f"task {self.id}: {error}")
            raise LeaseLost(str(self._reason)) from error

    def _check(self) -> None:
        if self._reason is not None:
            raise LeaseLost(self._reason)
        if self.ended:
            raise Refused(f"task {self.id} was ended already")

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
        if self.tube.ttr:
            self._toucher = asyncio.create_task(self._keep(self.tube.ttr))
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._block = None
        if self._toucher is not None:
            self._toucher.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._toucher
        if self._reason is not None:
            if self._cancelled and isinstance(error, asyncio.CancelledError):
                current = asyncio.current_task()
                if current is None or current.uncancel() == 0:
                    raise LeaseLost(self._reason) from None
                return
            if error is None:
                raise LeaseLost(self._reason)
            return
        if self.ended:
            return
        if error is None:
            await self.ack()
        else:
            await self._give_back(error)

    async def _give_back(self, error: BaseException) -> None:
        """The block failed: release or bury; never hides the block's own exception."""
        reason = f"{type(error).__name__}: {error}"
        try:
            if not isinstance(error, Exception):
                await self.release()  # cancelled: not the task's fault
            elif self.attempt >= self.tube.max_attempts:
                await self.bury(reason)
            else:
                self.tube.link.failures[self.tube.name, self.id] = self.attempt
                most = min(self.tube.backoff * 2 ** (self.attempt - 1), self.tube.backoff_max)
                await self.release(random.uniform(most / 2, most), reason)
        except TandemError as second:
            log.warning(
                "task %d of %s could not be given back: %s", self.id, self.tube.name, second
            )

    async def _keep(self, ttr: float) -> None:
        """Touch every third of the ttr by what has passed, until the block ends or all is lost."""
        loop = asyncio.get_running_loop()
        touched = loop.time()
        while True:
            await asyncio.sleep(ttr / 3)
            now = loop.time()
            try:
                await self.touch(now - touched)
                touched = now
            except LeaseLost:
                return
            except Unknown:
                touched = now  # perhaps counted: rather too short than told twice
            except TandemError as error:
                log.warning("task %d of %s is not touched: %s", self.id, self.tube.name, error)
