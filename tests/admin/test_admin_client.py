"""The command line's client and helpers, against a real API."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, TypeVar

import pytest

from tandemq_server.admin import client as c
from tandemq_server.node.observe.answers import LossBoundAnswer
from tests.admin.harness import TOKEN, Api, api

pytestmark = pytest.mark.asyncio

T = TypeVar("T")
LOSS = LossBoundAnswer(True, 7, 900, 1.5, "b was last heard at LSN 93")


def client(node: Api, **more: Any) -> c.AdminClient:
    return c.AdminClient(f"127.0.0.1:{node.port}", **more)


async def off(call: Callable[..., T], *args: Any, **kwargs: Any) -> T:
    return await asyncio.to_thread(call, *args, **kwargs)


async def test_every_call(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    async with api(token=TOKEN) as node:
        one = client(node, token=TOKEN)
        assert (await off(one.status))["name"] == "a"
        assert (await off(one.cluster))["writable"] == ["a"]
        assert await off(one.probe, "primary")
        assert not await off(one.probe, "replica")
        assert await off(one.snapshot) == {"lsn": 100}
        assert (await off(one.solo))["term"] == 4
        assert (await off(c.switch, one, "b", dry_run=True))["possible"]
        assert (await off(c.switch, one, "b"))["done"]
        assert (await off(c.flip, one, False))["state"] == "RUNNING"


async def test_refusals_are_one_line_that_says_what_is_missing() -> None:
    async with api() as node:
        one = client(node)
        node.backend.blocked = ("b cannot be reached", "LSN 93 of 100")
        with pytest.raises(c.AdminError) as refused:
            await off(c.flip, one, True)
        assert str(refused.value) == (
            "the flip cannot be done (missing: b cannot be reached; LSN 93 of 100)"
        )
        assert refused.value.kind == "refused"
        assert refused.value.loss_bound is None
        # What is missing may be the very sentence: it is said once.
        node.backend.blocked = ("the flip cannot be done",)
        with pytest.raises(c.AdminError) as refused:
            await off(c.flip, one, True)
        assert str(refused.value) == "the flip cannot be done"
        with pytest.raises(c.AdminError, match="there is no node 'c'"):
            await off(c.switch, one, "c")


async def test_force_needs_the_lsn_of_this_very_node() -> None:
    async with api() as node:
        one = client(node)
        node.backend.become("WAITING", read_only=True)
        node.backend.blocked, node.backend.loss_bound = ("b cannot be reached",), LOSS
        with pytest.raises(c.AdminError) as refused:
            await off(c.flip, one, False)
        assert refused.value.kind == "needs-force"
        assert c.loss_text(refused.value.loss_bound) == (
            "at most 7 records may be lost: b was last heard at LSN 93"
        )
        calls = list(node.backend.calls)
        with pytest.raises(c.WrongNode, match="a is at LSN 100, not 99"):
            await off(c.flip, one, False, force_lsn=99)
        assert node.backend.calls == calls
        result = await off(c.flip, one, False, force_lsn=100)
        assert result["loss_bound"]["records"] == 7


async def test_a_flip_under_way_is_waited_for() -> None:
    async with api(flip_wait_s=0.01) as node:
        node.backend.gate.clear()
        told: list[str] = []
        flip = asyncio.create_task(off(c.flip, client(node), True, tell=told.append))
        while not told:
            await asyncio.sleep(0.001)
        node.backend.gate.set()
        assert (await flip)["state"] == "WAITING"
        assert told[0].startswith("read_only is under way")


async def test_a_flip_under_way_that_fails_or_never_ends() -> None:
    async with api(flip_wait_s=0.01) as node:
        node.backend.gate.clear()
        with pytest.raises(c.AdminUnreachable, match="not done after 0 s"):
            await off(c.flip, client(node), True, wait_s=0)
        node.backend.blocked = ("b is gone",)
        waiting = asyncio.create_task(off(c.flip, client(node), True))
        while len(node.backend.calls) < 1:
            await asyncio.sleep(0.001)
        node.backend.gate.set()
        with pytest.raises(c.AdminError, match="b is gone"):
            await waiting


async def test_events_as_they_come() -> None:
    async with api() as node:
        stream = client(node).events()
        found = [await off(next, stream) for _ in range(4)]
        assert [kind for _, kind, _ in found] == ["state", "term", "peers", "lag"]
        node.backend.become("ENDING")
        event_id, kind, data = await off(next, stream)
        assert (event_id, kind, data["state"]) == ("epoch-5", "state", "ENDING")
        stream.close()
        resumed = client(node).events("epoch-4")
        assert (await off(next, resumed))[0] == "epoch-5"
        node.server.streams.close()
        assert await off(next, resumed, None) is None


async def test_nobody_there_and_somebody_else() -> None:
    async with api() as node:
        port = node.port
    with pytest.raises(c.AdminUnreachable, match=f"127.0.0.1:{port}"):
        await off(c.AdminClient(f"127.0.0.1:{port}", timeout_s=2.0).status)

    async def other(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"Tarantool 2.11.0 (Binary)\n")
        writer.close()

    server = await asyncio.start_server(other, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    with pytest.raises(c.AdminUnreachable) as refused:
        await off(c.AdminClient(f"127.0.0.1:{port}", timeout_s=2.0).status)
    assert "\n" not in str(refused.value)
    server.close()
    await server.wait_closed()
    with pytest.raises(ValueError, match="not an address"):
        c.AdminClient("127.0.0.1")


async def test_rows_for_people() -> None:
    async with api() as node:
        one = client(node)
        rows = dict(c.status_rows(await off(one.status)))
        assert rows["state"] == "RUNNING, writable"
        assert rows["term"] == "3 of a"
        assert "problem" not in rows
        table = c.cluster_rows(await off(one.cluster))
        assert table[0][:4] == ("a (here)", "RUNNING *", "3", "100")
        assert table[1] == ("b", "WAITING", "3", "100", "0 records, 0 bytes, 0.0 s")
        assert c.lag_text(None) == "none known"
        assert c.loss_text(None) == "nothing is lost"
        unknown = {"known": False, "records": None, "detail": "b was never heard"}
        assert c.loss_text(unknown) == "how much may be lost is not known: b was never heard"
        unknown = {"known": False, "records": 3, "detail": "as of 9 s ago"}
        assert c.loss_text(unknown) == "perhaps more than 3 records may be lost: as of 9 s ago"
