"""Requests around the calls, on a real socket: what is answered, what is refused and how."""

from __future__ import annotations

import asyncio
import gc
from typing import Any

import pytest

from tandemq_server.node.core.connection import Connection
from tandemq_server.node.core.read_only import READ_ONLY_TEXT
from tandemq_server.replication.commit import CommitPoint
from tests.attack.fuzz import Frames
from tests.attack.wire import frame
from tests.node.harness import NODE, node

pytestmark = pytest.mark.asyncio


async def test_greeting_names_version_and_node() -> None:
    async with node() as bench:
        wire = await bench.dial()
        assert wire.greeting.startswith(f"Tarantool 2.11.0 (Binary) {NODE}".encode())


@pytest.mark.parametrize(
    ("rtype", "body", "code", "text"),
    [
        (0x0B, {0x40: "SELECT 1"}, 5, "does not support SQL"),
        (0x0D, {0x40: "SELECT 1"}, 5, "does not support SQL"),
        (0x0E, {}, 5, "interactive transactions"),
        (0x02, {0x10: 512, 0x21: [1]}, 42, "Write access"),
        (0x05, {0x10: 512, 0x11: 0, 0x20: [1]}, 42, "Write access"),
        (0x41, {}, 48, "Unknown request type 65"),
        (0x7F, {}, 48, "Unknown request type 127"),
        (0x01, {0x10: 999, 0x12: 1, 0x20: []}, 36, "Space '999' does not exist"),
        (0x01, {0x10: 512, 0x11: 7, 0x12: 1, 0x20: []}, 35, "No index #7"),
        (0x01, {0x10: 512, 0x12: 1}, 69, "key"),
        (0x08, {0x27: "return os.execute('id')", 0x21: []}, 32, "arbitrary Lua"),
        (0x0A, {0x22: "no.such", 0x21: []}, 33, "Procedure 'no.such' is not defined"),
        (0x0A, {0x22: "queue.tube.none:put", 0x21: [1]}, 33, "is not defined"),
        (0x07, {0x23: "nobody", 0x21: ["chap-sha1", b"x" * 20]}, 47, "credentials are invalid"),
        (0x07, {0x23: "nobody", 0x21: ["chap-sha1", b"x"]}, 20, "scramble"),
        (0x07, {0x23: "nobody", 0x21: ["pap-sha256", "x"]}, 249, "pap-sha256"),
        (0x4D, {}, 69, "event key"),
    ],
)
async def test_clean_refusals(rtype: int, body: dict[int, Any], code: int, text: str) -> None:
    async with node() as bench:
        wire = await bench.dial()
        sync = wire.send(rtype, body)
        got, error, reply = await wire.receive()
        assert (got, error) == (sync, code)
        assert text in reply[0x31]
        frame = reply[0x52][0][0]
        assert frame[5] == code
        assert set(frame) >= {0, 1, 2, 3, 4, 5}
        assert await wire.ping()


async def test_id_announces_what_connectors_need() -> None:
    async with node() as bench:
        wire = await bench.dial()
        wire.send(0x49, {0x54: 3, 0x55: [0, 1, 2, 3, 4]})
        assert (await wire.receive())[2] == {0x54: 6, 0x55: [2, 3, 6], 0x5B: "chap-sha1"}


async def test_waiting_take_holds_up_nobody_and_replies_leave_as_they_come() -> None:
    async with node() as bench:
        wire = await bench.dial()
        waiting = wire.send_call("queue.tube.fifo:take", 5)
        ping = wire.send(0x40, {})
        put = wire.send_call("queue.tube.fifo:put", "x")
        order = [(await wire.receive())[0] for _ in range(3)]
        assert order == [ping, put, waiting]


async def test_pipelined_requests_of_one_segment_start_in_order() -> None:
    async with node() as bench:
        wire = await bench.dial()
        syncs = [wire.send_call("queue.tube.fifo:put", number) for number in range(300)]
        replies = [await wire.receive() for _ in syncs]
        assert [reply[0] for reply in replies] == syncs
        assert [reply[2][0x30][0] for reply in replies] == [[n, "r", n] for n in range(300)]


async def test_call_16_wraps_what_is_not_an_array() -> None:
    async with node() as bench:
        wire = await bench.dial()

        async def call_16(name: str, *args: Any) -> Any:
            wire.send(0x06, {0x22: name, 0x21: list(args)})
            return (await wire.receive())[2][0x30]

        assert await call_16("queue.tube.fifo:put", "x") == [[0, "r", "x"]]
        assert await call_16("queue.tube.fifo:kick", 1) == [[0]]
        assert await call_16("queue.state") == [["RUNNING"]]
        assert sorted((await call_16("queue.tube"))[0])[0] == "fifo"
        assert await call_16("queue.tube.fifo:take", 0) == [[0, "t", "x"]]
        assert await call_16("queue.tube.fifo:take", 0) == []


async def test_eval_of_connectors() -> None:
    async with node() as bench:
        wire = await bench.dial()

        async def evaluate(text: str, *args: Any) -> Any:
            wire.send(0x08, {0x27: text, 0x21: list(args)})
            _, code, body = await wire.receive()
            return (code, body[0x31]) if code else body[0x30]

        create = "local name, type, cfg = ... ; queue.create_tube(name, type, cfg)"
        assert await evaluate(create, "made", "fifo", {"if_not_exists": True}) == []
        exists = "local name = ... ; return queue.tube[name] ~= nil"
        assert await evaluate(exists, "made") == [True]
        assert await evaluate(exists, "other") == [False]
        assert await evaluate("return queue.tube.made:put('x')") == [[0, "r", "x"]]
        assert (await evaluate("return queue.tube.none:put('x')"))[0] == 32
        assert "a nil value" in (await evaluate("return queue.tube.none:put('x')"))[1]
        assert await evaluate("return box.info.status") == ["running"]
        assert await evaluate("return queue._VERSION") == ["1.5.0"]
        assert await evaluate("") == []


async def test_select_on_schema_and_own_spaces() -> None:
    async with node() as bench:
        wire = await bench.dial()
        await wire.call("queue.tube.fifo:put", "payload")

        async def select(space: int, index: int = 0, key: Any = (), iterator: int = 0) -> Any:
            body = {0x10: space, 0x11: index, 0x12: 1000, 0x13: 0, 0x14: iterator, 0x20: list(key)}
            wire.send(0x01, body)
            return (await wire.receive())[2][0x30]

        names = {row[2]: row[0] for row in await select(281, iterator=2)}
        assert {"_queue", "_queue_taken_2", "_queue_shared_sessions", "fifo"} <= set(names)
        listed = {row[0] for row in await select(289, iterator=2)}
        assert listed <= set(names.values())
        assert await select(281, 2, ["fifo"]) == [
            row for row in await select(281, iterator=2) if row[2] == "fifo"
        ]
        assert await select(names["fifo"], 0, [0]) == [[0, "r", "payload"]]
        assert await select(names["fifo"], 1, ["r"]) == [[0, "r", "payload"]]
        assert await select(names["fifo"], 1, ["t"]) == []
        assert (await select(512, 0, ["fifo"]))[0][3] == "fifo"


async def test_box_status_events_follow_the_role() -> None:
    async with node() as bench:
        wire = await bench.dial()
        wire.send(0x4A, {0x57: "box.status"})
        assert (await wire.receive())[2][0x58]["is_ro"] is False
        wire.send(0x4A, {0x57: "box.status"})
        await asyncio.sleep(0.02)
        bench.core.engine.stop()
        bench.core.set_state("WAITING")
        bench.shell.flush()
        assert (await wire.receive())[2][0x58]["is_ro"] is True


async def test_changing_calls_on_a_node_that_does_not_serve() -> None:
    async with node() as bench:
        wire = await bench.dial()
        assert await wire.call("queue.tube.fifo:put", "x") == [[0, "r", "x"]]
        bench.core.engine.stop()
        bench.core.set_state("WAITING")
        code, text = await wire.call("queue.tube.fifo:put", "x")
        assert code == 7
        assert text.startswith(READ_ONLY_TEXT)
        assert await wire.call("queue.tube.fifo:peek", 0) == [[0, "r", "x"]]
        assert await wire.call("queue.state") == ["WAITING"]
        assert (await wire.call("queue.statistics", "fifo"))[0]["tasks"]["total"] == 1
        bench.core.read_only_reply_nil = True
        bench.core.forget_tables()
        assert await wire.call("queue.tube.fifo:put", "x") == [None]
        assert await wire.call("queue.tube.fifo:touch", 0, 1) == []


async def test_payload_comes_back_to_the_byte() -> None:
    async with node() as bench:
        wire = await bench.dial()
        odd = [
            b"\xca\x40\x80\x00\x00",
            b"\xd4\x02\x01",
            b"\xc4\x01x",
            b"\xa1\xff",
            b"\xd3" + b"\0" * 8,
        ]
        for number, raw in enumerate(odd):
            wire.sync += 1
            packet = b"\x82\x00\x0a\x01\x01\x82\x22\xb3queue.tube.fifo:put\x21\x91" + raw
            wire.writer.write(b"\xce" + len(packet).to_bytes(4, "big") + packet)
            head = await wire.reader.readexactly(5)
            body = await wire.reader.readexactly(int.from_bytes(head[1:], "big"))
            assert body.endswith(b"\xa1r" + raw), number


async def test_pings_and_logins_do_not_wait_for_what_is_not_committed() -> None:
    async with node() as bench:
        replica, client = await bench.dial(), await bench.dial()
        bench.shell.wal.gate = CommitPoint("pair", None)
        put = client.send_call("queue.tube.fifo:put", "x")
        # In pair mode it is the replica's login that lets the put commit.
        for rtype, body, code in (
            (0x40, {}, 0),
            (0x49, {0x54: 3, 0x55: [0]}, 0),
            (0x07, {0x23: "guest", 0x21: []}, 0),
            (0x07, {0x23: "nobody", 0x21: ["chap-sha1", bytes(20)]}, 47),
        ):
            sync = replica.send(rtype, body)
            assert (await asyncio.wait_for(replica.receive(), 5))[:2] == (sync, code)
            assert client.send(0x40, {}) == (await asyncio.wait_for(client.receive(), 5))[0]
        bench.shell.wal.gate = None
        bench.shell.wal.durable_lsn = bench.core.engine.lsn
        bench.shell.wal.advance()
        assert (await asyncio.wait_for(client.receive(), 5))[0] == put


async def test_malformed_requests_leave_nothing_behind() -> None:
    """No circles of error, traceback and reader: they made a node's memory grow five times."""
    made = Frames(3)
    async with node() as bench:
        connection = Connection(bench.core, 99, bytes(32), "x:1", False)
        bench.core.connect(connection)
        connection.stranger = False
        gc.collect()
        gc.disable()
        try:
            for _ in range(500):
                bench.core.receive(connection, made.random_body(), 0)
                bench.core.receive(connection, made.mutated(frame(1, {16: 1, 32: [2]})), 0)
                connection.out.clear()
            assert gc.collect() < 300
        finally:
            gc.enable()
