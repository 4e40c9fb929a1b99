"""The client against real nodes: outcomes, leases, sessions, switch-overs, kills, the runner."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from cluster_nodes import TANDEMQ, Member, Pair, free_ports, pair, until

import tandemq

pytestmark = [pytest.mark.integration]
SHARED = ("--in-replicaset", "--ttr", "30")
EXAMPLE = Path(__file__).parents[2] / "examples" / "worker.py"


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Member]:
    ports = free_ports(2)
    member = Member(tmp_path_factory.mktemp("node"), "a", ports[0], ports[1], [])
    member.start(*SHARED)
    yield member
    member.end()


@contextlib.asynccontextmanager
async def client_of(node: Member, **options) -> AsyncIterator[tandemq.Client]:
    async with tandemq.connect(f"127.0.0.1:{node.port}", **options) as client:
        yield client


class Cutter:
    """A proxy that can drop the answer to the next request and cut the connection."""

    def __init__(self, port: int) -> None:
        self.target = port
        self.cut_after: bytes | None = None
        self.cuts = 0
        self.serving: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Cutter:
        self.server = await asyncio.start_server(self.serve, "127.0.0.1", 0)
        self.port = self.server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        self.server.close()
        await asyncio.gather(*self.serving)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        me = asyncio.current_task()
        assert me is not None
        self.serving.add(me)
        there, back = await asyncio.open_connection("127.0.0.1", self.target)
        armed = False

        async def forth() -> None:
            nonlocal armed
            while data := await reader.read(65536):
                if self.cut_after is not None and self.cut_after in data:
                    armed, self.cut_after = True, None
                back.write(data)

        async def answer() -> None:
            while data := await there.read(65536):
                if armed:
                    self.cuts += 1
                    return
                writer.write(data)

        ways = [asyncio.create_task(forth()), asyncio.create_task(answer())]
        await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        for way in ways:
            way.cancel()
        await asyncio.gather(*ways, return_exceptions=True)
        for end in (writer, back):
            end.close()
            with contextlib.suppress(OSError):
                await end.wait_closed()


@pytest.mark.asyncio
async def test_put_take_ack_release_bury(node: Member) -> None:
    async with client_of(node) as client:
        tube = await client.create_tube("basic", ttr=60)
        assert await tube.put({"n": 1}) == 0
        assert await tube.put_many([2, 3]) == [1, 2]
        assert await tube.put_many([]) == []
        task = await tube.take(1)
        assert task is not None
        assert (task.id, task.data, task.attempt) == (0, {"n": 1}, 1)
        await task.ack()
        with pytest.raises(tandemq.Refused, match="ended already"):
            await task.ack()
        two, three = await tube.take_many(5)
        await two.bury("odd")
        await three.release()
        assert (await client.call("queue.tube.basic:peek", 1))[0][1] == "!"
        again = await tube.take(1)
        assert again is not None
        assert again.data == 3
        await again.ack()
        assert await tube.take(0) is None


@pytest.mark.asyncio
async def test_a_block_acks_or_releases_or_buries(node: Member) -> None:
    async with client_of(node) as client:
        await client.create_tube("blocks", max_attempts=10)
        tube = client.tube("blocks", max_attempts=2, backoff=0.02)
        await tube.put("x")
        for attempt in (1, 2):
            task = await tube.take(5)
            assert task is not None
            assert task.attempt == attempt
            with pytest.raises(ZeroDivisionError):
                async with task:
                    raise ZeroDivisionError("no")
        info = (await client.call("queue.tube.blocks:info", 0))[0]
        assert (info["state"], info["reason"]) == ("!", "ZeroDivisionError: no")
        plain = (await client.create_tube("plain", "fifo")).name
        uncounted = client.tube(plain, max_attempts=2, backoff=0.02)
        await uncounted.put("x")
        for attempt in (1, 2):
            task = await uncounted.take(5)
            assert task is not None
            assert task.attempt == attempt
            with pytest.raises(ZeroDivisionError):
                async with task:
                    raise ZeroDivisionError("no")
        assert (await client.statistics("plain"))["tasks"]["buried"] == 1
        await tube.put("y")
        async for task in tube.consume():
            async with task:
                assert task.data == "y"
            break
        assert (await client.statistics("blocks"))["tasks"]["total"] == 1


@pytest.mark.asyncio
async def test_a_running_block_is_touched(node: Member) -> None:
    async with client_of(node) as client:
        tube = await client.create_tube("touched", ttr=0.9)
        await tube.put("long")
        task = await tube.take(1)
        assert task is not None
        async with task:
            await asyncio.sleep(2.0)
            assert (await client.statistics("touched"))["tasks"]["taken"] == 1
        assert (await client.statistics("touched"))["tasks"]["total"] == 0


@pytest.mark.asyncio
async def test_a_lost_task_cancels_its_block_and_its_token_is_worth_nothing(node: Member) -> None:
    async with client_of(node) as client, client_of(node) as other:
        tube = await client.create_tube("lost", ttr=1.5)
        await tube.put("x")
        task = await tube.take(1)
        assert task is not None
        with pytest.raises(tandemq.LeaseLost):
            async with task:
                await other.call("queue.tube.lost:release_all")
                await asyncio.sleep(30)
        assert task.is_lost
        again = await tube.take(1)
        assert again is not None
        with pytest.raises(tandemq.LeaseLost):
            await task.ack()
        await again.ack()


@pytest.mark.asyncio
async def test_outcomes_refused_and_unavailable(node: Member) -> None:
    async with client_of(node, timeout=0.6) as client:
        with pytest.raises(tandemq.Refused, match="not defined") as refused:
            await client.tube("nowhere").put(1)
        assert refused.value.code == 33
        node.role(True)
        try:
            with pytest.raises(tandemq.Unavailable):
                await client.tube("basic").put(1)
        finally:
            node.role(False)
    with pytest.raises(ValueError, match="host:port"):
        tandemq.connect("nonsense")
    with pytest.raises(tandemq.Unavailable):
        async with tandemq.connect(f"127.0.0.1:{free_ports(1)[0]}", timeout=0.3):
            pass


@pytest.mark.asyncio
async def test_an_answer_that_never_came(node: Member) -> None:
    async with Cutter(node.port) as cutter, client_of(node) as direct:
        await direct.create_tube("cut", "fifo")
        async with tandemq.connect(f"127.0.0.1:{cutter.port}", timeout=10) as client:
            tube = client.tube("cut")
            cutter.cut_after = b"cut:put"
            with pytest.raises(tandemq.Unknown):
                await tube.put("once")
            cutter.cut_after = b"cut:put"
            first = await tube.put("keyed", key="k")
            assert cutter.cuts == 2
            # Both arrived, the keyed one once only, though it was sent twice.
            assert (await direct.statistics("cut"))["tasks"]["ready"] == 2
            session = client.session
            cutter.cut_after = b"cut:take"
            one = await tube.take(1)
            two = await tube.take(1)
            assert one is not None
            assert two is not None
            assert (one.data, two.data, two.id) == ("once", "keyed", first)
            cutter.cut_after = b"cut:ack"
            await one.ack()
            assert cutter.cuts == 4
            assert client.session == session
            await two.ack()
            assert (await direct.statistics("cut"))["tasks"]["total"] == 0


@pytest.mark.asyncio
async def test_a_cancelled_take_keeps_nothing(node: Member) -> None:
    async with client_of(node) as client:
        tube = await client.create_tube("cancelled", "fifo")
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.1):
                await tube.take()
        await tube.put("x")
        task = await tube.take(5)
        assert task is not None
        await task.ack()


def test_sync_face(node: Member) -> None:
    with tandemq.connect_sync(f"127.0.0.1:{node.port}") as client:
        tube = client.create_tube("sync", "fifo")
        assert tube.put_many([1, 2]) == [0, 1]
        for task in tube.consume():
            with task:
                assert task.data in (1, 2)
            if task.data == 2:
                break
        assert tube.take(0) is None
        tube.put(3)
        (task,) = tube.take_many(3)
        with pytest.raises(KeyError), task:
            raise KeyError("x")
        assert client.call("queue.statistics", "sync")[0]["tasks"]["ready"] == 1


def test_importing_the_client_pulls_nothing_of_the_server() -> None:
    code = (
        "import sys, tandemq; tandemq.connect; tandemq.connect_sync\n"
        "print([m for m in ('engine', 'node', 'model', 'drivers', 'pyspark') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


HANDLER = """
import time
async def slow(task):
    print(task.data, flush=True)
    import asyncio
    await asyncio.sleep(0.5)
def plain(task):
    if task.data == 'bad':
        raise ValueError('bad data')
"""


def test_runner_drains_on_sigterm(node: Member, tmp_path: Path) -> None:
    (tmp_path / "handlers.py").write_text(HANDLER)

    def run(*words: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [TANDEMQ, "work", *words, "--server", f"127.0.0.1:{node.port}"],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=tmp_path,
        )

    with tandemq.connect_sync(f"127.0.0.1:{node.port}") as client:
        tube = client.create_tube("run", "fifo")
        tube.put_many(range(50))
        runner = run("handlers:slow", "--tube", "run", "--concurrency", "3")
        assert runner.stdout is not None
        assert runner.stdout.readline() == "0\n"
        runner.send_signal(signal.SIGTERM)
        out, err = runner.communicate(timeout=20)
        assert runner.returncode == 0
        done = 1 + len(out.split())
        assert f"drained: {done} done, 0 failed, 0 lost" in err
        assert client.call("queue.statistics", "run")[0]["tasks"]["ready"] == 50 - done
        for words, code, text in (
            (("handlers:nothing", "--tube", "run"), 2, "handlers has no nothing"),
            (("handlers", "--tube", "run"), 2, "not MODULE:FUNCTION"),
            (("handlers:plain", "--tube", "nowhere"), 1, "not defined"),
        ):
            failing = run(*words)
            _, err = failing.communicate(timeout=20)
            assert (failing.returncode, text in err) == (code, True), err


def servers(nodes: Pair) -> str:
    return f"127.0.0.1:{nodes.a.port},127.0.0.1:{nodes.b.port}"


@pytest.mark.asyncio
async def test_tasks_in_hand_over_a_switch_over(tmp_path: Path) -> None:
    with pair(tmp_path, *SHARED) as nodes:
        told: list[str] = []
        async with tandemq.connect(servers(nodes), on_switch=told.append) as client:
            tube = await client.create_tube("jobs", "fifo")
            await tube.put_many(["in hand", "later"])
            session = client.session
            task = await tube.take(1)
            assert task is not None
            await asyncio.to_thread(nodes.in_step)
            await asyncio.to_thread(nodes.a.switch_to, nodes.b)
            await task.ack()
            assert client.session == session
            assert client.node == f"127.0.0.1:{nodes.b.port}"
            later = await tube.take(5)
            assert later is not None
            assert later.data == "later"
            await later.ack()
        assert len(told) == 1
        assert told[0].startswith(f"switched from 127.0.0.1:{nodes.a.port}")


def test_the_example_survives_kill_9_of_the_master(tmp_path: Path) -> None:
    count = 10_000
    assert len([line for line in EXAMPLE.read_text().splitlines() if line.strip()]) < 15
    with pair(tmp_path, *SHARED) as nodes:
        with tandemq.connect_sync(servers(nodes)) as client:
            tube = client.create_tube("jobs", "fifo")
            for first in range(0, count, 1000):
                tube.put_many(range(first, first + 1000))
        nodes.in_step()
        out = tmp_path / "worker.out"
        with out.open("w") as file:
            worker = subprocess.Popen(
                [sys.executable, str(EXAMPLE), servers(nodes)], stdout=file, stderr=file
            )
        try:
            until(lambda: len(out.read_text().splitlines()) > count // 10)
            nodes.a.end(signal.SIGKILL)
            code, flip = nodes.b.role(False)
            assert (code, flip["state"]) == (200, "RUNNING")
            statistics = nodes.b.connect()

            def left() -> int:
                found = statistics.call("queue.statistics", "jobs").data[0]
                return int(found[b"tasks"][b"total"])

            until(lambda: left() == 0, 90.0, every=0.2)
        finally:
            worker.kill()
            worker.wait()
        lines = out.read_text().splitlines()
        switched = [line for line in lines if line.startswith("switched from")]
        assert len(switched) == 1, lines[-5:]
        done = [int(line) for line in lines if line.isdigit()]
        assert set(done) == set(range(count))
        # Twice: what was acked on the master, and had not reached the other node when it died.
        repeated = len(done) - count
        assert repeated <= 500, repeated


def test_code_of_the_documentation_runs(node: Member) -> None:
    """Every block of docs/client.md, against a real node in place of the two addresses."""
    text = (EXAMPLE.parents[1] / "docs" / "client.md").read_text()
    blocks = [part.split("```")[0] for part in text.split("```python\n")[1:]]
    outputs = []
    for block in blocks:
        code = block.replace("127.0.0.1:3301,127.0.0.1:3302", f"127.0.0.1:{node.port}")
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
        assert (done.returncode, done.stderr) == (0, "")
        outputs.append(done.stdout)
    assert outputs == ["{'to': 'ada'}\n", "one\ntwo\n"]
