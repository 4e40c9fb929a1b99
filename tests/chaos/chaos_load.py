"""Producers and workers; everything they are told goes into the history.

Values are unique. Each call's outcome is "unknown" until something better is known. A worker has
one task in hand at a time. Shared workers name their session again after every reconnect and
finish what they hold; anonymous ones give up what they held when their connection goes.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import time
from collections.abc import Hashable, Iterator
from itertools import count

from tests.chaos.chaos_client import READ_ONLY, Client, NotSent, Refused, Unknown
from tests.chaos.chaos_history import Delivery, Forgotten, History, Put

TUBES = {"c_fifo": "fifo", "c_ttl": "fifottl", "c_utube": "utube", "c_uttl": "utubettl"}
SUB_QUEUES = 20
#: Part of the puts that carry an idempotency key and are repeated until their outcome is known.
KEYED = 0.3
#: A worker that could not finish a task for this long lets it go.
GIVE_UP_SECONDS = 12.0


def sub_queue(value: int) -> str:
    return f"k{value % SUB_QUEUES}"


def group_of(one: Delivery) -> Hashable | None:
    """For the checkers: what must not be in two hands at once besides the task itself."""
    return (one.tube, sub_queue(one.value)) if "utube" in TUBES[one.tube] else None


class Load:
    """Clients that run until `stop`. pause: the mean seconds between a client's calls."""

    def __init__(
        self, nodes: dict[str, int], seed: int, *, first: str = "a", pause: float = 0.02
    ) -> None:
        self.nodes = nodes
        self.rng = random.Random(seed)
        self.first = first
        self.pause = pause
        self.history = History()
        self.stopping = False
        #: Under way now.
        self.promotions = 0
        self.jobs: list[asyncio.Task[None]] = []
        self.workers: list[Worker] = []
        self._values = count(1)

    def start(self, producers: int = 3, shared: int = 5, anonymous: int = 2) -> None:
        for number in range(producers):
            self.add_producer(f"p{number}")
        for number in range(shared + anonymous):
            self.add_worker(f"w{number}", shared=number < shared)

    def add_producer(self, name: str, *, node: str | None = None) -> None:
        """node: stays with this one, whatever it answers."""
        client = Client(self.nodes, node or self.first, pinned=node is not None)
        self._run(self._produce(client, self._fork(), name), name)

    def add_worker(self, name: str, *, shared: bool, node: str | None = None) -> None:
        client = Client(self.nodes, node or self.first, pinned=node is not None)
        worker = Worker(self, client, self._fork(), name, shared)
        self.workers.append(worker)
        self._run(worker.run(), name)

    def _fork(self) -> random.Random:
        return random.Random(self.rng.getrandbits(64))

    def _run(self, job: object, name: str) -> None:
        self.jobs.append(asyncio.create_task(job, name=name))  # type: ignore[arg-type]

    async def stop(self) -> None:
        """Workers finish what they have in hand. A client that failed by itself is an error."""
        self.stopping = True
        async with asyncio.timeout(GIVE_UP_SECONDS + 10):
            await asyncio.gather(*self.jobs)

    @contextlib.contextmanager
    def promotion(self) -> Iterator[None]:
        """A node is told to serve: the leases of anonymous sessions end some time in here."""
        self.promotions += 1
        for worker in self.workers:
            if not worker.shared:
                worker.lease_ends(time.monotonic())
        try:
            yield
        finally:
            self.promotions -= 1

    async def rest(self, rng: random.Random) -> None:
        await asyncio.sleep(rng.expovariate(1 / self.pause) if self.pause else 0)

    async def _produce(self, client: Client, rng: random.Random, name: str) -> None:
        while not self.stopping:
            await self.rest(rng)
            if client.connection is None:
                await connected(client, rng)
                continue
            tube = rng.choice(sorted(TUBES))
            put = await self.put(client, tube, key=rng.random() < KEYED)
            if put.outcome == "unknown" and put.key is not None:
                await self._again(client, rng, put)
        await client.drop()

    async def _again(self, client: Client, rng: random.Random, put: Put) -> None:
        """The same key until somebody knows: one task, whichever of the calls stored it."""
        until = time.monotonic() + GIVE_UP_SECONDS
        while put.outcome == "unknown" and time.monotonic() < until:
            if client.connection is None and not await connected(client, rng):
                continue
            put.node = client.node
            try:
                await self._call_put(client, put, *put.arguments())
            except Refused as error:
                assert error.code == READ_ONLY, f"put again: {error.code} {error}"
                await client.turn()
            except (Unknown, NotSent):
                await client.turn()
            put.done = time.monotonic()

    async def put(self, client: Client, tube: str, *, padding: int = 0, key: bool = False) -> Put:
        """One put of a new value, recorded; the client turns away where it is not served."""
        value = next(self._values)
        put = Put(value, tube, client.node, time.monotonic(), padded=bool(padding))
        put.key = f"v{value}" if key else None
        put.utube = sub_queue(value) if "utube" in TUBES[tube] else None
        self.history.puts.append(put)
        data, options = put.arguments()
        data = [value, "x" * padding] if padding else value
        try:
            put.outcome = "unknown"
            await self._call_put(client, put, data, options)
        except Refused as error:
            put.outcome = "refused"
            assert error.code == READ_ONLY, f"put: {error.code} {error}"
            await client.turn()
        except Unknown:
            await client.turn()
        except NotSent:
            put.outcome = None
            await client.turn()
        put.done = time.monotonic()
        return put

    async def _call_put(self, client: Client, put: Put, data: object, options: object) -> None:
        more = {"tube": put.tube, "value": put.value}
        with self.history.attempt("put", "p", "p", client.node, **more) as made:
            made.more = {"key": put.key, "subqueue": put.utube}
            (task,) = await client.call(f"queue.tube.{put.tube}:put", data, options)
            made.outcome, made.task = "ok", task[0]
        put.outcome, put.task = "ok", task[0]


async def connected(client: Client, rng: random.Random) -> bool:
    try:
        await client.connect()
    except NotSent:
        await client.turn()
        await asyncio.sleep(rng.uniform(0.02, 0.1))
    return client.connection is not None


def value_of(data: object) -> int:
    return int(data[0] if isinstance(data, list) else data)  # type: ignore[call-overload]


class Worker:
    """Takes, thinks, acks. The history's `ended` of what it holds is kept up here."""

    def __init__(
        self, load: Load, client: Client, rng: random.Random, name: str, shared: bool
    ) -> None:
        self.load = load
        self.client = client
        self.rng = rng
        self.name = name
        self.shared = shared
        self.session: bytes | str | None = None
        self.held: Delivery | None = None
        #: Sessions that went before the present one.
        self.sessions = 0

    @property
    def owner(self) -> str:
        """Whose leases the present session's are, for the outside judge."""
        return f"{self.name}/{self.sessions}"

    def lease_ends(self, moment: float) -> None:
        self.load.history.leases.append((self.owner, moment, time.monotonic()))
        if self.held is not None and self.held.ended is None:
            self.held.ended = moment

    async def run(self) -> None:
        while not self.load.stopping or self.held is not None:
            try:
                if await self._ready():
                    if self.held is None:
                        await self._take()
                    else:
                        await self._finish()
            except Refused as error:
                assert error.code == READ_ONLY, f"{self.name}: {error.code} {error}"
                await self.client.turn()
            except (Unknown, NotSent):
                await self.client.turn()
            if not self.shared and self.client.connection is None and self.held is not None:
                self.lease_ends(self.client.lost or time.monotonic())
                self.held = None
            if self.held is not None and time.monotonic() - self.held.got > GIVE_UP_SECONDS:
                self.lease_ends(self.client.lost or time.monotonic())
                self.held = None
                await self.client.drop()
        await self.client.drop()

    async def _ready(self) -> bool:
        """Connected, with the session of before."""
        if self.client.connection is not None:
            return True
        lost = self.client.lost
        if not await connected(self.client, self.rng):
            return False
        if not self.shared:
            self.load.history.leases.append((self.owner, lost or 0.0, time.monotonic()))
            self.sessions += 1
            return True
        asked = time.monotonic()
        try:
            arguments = [] if self.session is None else [self.session]
            (self.session,) = await self.client.call("queue.identify", *arguments)
        except Refused as error:
            if error.code == READ_ONLY or "read-only" in str(error):
                raise
            assert "is unknown" in str(error), f"{self.name}: {error.code} {error}"
            self.load.history.forgotten.append(Forgotten(self.name, lost or asked, asked))
            self.lease_ends(lost or asked)
            self.session, self.held = None, None
            self.sessions += 1
            await self.client.drop()
            return False
        return True

    async def _take(self) -> None:
        await self.load.rest(self.rng)
        tube = self.rng.choice(sorted(TUBES))
        asked = time.monotonic()
        wait = self.rng.choice([0, 0.05, 0.3])
        node = self.client.node
        history = self.load.history
        with history.attempt("take", self.name, self.owner, node, tube=tube) as made:
            tasks = await self.client.call(f"queue.tube.{tube}:take", wait, {"token": True})
            made.outcome = "ok"
        if tasks:
            task, _, data, token = tasks[0]
            made.task, made.value, made.more = task, value_of(data), {"token": token}
            self.held = Delivery(
                value_of(data), tube, task, token, self.name, node, asked, time.monotonic()
            )
            history.deliveries.append(self.held)
            if self.load.promotions and not self.shared:
                self.lease_ends(self.held.got)
            await asyncio.sleep(self.rng.choice([0, 0, 0, 0.01, 0.05, 0.4]))

    async def _finish(self) -> None:
        """Ack. After an unknown outcome it is tried again, and stays unknown unless it succeeds."""
        one = self.held
        assert one is not None
        first = one.outcome is None
        one.tried, node = time.monotonic(), self.client.node
        one.sent = one.tried if first else one.sent
        about = {"tube": one.tube, "task": one.task, "value": one.value}
        try:
            with self.load.history.attempt("ack", self.name, self.owner, node, **about) as made:
                made.more["token"] = one.token
                token = {"token": one.token}
                await self.client.call(f"queue.tube.{one.tube}:ack", one.task, token)
                made.outcome = "ok"
        except Unknown:
            one.outcome = "unknown"
            raise
        except (NotSent, Refused) as error:
            if isinstance(error, NotSent) or error.code == READ_ONLY:
                # Nothing was done: the task is as much in hand as before.
                one.sent = None if first else one.sent
                raise
            gone = ("Task was not taken", "not found")
            assert any(text in str(error) for text in gone), f"ack: {error.code} {error}"
            # Refused after an unknown outcome: it was done the first time, or the lease was lost.
            one.outcome = "refused" if first else "unknown"
        else:
            one.outcome = "ok"
        one.done, one.ack_node, self.held = time.monotonic(), node, None
