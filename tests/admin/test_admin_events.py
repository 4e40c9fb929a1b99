"""Events: the present first, then news; resumption, bounded queues, heartbeats, ends."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from typing import Any

import pytest
from aiohttp import ClientResponse

from tandemq_server.node.observe.answers import Lag
from tandemq_server.node.observe.events import EventBus
from tests.admin.fake_backend import FakeBackend, running
from tests.admin.harness import Api, api

pytestmark = pytest.mark.asyncio

KINDS = ["state", "term", "peers", "lag"]


async def listen(node: Api, last_id: str | None = None) -> ClientResponse:
    headers = {} if last_id is None else {"Last-Event-ID": last_id}
    response = await node.session.get(node.url + "/v1/events", headers=headers)
    assert response.status == 200
    assert response.content_type == "text/event-stream"
    assert (await response.content.readuntil(b"\n\n")).startswith(b"retry: ")
    return response


async def block(response: ClientResponse) -> dict[str, str]:
    """One event's fields; a comment has the name ""."""
    text = (await response.content.readuntil(b"\n\n")).decode()
    return dict(line.split(": ", 1) for line in text.splitlines() if line)


async def events(response: ClientResponse, count: int) -> list[tuple[str, str, Any]]:
    found = []
    for _ in range(count):
        fields = await block(response)
        found.append((fields.get("id", ""), fields["event"], json.loads(fields["data"])))
    return found


async def test_the_present_comes_first_then_news() -> None:
    async with api() as node:
        response = await listen(node)
        first = await events(response, 4)
        assert [kind for _, kind, _ in first] == KINDS
        assert first[0][2]["state"] == "RUNNING"
        assert first[1][2]["term"]["number"] == 3
        assert first[2][2]["peers"][0]["name"] == "b"
        assert first[3][2]["peers"][0]["lag"]["records"] == 0
        await node.ask("PUT", "/v1/read_only", {"read_only": True})
        (event_id, kind, data) = (await events(response, 1))[0]
        assert (event_id, kind, data["state"]) == ("epoch-5", "state", "WAITING")
        assert data["transition"]["from_state"] == "RUNNING"
        response.close()


async def test_who_comes_back_gets_what_it_missed() -> None:
    async with api() as node:
        node.backend.become("ENDING")
        node.backend.become("WAITING")
        response = await listen(node, "epoch-4")
        found = await events(response, 2)
        assert [(i, d["state"]) for i, _, d in found] == [
            ("epoch-5", "ENDING"),
            ("epoch-6", "WAITING"),
        ]
        response.close()
        response = await listen(node, "epoch-6")
        node.backend.become("STARTUP")
        assert (await events(response, 1))[0][0] == "epoch-7"
        response.close()


@pytest.mark.parametrize(
    "last_id",
    ["", "-", "epoch-", "epoch-99", "other-3", "epoch--1", "epoch-x", "epoch-" + "9" * 5000, "é"],
    ids=lambda text: text[:10],
)  # fmt: skip
async def test_an_id_nobody_knows_is_ignored(last_id: str) -> None:
    async with api() as node:
        response = await listen(node, last_id)
        assert [kind for _, kind, _ in await events(response, 4)] == KINDS
        response.close()


async def test_a_silent_stream_says_that_it_lives() -> None:
    async with api(heartbeat_s=0.01) as node:
        response = await listen(node)
        await events(response, 4)
        for _ in range(3):
            assert await response.content.readuntil(b"\n\n") == b": alive\n\n"
        node.backend.become("WAITING")
        while not (text := await response.content.readuntil(b"\n\n")).startswith(b"id:"):
            pass
        assert b"WAITING" in text
        response.close()


async def test_a_listener_that_goes_is_forgotten() -> None:
    async with api(heartbeat_s=0.01) as node:
        response = await listen(node)
        assert len(node.backend.bus) == 1
        response.close()
        while len(node.backend.bus):
            await asyncio.sleep(0.001)
        assert not node.server.streams._open


async def test_a_listener_that_never_reads_is_cut_off() -> None:
    async with api(write_s=0.02, heartbeat_s=0.01) as node:
        reader, writer = await asyncio.open_connection("127.0.0.1", node.port, limit=1024)
        writer.write(b"GET /v1/events HTTP/1.1\r\nHost: localhost\r\n\r\n")
        await reader.readuntil(b"retry:")
        text = "x" * 100_000
        while len(node.backend.bus):
            node.backend.bus.publish("peers", {"peers": [], "filler": text})
            await asyncio.sleep(0.001)
        writer.close()


async def test_streams_beyond_the_limit_are_503() -> None:
    async with api(streams_max=2) as node:
        held = [await listen(node) for _ in range(2)]
        problem = await node.refused("GET", "/v1/events")
        assert problem["status"] == 503
        for response in held:
            response.close()


async def test_the_end_of_the_node_ends_streams() -> None:
    async with api() as node:
        response = await listen(node)
        await events(response, 4)
        await node.server.stop()
        assert await response.content.read() == b""
        response.close()


async def test_streams_have_no_head_and_no_post() -> None:
    async with api() as node:
        assert (await node.ask("HEAD", "/v1/events"))[0] == 405


# -- the bus alone ---------------------------------------------------------------------------------


async def test_only_what_changed_is_published() -> None:
    bus, status = EventBus("e"), running()
    bus.observe(status)
    assert bus.number == 4
    bus.observe(replace(status, uptime_seconds=99.0, connections=7))
    assert bus.number == 4
    peer = replace(status.peers[0], heard_seconds=3.0, clock_offset_seconds=1.0)
    bus.observe(replace(status, peers=(peer,)))
    assert bus.number == 4
    peer = replace(peer, lag=Lag(5, 50, 0.5))
    bus.observe(replace(status, peers=(peer,)))
    assert [event.kind for event in bus.present()] == ["state", "term", "peers", "lag"]
    assert bus.number == 5


async def test_a_full_queue_gives_way_to_the_present() -> None:
    bus = EventBus("e", queue_max=8)
    subscription = bus.subscribe()
    for number in range(100):
        bus.publish("lag", {"lsn": number})
    bus.publish("state", {"state": "WAITING"})
    found = []
    for _ in range(len(subscription._queue)):
        event = await anext(subscription)
        found.append((event.kind, event.data))
    assert len(found) <= 8
    assert found[0][0] == "reset"
    assert found[-1] == ("state", {"state": "WAITING"})
    lags = [data["lsn"] for kind, data in found if kind == "lag"]
    assert lags == sorted(lags)
    assert lags[-1] == 99
    # What was told and what was skipped is all there was, the present lag told once more.
    assert found[0][1]["skipped"] + lags[-1] - lags[0] == 99


async def test_a_closed_bus_ends_what_is_left_and_what_comes() -> None:
    fake = FakeBackend()
    subscription = fake.subscribe()
    fake.bus.close()
    assert len([event async for event in subscription]) == 4
    assert len([event async for event in fake.subscribe("epoch-2")]) == 2
    subscription.close()
