"""Every endpoint: what it answers, and that its refusals say what is missing."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from tandemq_server.node.observe.answers import LossBoundAnswer, NodeStatus, RetryLater
from tests.admin.fake_backend import FakeBackend, running
from tests.admin.harness import Api, api

pytestmark = pytest.mark.asyncio

LOSS = LossBoundAnswer(True, 7, 900, 1.5, "b was last heard at LSN 93")


async def test_status_tells_all_of_the_node() -> None:
    async with api() as node:
        status, body, headers = await node.ask("GET", "/v1/status")
        assert status == 200
        assert (body["name"], body["state"], body["lsn"]) == ("a", "RUNNING", 100)
        assert body["term"]["number"] == 3
        assert body["peers"][0]["lag"] == {"records": 0, "bytes": 0, "seconds": 0.0}
        assert body["operation"] is None
        assert headers["Cache-Control"] == "no-store"
        assert headers["X-Content-Type-Options"] == "nosniff"


async def test_cluster_names_the_writable_node_and_a_conflict() -> None:
    async with api() as node:
        _, body, _ = await node.ask("GET", "/v1/cluster")
        assert body["writable"] == ["a"]
        assert not body["conflict"]
        assert [(row["name"], row["here"]) for row in body["nodes"]] == [("a", True), ("b", False)]
        now = node.backend.now
        node.backend.now = replace(now, peers=(replace(now.peers[0], writable=True),))
        _, body, _ = await node.ask("GET", "/v1/cluster")
        assert body["writable"] == ["a", "b"]
        assert body["conflict"]


async def test_a_flip_answers_when_the_state_is_reached() -> None:
    async with api() as node:
        status, body, _ = await node.ask("PUT", "/v1/read_only", {"read_only": True})
        assert (status, body["state"], body["changed"]) == (200, "WAITING", True)
        status, body, _ = await node.ask("PUT", "/v1/read_only", {"read_only": True})
        assert (status, body["changed"]) == (200, False)
        assert (await node.ask("GET", "/primary"))[0] == 503


async def test_a_flip_that_takes_long_is_202_and_status_says_what_became_of_it() -> None:
    async with api(flip_wait_s=0.01) as node:
        node.backend.gate.clear()
        status, body, headers = await node.ask("PUT", "/v1/read_only", {"read_only": True})
        assert (status, body["outcome"]) == (202, "under_way")
        assert headers["Location"] == "/v1/status"
        operation = (await node.ask("GET", "/v1/status"))[1]["operation"]
        assert (operation["id"], operation["outcome"]) == (body["id"], "under_way")
        node.backend.gate.set()
        operation = await _ended(node)
        assert operation["outcome"] == "done"
        assert operation["result"]["state"] == "WAITING"


async def test_a_flip_that_fails_later_leaves_its_problem_in_status() -> None:
    async with api(flip_wait_s=0.01) as node:
        node.backend.gate.clear()
        node.backend.blocked = ("LSN 93 of 100 reached",)
        assert (await node.ask("PUT", "/v1/read_only", {"read_only": False}))[0] == 202
        node.backend.gate.set()
        operation = await _ended(node)
        assert operation["outcome"] == "failed"
        assert operation["problem"]["missing"] == ["LSN 93 of 100 reached"]


async def _ended(node: Api) -> dict:
    while (await node.ask("GET", "/v1/status"))[1]["operation"]["outcome"] == "under_way":
        await asyncio.sleep(0)
    return (await node.ask("GET", "/v1/status"))[1]["operation"]


async def test_equal_requests_are_one_operation_and_a_lost_caller_ends_nothing() -> None:
    async with api() as node:
        node.backend.gate.clear()
        asked = [
            asyncio.create_task(node.ask("PUT", "/v1/read_only", {"read_only": True}))
            for _ in range(3)
        ]
        while node.server.operations.asked < 3 or not node.backend.calls:
            await asyncio.sleep(0)
        asked.pop().cancel()
        node.backend.gate.set()
        assert [(await task)[0] for task in asked] == [200, 200]
        assert node.backend.calls == [("read_only", True, False)]


async def test_a_refused_flip_says_what_is_missing_and_changes_nothing() -> None:
    async with api() as node:
        before = node.backend.now
        node.backend.blocked = ("b cannot be reached", "LSN 93 of 100 reached")
        problem = await node.refused("PUT", "/v1/read_only", {"read_only": False})
        assert problem["type"] == "urn:tandemq:problem:refused"
        assert problem["missing"] == ["b cannot be reached", "LSN 93 of 100 reached"]
        assert node.backend.now == before


async def test_a_forced_flip_tells_the_loss_bound_first() -> None:
    async with api() as node:
        node.backend.become("WAITING", read_only=True)
        node.backend.blocked, node.backend.loss_bound = ("b cannot be reached",), LOSS
        problem = await node.refused("PUT", "/v1/read_only", {"read_only": False})
        assert problem["type"] == "urn:tandemq:problem:needs-force"
        assert problem["loss_bound"]["records"] == 7
        assert node.backend.now.state == "WAITING"
        forced = {"read_only": False, "force": True}
        status, body, _ = await node.ask("PUT", "/v1/read_only", forced)
        assert (status, body["state"]) == (200, "RUNNING")
        assert body["loss_bound"]["records"] == 7


async def test_switchover_dry_run_changes_nothing_and_names_what_is_missing() -> None:
    async with api() as node:
        before = node.backend.now
        node.backend.blocked = ("b lags by 9 records",)
        body = {"to": "b", "dry_run": True}
        status, report, _ = await node.ask("POST", "/v1/switchover", body)
        assert (status, report["possible"], report["done"]) == (200, False, False)
        assert report["missing"] == ["b lags by 9 records"]
        assert [step["outcome"] for step in report["steps"]] == ["planned"] * 3
        assert node.backend.now == before


async def test_switchover_done_refused_rolled_back_and_to_nobody() -> None:
    async with api() as node:
        problem = await node.refused("POST", "/v1/switchover", {"to": "c"})
        assert problem["errors"][0]["field"] == "to"
        assert problem["errors"][0]["accepted"] == ["a", "b"]
        node.backend.blocked = ("b lags by 9 records",)
        problem = await node.refused("POST", "/v1/switchover", {"to": "b"})
        assert (problem["status"], problem["missing"]) == (409, ["b lags by 9 records"])
        node.backend.blocked, node.backend.fails_half_way = (), True
        problem = await node.refused("POST", "/v1/switchover", {"to": "b"})
        assert problem["report"]["rolled_back"]
        node.backend.fails_half_way = False
        status, report, _ = await node.ask("POST", "/v1/switchover", {"to": "b"})
        assert (status, report["done"]) == (200, True)


async def test_solo_and_snapshot() -> None:
    async with api() as node:
        assert (await node.ask("POST", "/v1/solo", {}))[1]["term"] == 4
        assert (await node.ask("POST", "/v1/snapshot", {}))[1] == {"lsn": 100}
        empty = {"headers": {"Content-Type": "application/json"}}
        assert (await node.ask("POST", "/v1/snapshot", **empty))[0] == 200
        node.backend.blocked = ("replication.ack is local",)
        assert (await node.refused("POST", "/v1/solo", {}))["status"] == 409


@pytest.mark.parametrize("path", ["/v1/status", "/v1/cluster", "/metrics", "/v1/events"])
async def test_reads_of_a_node_that_cannot_answer(path: str) -> None:
    async with api() as node:
        node.backend.failure = RetryLater("the node starts", 3)
        problem = await node.refused("GET", path)
        assert (problem["status"], problem["detail"]) == (503, "the node starts")
        node.backend.failure = RuntimeError("a secret detail")
        problem = await node.refused("GET", path)
        assert problem["status"] == 500
        assert "secret" not in str(problem)
        assert any("a secret detail" in line for line in node.lines)


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("PUT", "/v1/read_only", {"read_only": True}),
        ("POST", "/v1/switchover", {"to": "b"}),
        ("POST", "/v1/solo", {}),
        ("POST", "/v1/snapshot", {}),
    ],
)
async def test_operations_of_a_node_that_fails(method: str, path: str, body: dict) -> None:
    async with api() as node:
        node.backend.failure = RetryLater("the node ends")
        assert (await node.refused(method, path, body))["status"] == 503
        node.backend.failure = RuntimeError("a bug")
        assert (await node.refused(method, path, body))["status"] == 500
        assert any("a bug" in line for line in node.lines)


async def test_the_end_of_the_node_cancels_what_is_under_way() -> None:
    async with api(flip_wait_s=0.01) as node:
        node.backend.gate.clear()
        assert (await node.ask("POST", "/v1/snapshot", {}))[0] == 202
    last = node.server.operations.last
    assert last is not None
    assert last.outcome == "failed"


# -- probes --------------------------------------------------------------------------------------

BASE = running()
REPLICA = replace(
    BASE, state="WAITING", read_only=True, writable=False, following=True, ro_reason="configured"
)
PROBED: list[tuple[str, NodeStatus, str]] = [
    ("recovering", replace(BASE, state="INIT", writable=False, complete=False), "l"),
    ("starting", replace(BASE, state="STARTUP", writable=False), "h l"),
    ("running, not proved", replace(BASE, writable=False), "h l"),
    ("master", BASE, "p h l r"),
    ("ending", replace(BASE, state="ENDING", writable=False), "h l"),
    ("replica", REPLICA, "re h l r"),
    ("replica, master gone", replace(REPLICA, following=False), "re h l"),
    ("replica, bootstrapping", replace(REPLICA, complete=False), "h l"),
    ("fenced", replace(REPLICA, ro_reason="fenced", following=False), "re h l"),
    ("log failed", replace(BASE, live=False, problem="fdatasync: EIO"), ""),
]
SHORT = {"p": "/primary", "re": "/replica", "h": "/health", "l": "/liveness", "r": "/readiness"}


@pytest.mark.parametrize(("status", "yes"), [row[1:] for row in PROBED], ids=[r[0] for r in PROBED])
async def test_probes_in_each_state(status: NodeStatus, yes: str) -> None:
    async with api(FakeBackend(status)) as node:
        found = []
        for short, path in SHORT.items():
            code, body, _ = await node.ask("GET", path)
            assert code in (200, 503)
            assert body["ok"] == (code == 200)
            assert body["state"] == status.state
            assert body["ok"] or body["reason"]
            head, _, headers = await node.ask("HEAD", path)
            assert head == code
            assert int(headers["Content-Length"]) < 200
            if code == 200:
                found.append(short)
        assert found == sorted(yes.split(), key=list(SHORT).index)


async def test_probes_of_a_node_without_a_status() -> None:
    async with api() as node:
        node.backend.failure = RetryLater("not yet")
        for path in SHORT.values():
            assert (await node.ask("GET", path))[0] == 503
