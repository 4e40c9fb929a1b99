"""Whole tubes over HTTP: paused and resumed, dead letters sent back."""

from __future__ import annotations

from typing import Any

import pytest

from tandemq.model.errors import QueueError
from tandemq_server.engine.clients import EngineClient
from tandemq_server.engine.tube import EngineTube
from tests.admin.harness import api
from tests.admin.test_admin_inventory import put, tube

TRACE = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
pytestmark = pytest.mark.asyncio


async def test_a_tube_is_paused_and_resumed_side_by_side() -> None:
    async with api() as node:
        found = tube(node)
        waiting = EngineClient(2)
        for body, paused in (
            ({"action": "pause", "what": "takes"}, (False, True)),
            ({"action": "pause"}, (True, True)),
            ({"action": "resume", "what": "takes"}, (True, False)),
        ):
            status, answer, _ = await node.ask("POST", "/v1/tubes", json={"tube": "jobs", **body})
            assert (status, answer["moved"]) == (200, 0)
            assert (answer["paused_puts"], answer["paused_takes"]) == paused
            _, page, _ = await node.ask("GET", "/v1/tubes")
            one = page["tubes"][0]
            assert (one["paused_puts"], one["paused_takes"]) == paused
        with pytest.raises(QueueError, match="are paused"):
            put(found, 1)
        await node.ask("POST", "/v1/tubes", json={"tube": "jobs", "action": "resume"})
        put(found, 1)
        assert found.take(waiting, 0, 0)[0] == 0


def fail_all(found: EngineTube) -> None:
    """A worker that can do none of the tasks."""
    worker = EngineClient(1)
    for task_id in sorted(found.space.rows):
        found.take(worker, 0, 0)
        found.release(worker, task_id, None)


async def test_dead_letters_go_back_where_they_came_from_or_elsewhere() -> None:
    async with api() as node:
        dead = tube(node, "dead", "fifo")
        found = tube(node, max_attempts=1, dead_letter="dead")
        other = tube(node, "other")
        put(found, 1, headers={"traceparent": TRACE})
        put(found, 2, 3)
        fail_all(found)
        _, page, _ = await node.ask("GET", "/v1/tasks", params={"tube": "dead", "limit": "1"})
        task = page["tasks"][0]
        assert (task["attempts"], task["headers"]) == (None, {"traceparent": TRACE})
        assert task["failure"].pop("at") > 0
        origin = {"from_tube": "jobs", "from_id": 0, "from_attempts": 1}
        assert task["failure"] == {"reason": "released", **origin}
        assert (len(dead.space.rows), len(found.space.rows)) == (3, 0)
        _, page, _ = await node.ask("GET", "/v1/tubes", params={"search": "dead"})
        assert page["tubes"][0]["dead_letters_of"] == ["jobs"]
        body = {"tube": "dead", "action": "redrive", "limit": 1}
        _, answer, _ = await node.ask("POST", "/v1/tubes", json=body)
        assert (answer["moved"], len(found.space.rows)) == (1, 1)
        body = {"tube": "dead", "action": "redrive", "to": "other"}
        _, answer, _ = await node.ask("POST", "/v1/tubes", json=body)
        assert (answer["moved"], len(other.space.rows), len(dead.space.rows)) == (2, 2, 0)


async def test_a_redrive_that_cannot_be_done_changes_nothing() -> None:
    async with api() as node:
        dead = tube(node, "dead", "fifo")
        found = tube(node, max_attempts=1, dead_letter="dead")
        put(found, 1)
        fail_all(found)
        body = {"tube": "dead", "action": "redrive", "to": "dead"}
        status, answer, _ = await node.ask("POST", "/v1/tubes", json=body)
        assert (status, answer["detail"]) == (409, "Task 0 is in tube dead already")
        assert len(dead.space.rows) == 1
        found.inner.put = None
        status, answer, _ = await node.ask("POST", "/v1/tubes", json={**body, "to": "jobs"})
        assert status == 409
        assert answer["detail"].startswith("the driver failed: TypeError")
        assert (len(dead.space.rows), len(found.space.rows)) == (1, 0)


@pytest.mark.parametrize(
    ("more", "field"),
    [
        ({"tube": "none", "action": "pause"}, "tube"),
        ({"tube": "jobs", "action": "redrive", "to": "none"}, "to"),
        ({"tube": "jobs", "action": "redrive", "what": "puts"}, "what"),
        ({"tube": "jobs", "action": "pause", "to": "jobs"}, "to"),
        ({"tube": "jobs", "action": "resume", "limit": 3}, "limit"),
        ({"tube": "jobs", "action": "redrive", "limit": 0}, "limit"),
        ({"tube": "jobs", "action": "pause", "what": "acks"}, "what"),
        ({"tube": "jobs", "action": "stop"}, "action"),
    ],
)
async def test_orders_for_a_tube_that_make_no_sense_are_refused(
    more: dict[str, Any], field: str
) -> None:
    async with api() as node:
        tube(node)
        status, answer, _ = await node.ask("POST", "/v1/tubes", json=more)
        assert (status, answer["errors"][0]["field"]) == (422, field)


async def test_a_node_that_is_not_running_pauses_nothing() -> None:
    async with api() as node:
        tube(node)
        node.backend.inventory.core.engine.running = False
        status, answer, _ = await node.ask(
            "POST", "/v1/tubes", json={"tube": "jobs", "action": "pause"}
        )
        assert (status, answer["type"]) == (409, "urn:tandemq:problem:refused")


async def test_rights_are_given_listed_and_taken_back() -> None:
    async with api() as node:
        tube(node)
        body = {"tube": "jobs", "who": "ann", "action": "grant", "manage": True}
        status, answer, _ = await node.ask("POST", "/v1/grants", json=body)
        assert (status, answer["changed"]) == (200, 9)
        role = {"tube": "jobs", "who": "ann", "action": "grant", "role": True}
        assert (await node.ask("POST", "/v1/grants", json=role))[1]["changed"] == 2
        _, listed, _ = await node.ask("GET", "/v1/grants")
        assert {"who": "ann", "role": False, "call": "queue.tube.jobs:pause"} in listed["grants"]
        assert {"who": "ann", "role": True, "call": "space:jobs"} in listed["grants"]
        one = {"tube": "jobs", "who": "ann", "action": "revoke", "manage": True}
        assert (await node.ask("POST", "/v1/grants", json=one))[1]["changed"] == 7
        everything = {"tube": "jobs", "who": "ann", "action": "revoke"}
        await node.ask("POST", "/v1/grants", json=everything)
        _, listed, _ = await node.ask("GET", "/v1/grants")
        assert {grant["role"] for grant in listed["grants"]} == {True}
        problem = await node.refused("POST", "/v1/grants", json={**one, "tube": "none"})
        assert problem["status"] == 422
        wrong = {**one, "who": "role:x", "action": "grant"}
        assert "expected a name" in (await node.refused("POST", "/v1/grants", json=wrong))["detail"]
