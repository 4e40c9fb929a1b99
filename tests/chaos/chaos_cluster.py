"""Two real nodes that know each other, and their clients, only through six proxies.

`a_from_b` is the link on which a follows b: a dials, so b's records travel downstream and a's
confirmations upstream. All that waits here is a coroutine, so that the load goes on meanwhile.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import asynctnt
import msgpack

from tandemq.log.rescue import rescue_names
from tandemq_server.storage.files import FileDisk
from tandemq_server.storage.inspection import Dump
from tests.chaos import chaos_checkers as checkers
from tests.chaos.chaos_client import Client
from tests.chaos.chaos_history import Attempt, Loss
from tests.chaos.chaos_load import TUBES, Load, group_of, value_of
from tests.chaos.chaos_toxi import Link, Server
from tests.cluster.cluster_nodes import Pair

TTR = 20.0
HEAL_SECONDS = 60.0
SHARED = ("--in-replicaset", "--ttr", f"{TTR:g}")
#: Pair mode without exceptions: nothing is acknowledged that is not on both nodes.
STRICT = ("--set", "replication.ack=pair", "--set", "replication.solo_after=null")
#: Spaces that both nodes must have the same rows in.
SHIPPED = ("_queue", "_queue_taken_2", "_queue_shared_sessions")


class Cluster:
    """Nodes a and b behind proxies. seed: of everything random here and in the load."""

    def __init__(self, home: Path, server: Server, seed: int, *flags: str) -> None:
        self.rng = random.Random(seed)
        #: Whether one node may acknowledge alone.
        self.local = "replication.ack=pair" not in flags
        self.server = server
        self.pair = Pair(home, *SHARED, *flags)
        self.nodes = {"a": self.pair.a, "b": self.pair.b}
        self.links: dict[str, Link] = {}
        for name, member in self.nodes.items():
            other = "b" if name == "a" else "a"
            self.links[f"client_{name}"] = server.link(f"client_{name}", member.port)
            self.links[f"{other}_from_{name}"] = server.link(f"{other}_from_{name}", member.port)
            self.links[f"admin_{name}"] = server.link(f"admin_{name}", member.admin_port)
            member.ask_port = self.links[f"admin_{name}"].port
        self.pair.a.peers = [self.links["a_from_b"].port]
        self.pair.b.peers = [self.links["b_from_a"].port]
        ports = {name: self.links[f"client_{name}"].port for name in self.nodes}
        self.load = Load(ports, self.rng.getrandbits(64))
        self.began = time.monotonic()

    # -- what is done to it ----------------------------------------------------------------------

    def note(self, text: str) -> None:
        """The plan as it unfolds; shown when a run fails."""
        print(f"{time.monotonic() - self.began:7.3f} {text}")

    async def start(self) -> None:
        await asyncio.to_thread(self.pair.start)
        # Nodes are ready before they know which of them serves.
        serving = await self.until(self.master, HEAL_SECONDS, "one writable node")
        await self.do(self._create, serving)
        await self.until(self.alike, HEAL_SECONDS, "both nodes know the tubes")

    async def _create(self, client: Client) -> None:
        for tube, kind in TUBES.items():
            await client.call("queue.create_tube", tube, kind, {"if_not_exists": True})

    async def do(self, what: Callable[[Client], Any], node: str = "a") -> Any:
        """`what` with a fresh client of that node."""
        client = Client(self.load.nodes, node, pinned=True)
        await client.connect()
        try:
            return await what(client)
        finally:
            await client.drop()

    async def on(self, link: str, method: str, *arguments: Any, **options: Any) -> Any:
        """Something done to a proxy, off the loop: its server may be slow to answer."""
        self.note(f"{link}: {method} {arguments or ''} {options or ''}")
        return await asyncio.to_thread(getattr(self.links[link], method), *arguments, **options)

    async def partition(self) -> None:
        """Neither node hears the other."""
        for link in ("a_from_b", "b_from_a"):
            await self.on(link, "cut")

    async def heal(self) -> None:
        self.note("heal all links")
        await asyncio.to_thread(self.server.heal)

    def signal(self, node: str, number: int) -> None:
        self.note(f"{node}: {signal.Signals(number).name}")
        process = self.nodes[node].process
        assert process is not None
        process.send_signal(number)

    async def in_step(self, node: str) -> float:
        """A moment up to which the other node has all that this one acknowledged."""
        other = "b" if node == "a" else "a"
        since = time.monotonic()
        told = await self.status(node)

        async def reached() -> bool:
            theirs = await self.status(other)
            return theirs["term"] == told["term"] and bool(theirs["lsn"] >= told["lsn"])

        await self.until(reached, HEAL_SECONDS, f"{other} has what {node} had")
        return since

    def lost_by(self, node: str, since: float) -> None:
        """What `node` acknowledged alone since then, up to now, the other's promotion may undo."""
        self.load.history.losses.append(Loss(node, since, time.monotonic()))

    async def kill(self, node: str) -> None:
        self.note(f"{node}: kill -9")
        await asyncio.to_thread(self.nodes[node].end, signal.SIGKILL)

    async def restart(self, node: str, *flags: str) -> None:
        self.note(f"{node}: start {flags or ''}")
        await asyncio.to_thread(self.nodes[node].start, *flags)

    async def ended(self, node: str, seconds: float = 15.0) -> int:
        """The exit code of a node that ends by itself."""
        process = self.nodes[node].process
        assert process is not None
        code = await asyncio.to_thread(process.wait, seconds)
        assert process.stdout is not None
        process.stdout.close()
        self.nodes[node].process = None
        self.note(f"{node}: ended with {code}")
        return code

    async def ask(self, node: str, path: str, body: Any = None) -> tuple[int, Any]:
        return await asyncio.to_thread(self.nodes[node].ask, path, body, 30.0)

    async def status(self, node: str) -> dict[str, Any]:
        return dict((await self.ask(node, "/v1/status"))[1])

    async def role(self, node: str, read_only: bool, force: bool = False) -> tuple[int, Any]:
        self.note(f"{node}: read_only={read_only} force={force}")
        body = {"read_only": read_only, "force": force}
        with contextlib.nullcontext() if read_only else self.load.promotion():
            answer = await self.ask(node, "/v1/read_only", body)
        self.note(f"{node}: {answer[0]} {answer[1].get('state') or answer[1].get('detail')}")
        return answer

    async def switch(self, to: str) -> tuple[int, Any]:
        """The planned switch-over, asked of the node that is to take over."""
        self.note(f"switch over to {to}")
        with self.load.promotion():
            code, report = await self.ask(to, "/v1/switchover", {"to": to, "dry_run": False})
        self.note(f"switch over to {to}: {code} {report.get('detail', '')}")
        return code, report

    # -- what is waited for ----------------------------------------------------------------------

    async def until(self, what: Callable[[], Any], seconds: float, text: str) -> Any:
        """The first true value of the coroutine function `what`."""
        deadline = time.monotonic() + seconds
        while True:
            if found := await what():
                return found
            assert time.monotonic() < deadline, f"not within {seconds:g} s: {text}"
            await asyncio.sleep(0.05)

    async def master(self) -> str | None:
        told = {name: await self.status(name) for name in self.nodes}
        writable = [name for name, status in told.items() if status["writable"]]
        return writable[0] if len(writable) == 1 else None

    async def alike(self) -> bool:
        one, other = await self.status("a"), await self.status("b")
        same = all(one[name] == other[name] for name in ("lsn", "term", "cluster_id"))
        return same and all(told["durable_lsn"] == told["lsn"] for told in (one, other))

    async def alike_nearly(self) -> bool:
        """The other node is fed and close to the end of a log that goes on growing."""
        one, other = await self.status("a"), await self.status("b")
        return one["term"] == other["term"] and abs(one["lsn"] - other["lsn"]) < 500

    async def served(self) -> None:
        """Since now, producers and workers have got on with their work."""
        now, history = time.monotonic(), self.load.history

        async def done() -> bool:
            puts = any(put.outcome == "ok" and put.sent > now for put in history.puts[-200:])
            acks = (one.outcome == "ok" and one.asked > now for one in history.deliveries[-200:])
            return puts and any(acks)

        await self.until(done, HEAL_SECONDS, "a put and an ack that succeed")

    # -- the end ---------------------------------------------------------------------------------

    async def settle(self) -> str:
        """Healed, both nodes up: clients are served, the load ends, both logs are the same."""
        await self.heal()
        name = await self.until(self.master, HEAL_SECONDS, "one writable node")
        await self.served()
        await self.load.stop()
        await self.until(self.alike, HEAL_SECONDS, "both nodes at one LSN")
        return str(name)

    async def finish(self) -> None:
        """Settle, compare, drain, compare again, end both nodes, judge."""
        master = await self.settle()
        await self.compare()
        await self.do(self._drain, master)
        await self.compare()
        # A session that ends while the nodes end one by one would be written by the last alone.
        assert (await self.role(master, read_only=True))[0] == 200
        await self.until(self.alike, HEAL_SECONDS, "both nodes at the final LSN")
        # The master last: with an arbiter the other one would take over, and write.
        for name in sorted(self.nodes, key=lambda name: name == master):
            code = await asyncio.to_thread(self.nodes[name].end)
            assert code == 0, f"{name} ended with {code}"
        self.judge()

    async def compare(self) -> None:
        """Both nodes show the same rows, read while nothing was written: sessions end by time."""

        async def read() -> Any:
            before = (await self.status("a"))["lsn"] if await self.alike() else None
            spaces = await self._rows("a"), await self._rows("b")
            same = await self.alike() and (await self.status("a"))["lsn"] == before
            return spaces if same else None

        spaces = await self.until(read, HEAL_SECONDS, "both nodes at one LSN while they are read")
        checkers.expect_nothing(list(checkers.spaces_agree(*spaces)))

    async def _drain(self, client: Client) -> None:
        """Take and ack everything; complete, or it is an error."""
        history = self.load.history
        for tube in TUBES:
            history.leases.append(("*", time.monotonic(), time.monotonic()))
            await client.call(f"queue.tube.{tube}:release_all")
            while True:
                asked = time.monotonic()
                tasks = (await client.call(f"queue.tube.{tube}:take_many", 500))[0]
                if not tasks:
                    break
                got = time.monotonic()
                history.left += [(tube, task[0], value_of(task[2])) for task in tasks]
                ids = [task[0] for task in tasks]
                await client.call(f"queue.tube.{tube}:ack_many", ids, seconds=20)
                for kind, since, until in (("take", asked, got), ("ack", got, time.monotonic())):
                    history.attempts += [
                        Attempt(
                            kind,
                            "drain",
                            "drain",
                            client.node,
                            tube,
                            since,
                            until,
                            "ok",
                            task[0],
                            value_of(task[2]),
                        )
                        for task in tasks
                    ]
            (told,) = await client.call("queue.statistics", tube)
            assert told["tasks"]["total"] == 0, f"{tube} after the drain: {told['tasks']}"
            history.drained[tube] = time.monotonic()

    async def _rows(self, node: str) -> dict[str, list]:
        connection = asynctnt.Connection(
            host="127.0.0.1", port=self.nodes[node].port, reconnect_timeout=0
        )
        await connection.connect()
        try:
            found: dict[str, list] = {}
            for name in (*SHIPPED, *TUBES):
                answer = await connection.select(name, [], limit=1_000_000)
                # A session's bytes are read as text where they happen to be some.
                found[name] = sorted((list(row) for row in answer.body), key=repr)
            return found
        finally:
            await connection.disconnect()

    def judge(self) -> None:
        """The logs, what the nodes said, and what clients were told."""
        history = self.load.history
        logs, found = [], []
        for name, member in self.nodes.items():
            disk = FileDisk(member.data, read_only=True)
            try:
                rows = list(Dump(disk))
                logs.append([(row.lsn, row.term, row.kind, row.ops) for row in rows])
                for file in rescue_names(disk):
                    history.rescued |= rescued(list(Dump(disk, 0, None, file)))
            finally:
                disk.release()
            text = member.text()
            for bad in ("Traceback", "never retrieved", "AssertionError"):
                if bad in text:
                    found.append(f"{bad} in the lines of {name}: {text[text.index(bad) :][:600]}")
        found += checkers.logs_agree(*logs)
        found += checkers.judge(history, TTR, group_of)
        self.note(", ".join(f"{what} {count}" for what, count in history.counts().items()))
        checkers.expect_nothing(found)

    def clean_up(self) -> None:
        for member in self.nodes.values():
            if member.process is not None and member.process.poll() is None:
                member.process.kill()
                member.process.wait(10)
            if member.process is not None and member.process.stdout is not None:
                member.process.stdout.close()


def rescued(rows: list[Any]) -> set[int]:
    """Values of all tasks in the records of a rescue file."""
    found = set()
    for row in rows:
        for op in row.ops:
            for text in _texts(op):
                if text.startswith("0x"):
                    try:
                        found.add(value_of(msgpack.unpackb(bytes.fromhex(text[2:]))))
                    except (ValueError, TypeError, msgpack.UnpackException, IndexError):
                        continue
    return found


def _texts(value: Any) -> list[str]:
    if isinstance(value, str):
        return [value]
    if isinstance(value, list | tuple):
        return [text for item in value for text in _texts(item)]
    return []
