"""The witness's HTTP: a register and the nodes' keys for each cluster.

    GET  /v1/CLUSTER/seat                        {"revision": 7, "seat": {...} or null}
    PUT  /v1/CLUSTER/seat                        {"revision", "seat", "swap"}: 200, or 409 with
                                                 what is there instead
    PUT  /v1/CLUSTER/alive/NODE?ttl=3            its key lives so many seconds
    GET  /v1/CLUSTER/alive                       {"alive": ["a", "b"]}
    GET  /v1/CLUSTER/watch?revision=7&wait=2     as seat, when it is past 7 or the time is over
    GET  /health                                 for probes, without token
    GET  /metrics

A change is on disk before it is answered or shown. Must not be here: how it gets there.
"""

from __future__ import annotations

import asyncio
import ssl
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeVar

from aiohttp import web

from tandemq.model.errors import StorageError
from tandemq_server.admin.problems import Problem, problem_of
from tandemq_server.admin.waiting_room import HttpListener
from tandemq_server.arbiters.base import ArbiterRefused, SwapLost, as_json, told
from tandemq_server.config.certificates import CertificateEnd
from tandemq_server.statemachine.seat import SeatReading
from tandemq_server.witness.checks import (
    BODY_MAX,
    Token,
    name_in,
    number_in,
    revision_in,
    swap_in,
)
from tandemq_server.witness.liveness import Liveness
from tandemq_server.witness.metrics import Living, Metrics
from tandemq_server.witness.register import Registers

T = TypeVar("T")
Report = Callable[[str, BaseException | None], None]

TICK_S = 0.2
TTL_S, TTL_MAX_S = 3.0, 60.0
WAIT_MAX_S = 20.0
BODY_S = 5.0
REPORT_EVERY_S = 60.0
_CALLERS_MAX = 1000


@dataclass(frozen=True, slots=True)
class Listening:
    """Where and for whom the witness listens. ask_s: how long a connection may take over a TLS
    handshake and over its first request; nodes_max: keys of one cluster."""

    host: str
    port: int
    token: str | None = field(default=None, repr=False)
    tls: ssl.SSLContext | None = None
    ask_s: float = 5.0
    connections_max: int = 256
    nodes_max: int = 16
    certificates: tuple[CertificateEnd, ...] = ()


class WitnessServer(Living):
    """One listener. report(line, None) writes to the log; failed() is called once when the disk
    takes nothing more."""

    def __init__(
        self,
        registers: Registers,
        config: Listening,
        report: Report,
        failed: Callable[[], None],
    ) -> None:
        self._registers = registers
        self._config = config
        self._report = report
        self._failed = failed
        self._token = Token(config.token)
        self._liveness = Liveness(time.monotonic(), TICK_S)
        self._metrics = Metrics(registers, self, config.certificates)
        # One thread changes the registers, one change after the other.
        self._writer = ThreadPoolExecutor(1, "witness")
        #: Set, and replaced, with each change of any seat.
        self._changed = asyncio.Event()
        self._watching = 0
        self._ending = False
        self._reported: dict[tuple[str, str], float] = {}
        self._http: HttpListener | None = None
        self._ticking: asyncio.Task[None] | None = None

    async def start(self) -> tuple[str, int]:
        """Listen; the address bound. Raises OSError."""
        for cluster, held in self._registers.clusters.items():
            self._liveness.bring_back(cluster, held.nodes, time.monotonic(), TTL_S)
        app = web.Application(middlewares=[self._around], client_max_size=BODY_MAX)
        app.add_routes(
            [
                web.get("/health", self._health),
                web.get("/metrics", self._show_metrics),
                web.get("/v1/{cluster}/seat", self._read),
                web.put("/v1/{cluster}/seat", self._swap),
                web.get("/v1/{cluster}/watch", self._watch),
                web.get("/v1/{cluster}/alive", self._alive),
                web.put("/v1/{cluster}/alive/{node}", self._keep_alive),
            ]
        )
        self._http = HttpListener(app, self._config)
        address = await self._http.open()
        self._ticking = asyncio.create_task(self._tick())
        return address

    async def stop(self) -> None:
        """Answer who waits, stop listening; a change under way is finished."""
        self._ending = True
        self._changed.set()
        if self._ticking is not None:
            self._ticking.cancel()
        if self._http is not None:
            self._http.close()
            await self._http.cleanup()
        await asyncio.to_thread(self._writer.shutdown)

    # -- metrics.Living --------------------------------------------------------------------------

    def count(self, cluster: str) -> int:
        return len(self._liveness.living(cluster, time.monotonic()))

    def slept_s(self) -> float:
        return self._liveness.slept_s

    # -- around every request --------------------------------------------------------------------

    @web.middleware
    async def _around(
        self, request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
    ) -> web.StreamResponse:
        assert self._http is not None
        room = self._http.room
        room.asks(request.protocol)
        route = request.match_info.route.resource
        call = "none" if route is None else route.canonical.rpartition("/")[2].strip("{}")
        response: web.StreamResponse | None = None
        try:
            if call != "health":
                self._token.check(request)
            response = await handler(request)
        except Exception as error:
            response = self._problem(request, error)
        finally:
            room.answered(request.protocol)
            if response is not None:
                response.headers["Cache-Control"] = "no-store"
                self._metrics.requests.labels(call, response.status).inc()
        return response

    def _problem(self, request: web.Request, error: Exception) -> web.Response:
        if isinstance(error, ArbiterRefused):
            problem: Problem | None = Problem("invalid", str(error))
        elif isinstance(error, StorageError):
            problem = Problem("internal", f"the witness's disk failed: {error}")
        elif isinstance(error, web.HTTPNotFound):
            problem = Problem("not-found", "ask for /v1/CLUSTER/seat, alive or watch")
        else:
            problem = problem_of(error)
        if problem is None:
            self._report(f"{request.method} {request.path} failed", error)
            problem = Problem("internal", "see the witness's log")
        elif 400 <= problem.status < 500:
            self._tell(request.remote or "?", problem)
        return problem.response(request.path)

    def _tell(self, remote: str, problem: Problem) -> None:
        """One line per caller and kind a minute, so that nobody can fill the log."""
        now, key = time.monotonic(), (remote, problem.kind)
        if now - self._reported.get(key, -REPORT_EVERY_S) < REPORT_EVERY_S:
            return
        if len(self._reported) >= _CALLERS_MAX:
            self._reported.clear()
        self._reported[key] = now
        self._report(f"{remote}: {problem.kind}: {problem.detail}", None)

    # -- the calls -------------------------------------------------------------------------------

    async def _health(self, request: web.Request) -> web.Response:
        failure = self._registers.failure
        text = {"status": "ok"} if failure is None else {"status": "failed", "why": str(failure)}
        return _answer(text, 200 if failure is None else 503)

    async def _show_metrics(self, request: web.Request) -> web.Response:
        body, content_type = self._metrics.render(request.headers.get("Accept", ""))
        return web.Response(body=body, headers={"Content-Type": content_type})

    async def _read(self, request: web.Request) -> web.Response:
        return _reading(self._registers.of(name_in(request, "cluster")).reading)

    async def _swap(self, request: web.Request) -> web.Response:
        cluster = name_in(request, "cluster")
        outcome, began = "refused", time.monotonic()
        try:
            revision, seat, swap = await swap_in(request, BODY_S)
            before = self._registers.of(cluster).reading
            reading = await self._written(
                lambda: self._registers.swap(cluster, revision, seat, swap)
            )
            outcome = "made"
            self._metrics.swap_seconds.observe(time.monotonic() - began)
            if reading.revision != before.revision:
                self._report(f"{cluster}: {told(reading.seat)}", None)
            return _reading(reading)
        except SwapLost as lost:
            outcome = "lost"
            return _reading(lost.reading, 409)
        finally:
            self._metrics.swaps.labels(outcome).inc()
            self._wake()

    async def _watch(self, request: web.Request) -> web.Response:
        cluster, revision = name_in(request, "cluster"), revision_in(request)
        wait = number_in(request, "wait", WAIT_MAX_S, WAIT_MAX_S)
        self._watching += 1
        try:
            async with asyncio.timeout(wait):
                # Also when it is below: whoever asks is to see that the register went back.
                while self._registers.of(cluster).reading.revision == revision:
                    if self._ending or self._watching > self._config.connections_max // 2:
                        break
                    await self._changed.wait()
        except TimeoutError:
            pass
        finally:
            self._watching -= 1
        return _reading(self._registers.of(cluster).reading)

    async def _alive(self, request: web.Request) -> web.Response:
        now = time.monotonic()
        self._liveness.look(now)
        living = self._liveness.living(name_in(request, "cluster"), now)
        return _answer({"alive": sorted(living)})

    async def _keep_alive(self, request: web.Request) -> web.Response:
        cluster, node = name_in(request, "cluster"), name_in(request, "node")
        ttl = number_in(request, "ttl", TTL_S, TTL_MAX_S)
        now = time.monotonic()
        self._liveness.look(now)
        living = self._liveness.living(cluster, now) | {node}
        if len(living) > self._config.nodes_max:
            raise ArbiterRefused(
                f"{cluster} has {self._config.nodes_max} nodes, {node} is one more"
            )
        if not living <= self._registers.of(cluster).nodes:
            # After a restart it is given time again: so the name must be known by then.
            await self._written(lambda: self._registers.keep(cluster, living))
        self._liveness.touch(cluster, node, time.monotonic(), ttl)
        return _answer({"ttl": ttl})

    # -- behind the calls ------------------------------------------------------------------------

    async def _written(self, change: Callable[[], T]) -> T:
        """Carried out in the one thread that writes, whether or not the caller still waits."""
        try:
            return await asyncio.get_running_loop().run_in_executor(self._writer, change)
        except StorageError:
            self._failed()
            raise

    def _wake(self) -> None:
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()

    async def _tick(self) -> None:
        """Notice our own sleep, and let go of keys that are over."""
        while True:
            now = time.monotonic()
            self._liveness.look(now)
            for cluster in self._liveness.forget(now):
                living = self._liveness.living(cluster, now)
                try:
                    await self._written(partial(self._registers.keep, cluster, living))
                except (StorageError, ArbiterRefused):
                    return
            await asyncio.sleep(TICK_S)


def _answer(value: Any, status: int = 200) -> web.Response:
    return web.Response(body=as_json(value), status=status, content_type="application/json")


def _reading(reading: SeatReading, status: int = 200) -> web.Response:
    seat = None if reading.seat is None else reading.seat._asdict()
    return _answer({"revision": reading.revision, "seat": seat}, status)
