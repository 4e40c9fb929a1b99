"""A whole backend in memory, for tests of the API alone: two nodes, a lag, and every refusal.

What a test wants to go wrong is set on the object before it asks.
"""

from __future__ import annotations

import asyncio
import os
from dataclasses import replace

from tandemq_server.drivers import BUILT_IN
from tandemq_server.engine.engine import Engine
from tandemq_server.node.core.core import Core
from tandemq_server.node.core.identity import ClientBounds, Identity
from tandemq_server.node.core.turn import Turn
from tandemq_server.node.loop.clock import LogClock
from tandemq_server.node.loop.trail import AuditTrail
from tandemq_server.node.loop.wal_writer import WalWriter
from tandemq_server.node.observe.answers import (
    Backend,
    ClusterStatus,
    FailoverStatus,
    FlipResult,
    Lag,
    LossBoundAnswer,
    NeedsForce,
    NodeStatus,
    OperationRefused,
    Peer,
    Reloaded,
    SoloResult,
    State,
    StepAnswer,
    SwitchReport,
    TermAnswer,
    TransitionAnswer,
    UnknownNode,
)
from tandemq_server.node.observe.cluster_view import cluster_of
from tandemq_server.node.observe.events import EventBus, Subscription
from tandemq_server.node.observe.inventory import NodeInventory
from tandemq_server.node.observe.inventory_answers import UnknownTube
from tandemq_server.node.observe.metrics import NodeMetrics, TubeMetrics
from tandemq_server.node.observe.overview import MemoryAnswer, Overview, overview
from tandemq_server.node.observe.past_answers import PastAnswer, PastStep, PastWanted
from tests.node.harness import Everybody

NONE = Lag(0, 0, 0.0)


def running(name: str = "a") -> NodeStatus:
    """A writable master with one replica that has everything."""
    peer = Peer(
        "127.0.0.1:3302",
        name="b",
        node_id="22" * 16,
        connected=True,
        role="downstream",
        state="WAITING",
        term=3,
        lsn=100,
        durable_lsn=100,
        lag=NONE,
        heard_seconds=0.1,
        clock_offset_seconds=-0.002,
    )
    return NodeStatus(
        name=name,
        node_id="11" * 16,
        cluster_id="cc" * 16,
        version="2.11.0",
        state="RUNNING",
        read_only=False,
        writable=True,
        live=True,
        complete=True,
        following=False,
        ro_reason=None,
        term=TermAnswer(3, "ab" * 16, name, 90, False),
        lsn=100,
        commit_lsn=100,
        durable_lsn=100,
        wal_mode="fsync",
        promise="fsync",
        ack="local",
        solo=False,
        started=1_700_000_000.0,
        uptime_seconds=12.5,
        connections=4,
        sessions=2,
        tubes=1,
        rescue_files=0,
        lag=None,
        peers=(peer,),
        transitions=(TransitionAnswer("STARTUP", "RUNNING", "configured", 1_700_000_000.0, 0.01),),
        problem=None,
    )


class FakeBackend:
    """blocked: what stands in a flip's way. gate: operations wait until it is set.

    failure: raised by whatever is asked next, reads included. calls: operations that were begun.
    """

    def __init__(self, status: NodeStatus | None = None, queue_max: int = 64) -> None:
        self.now = status or running()
        self.bus = EventBus("epoch", queue_max=queue_max)
        self.blocked: tuple[str, ...] = ()
        self.loss_bound: LossBoundAnswer | None = None
        self.fails_half_way = False
        self.failure: Exception | None = None
        self.gate = asyncio.Event()
        self.gate.set()
        self.calls: list[tuple[object, ...]] = []
        self.inventory = _inventory(self)
        self.trail = AuditTrail("a", None, 1 << 20, 1, lambda _text: None)
        self.bus.observe(self.now)

    def _check(self) -> None:
        if self.failure is not None:
            raise self.failure

    async def _begin(self, *call: object) -> None:
        self.calls.append(call)
        await self.gate.wait()
        self._check()

    # -- reads -----------------------------------------------------------------------------------

    def loss(self, peer: str | None) -> LossBoundAnswer:
        return self.loss_bound or LossBoundAnswer(True, 3, 300, 0.5, f"what {peer or 'a'} lacks")

    def status(self) -> NodeStatus:
        self._check()
        return self.now

    def cluster(self) -> ClusterStatus:
        self._check()
        return cluster_of(self.now, "127.0.0.1:3301")

    def overview(self) -> Overview:
        self._check()
        tubes = self.inventory.tubes("", "", 200).tubes
        return overview(self.now, self.cluster(), tubes, MemoryAnswer(1, 2, 3), 0)

    async def past(self, tube: str, wanted: PastWanted) -> PastAnswer:
        self._check()
        if self.inventory.core.engine.tubes.get(tube) is None:
            raise UnknownTube("tube", tube)
        step = PastStep(wanted.task or 0, 1, 1_700_000_000.0, "put", "ready", None, "a", "", "")
        return PastAnswer(tube, wanted.task, (step,))

    def metrics(self) -> NodeMetrics:
        self._check()
        now = self.now
        return NodeMetrics(
            now.name,
            now.node_id,
            now.cluster_id,
            now.version,
            now.state,
            read_only=now.read_only,
            writable=now.writable,
            term=now.term.number if now.term else 0,
            lsn=now.lsn,
            peers=now.peers,
            tubes=[TubeMetrics("jobs", {"ready": 2}, {"put": 5}, 3, 1, 0, 0.5)],
        )

    def subscribe(self, last_event_id: str | None = None) -> Subscription:
        self._check()
        return self.bus.subscribe(last_event_id)

    # -- operations ------------------------------------------------------------------------------

    def become(self, state: State, **changes: object) -> None:
        """Change the status, as a transition would, and tell who listens."""
        was = self.now.state
        last = TransitionAnswer(was, state, "operator", 1_700_000_100.0, 0.02)
        self.now = replace(
            self.now,
            state=state,
            writable=state == "RUNNING",
            transitions=(*self.now.transitions, last),
            **changes,  # type: ignore[arg-type]
        )
        self.bus.observe(self.now)

    async def set_read_only(self, read_only: bool, force: bool) -> FlipResult:
        await self._begin("read_only", read_only, force)
        if self.blocked and not force:
            if self.loss_bound is not None:
                raise NeedsForce("the promotion is not safe", self.blocked, self.loss_bound)
            raise OperationRefused("the flip cannot be done", self.blocked)
        target: State = "WAITING" if read_only else "RUNNING"
        changed = self.now.state != target
        if changed:
            reason = "operator" if read_only else None
            self.become(target, read_only=read_only, ro_reason=reason)
        bound = self.loss_bound if force and not read_only else None
        return FlipResult(target, read_only, changed, 3, self.now.lsn, 0.02, bound)

    async def switchover(self, to: str, dry_run: bool) -> SwitchReport:
        if to not in ("a", "b"):
            raise UnknownNode(to, ("a", "b"))
        await self._begin("switchover", to, dry_run)
        steps = tuple(
            StepAnswer(name, node, "planned", None, "")
            for name, node in (("stop", "a"), ("catch up", "b"), ("promote", "b"))
        )
        possible = not self.blocked
        report = SwitchReport(
            "a", to, dry_run, possible, False, False, self.blocked, steps, NONE, None, 0.0
        )
        if dry_run:
            return report
        if self.fails_half_way:
            failed = replace(report, rolled_back=True)
            raise OperationRefused("b did not become RUNNING", ("b: no answer",), failed)
        if not possible:
            raise OperationRefused("the switch-over cannot be done", self.blocked)
        self.become("WAITING", read_only=True, ro_reason="operator")
        return replace(report, done=True)

    async def solo(self) -> SoloResult:
        await self._begin("solo")
        if self.blocked:
            raise OperationRefused("the node is not in pair mode", self.blocked)
        return SoloResult(self.now.state, 4, self.now.lsn + 1)

    async def failover(self, action: str) -> FailoverStatus:
        await self._begin("failover", action)
        paused = "an operator said so" if action == "pause" else ""
        outlook = "b would serve within 1 s, nothing lost"
        by = "a: b is in step"
        return FailoverStatus("witness", "", 4, "a", "b", by, "paired", True, paused, outlook, "")

    async def reload(self) -> Reloaded:
        await self._begin("reload")
        if self.blocked:
            raise OperationRefused("the configuration is not taken", self.blocked)
        return Reloaded(("users",), 0)

    async def snapshot(self) -> int:
        await self._begin("snapshot")
        return self.now.lsn


def _inventory(fake: FakeBackend) -> NodeInventory:
    """The real one, over an engine of its own without a log."""
    lines: list[str] = []
    engine = Engine(BUILT_IN, lambda: os.urandom(16), lambda text, error=None: lines.append(text))
    clock = LogClock()
    engine.now = clock.now()
    core = Core(engine, Identity("a", "11" * 16, "cc" * 16), ClientBounds(), Everybody())
    engine.start()
    core.set_state("RUNNING")
    wal = WalWriter(None, "none", lambda turn: release(turn), lambda _error: None)

    def release(turn: Turn) -> None:
        for tell in turn.committed:
            tell()

    def flush() -> None:
        wal.submit(core.flush(), engine.now)

    return NodeInventory(core, clock.now, flush, fake)


def _is_backend(fake: FakeBackend) -> Backend:
    """Checked by mypy: the fake is all that the protocol asks for."""
    return fake
