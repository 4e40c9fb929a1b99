"""Quotas of users: tasks and bytes they have put, calls a second, connections; clear refusals."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
import tarantool
import yaml

import tandemq
from tandemq_server.engine import admin
from tandemq_server.engine.usage import USER
from tandemq_server.facades.registered import KNOWN
from tandemq_server.node.core.quotas import Bucket, UserQuota
from tandemq_server.node.loop.plugins import load_drivers
from tandemq_server.wire.auth import chap_sha1_hash
from tests.cluster.cluster_nodes import LINK_ENV, Member, pair
from tests.node.harness import node
from tests.node.test_doors import login
from tests.node.test_rights_of_calls import as_user, users
from tests.ports import free_ports


def limited(bench: Any, **quota: Any) -> None:
    bench.core.quotas.take({"ann": UserQuota(**quota)})
    bench.core.forget_tables()


def people() -> Any:
    return users(ann=["*"], bob=["*"])


async def put(wire: Any, *args: Any, tube: str = "fifo", call: str = "put") -> str:
    """The refusal, or nothing."""
    wire.send_call(f"queue.tube.{tube}:{call}", *args)
    _, code, body = await wire.receive()
    return body[0x31] if code else ""


@pytest.mark.asyncio
async def test_tasks_are_counted_by_who_put_them_until_they_are_gone() -> None:
    async with node(accounts=people()) as bench:
        limited(bench, tasks=3)
        usage = bench.core.engine.usage
        ann, bob = await as_user(bench, "ann"), await as_user(bench, "bob")
        for number in range(3):
            assert not await put(ann, number)
        text = await put(ann, "one too many", tube="utube")
        assert text == (
            "User ann has reached its quota: 3 tasks held, 1 more, 3 allowed (users[].quota.tasks)"
        )
        assert not await put(bob, "mine")
        tube = bench.core.engine.tubes["fifo"]
        assert (len(tube.space.rows), tube.calls["put"]) == (4, 4)
        # Whoever takes it: it was ann's.
        assert not await put(bob, 0, call="take")
        assert usage.held("ann")[0] == 3
        assert not await put(bob, 0, call="ack")
        assert usage.held("ann")[0] == 2
        assert not await put(ann, "room again")
        assert not await put(ann, call="truncate")
        assert usage.held("ann") == (0, 0)
        assert usage.held("bob") == (0, 0)


@pytest.mark.asyncio
async def test_bytes_and_batches_are_all_or_nothing() -> None:
    async with node(accounts=people()) as bench:
        limited(bench, tasks=100, bytes=1000)
        ann = await as_user(bench, "ann")
        text = await put(ann, [["x" * 400], ["x" * 400], ["x" * 400]], call="put_many")
        assert "0 bytes held, 1209 more, 1000 allowed (users[].quota.bytes)" in text
        tube = bench.core.engine.tubes["fifo"]
        assert not tube.space.rows
        assert not await put(ann, [["x" * 400], ["x" * 400]], call="put_many")
        assert bench.core.engine.usage.held("ann") == (2, 806)
        # Of those that follow from it: the one that is done makes room.
        assert not await put(ann, 0, call="take")
        assert not await put(ann, 0, [["utube", "x" * 400]], call="finish")
        assert bench.core.engine.usage.held("ann") == (2, 806)
        assert "reached its quota" in await put(ann, "x" * 400, {"key": "k"}, tube="fifottl")
        assert (await put(ann, "x" * 90, {"key": "k"}, tube="fifottl")) == ""
        assert (await put(ann, "x" * 400, {"key": "k"}, tube="fifottl")) == ""  # put before


@pytest.mark.asyncio
async def test_a_task_stays_its_users_in_the_dead_letters_and_keeps_its_headers() -> None:
    async with node(accounts=people()) as bench:
        engine = bench.core.engine
        admin.create_tube(engine, "dead", "fifo", {})
        opts = {"max_attempts": 1, "dead_letter": "dead"}
        admin.create_tube(engine, "jobs", "fifo", opts)
        limited(bench, tasks=5)
        ann = await as_user(bench, "ann")
        assert not await put(ann, "x", {"headers": {"trace": "7"}}, tube="jobs")
        assert not await put(ann, 0, tube="jobs", call="take")
        assert not await put(ann, 0, tube="jobs", call="release")
        assert len(engine.tubes["dead"].space.rows) == 1
        assert engine.usage.held("ann")[0] == 1
        ann.send_call("queue.tube.dead:info", 0)
        known = (await ann.receive())[2][0x30][0]
        assert USER not in str(known)
        assert not await put(ann, 0, tube="dead", call="delete")
        assert engine.usage.held("ann") == (0, 0)


@pytest.mark.asyncio
async def test_a_put_that_waited_for_room_counts() -> None:
    async with node(accounts=people()) as bench:
        engine = bench.core.engine
        opts = {"capacity": 1, "overflow": "wait"}
        admin.create_tube(engine, "small", "fifo", opts)
        limited(bench, tasks=2)
        ann = await as_user(bench, "ann")
        assert not await put(ann, 1, tube="small")
        ann.send_call("queue.tube.small:put", 2, {"timeout": 30})
        ann.send_call("queue.tube.small:delete", 0)
        assert [(await ann.receive())[1], (await ann.receive())[1]] == [0, 0]
        assert engine.usage.held("ann")[0] == 1


@pytest.mark.asyncio
async def test_tubes_that_cannot_count_are_refused() -> None:
    async with node(accounts=people()) as bench:
        bench.core.engine.drivers.update(load_drivers(KNOWN, {}))
        limited(bench, tasks=2)
        ann = await as_user(bench, "ann")
        ann.send_call("queue15.create_space", 3)
        await ann.receive()
        ann.send_call("queue15.put", 3, "t", 0, 0, 0, 0, "x")
        _, code, body = await ann.receive()
        assert code
        assert "cannot count (users[].quota)" in body[0x31]


@pytest.mark.asyncio
async def test_calls_beyond_the_rate_are_refused_and_others_are_not() -> None:
    async with node(accounts=people()) as bench:
        limited(bench, rate=5)
        ann, bob = await as_user(bench, "ann"), await as_user(bench, "bob")
        answers = [await put(ann, "x") for _ in range(30)]
        assert answers[:5] == [""] * 5
        assert "ann has reached its quota: 5 calls a second" in answers[-1]
        assert "(users[].quota.rate)" in answers[-1]
        assert not await put(bob, "x")
        ann.send_call("box.info")
        assert (await ann.receive())[1] == 0
        await asyncio.sleep(0.5)
        assert not await put(ann, "again")


def test_a_bucket_is_filled_by_time_alone() -> None:
    bucket = Bucket(2.0)
    assert [bucket.take(10_000_000) for _ in range(3)] == [True, True, False]
    assert not bucket.take(10_400_000)
    assert bucket.take(10_600_000)
    assert [bucket.take(99_000_000) for _ in range(3)] == [True, True, False]
    slow = Bucket(0.5)
    assert [slow.take(at) for at in (0, 1_000_000, 2_000_000)] == [True, False, True]


@pytest.mark.asyncio
async def test_connections_beyond_are_refused_at_login() -> None:
    async with node(accounts=people()) as bench:
        limited(bench, connections=2)
        first, _second = await as_user(bench, "ann"), await as_user(bench, "ann")
        wire = await bench.dial()
        for _ in range(4):
            wire.writer.write(login(wire, "ann"))
            _, code, body = await wire.receive()
            assert code
            assert body[0x31] == (
                "User ann has reached its quota: 2 connections, 2 allowed "
                "(users[].quota.connections)"
            )
        await as_user(bench, "bob")
        first.close()
        for _ in range(100):
            wire.writer.write(login(wire, "ann"))
            if not (await wire.receive())[1]:
                break
            await asyncio.sleep(0.02)
        else:
            pytest.fail("the place was not given back")


@pytest.mark.asyncio
async def test_who_has_no_quota_pays_nothing() -> None:
    async with node(accounts=people()) as bench:
        limited(bench, tasks=5, rate=5)
        ann, bob = await as_user(bench, "ann"), await as_user(bench, "bob")
        await put(ann, "x")
        await put(bob, "x")
        name, handlers = b"queue.tube.fifo:put", bench.core.handlers
        mine = bench.core.tables["bob", "tube"][name]
        assert mine is handlers[name.decode()]
        assert bench.core.tables["ann", "tube"][name] is not mine
        assert len(bench.core.engine.notes[0].space.rows) == 1


@pytest.mark.integration
@pytest.mark.filterwarnings("ignore::ResourceWarning")
def test_over_the_wire_and_over_a_restart(tmp_path: Path) -> None:
    """A stock connector; what was put before the restart counts, and a reload raises the quota."""
    port, admin_port = free_ports(2)
    member = Member(tmp_path, "a", port, admin_port, [])
    config = tmp_path / "a.yaml"
    secret = {"password_hash": {"chap_sha1": chap_sha1_hash("secret").hex()}}

    def write(tasks: int) -> None:
        quota = {"tasks": tasks, "connections": 4}
        ann = {"name": "ann", "grants": ["queue.*"], "quota": quota, **secret}
        config.write_text(yaml.safe_dump({"users": [ann]}))

    write(2)
    member.start("--config", str(config))
    login = {"user": "ann", "password": "secret"}
    client = member.connect(**login)
    client.call("queue.create_tube", "jobs", "fifo")
    client.call("queue.tube.jobs:put", "1")
    client.call("queue.tube.jobs:put", "2")
    client.close()
    assert member.end() == 0
    member.start("--config", str(config))
    try:
        client = member.connect(**login)
        with pytest.raises(tarantool.DatabaseError, match="2 tasks held, 1 more, 2 allowed"):
            client.call("queue.tube.jobs:put", "3")

        async def own() -> None:
            async with tandemq.connect(f"127.0.0.1:{port}", **login) as mine:
                with pytest.raises(tandemq.QuotaReached, match=r"users\[\]\.quota\.tasks"):
                    await mine.tube("jobs").put("3")

        asyncio.run(own())
        write(3)
        assert member.ask("/v1/reload", {})[0] == 200
        client.call("queue.tube.jobs:put", "3")
        client.close()
    finally:
        member.end()


@pytest.mark.integration
@pytest.mark.filterwarnings("ignore::ResourceWarning")
def test_what_was_put_before_a_switch_over_counts_behind_it(tmp_path: Path) -> None:
    config = tmp_path / "users.yaml"
    secret = {"password_hash": {"chap_sha1": chap_sha1_hash("secret").hex()}}
    ann = {"name": "ann", "grants": ["queue.*"], "quota": {"tasks": 3}, **secret}
    peer_password = chap_sha1_hash(LINK_ENV["LINK_PASSWORD"]).hex()
    replicator = {
        "name": "replicator",
        "grants": ["replication"],
        "password_hash": {"chap_sha1": peer_password},
    }
    config.write_text(yaml.safe_dump({"users": [ann, replicator]}))
    login = {"user": "ann", "password": "secret"}
    with pair(tmp_path, "--config", str(config)) as nodes:
        client = nodes.a.connect(**login)
        client.call("queue.create_tube", "jobs", "fifo")
        for number in range(3):
            client.call("queue.tube.jobs:put", number)
        client.call("queue.tube.jobs:take", 0)
        client.call("queue.tube.jobs:ack", 0)
        nodes.a.switch_to(nodes.b)
        client = nodes.b.connect(**login)
        client.call("queue.tube.jobs:put", 3)
        with pytest.raises(tarantool.DatabaseError, match="3 tasks held, 1 more, 3 allowed"):
            client.call("queue.tube.jobs:put", 4)
