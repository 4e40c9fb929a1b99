"""Tubes, tasks, sessions and history over HTTP; tasks changed by hand; payloads within bounds."""

from __future__ import annotations

import json
import math
import os
from typing import Any

import msgpack
import pytest

from tandemq_server.engine import admin
from tandemq_server.engine.clients import EngineClient
from tandemq_server.engine.tube import EngineTube
from tandemq_server.node.observe.inventory import SCAN_ROWS
from tandemq_server.node.observe.inventory_answers import CHANGED_MAX, IDS_MAX
from tandemq_server.node.observe.preview import BYTES_MAX, preview
from tests.admin.harness import Api, api

pytestmark = pytest.mark.asyncio


def tube(node: Api, name: str = "jobs", kind: str = "fifottl", **opts: Any) -> EngineTube:
    core = node.backend.inventory.core
    found = admin.create_tube(core.engine, name, kind, opts)
    node.backend.inventory.flush()
    return found


def put(found: EngineTube, *values: Any, **opts: Any) -> None:
    for value in values:
        found.put(EngineClient(1), 0, msgpack.packb(value), opts or None)


def states(found: EngineTube) -> dict[int, str]:
    return {row[0]: row[1] for row in found.space.rows.values()}


async def test_tubes_are_told_by_name_in_pages() -> None:
    async with api() as node:
        for number in range(5):
            tube(node, f"t{number}")
        put(tube(node, "jobs"), 1, 2)
        _, page, _ = await node.ask("GET", "/v1/tubes", params={"limit": "4"})
        assert [one["name"] for one in page["tubes"]] == ["jobs", "t0", "t1", "t2"]
        assert (page["total"], page["next"]) == (6, "t2")
        assert page["tubes"][0]["ready"] == page["tubes"][0]["total"] == 2
        _, page, _ = await node.ask("GET", "/v1/tubes", params={"after": "t2"})
        assert [one["name"] for one in page["tubes"]] == ["t3", "t4"]
        assert page["next"] is None
        _, page, _ = await node.ask("GET", "/v1/tubes", params={"search": "JOB"})
        assert [one["name"] for one in page["tubes"]] == ["jobs"]


async def test_tasks_in_pages_by_state_and_subqueue() -> None:
    async with api() as node:
        found = tube(node, kind="utubettl")
        for number in range(7):
            put(found, {"n": number}, utube=f"u{number % 2}", pri=3, ttl=60)
        taken = found.take(EngineClient(1), 0, 0)
        ids: list[int] = []
        after = -1
        while after is not None:
            query = {"tube": "jobs", "limit": "3", "after": str(after)}
            _, page, _ = await node.ask("GET", "/v1/tasks", params=query)
            ids += [task["id"] for task in page["tasks"]]
            after = page["next"]
        assert ids == list(range(7))
        query = {"tube": "jobs", "subqueue": "u1", "state": "ready"}
        _, page, _ = await node.ask("GET", "/v1/tasks", params=query)
        assert [task["id"] for task in page["tasks"]] == [1, 3, 5]
        task = page["tasks"][0]
        assert json.loads(task["payload"]) == {"n": 1}
        assert (task["priority"], task["subqueue"], task["ttl_seconds"]) == (3, "u1", 60.0)
        assert 0 < task["due_seconds"] <= 60
        _, page, _ = await node.ask("GET", "/v1/tasks", params={"tube": "jobs", "state": "taken"})
        assert [task["id"] for task in page["tasks"]] == [taken[0]]
        assert page["tasks"][0]["holder"]["connection"] == 1


async def test_a_large_tube_is_listed_without_a_scan_of_all_of_it() -> None:
    async with api() as node:
        found = tube(node, kind="fifo")
        put(found, *range(SCAN_ROWS + 500))
        found.bury(EngineClient(1), SCAN_ROWS + 7)
        query = {"tube": "jobs", "state": "buried"}
        _, page, _ = await node.ask("GET", "/v1/tasks", params=query)
        assert ([task["id"] for task in page["tasks"]], page["next"]) == ([SCAN_ROWS + 7], None)
        for task_id in range(SCAN_ROWS + 100):
            found.delete(EngineClient(1), task_id)
        put(found, *range(SCAN_ROWS))
        _, page, _ = await node.ask("GET", "/v1/tasks", params={"tube": "jobs", "limit": "2"})
        first = SCAN_ROWS + 100
        assert [task["id"] for task in page["tasks"]] == [first, first + 1]
        # A state that nothing near has: the page is empty and says where to go on.
        query = {"tube": "jobs", "subqueue": "none", "after": "0"}
        _, page, _ = await node.ask("GET", "/v1/tasks", params=query)
        assert (page["tasks"], page["next"]) == ([], SCAN_ROWS)


async def test_tasks_are_changed_one_or_many() -> None:
    async with api() as node:
        found, other = tube(node), tube(node, "other", "fifo")
        put(found, *"abcdef")
        core = node.backend.inventory.core

        async def change(action: str, **more: Any) -> Any:
            body = {"tube": "jobs", "action": action, **more}
            status, result, _ = await node.ask("POST", "/v1/tasks", body)
            assert status == 200
            return result

        result = await change("bury", ids=[1, 2, 3, 99])
        assert (result["done"], result["matched"]) == (3, 4)
        assert result["failed"] == [{"id": 99, "detail": "Task 99 not found"}]
        result = await change("kick", ids=[2, 4])
        assert [one["detail"] for one in result["failed"]] == ["task 4 is not buried"]
        assert states(found) == {0: "r", 1: "!", 2: "r", 3: "!", 4: "r", 5: "r"}
        result = await change("move", state="buried", to="other", limit=1)
        assert (result["done"], result["more"]) == (1, True)
        assert [msgpack.unpackb(row[-1]) for row in other.space.rows.values()] == ["b"]
        assert found.take(EngineClient(1), 0, 0)[0] == 0
        result = await change("move", ids=[0], to="other")
        assert "is taken" in result["failed"][0]["detail"]
        result = await change("release", ids=[0])
        assert (result["done"], states(found)[0]) == (1, "r")
        assert not core.engine.taken.rows
        result = await change("delete", state="ready", dry_run=True)
        assert (result["matched"], result["done"], len(states(found))) == (4, 0, 5)
        assert (await change("delete", state="ready"))["done"] == 4
        assert states(found) == {3: "!"}
        assert not core.engine.records, "what was changed was handed to the log"


async def test_a_move_carries_priority_subqueue_and_what_is_left_of_a_delay() -> None:
    async with api() as node:
        found, other = tube(node, kind="utubettl"), tube(node, "other", "utubettl")
        put(found, "x", utube="u", pri=4, delay=50)
        body = {"tube": "jobs", "action": "move", "ids": [0], "to": "other"}
        assert (await node.ask("POST", "/v1/tasks", body))[1]["done"] == 1
        _, page, _ = await node.ask("GET", "/v1/tasks", params={"tube": "other"})
        task = page["tasks"][0]
        assert (task["state"], task["priority"], task["subqueue"]) == ("delayed", 4, "u")
        assert 45 < task["due_seconds"] <= 50
        assert len(other.space.rows) == 1
        full = tube(node, "full", "limfifottl", capacity=1)
        put(full, "y")
        put(found, "z")
        body = {"tube": "jobs", "action": "move", "ids": [1], "to": "full"}
        _, result, _ = await node.ask("POST", "/v1/tasks", body)
        assert result["failed"][0]["detail"] == "tube full is full"
        assert 1 in found.space.rows


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"tube": "nowhere", "action": "kick", "ids": [1]}, "tube"),
        ({"tube": "jobs", "action": "move", "ids": [1], "to": "nowhere"}, "to"),
        ({"tube": "jobs", "action": "move", "ids": [1]}, "to"),
        ({"tube": "jobs", "action": "kick", "ids": [1], "to": "jobs"}, "to"),
        ({"tube": "jobs", "action": "kick"}, "ids"),
        ({"tube": "jobs", "action": "kick", "ids": [1], "state": "ready"}, "ids"),
        ({"tube": "jobs", "action": "kick", "ids": []}, "ids"),
        ({"tube": "jobs", "action": "kick", "ids": [-1]}, "ids"),
        ({"tube": "jobs", "action": "kick", "ids": [True]}, "ids"),
        ({"tube": "jobs", "action": "kick", "ids": list(range(IDS_MAX + 1))}, "ids"),
        ({"tube": "jobs", "action": "kick", "ids": [1], "limit": 5}, "limit"),
        ({"tube": "jobs", "action": "kick", "state": "done"}, "state"),
        ({"tube": "jobs", "action": "kick", "state": "ready", "limit": CHANGED_MAX + 1}, "limit"),
        ({"tube": "jobs", "action": "burn", "ids": [1]}, "action"),
        ({"tube": "\ud800", "action": "kick", "ids": [1]}, "tube"),
    ],
)
async def test_an_order_that_makes_no_sense_is_refused_by_field(body: Any, field: str) -> None:
    async with api() as node:
        put(tube(node), "x", "y")
        problem = await node.refused("POST", "/v1/tasks", body)
        assert (problem["status"], problem["errors"][0]["field"]) == (422, field)


@pytest.mark.parametrize(
    ("path", "query", "field"),
    [
        ("/v1/tasks", {}, "tube"),
        ("/v1/tasks", {"tube": ""}, "tube"),
        ("/v1/tasks", {"tube": "nowhere"}, "tube"),
        ("/v1/tasks", {"tube": "jobs", "state": "done"}, "state"),
        ("/v1/tasks", {"tube": "jobs", "limit": "0"}, "limit"),
        ("/v1/tasks", {"tube": "jobs", "after": "x"}, "after"),
        ("/v1/tasks", {"tube": "jobs", "status": "r"}, "status"),
        ("/v1/tubes", {"limit": "1000"}, "limit"),
        ("/v1/tubes", [("limit", "1"), ("limit", "2")], "limit"),
        ("/v1/sessions", {"after": "-1"}, "after"),
        ("/v1/history", {"seconds": "99999"}, "seconds"),
    ],
)
async def test_bad_parameters_are_refused_by_name(path: str, query: Any, field: str) -> None:
    async with api() as node:
        tube(node)
        problem = await node.refused("GET", path, params=query)
        assert (problem["status"], problem["errors"][0]["field"]) == (422, field)


async def test_only_a_node_that_is_running_changes_tasks() -> None:
    async with api() as node:
        put(tube(node), "x")
        core = node.backend.inventory.core
        core.engine.stop()
        core.set_state("WAITING")
        body = {"tube": "jobs", "action": "bury", "ids": [0]}
        problem = await node.refused("POST", "/v1/tasks", body)
        assert problem["status"] == 409
        assert "a is WAITING" in problem["detail"]
        assert (await node.ask("GET", "/v1/tasks", params={"tube": "jobs"}))[0] == 200


async def test_sessions_and_what_they_hold() -> None:
    async with api() as node:
        found, core = tube(node), node.backend.inventory.core
        put(found, *range(5))
        clients = [EngineClient(7), EngineClient(8)]
        for client, count in zip(clients, (1, 3), strict=True):
            for _ in range(count):
                found.take(client, 0, 0)
        _, page, _ = await node.ask("GET", "/v1/sessions", params={"limit": "1"})
        assert (page["total"], page["next"], page["sessions"][0]["held"]) == (2, 1, 3)
        assert {task["tube"] for task in page["sessions"][0]["tasks"]} == {"jobs"}
        core.engine.configure(60.0, None)
        core.engine.disconnect(clients[1])
        _, page, _ = await node.ask("GET", "/v1/sessions")
        assert not page["sessions"][0]["attached"]
        assert 55 < page["sessions"][0]["expires_seconds"] <= 60


async def test_history_rates_and_means() -> None:
    async with api() as node:
        found = tube(node)
        recorder = node.backend.inventory.recorder
        peers = node.backend.now.peers
        client = EngineClient(1)
        for second in range(700):
            put(found, 1, 2)
            row = found.take(client, 0, 0)
            if second % 2:
                found.ack(client, row[0])
            recorder.sample(1000.0 + second, peers)
        _, history, _ = await node.ask("GET", "/v1/history", params={"seconds": "600"})
        assert (history["interval_seconds"], len(history["samples"])) == (1.0, 600)
        last = history["samples"][-1]
        assert (last["put_rate"], last["take_rate"]) == (2.0, 1.0)
        assert last["peers"][0]["name"] == "b"
        _, history, _ = await node.ask("GET", "/v1/history", params={"seconds": "10800"})
        assert (history["interval_seconds"], len(history["samples"])) == (15.0, 47)
        _, page, _ = await node.ask("GET", "/v1/tubes")
        one = page["tubes"][0]
        assert one["rates"]["put"] == pytest.approx(2)
        assert one["rates"]["ack"] == pytest.approx(0.5)
        # Little's law: about 670 ready during the last minute, one taken a second.
        assert one["wait_seconds"] == pytest.approx(670, rel=0.05)
        assert one["longest_taken_seconds"] > 0


async def test_the_outlook_tells_what_a_flip_would_do_and_lose() -> None:
    async with api() as node:
        _, outlook, _ = await node.ask("GET", "/v1/switchover")
        here, other = outlook["candidates"]
        assert (here["node"], here["writable"], here["forced"]) == ("a", True, None)
        assert other["planned"]["possible"]
        assert other["planned"]["dry_run"]
        assert other["forced"]["records"] == 3


async def test_samples_are_told_to_listeners_and_not_kept() -> None:
    async with api() as node:
        async with node.session.get(node.url + "/v1/events") as response:
            while b"event: lag" not in await response.content.readuntil(b"\n\n"):
                pass
            node.backend.bus.tell("sample", {"at": 1})
            assert (
                await response.content.readuntil(b"\n\n") == b'event: sample\ndata: {"at": 1}\n\n'
            )
        assert [event.kind for event in node.backend.bus.present()][-1] == "lag"


# -- payloads --------------------------------------------------------------------------------------


async def test_payloads_are_shown_as_json() -> None:
    value = {"a": [1, -1, 2**64 - 1, 1.5, None, True], "ключ": "значение", "b": b"\x01\xff"}
    text, cut = preview(msgpack.packb(value))
    expected = {**value, "b": {"$bin": "01ff"}}
    assert (json.loads(text), cut) == (expected, False)
    text, _ = preview(msgpack.packb({1: math.nan}))
    assert json.loads(text) == {"1": {"$float": "nan"}}
    uuid = bytes(range(16))
    text, _ = preview(msgpack.packb(msgpack.ExtType(2, uuid)))
    assert json.loads(text) == {"$uuid": "00010203-0405-0607-0809-0a0b0c0d0e0f"}


@pytest.mark.parametrize(
    "value",
    [
        "x" * 1_000_000,
        b"\x00" * 1_000_000,
        list(range(100_000)),
        {str(number): number for number in range(50_000)},
        [[["y" * 5000]], "behind"],
    ],
    ids=["text", "binary", "array", "map", "nested"],
)
async def test_a_large_payload_is_cut_and_says_so(value: Any) -> None:
    text, cut = preview(msgpack.packb(value))
    assert cut
    assert len(text) < 4 * BYTES_MAX
    json.loads(text)
    assert "…" in text


async def test_no_bytes_make_the_preview_fail() -> None:
    for size in range(300):
        text, _ = preview(os.urandom(size))
        json.loads(text)
        text.encode()
    deep: Any = "x"
    for _ in range(2000):
        deep = b"\x91" + (deep if isinstance(deep, bytes) else b"\xa1x")
    assert preview(deep)[1]
    for first in range(256):
        for rest in (b"", b"\xff" * 9, b"\x00" * 9):
            json.loads(preview(bytes([first]) + rest)[0])
