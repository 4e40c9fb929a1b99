"""The table of rights: every call, without a right, with one on another tube, and with the right.

Made from the call table itself: a call without a row here fails. The same by EVAL, by SELECT, for
every route of the admin API, and for what reaches a second tube by its options.
"""

from __future__ import annotations

from typing import Any

import pytest

from tandemq_server.admin.openapi import document
from tandemq_server.admin.security import OPEN, OPEN_PREFIX
from tandemq_server.cli.call_reference import RIM, table
from tandemq_server.engine import admin
from tandemq_server.facades.registered import KNOWN
from tandemq_server.node.loop import plugins
from tests.admin.harness import api
from tests.node.harness import node
from tests.node.test_doors import frame
from tests.node.test_rights_of_calls import as_user, users

DENIED = 42
#: Everybody may ask who they are and how the node is.
OF_EVERYBODY = {"box.info", "box.session.id", "box.session.user"}
TAKEN: list[Any] = [0]
#: Arguments that get past the right, by the call's method; of calls of no tube by their whole name.
METHODS: dict[str, list[Any]] = {
    **dict.fromkeys(("ack", "bury", "delete", "info", "peek", "release", "get", "kill"), TAKEN),
    **{key: [] for key in ("drop", "truncate", "release_all", "resume", "pause", "len", "count")},
    **{key: [] for key in ("select", "list", "on_task_change", "stats")},
    **{key: ["somebody"] for key in ("grant", "grant_role", "revoke", "revoke_role")},
    "put": ["x"],
    "put_many": [[["x"]]],
    "take": [0],
    "take_many": [1, 0],
    "ack_many": [[0]],
    "release_many": [[0]],
    "kick": [1],
    "touch": [0, 1],
    "finish": [0, []],
    "redrive": [1],
    "bulk": ["delete", {"ids": [0]}],
    "alter": [{}],
    "dig": ["x"],
    "wait": ["x", 0],
}
LANE = ["t", 0, 0, 0, 0, "x"]
WHOLE: dict[str, list[Any]] = {
    "box.broadcast": ["key", 1],
    "queue.alter_tube": ["TUBE", {}],
    "queue.cfg": [{}],
    "queue.create_tube": ["new", "fifo"],
    "queue.identify": [],
    "queue.lost": [0, []],
    "queue.register_driver": ["mine", {}],
    "queue.state": [],
    "queue.statistics": [],
    "queue.stats": [],
    "queue.tube": [],
    "tandem.import": ["TUBE", "elsewhere"],
    "tandem.import_state": ["elsewhere"],
    "tandem.rescue_replay": ["cut", 1],
    "xqueue.upgrade": ["NAME", {}],
    **{key: [1, *LANE] for key in ("queue15.put", "queue15.put_unique", "queue15.urgent")},
    **{
        f"queue15.{name}": [1, "f" * 32]
        for name in ("ack", "bury", "delete", "dig", "done", "meta", "peek", "requeue", "touch")
    },
    "queue15.unbury": [1, "f" * 32],
    "queue15.release": [1, "f" * 32],
    "queue15.kick": [1, "t"],
    "queue15.truncate": [1, "t"],
    "queue15.take": [1, "t", 0],
    "queue15.statistics": [1],
    "queue15.statistic": [1],
    "queue15.restart_check": [1],
    "queue15.create_space": [3],
}
CALLS = sorted(table().handlers)
OTHER = ["queue.tube.OTHER:*", "box.space.OTHER:*", "queue15.space2:*", "space:OTHER"]


def row_of(call: str) -> list[Any] | None:
    if call in WHOLE:
        return WHOLE[call]
    return METHODS.get(call.rpartition(":")[2]) if ":" in call else None


def test_every_call_has_a_row() -> None:
    missing = [call for call in CALLS if row_of(call) is None and call not in OF_EVERYBODY]
    assert missing == [], "say with which arguments each is to be tried"
    assert set(WHOLE) <= set(CALLS)
    assert len(CALLS) * 3 >= 250


async def furnished(bench: Any) -> None:
    engine = bench.core.engine
    engine.drivers.update(plugins.load_drivers(KNOWN, {}))
    record = {"fields": {"status": "status"}, "format": [["id", "string"], ["status", "string"]]}
    for name, kind, options in (
        ("TUBE", "fifottl", {}),
        ("OTHER", "fifottl", {}),
        ("NAME", "xqueue", record),
        ("space1", "queue15", {}),
        ("space2", "queue15", {}),
    ):
        admin.create_tube(engine, name, kind, options)


async def code_of(wire: Any, call: str, args: list[Any]) -> int:
    answer = await wire.call(call, *args)
    if type(answer) is tuple:
        assert "Internal" not in answer[1], answer
        return int(answer[0])
    return 0


@pytest.mark.asyncio
@pytest.mark.parametrize("call", CALLS)
async def test_a_call_needs_its_right(call: str) -> None:
    args = row_of(call) or []
    others = [right for right in OTHER if not right.startswith(call)]
    people = users(none=[], other=others, right=[call])
    async with node(accounts=people) as bench:
        await furnished(bench)
        before = bench.core.engine.lsn
        for user in ("none", "other"):
            got = await code_of(await as_user(bench, user), call, args)
            assert (got == DENIED) is (call not in OF_EVERYBODY), user
        assert before == bench.core.engine.lsn, "who may not changes nothing"
        assert await code_of(await as_user(bench, "right"), call, args) != DENIED


@pytest.mark.asyncio
@pytest.mark.parametrize("call", [one for one in CALLS if one.startswith("queue.")])
async def test_an_expression_needs_the_call_s_right(call: str) -> None:
    text = f"return {call}(...)"
    people = users(none=[], other=OTHER, right=[call])
    async with node(accounts=people) as bench:
        await furnished(bench)
        for user in ("none", "other", "right"):
            wire = await as_user(bench, user)
            wire.writer.write(frame(0x08, {0x27: text, 0x21: row_of(call)}, 9))
            sync, code, _ = await wire.receive()
            assert (sync, code == DENIED) == (9, user != "right"), user


@pytest.mark.asyncio
async def test_reading_a_space_needs_its_right() -> None:
    people = users(none=[], other=["space:OTHER", "queue.tube.TUBE:*"], right=["space:*"])
    tried = 0
    async with node(accounts=people) as bench:
        await furnished(bench)
        wires = {user: await as_user(bench, user) for user in ("none", "other", "right")}
        for space in list(bench.core.engine.store.spaces.values()):
            for user, wire in wires.items():
                allowed = user == "right" or (user == "other" and space.name == "OTHER")
                body = {0x10: space.id, 0x11: 0, 0x12: 1, 0x13: 0, 0x14: 2, 0x20: []}
                wire.writer.write(frame(0x01, body, 9))
                _, code, _ = await wire.receive()
                assert (code != DENIED) is allowed, (space.name, user)
                for method in ("select", "len"):
                    got = await code_of(wire, f"box.space.{space.name}:{method}", [])
                    assert (got != DENIED) is allowed, (space.name, method, user)
                tried += 1
    assert tried >= 30


REACHING: list[tuple[str, list[Any], list[str]]] = [
    ("queue.tube.TUBE:finish", [0, [["OTHER", "x"]]], ["queue.tube.TUBE:*"]),
    ("queue.tube.TUBE:redrive", [1, {"to": "OTHER"}], ["queue.tube.TUBE:*"]),
    ("queue.tube.TUBE:bulk", ["move", {"state": "ready", "to": "OTHER"}], ["queue.tube.TUBE:*"]),
    ("queue.tube.TUBE:alter", [{"max_attempts": 1, "dead_letter": "OTHER"}], ["queue.tube.TUBE:*"]),
    (
        "queue.create_tube",
        ["new", "fifo", {"max_attempts": 1, "dead_letter": "OTHER"}],
        ["queue.create_tube"],
    ),
    (
        "queue.alter_tube",
        ["TUBE", {"max_attempts": 1, "dead_letter": "OTHER"}],
        ["queue.alter_tube"],
    ),
    ("queue15.put", [2, *LANE], ["queue15.space1:*"]),
]


@pytest.mark.asyncio
@pytest.mark.parametrize(("call", "args", "rights"), REACHING, ids=[one[0] for one in REACHING])
async def test_no_option_reaches_another_tube(
    call: str, args: list[Any], rights: list[str]
) -> None:
    people = users(one=rights, both=[*rights, "queue.tube.OTHER:put", "queue15.space2:put"])
    async with node(accounts=people) as bench:
        await furnished(bench)
        both = await as_user(bench, "both")
        for _ in range(2):
            await both.call("queue.tube.TUBE:put", "x")
        assert await code_of(await as_user(bench, "one"), call, args) == DENIED
        assert await code_of(both, call, args) != DENIED


ROUTES = [
    (method.upper(), path.replace("{file}", "app.js"))
    for path, methods in document()["paths"].items()
    for method in methods
    if method in ("get", "head", "post", "put", "delete")
]
TOKEN = "the token of this node's API"


@pytest.mark.asyncio
@pytest.mark.parametrize(("method", "path"), ROUTES)
async def test_a_route_needs_the_token(method: str, path: str) -> None:
    token = TOKEN.replace(" ", "-")
    anybody = path in OPEN or path.startswith(OPEN_PREFIX)
    streams = path == "/v1/events"
    async with api(token=token) as held:
        for given in (None, "not-the-token-of-this-node", token):
            if streams and given == token:
                continue
            headers = {"Authorization": f"Bearer {given}"} if given else {}
            async with held.session.request(
                method,
                f"http://127.0.0.1:{held.port}{path}",
                headers={"Content-Type": "application/json", **headers},
                data=None if method in ("GET", "HEAD") else "{}",
            ) as answer:
                assert (answer.status == 401) is (not anybody and given != token), given


def test_the_rim_s_calls_are_known() -> None:
    """`box.snapshot` and `box.cfg` come from the rim; the attack program's node has them."""
    assert set(RIM) == {"box.cfg", "box.snapshot"}
