"""The calls over a real socket with asynctnt: names, shapes, error texts, a change of roles."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import asynctnt
import pytest
from asynctnt.exceptions import TarantoolDatabaseError

from tandemq_server.facades.registered import KNOWN
from tandemq_server.node.core.read_only import read_only_error
from tests.node.harness import node
from tests.xqueue.test_declaration import REFUSALS
from tests.xqueue.xqueue_bench import FORMAT, TEXT_FORMAT, options

Call = Callable[..., Awaitable[Any]]
PLAIN: dict[str, Any] = {"id": "auto_increment"}


def on_a_node(work: Callable[..., Awaitable[None]], opts: dict[str, Any] | None = None) -> None:
    """Run `work(call, call of another connection, bench)`; `call` gives values or "! text"."""

    async def run() -> None:
        async with node() as bench:
            bench.core.engine.drivers.update(KNOWN)
            async with (
                asynctnt.Connection(host="127.0.0.1", port=bench.port) as first,
                asynctnt.Connection(host="127.0.0.1", port=bench.port) as second,
            ):

                def caller(connection: asynctnt.Connection) -> Call:
                    async def call(name: str, *args: Any) -> Any:
                        whole = name if "." in name else f"box.space.q:{name}"
                        try:
                            return list(await connection.call(whole, list(args)))
                        except TarantoolDatabaseError as error:
                            return f"! {error.message}"

                    return call

                one, two = caller(first), caller(second)
                await one("xqueue.upgrade", "q", opts or options({"id": "auto_increment"}))
                await asyncio.wait_for(work(one, two, bench), 20)

    asyncio.run(run())


def test_every_call_and_its_reply() -> None:
    async def work(call: Call, other: Call, _bench: Any) -> None:
        task = {"priority": 0, "tube": "a", "payload": {"k": [1]}, "unknown": 1}
        (put,) = await call("put", task)
        assert put == {
            "id": 1,
            "status": "R",
            "runat": 0,
            "priority": 0,
            "tube": "a",
            "payload": {"k": [1]},
        }
        assert await call("get", 1) == [[1, "R", 0, 0, "a", {"k": [1]}]]
        (taken,) = await call("take", {"timeout": 1, "tube": "a", "ttr": 60})
        assert taken["status"] == "T"
        assert taken["runat"] > 1e9
        assert (await other("ack", taken)).startswith("! Task 1 taken by ")
        assert (await call("touch", 1, {"increment": 5}))[0]["runat"] == taken["runat"] + 5
        assert (await call("release", [1]))[0]["status"] == "R"
        assert await call("select", 1) == [[[1, "R", 0, 0, "a", {"k": [1]}]]]
        await call("take")
        assert (await call("bury", {"id": 1}))[0]["status"] == "B"
        assert await call("wait", 1) == [
            (await call("select"))[0] and {**put, "status": "B"},
            False,
        ]
        assert await call("dig", 1) == [1]
        assert await call("len") == [1]
        assert await call("count") == [1]
        assert (await call("kill", [1]))[0]["status"] == "B"
        assert await call("take", 0.01) == []
        stats = (await call("stats"))[0]
        assert stats["counts"]["R"] == 0
        assert stats["transition"]["R-T"] == 2
        await call("put", task)
        assert await call("truncate") == []
        assert await call("len") == [0]
        assert (await call("queue.tube.q:take", 0)).endswith("is not defined")
        assert await call("queue.tube.q:pause", "takes") == [{"puts": False, "takes": True}]
        await call("put", task)
        assert await call("take") == []
        assert await call("queue.tube.q:resume") == [{"puts": False, "takes": False}]
        assert len(await call("take")) == 1
        await call("ack", 1)
        assert await call("queue.tube.q:drop") == [True]
        assert (await call("len")).endswith("is not defined")

    on_a_node(work)


def test_a_put_waits_for_its_worker_over_the_socket() -> None:
    async def work(call: Call, other: Call, _bench: Any) -> None:
        waiting = asyncio.ensure_future(call("put", {"priority": 0, "tube": "a"}, {"wait": 5}))
        (task,) = await other("take", 5)
        await other("ack", task, {"update": [["=", "payload", "done"]]})
        final, processed = await waiting
        assert processed is True
        assert final["payload"] == "done"

    on_a_node(work)


def test_text_keys_and_uuids() -> None:
    async def work(call: Call, _other: Call, _bench: Any) -> None:
        (task,) = await call("put", {"priority": 0, "tube": "a"})
        assert [len(part) for part in task["id"].split("-")] == [8, 4, 4, 4, 12]
        await call("take")
        assert await call("ack", task["id"]) != []
        assert await call("ack", "x") == "! Task {x} was not found"

    on_a_node(work, {**options({"id": "uuid"}), "format": TEXT_FORMAT})


CRAZY = "Are you crazy? Call of :put({...}, { wait = <>, delay = <> }) looks weird"
MAP = {"priority": 0, "tube": "a"}
TEXTS: list[tuple[dict[str, Any], str, list[Any], str]] = [
    (PLAIN, "put", [[1, 2]], "Task from array creation is not implemented yet"),
    ({"id": "required"}, "put", [[1, 2]], "Primary key is mandatory"),
    ({"id": "required"}, "put", [MAP], "Primary key is mandatory"),
    (PLAIN, "put", ["text"], "Wrong argument to put. Expected table or tuple"),
    ({"delayed": False}, "put", [MAP, {"delay": 1}], "Feature delayed is not enabled"),
    ({"ttl": False}, "put", [MAP, {"ttl": 1}], "Feature ttl is not enabled"),
    (PLAIN, "put", [MAP, {"ttl": 1, "delay": 1}], "Features ttl and delay are mutually exclusive"),
    (PLAIN, "put", [MAP, {"wait": 1, "delay": 1}], CRAZY),
    (
        PLAIN,
        "put",
        [{"priority": "x", "tube": "a"}],
        "Tuple field 4 (priority) type does not match one required by operation: expected number",
    ),
    (PLAIN, "take", [-1], "timeout required"),
    ({"ttr": False}, "take", [0, {"ttr": 1}], "Feature ttr is not enabled"),
    (PLAIN, "take", [0, {"tube": 1}], "opts.tube must be a string"),
    (PLAIN, "ack", [True], "Wrong key/task argument. Expected table or tuple or key"),
    (PLAIN, "ack", [{}], "Invalid key part count in an exact match (expected 1, got 0)"),
    *((PLAIN, name, [99], "Task {99} was not found") for name in ("ack", "release", "bury")),
    (PLAIN, "wait", [99], "Task {99} was not found"),
    (PLAIN, "touch", [99, {"increment": 1}], "Task {99} was not found"),
    (PLAIN, "kill", [99], "Task by 99 not found to kill"),
    *((PLAIN, name, [1], "Task 1 not taken by any") for name in ("ack", "release", "bury")),
    *(
        ({name: False}, "release", ["mine", {key: 1}], f"Feature {name} is not enabled")
        for name, key in (("delayed", "delay"), ("ttl", "ttl"))
    ),
    (
        PLAIN,
        "release",
        ["mine", {"ttl": 1, "delay": 1}],
        "Features ttl and delay are mutually exclusive",
    ),
    (PLAIN, "ack", ["mine", {"delay": 1}], "Feature zombie is not enabled"),
    (PLAIN, "dig", [[1]], "Task {1} is not buried"),
    (PLAIN, "kick", [True], "Wrong key/task argument. Expected table or tuple or key"),
    (PLAIN, "take", [None], "timeout required"),
    (PLAIN, "touch", [1], "attr.increment must be number"),
    (PLAIN, "touch", [1, {"increment": -1}], "attr.increment can't be negative"),
    (PLAIN, "xqueue.upgrade", ["x", {}], "opts.fields required"),
]


@pytest.mark.parametrize(("features", "name", "args", "text"), TEXTS)
def test_error_texts(features: dict[str, Any], name: str, args: list[Any], text: str) -> None:
    async def work(call: Call, _other: Call, _bench: Any) -> None:
        await call("put", {"id": 1, "priority": 0, "tube": "a"})
        if args and args[0] == "mine":
            await call("take")
            args[0] = 1
        before = await call("stats")
        assert await call(name, *args) == f"! {text}"
        assert await call("stats") == before

    on_a_node(work, options({**PLAIN, **features}))


def test_errors_of_owners_and_of_features_a_tube_lacks() -> None:
    async def work(call: Call, other: Call, _bench: Any) -> None:
        await call("put", {"priority": 0})
        await call("take")
        mine, its = (await call("box.session.id"))[0], (await other("box.session.id"))[0]
        for name in ("ack", "release", "bury", "touch"):
            refused = await other(name, 1, {"increment": 1})
            assert refused == f"! Task 1 taken by {mine}. Not you ({its})", name
        assert await call("ack", 1, {"delay": 1}) == "! Feature zombie is not enabled"
        assert await call("take", 0, {"tube": "a"}) == "! Feature tube is not enabled"
        assert (await call("release", 1, {"update": [["=", "id", 5]]})).startswith(
            "! Attempt to modify a tuple field which is part of primary index"
        )
        assert len(await call("ack", 1)) == 1

    fields = {"status": "status", "priority": "priority"}
    form = [*FORMAT[:2], FORMAT[3], {"name": "payload", "type": "any"}]
    on_a_node(work, {"format": form, "fields": fields, "features": PLAIN})


def test_upgrade_again_changes_nothing() -> None:
    async def work(call: Call, _other: Call, _bench: Any) -> None:
        await call("put", MAP)
        await call("take")
        before = await call("stats")
        assert await call("xqueue.upgrade", "q", options(PLAIN)) == []
        assert await call("stats") == before
        assert (await call("xqueue.upgrade", "q", options({"id": "required"}))).startswith("! xqu")
        assert len(await call("ack", 1)) == 1

    on_a_node(work)


def test_a_change_of_roles_answers_who_waits_and_refuses_changes() -> None:
    async def work(call: Call, other: Call, bench: Any) -> None:
        await call("put", MAP)
        waits = [
            asyncio.ensure_future(other("wait", 1)),
            asyncio.ensure_future(other("take", 60, {"tube": "z"})),
        ]
        await asyncio.sleep(0.05)
        core = bench.core
        core.engine.stop()
        core.set_state("WAITING")
        core.engine.wake_all(read_only_error(core.state))
        bench.shell.flush()
        for answer in [await wait for wait in waits] + [await call("put", MAP)]:
            assert answer == f"! {read_only_error(core.state).text}"
        assert "WAITING" in read_only_error(core.state).text
        assert (await call("stats"))[0]["counts"]["R"] == 1
        assert (await call("wait", 1, 5)).startswith("! This node is read-only")

    on_a_node(work)


def test_every_refusal_of_a_declaration_over_the_socket() -> None:
    async def work(call: Call, _other: Call, _bench: Any) -> None:
        for opts, text in REFUSALS:
            assert await call("xqueue.upgrade", "refused", opts) == f"! {text}"
            assert await call("queue.create_tube", "refused", "xqueue", opts) == f"! {text}"
            assert (await call("box.space.refused:len")).endswith("is not defined")

    on_a_node(work)


@pytest.mark.parametrize("name", ["delete", "update", "index.primary:select", "nothing"])
def test_calls_that_are_not_there(name: str) -> None:
    async def work(call: Call, _other: Call, _bench: Any) -> None:
        whole = f"box.space.q.{name}" if ":" in name else name
        assert (await call(whole, 1)).endswith("is not defined")

    on_a_node(work)
