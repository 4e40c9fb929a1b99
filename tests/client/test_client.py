"""The client against real nodes: tasks, outcomes, cancelled takes, switch-overs."""

from __future__ import annotations

import asyncio
import contextlib
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

import tandemq
from tests.cluster.cluster_nodes import Member, Pair, free_ports, pair

pytestmark = [pytest.mark.integration]
SHARED = ("--in-replicaset", "--ttr", "30")
DOCS = Path(__file__).parents[2] / "docs" / "client.md"


@contextlib.asynccontextmanager
async def client_of(node: Member, **options) -> AsyncIterator[tandemq.Client]:
    async with tandemq.connect(f"127.0.0.1:{node.port}", **options) as client:
        yield client


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
        with pytest.raises(tandemq.Refused, match="already ended"):
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
@pytest.mark.parametrize("how", ["delete", "bury"])
async def test_a_task_that_is_deleted_reaches_its_worker_at_once(node: Member, how: str) -> None:
    async with tandemq.connect(f"127.0.0.1:{node.port}") as client:
        tube = await client.create_tube(f"gone-{how}", "fifottl", ttr=600)
        await tube.put("x")
        other = node.connect()
        loop = asyncio.get_running_loop()
        with pytest.raises(
            tandemq.LeaseLost, match=f"it was {'deleted' if how == 'delete' else 'buried'}"
        ):
            async with await tube.take(1) as task:
                await asyncio.sleep(0.2)
                began = loop.time()
                await asyncio.to_thread(other.call, f"queue.tube.gone-{how}:{how}", task.id)
                await asyncio.sleep(60)
        # The next touch would have come after 200 seconds.
        assert loop.time() - began < 2
        other.close()
        # What one ends oneself is no loss.
        await tube.put("y")
        for _ in range(3):
            async with await tube.take(5) as task:
                await asyncio.sleep(0.05)
            await tube.put("y")


@pytest.mark.asyncio
async def test_errors_are_classes_with_code_call_and_what_to_do(node: Member) -> None:
    async with tandemq.connect(f"127.0.0.1:{node.port}") as client:
        tube = await client.create_tube("errors", "fifo", capacity=1)
        cases = [
            (tandemq.TubeMissing, 33, client.tube("nowhere").put("x")),
            (tandemq.TubeMissing, 32, client.alter_tube("nowhere", capacity=1)),
            (tandemq.TubeMissing, 32, client.statistics("nowhere")),
            (tandemq.TaskNotTaken, 32, tube.call("ack", [0])),
            (tandemq.TaskMissing, 32, tube.call("peek", [7])),
        ]
        await tube.put("x")
        cases.append((tandemq.TubeFull, 32, tube.put("y")))
        for kind, code, work in cases:
            with pytest.raises(kind) as caught:
                await work
            error = caught.value
            assert isinstance(error, tandemq.Refused)
            assert (error.code, bool(error.todo)) == (code, True)
            assert error.call.startswith("queue.")
            assert f"({error.call}, code {code})" in str(error)
        with pytest.raises(tandemq.Refused) as caught:
            await client.call("queue.nonsense")
        assert type(caught.value) is tandemq.Refused
        found = await client.alter_tube("errors", capacity=2)
        assert found["opts"]["capacity"] == 2
        await tube.put("y")


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


def test_importing_the_client_pulls_nothing_of_the_server() -> None:
    code = (
        "import sys, tandemq; tandemq.connect; tandemq.connect_sync\n"
        "print([m for m in ('engine', 'node', 'model', 'drivers', 'pyspark') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def servers(nodes: Pair) -> str:
    return f"127.0.0.1:{nodes.a.port},127.0.0.1:{nodes.b.port}"


@pytest.mark.asyncio
async def test_a_switch_over_under_load(tmp_path: Path) -> None:
    """No call is unknown while both nodes live, tasks in hand stay in hand, the switch is told."""
    with pair(tmp_path, *SHARED) as nodes:
        told: list[str] = []
        async with tandemq.connect(servers(nodes), on_switch=told.append) as client:
            tube = await client.create_tube("jobs", "fifo")
            await tube.put_many(["in hand", "later"])
            session = client.session
            task = await tube.take(1)
            assert task is not None
            empty = await client.create_tube("empty", "fifo")
            waiting = asyncio.create_task(empty.take(30))
            await asyncio.to_thread(nodes.in_step)
            moved = asyncio.Event()
            done = 0

            async def producer() -> None:
                nonlocal done
                after = 0
                while after < 20:
                    await tube.put("more")  # has no key: Unknown would be raised
                    done += 1
                    after += moved.is_set()

            producers = [asyncio.create_task(producer()) for _ in range(10)]
            await asyncio.to_thread(nodes.a.switch_to, nodes.b)
            moved.set()
            await asyncio.gather(*producers)
            await task.ack()
            assert client.session == session
            assert client.node == f"127.0.0.1:{nodes.b.port}"
            assert (await client.statistics("jobs"))["tasks"]["total"] == done + 1
            await empty.put("at last")
            late = await waiting
            assert late is not None, "a take that waits goes on at the other node"
            await late.ack()
        assert len(told) == 1
        start = f"switched from 127.0.0.1:{nodes.a.port} to 127.0.0.1:{nodes.b.port}, term "
        assert told[0].startswith(start)


def test_code_of_the_documentation_runs(node: Member) -> None:
    """Every block of docs/client.md, against a real node in place of the two addresses."""
    blocks = [part.split("```")[0] for part in DOCS.read_text().split("```python\n")[1:]]
    outputs = []
    for block in blocks:
        code = block.replace("127.0.0.1:3301,127.0.0.1:3302", f"127.0.0.1:{node.port}")
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
        assert (done.returncode, done.stderr) == (0, "")
        outputs.append(done.stdout)
    assert outputs == ["{'to': 'ada'}\n", "one\ntwo\n"]
