"""Rights at the edges: one tube's say nothing of another's, whatever names and options say."""

from __future__ import annotations

from typing import Any

import pytest

from tandemq_server.config import Settings
from tandemq_server.engine import admin, grants
from tandemq_server.facades.registered import KNOWN
from tandemq_server.node.core.users import Users
from tandemq_server.node.loop import plugins
from tandemq_server.wire.auth import chap_sha1_hash
from tests.node.harness import node
from tests.node.test_doors import login

DENIED = 42


def users(**rights: list[str]) -> Users:
    people = [
        {
            "name": name,
            "password_hash": {"chap_sha1": chap_sha1_hash("secret").hex()},
            "grants": patterns,
            "roles": ["ops"] if name == "member" else [],
        }
        for name, patterns in rights.items()
    ]
    return Users(Settings(users=people, roles={"ops": []}))


async def as_user(bench: Any, name: str) -> Any:
    wire = await bench.dial()
    wire.writer.write(login(wire, name))
    assert (await wire.receive())[1] == 0
    return wire


async def denied(wire: Any, call: str, *args: Any) -> bool:
    answer = await wire.call(call, *args)
    return type(answer) is tuple and answer[0] == DENIED


@pytest.mark.asyncio
async def test_a_right_on_a_tube_is_none_on_one_whose_name_goes_on() -> None:
    async with node(accounts=users(ann=["queue.tube.jobs:*"])) as bench:
        for name in ("jobs", "jobs:secret"):
            admin.create_tube(bench.core.engine, name, "fifo", {})
        wire = await as_user(bench, "ann")
        assert not await denied(wire, "queue.tube.jobs:put", 1)
        assert await denied(wire, "queue.tube.jobs:secret:put", 1)
        assert await denied(wire, "queue.tube.jobs:grant", "ann", {"call": True})
        assert not bench.core.engine.grants.rows


@pytest.mark.asyncio
async def test_dead_letters_need_a_right_on_where_they_go() -> None:
    rights = ["queue.create_tube", "queue.tube.mine:*", "queue15.create_space"]
    async with node(accounts=users(ann=rights)) as bench:
        engine = bench.core.engine
        engine.drivers.update(plugins.load_drivers(KNOWN, {}))
        for name in ("mine", "theirs"):
            admin.create_tube(engine, name, "fifo", {})
        wire = await as_user(bench, "ann")
        options = {"max_attempts": 1, "dead_letter": "theirs"}
        assert await denied(wire, "queue.create_tube", "new", "fifo", options)
        assert await denied(wire, "queue15.create_space", 7, options)
        assert await denied(wire, "queue.tube.mine:alter", options)
        assert not {"new", "space7"} & engine.tubes.keys()
        options["dead_letter"] = "mine"
        assert (await wire.call("queue.create_tube", "new", "fifo", options))[0]["name"] == "new"


@pytest.mark.asyncio
async def test_spaces_of_queue15_have_rights_of_their_own() -> None:
    people = users(ann=["queue15.space1:*"], all=["queue15.*"], none=["queue.*"])
    async with node(accounts=people) as bench:
        engine = bench.core.engine
        engine.drivers.update(plugins.load_drivers(KNOWN, {}))
        for number in (1, 2):
            admin.create_tube(engine, f"space{number}", "queue15", {})
        ann, everyone, none = [await as_user(bench, name) for name in ("ann", "all", "none")]
        put = ("queue15.put", "t", 0, 0, 0, 0, "x")
        for space in (1, "1", "space1"):
            assert not await denied(ann, put[0], space, *put[1:])
        for space in (2, "2", "space2", 3, None, {}):
            assert await denied(ann, put[0], space, *put[1:]), space
        assert await denied(ann, "queue15.statistics")
        assert await denied(ann, "queue15.create_space", 1)
        assert not await denied(everyone, put[0], 2, *put[1:])
        assert not await denied(everyone, "queue15.statistics")
        assert await denied(none, put[0], 1, *put[1:])
        grants.grant(engine, engine.tubes["space2"], "ann", {"call": True})
        assert not await denied(ann, put[0], 2, *put[1:])
        assert await denied(ann, "queue15.truncate", 2, "t")
        grants.revoke(engine, engine.tubes["space2"], "ann", None)
        assert await denied(ann, put[0], 2, *put[1:])


@pytest.mark.asyncio
async def test_roles_and_users_are_apart_and_a_revoke_counts_at_once() -> None:
    async with node(accounts=users(ops=[], member=[], boss=["*"])) as bench:
        tube = admin.create_tube(bench.core.engine, "jobs", "fifo", {})
        user, member, boss = [await as_user(bench, n) for n in ("ops", "member", "boss")]
        await boss.call("queue.tube.jobs:grant_role", "ops", {"call": True})
        assert not await denied(member, "queue.tube.jobs:put", 1)
        assert await denied(user, "queue.tube.jobs:put", 1), "who only bears the role's name"
        assert (await boss.call("queue.tube.jobs:revoke_role", "ops"))[0] > 0
        assert await denied(member, "queue.tube.jobs:put", 1)
        await boss.call("queue.tube.jobs:grant", "ops", {"call": True})
        assert not await denied(user, "queue.tube.jobs:put", 1)
        assert await denied(member, "queue.tube.jobs:put", 1)
        # Dropped and made again: nobody's rights come back.
        await boss.call("queue.tube.jobs:truncate")
        admin.drop_tube(tube.engine, tube)
        admin.create_tube(bench.core.engine, "jobs", "fifo", {})
        assert await denied(user, "queue.tube.jobs:put", 1)


@pytest.mark.asyncio
async def test_a_session_is_of_the_user_who_began_it() -> None:
    async with node(accounts=users(ann=["queue.*"], bob=["queue.*"])) as bench:
        ann, again, bob = [await as_user(bench, name) for name in ("ann", "ann", "bob")]
        (told,) = await ann.call("queue.identify")
        uuid = told.encode("utf-8", "surrogateescape")
        await ann.call("queue.tube.fifo:put", 1)
        await ann.call("queue.tube.fifo:take", 0)
        code, text = await bob.call("queue.identify", uuid)
        assert (code, "is unknown" in text) == (32, True)
        code, text = await bob.call("queue.tube.fifo:ack", 0)
        assert (code, text.rpartition(": ")[2]) == (32, "Task was not taken")
        assert (await again.call("queue.identify", uuid))[0] == told
        assert (await again.call("queue.tube.fifo:ack", 0))[0][1] == "-"
