"""What happens to the two nodes while the frontier is crawled, and how long it took.

Here: the switch-over, the kill, the takeover, the return; through the admin API like anybody.
Must not be here: the load, screens, judging.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from demo.history import Outcome, Put
from demo.pair import Member, in_step, may_take_over, until
from tandemq_server.admin.client import AdminError, flip, loss_text, switch

Say = Callable[[str], None]
#: Shares of the work after which the next thing happens.
SWITCH_AT, KILL_AT, RETURN_AT = 0.2, 0.45, 0.65
_TICK_SECONDS = 0.02
_SETTLE_SECONDS = 1.0


@dataclass(slots=True)
class Deed:
    """One thing done. `began_ns` is of the monotonic clock, `seconds` until it was reported done.

    `to` is the node that serves from then on, "" when that does not change.
    """

    name: str
    began_ns: int
    seconds: float
    to: str = ""
    remark: str = ""

    def pause(self, puts: Sequence[Put]) -> float | None:
        """Seconds from the command to the first put the new node accepted, None without any."""
        answered = (
            put.answered_ns
            for put in puts
            if put.node == self.to and put.outcome is Outcome.OK and put.answered_ns > self.began_ns
        )
        first = min(answered, default=None)
        return None if first is None or not self.to else (first - self.began_ns) / 1e9


class Script:
    """The operator. `share()` tells which part of the work is done; `deeds` fills up."""

    def __init__(
        self, a: Member, b: Member, share: Callable[[], float], say: Say, witness: bool
    ) -> None:
        self._a, self._b = a, b
        self._witness = witness
        self._share = share
        self._say = say
        self.deeds: list[Deed] = []

    async def run(self) -> None:
        """Raises AdminError, AdminUnreachable, NodeFailed when something cannot be done."""
        await self._reach(SWITCH_AT)
        await self._switch_over()
        await self._reach(KILL_AT)
        await self._settled(self._a, self._b)
        began = await self._kill()
        await (self._taken_over(began) if self._witness else self._promote())
        await self._reach(RETURN_AT)
        await self._return()

    async def _reach(self, share: float) -> None:
        await asyncio.sleep(_SETTLE_SECONDS)
        while self._share() < share:  # noqa: ASYNC110 - a figure, not an event
            await asyncio.sleep(_TICK_SECONDS)

    async def _settled(self, follower: Member, master: Member) -> None:
        await until(
            f"{follower.name} follows {master.name}",
            lambda: (
                in_step(follower, master) and (not self._witness or may_take_over(follower, master))
            ),
            (self._a, self._b),
        )

    async def _switch_over(self) -> None:
        self._say("planned switch-over: b is to serve")
        began = time.monotonic_ns()
        report = await asyncio.to_thread(switch, self._a.client(), "b")
        steps = ", ".join(
            f"{step['node']} {step['name']} {step['seconds'] * 1_000:.0f} ms"
            for step in report["steps"]
        )
        self._did("planned switch-over to b", began, "b", steps)

    async def _kill(self) -> int:
        """When it was."""
        self._say("kill -9 of b, the master")
        began = time.monotonic_ns()
        await self._b.kill()
        self._did("kill -9 of b", began)
        return began

    async def _taken_over(self, began: int) -> None:
        """Nothing is done here: it is looked on until a serves."""
        await until(
            "a takes over",
            lambda: self._a.seen is not None and bool(self._a.seen["writable"]),
            (self._a,),
        )
        told = (self._a.seen or {}).get("failover") or {}
        self._did("takeover without an operator", began, "a", str(told.get("last", "")))

    async def _promote(self) -> None:
        """Without force first; with it when the node says that proof is missing."""
        self._say("promotion of a")
        began, remark = time.monotonic_ns(), "a proved that it has everything"
        client = self._a.client()
        try:
            await asyncio.to_thread(flip, client, False)
        except AdminError as error:
            if error.kind != "needs-force":
                raise
            remark = "forced; " + loss_text(error.loss_bound)
            lsn = (await asyncio.to_thread(client.status))["lsn"]
            await asyncio.to_thread(lambda: flip(client, False, force_lsn=lsn))
        self._did("promotion of a", began, "a", remark)

    async def _return(self) -> None:
        self._say("b, the old master, returns")
        began = time.monotonic_ns()
        await self._b.start()
        await self._settled(self._b, self._a)
        files = (self._b.seen or {}).get("rescue_files")
        cut = f"{files} rescue files" if files else "nothing had to be cut"
        self._did("return of b, in step", began, remark=cut)

    def _did(self, name: str, began_ns: int, to: str = "", remark: str = "") -> None:
        seconds = (time.monotonic_ns() - began_ns) / 1e9
        self.deeds.append(Deed(name, began_ns, seconds, to, remark))
        self._say(f"{name}: {seconds * 1_000:.0f} ms" + (f" ({remark})" if remark else ""))
