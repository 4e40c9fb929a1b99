"""The planned flip of two nodes in one command: who writes stops, the other one begins.

Asked of either node. When the other one does not come to serve, the first takes over again.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from tandemq_server.node.loop.role_request import request_role
from tandemq_server.node.observe.answers import (
    Lag,
    OperationRefused,
    Outcome,
    Peer,
    StepAnswer,
    SwitchReport,
    UnknownNode,
)
from tandemq_server.node.observe.peer_status import own_lag, peers_of

if TYPE_CHECKING:
    from tandemq_server.node.cluster.peering import Peering
    from tandemq_server.node.cluster.role import RoleKeeper

#: How long the other node may take for what it was asked, in seconds.
ANSWER_SECONDS = 30.0
#: An order is repeated this often, and given up after so long without a sign that it is followed.
REPEAT_SECONDS, PATIENCE_SECONDS = 0.2, 1.5
#: How long after a flip a node may not know yet who leads, or not follow it yet, in seconds.
SETTLE_SECONDS = 3.0
#: A replica further behind than this is not switched over to, in seconds.
LAG_SECONDS = 5.0


class Switchover:
    """One planned flip. Steps are noted as they happen."""

    def __init__(self, role: RoleKeeper, peering: Peering, to: str, dry_run: bool) -> None:
        self.role = role
        self.peering = peering
        self.name = peering.settings.name
        self.to = to
        self.dry_run = dry_run
        self.steps: list[StepAnswer] = []
        self.began = time.monotonic()
        self.changed = asyncio.Event()

    async def run(self) -> SwitchReport:
        """Raises `UnknownNode`, `OperationRefused` (with the report)."""
        await self._somebody_leads()
        source, lag, missing = self._look()
        if missing and source is not None and not self.dry_run:
            waited = await self._step("in step", self.to, self._until_in_step())
            source, lag, missing = self._look()
            if waited and not missing:
                missing = (waited,)
        plan = self._plan(source)
        if self.dry_run:
            return self._report(source, plan, lag, missing, False, False)
        if missing:
            report = self._report(source, plan, lag, missing, False, False)
            raise OperationRefused(f"{self.to} cannot take over now", missing, report)
        if source == self.to:
            return self._report(source, (), lag, (), True, False)
        self.peering.observers.append(self.changed.set)
        try:
            done = await (self._hand_over() if source == self.name else self._take_over(source))
        finally:
            self.peering.observers.remove(self.changed.set)
        report = self._report(source, tuple(self.steps), lag, (), not done, bool(done))
        if done:
            raise OperationRefused(done, (done,), report)
        return report

    async def _somebody_leads(self) -> None:
        """Links are made anew after every flip: whoever asks right then waits a moment."""
        if self.role.role.value == "RUNNING":
            return
        self.peering.observers.append(self.changed.set)
        try:
            await self._until(
                lambda: any(peer.connected and peer.writable for peer in peers_of(self.peering)),
                "",
                SETTLE_SECONDS,
            )
        finally:
            self.peering.observers.remove(self.changed.set)

    async def _until_in_step(self) -> str:
        """One flip right behind another: links are made anew, the target follows in a moment."""
        self.peering.observers.append(self.changed.set)
        try:
            late = f"{self.to} is not in step after {SETTLE_SECONDS:g} s"
            return await self._until(lambda: not self._look()[2], late, SETTLE_SECONDS)
        finally:
            self.peering.observers.remove(self.changed.set)

    # -- before ----------------------------------------------------------------------------------

    def _look(self) -> tuple[str | None, Lag | None, tuple[str, ...]]:
        """(who writes now, how far the other is behind, what is missing)."""
        peers = {peer.name or peer.address: peer for peer in peers_of(self.peering)}
        if self.to != self.name and self.to not in peers:
            raise UnknownNode(self.to, (self.name, *peers))
        running = self.role.role.value == "RUNNING"
        writers = [name for name, peer in peers.items() if peer.connected and peer.writable]
        if running:
            writers.insert(0, self.name)
        if len(writers) > 1:
            return writers[0], None, (f"{' and '.join(writers)} are both writable",)
        if not writers:
            return None, None, ("a node that is RUNNING: promote one with `tandemq role rw`",)
        source = writers[0]
        if source == self.to:
            return source, None, ()
        if self.name not in (source, self.to):
            return source, None, (f"ask {source} or {self.to}: {self.name} is neither of them",)
        if missing := self._seat_missing():
            return source, None, missing
        if running:
            return (source, *self._look_at_target(peers[self.to]))
        lag = own_lag(self.peering)
        if lag is None:
            return source, None, (f"{self.to} is not fed by {source}",)
        return source, lag, self._too_far(lag)

    def _seat_missing(self) -> tuple[str, ...]:
        """With an arbiter a switch-over is a swap: it must answer, and name the target."""
        keeper = self.peering.seat
        if keeper is None:
            return ()
        if keeper.problem:
            return (f"{keeper.name} does not answer: {keeper.problem}",)
        seat = keeper.seat
        if seat is None or seat.partner != self.to:
            return (f"{self.to} is not named as the node that may be promoted",)
        return ()

    def _look_at_target(self, peer: Peer) -> tuple[Lag | None, tuple[str, ...]]:
        if not peer.connected or peer.role != "downstream":
            return peer.lag, (f"{self.to} does not follow {self.name}",)
        return peer.lag, self._too_far(peer.lag)

    def _too_far(self, lag: Lag | None) -> tuple[str, ...]:
        if lag is not None and lag.seconds > LAG_SECONDS:
            return (f"{self.to} is {lag.records} records, {lag.seconds:.1f} s behind",)
        return ()

    def _plan(self, source: str | None) -> tuple[StepAnswer, ...]:
        if source is None or source == self.to:
            return ()
        return (
            StepAnswer("read_only", source, "planned", None, "drain, tell the final LSN"),
            StepAnswer("writable", self.to, "planned", None, "reach that LSN, open a term"),
        )

    # -- doing -----------------------------------------------------------------------------------

    async def _hand_over(self) -> str:
        """This node writes: it stops, then the other one is asked. Why it failed, or nothing."""
        settled = await self._step("read_only", self.name, self._own(True))
        if settled:
            return settled
        reason = "switch-over"
        failed = await self._step("writable", self.to, self._others(self.to, False, reason))
        if not failed:
            return ""
        back = await self._step("roll back", self.name, self._own(False))
        outcome: Outcome = "rolled_back" if not back else "failed"
        self.steps[-1] = replace(self.steps[-1], outcome=outcome)
        return f"{self.to}: {failed}"

    async def _take_over(self, source: str | None) -> str:
        """This node is to write: the other one is asked to stop first."""
        assert source is not None
        reason = f"switch-over to {self.to}"
        failed = await self._step("read_only", source, self._others(source, True, reason))
        if failed:
            return f"{source}: {failed}"
        failed = await self._step("writable", self.to, self._own(False))
        if not failed:
            return ""
        back = await self._step(
            "roll back", source, self._others(source, False, f"{self.to} could not take over")
        )
        outcome: Outcome = "rolled_back" if not back else "failed"
        self.steps[-1] = replace(self.steps[-1], outcome=outcome)
        return f"{self.to}: {failed}"

    async def _step(self, name: str, node: str, doing: asyncio.Future[str] | object) -> str:
        began = time.monotonic()
        failed: str = await doing  # type: ignore[misc]
        seconds = time.monotonic() - began
        self.steps.append(StepAnswer(name, node, "failed" if failed else "done", seconds, failed))
        return failed

    async def _own(self, read_only: bool) -> str:
        settled = await request_role(self.role, read_only)
        if settled.ok and self.peering.core.read_only == read_only:
            return ""
        return settled.reason or "another request came in between"

    async def _others(self, name: str, read_only: bool, reason: str) -> str:
        """Ask a peer, again and again, until its link shows that it did, or nothing is done."""
        wanted, under_way = ("RUNNING", "STARTUP") if not read_only else ("WAITING", "ENDING")
        began = sign = time.monotonic()
        over, asked = None, 0.0
        while True:
            peer = next((p for p in peers_of(self.peering) if (p.name or p.address) == name), None)
            now = time.monotonic()
            if peer is not None and peer.connected:
                if peer.state == wanted:
                    return ""
                if peer.state == under_way and (peer.heard_seconds or 0.0) < PATIENCE_SECONDS:
                    sign = now
            if now - sign > PATIENCE_SECONDS or now - began > ANSWER_SECONDS:
                return f"is not {wanted} after {now - began:.1f} s"
            way = self.peering.asking.way_to(name)
            if way is not over or now - asked >= REPEAT_SECONDS:
                # Whatever changes wakes this: only over a new link is it asked sooner again.
                self.peering.asking.order(name, read_only, reason)
                over, asked = way, now
            self.changed.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(REPEAT_SECONDS):
                    await self.changed.wait()

    async def _until(
        self, reached: Callable[[], bool], otherwise: str, seconds: float = ANSWER_SECONDS
    ) -> str:
        try:
            async with asyncio.timeout(seconds):
                while not reached():
                    self.changed.clear()
                    await self.changed.wait()
        except TimeoutError:
            return otherwise
        return ""

    def _report(
        self,
        source: str | None,
        steps: tuple[StepAnswer, ...],
        lag: Lag | None,
        missing: tuple[str, ...],
        done: bool,
        failed: bool,
    ) -> SwitchReport:
        rolled_back = any(step.outcome == "rolled_back" for step in steps)
        return SwitchReport(
            source,
            self.to,
            self.dry_run,
            not missing,
            done and not self.dry_run,
            rolled_back,
            missing,
            steps,
            lag,
            None,
            time.monotonic() - self.began,
        )
