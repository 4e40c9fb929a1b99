"""What the client says and does when requests or answers are lost on the way."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

import pytest

import tandemq
from tandemq.client import find, link
from tests.client.cutter import Cutter
from tests.cluster.cluster_nodes import Member

pytestmark = [pytest.mark.integration, pytest.mark.asyncio]


async def total(client: tandemq.Client, tube: str) -> int:
    return (await client.statistics(tube))["tasks"]["total"]


async def taken(tube: tandemq.Tube) -> tandemq.Task:
    task = await tube.take(5)
    assert task is not None
    return task


@pytest.mark.parametrize("sent", [0, 9], ids=["no answer", "cut in mid-answer"])
async def test_answers_that_never_came(
    direct: tandemq.Client, client: tandemq.Client, cutter: Cutter, sent: int
) -> None:
    """Everything arrived, and counts once; only what cannot be repeated is unknown."""
    name = f"cut{sent}"
    tube = await client.create_tube(name, "fifo")
    session = client.session
    cutter.cut(b":put", sent)
    with pytest.raises(tandemq.Unknown, match="no answer from"):
        await tube.put("a")
    cutter.cut(b":put_many", sent)
    with pytest.raises(tandemq.Unknown):
        await tube.put_many(["b"])
    cutter.cut(b":put", sent)
    assert await tube.put("c", key="c") == 2
    cutter.cut(b":put_many", sent)
    assert await tube.put_many(["d", "e"], keys=["d", "e"]) == [3, 4]
    assert await total(direct, name) == 5

    cutter.cut(b":take", sent)
    tasks = [await taken(tube) for _ in range(5)]
    assert [task.data for task in tasks] == ["a", "b", "c", "d", "e"], "none was left taken"
    cutter.cut(b":ack", sent)
    await tasks[0].ack()
    cutter.cut(b":release", sent)
    await tasks[1].release()
    cutter.cut(b":bury", sent)
    await tasks[2].bury()
    assert (await direct.call(f"queue.tube.{name}:peek", 2))[0][1] == "!"
    cutter.cut(b":finish", sent)
    assert await tasks[3].finish([(name, "after d")]) is None
    assert await tasks[4].finish([(name, "after e", {"key": "e2"})]) == [6]
    assert client.session == session
    assert cutter.cuts == 9
    assert await total(direct, name) == 4
    await direct.call(f"queue.tube.{name}:drop")


async def test_requests_that_never_arrived(
    direct: tandemq.Client, client: tandemq.Client, cutter: Cutter
) -> None:
    """Nobody can tell that from a lost answer: what may be repeated is, the rest is unknown."""
    tube = await client.create_tube("lose", "fifo")
    cutter.lose(b":put")
    with pytest.raises(tandemq.Unknown):
        await tube.put("a")
    assert await total(direct, "lose") == 0
    cutter.lose(b":put")
    assert await tube.put("b", key="b") == 0
    cutter.lose(b":take")
    task = await taken(tube)
    cutter.lose(b":ack")
    await task.ack()
    assert cutter.cuts == 4
    assert await total(direct, "lose") == 0


async def test_an_ack_that_was_lost_while_the_task_went_to_another(
    direct: tandemq.Client, client: tandemq.Client, cutter: Cutter
) -> None:
    tube = await client.create_tube("gone", "fifo")
    await tube.put("x")
    task = await taken(tube)
    await direct.call("queue.tube.gone:release_all")
    cutter.lose(b":ack")
    with pytest.raises(tandemq.LeaseLost):
        await task.ack()
    assert task.is_lost
    assert await total(direct, "gone") == 1


async def test_a_repeat_that_is_refused_leaves_it_unknown(
    direct: tandemq.Client, client: tandemq.Client, cutter: Cutter
) -> None:
    tube = await client.create_tube("paused", "fifo")
    cutter.lose(b":put")
    await direct.call("queue.tube.paused:pause", "puts")
    with pytest.raises(tandemq.Unknown, match="then: Puts into tube paused are paused"):
        await tube.put("x", key="x")
    with pytest.raises(tandemq.Refused, match="are paused"):
        await tube.put("x", key="y")


async def test_one_short_deadline_disturbs_nobody_else(
    direct: tandemq.Client, client: tandemq.Client, cutter: Cutter
) -> None:
    tube = await client.create_tube("silent", "fifo")
    waiting = asyncio.create_task(tube.take(30))
    asked = cutter.asked
    cutter.freeze()
    with pytest.raises(tandemq.Unknown):
        await tube.put("late", timeout=0.1)
    cutter.thaw()
    task = await waiting
    assert task is not None
    assert task.data == "late"
    await task.ack()
    assert cutter.asked == asked, "the connection answers a ping, and stays"


async def test_a_connection_that_is_silent_for_good_is_left(
    direct: tandemq.Client,
    client: tandemq.Client,
    cutter: Cutter,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(link, "ATTEMPT_SECONDS", 0.3)
    monkeypatch.setattr(link, "PROBE_SECONDS", 0.3)
    monkeypatch.setattr(find, "PROBE_SECONDS", 0.3)
    tube = await client.create_tube("frozen", "fifo")
    await tube.put_many(["a", "b"])
    task = await taken(tube)
    cutter.freeze()  # those there are: a new connection is answered
    await task.ack()
    assert (await taken(tube)).data == "b"


async def test_in_hand_the_session_is_kept_without_a_call(
    client: tandemq.Client, cutter: Cutter, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(link, "WATCH_SECONDS", 0.05)
    tube = await client.create_tube("watched", "fifo")
    await tube.put("x")
    task = await taken(tube)
    cutter.cut(b"", 0)  # whatever is asked next: the watch's own ping
    before = cutter.asked
    async with task, asyncio.timeout(15):
        while cutter.cuts == 0 or cutter.asked == before:
            await asyncio.sleep(0.02)
    assert await total(client, "watched") == 0


async def test_a_session_that_ended_meanwhile_is_told_to_every_block(
    direct: tandemq.Client, client: tandemq.Client, cutter: Cutter
) -> None:
    tube = await client.create_tube("expelled", "fifo")
    await tube.put("x")
    with pytest.raises(tandemq.LeaseLost, match="its session ended"):
        async with await taken(tube) as task:
            old = client.link.session
            client.link.session = b"?" * 16  # no node knows that one
            cutter.cut(b"", 0)
            await asyncio.sleep(30)
    assert task.is_lost
    assert await total(client, "expelled") == 1
    assert client.session not in (old, b"?" * 16)


async def test_a_session_to_join_must_be_there(node: Member, direct: tandemq.Client) -> None:
    where = f"127.0.0.1:{node.port}"
    with pytest.raises(tandemq.Refused, match="is unknown"):
        async with tandemq.connect(where, session=b"?" * 16):
            pass
    async with tandemq.connect(where, session=direct.session) as joined:
        assert joined.session == direct.session
        tube = await direct.create_tube("joint", "fifo")
        await tube.put("x")
        task = await taken(tube)
        assert await joined.tube("joint").call("ack", [task.id])


async def test_what_messagepack_cannot_hold_is_not_sent(client: tandemq.Client) -> None:
    tube = await client.create_tube("types", "fifo")
    with pytest.raises(TypeError):
        await tube.put(object())
    with pytest.raises(ValueError, match="window without a key"):
        await tube.put("x", window=3)
    with pytest.raises(ValueError, match="zip"):
        await tube.put_many(["x", "y"], keys=["x"])
    assert await tube.put("x") == 0


async def test_a_closed_client_says_so(node: Member, cutter: Cutter) -> None:
    client = tandemq.connect(f"127.0.0.1:{cutter.port}")
    tube = await client.create_tube("closed", "fifo")
    waiting = asyncio.create_task(tube.take(30))
    await asyncio.sleep(0)
    await client.close()
    await client.close()
    with pytest.raises(tandemq.TandemError, match="closed"):
        await waiting
    with pytest.raises(tandemq.Refused, match="the client is closed"):
        await tube.put("x")


async def test_servers_that_are_none_of_ours() -> None:
    async def greet(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        with contextlib.suppress(OSError):
            await writer.drain()
        writer.close()

    other = await asyncio.start_server(greet, "127.0.0.1", 0)
    port = other.sockets[0].getsockname()[1]
    async with other:
        with pytest.raises(tandemq.Unavailable, match=f"no writable node.*127.0.0.1:{port}"):
            async with tandemq.connect(f"127.0.0.1:{port}", timeout=0.5):
                pass
    answer: Any = [{"version": "2.11"}]
    with pytest.raises(tandemq.Refused, match="is not a Tandem node"):
        find._state("a:1", answer)
