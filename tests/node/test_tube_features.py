"""What tubes can do beyond the original, over a real socket: arguments in, encoded answers out."""

from __future__ import annotations

import pytest

from tandemq_server.node.core.identity import ClientBounds
from tests.node.harness import Everybody, node

pytestmark = pytest.mark.asyncio


async def test_keys_over_the_wire() -> None:
    async with node() as bench:
        wire = await bench.dial()
        opts = {"key": "k", "window": 5}
        assert await wire.call("queue.tube.fifo:put", "one", opts) == [[0, "r", "one"]]
        assert await wire.call("queue.tube.fifo:put", "two", opts) == [[0, "r", "one", True]]
        batch = [["two", {"key": "k"}], [{"a": [1]}, {"key": "new"}], ["plain"]]
        assert await wire.call("queue.tube.fifo:put_many", batch, {"window": 9}) == [[0, 1, 2]]
        assert await wire.call("queue.tube.fifo:delete", 0) == [[0, "-", "one"]]
        assert await wire.call("queue.tube.fifo:put", "two", opts) == [[0, "-", None, True]]
        code, text = await wire.call("queue.tube.fifo:put", "two", {"key": 1})
        assert (code, text) == (32, "Invalid value of key: expected a string, got number")


async def test_dead_letters_over_the_wire() -> None:
    async with node() as bench:
        wire = await bench.dial()
        opts = {"max_attempts": 2, "dead_letter": "fifo", "retry_delay": 0.01, "retry_jitter": 0}
        made = await wire.call("queue.create_tube", "jobs", "fifottl", opts)
        assert made[0]["opts"]["dead_letter"] == "fifo"
        await wire.call("queue.tube.jobs:put", "poison")
        ((_, _, data, known),) = await wire.call("queue.tube.jobs:take", 1, {"info": True})
        assert (data, known["attempts"]) == ("poison", 1)
        fence = {"token": known["token"], "reason": "no such host"}
        assert (await wire.call("queue.tube.jobs:release", 0, fence))[0][1] == "~"
        ((_, _, _, known),) = await wire.call("queue.tube.jobs:take", 5, {"info": True})
        assert (known["attempts"], known["reason"]) == (2, "no such host")
        assert (await wire.call("queue.tube.jobs:info", 0))[0]["attempts"] == 2
        assert await wire.call("queue.tube.jobs:release", 0) == [[0, "-", "poison"]]
        (letter,) = await wire.call("queue.tube.fifo:info", 0)
        assert (letter["from_tube"], letter["from_id"], letter["from_attempts"]) == ("jobs", 0, 2)
        assert await wire.call("queue.tube.fifo:redrive", 5) == [1]
        assert await wire.call("queue.tube.jobs:peek", 1) == [[1, "r", "poison"]]
        assert await wire.call("queue.tube.jobs:take_many", 1, 0, {"info": True, "token": True})
        assert (await wire.call("queue.tube.jobs:bury", 1, {"reason": "odd"}))[0][1] == "!"
        assert (await wire.call("queue.tube.jobs:info", 1))[0]["reason"] == "odd"
        code, text = await wire.call("queue.tube.jobs:take", 0, {"info": 1})
        assert (code, text) == (32, "Invalid value of info: 1 (expected true or false)")


async def test_a_redrive_needs_the_right_to_put_where_it_goes() -> None:
    class Cleaner(Everybody):
        def may(self, user: str, call: str) -> bool:
            return call != "queue.tube.jobs:put"

    async with node() as bench:
        wire = await bench.dial()
        await wire.call(
            "queue.create_tube", "jobs", "fifo", {"max_attempts": 1, "dead_letter": "fifo"}
        )
        await wire.call("queue.tube.jobs:put", "x")
        await wire.call("queue.tube.jobs:take", 0)
        await wire.call("queue.tube.jobs:release", 0)
        bench.core.accounts = Cleaner()
        bench.core.forget_tables()
        code, text = await wire.call("queue.tube.fifo:redrive")
        assert (code, "queue.tube.jobs:put" in text) == (42, True)
        assert await wire.call("queue.tube.fifo:redrive", 1, {"to": "utube"}) == [1]


async def test_pause_and_resume_over_the_wire() -> None:
    async with node() as bench:
        wire, worker = await bench.dial(), await bench.dial()
        assert await wire.call("queue.tube.fifo:pause") == [{"puts": True, "takes": True}]
        code, text = await wire.call("queue.tube.fifo:put", 1)
        assert (code, text.startswith("Puts into tube fifo are paused")) == (32, True)
        assert await wire.call("queue.tube.fifo:resume", "puts") == [{"puts": False, "takes": True}]
        assert await wire.call("queue.tube.fifo:put", 1) == [[0, "r", 1]]
        worker.send_call("queue.tube.fifo:take", 30)
        assert await wire.call("queue.tube.fifo:take", 0.01) == []
        assert (await wire.call("queue.statistics", "fifo"))[0]["paused"]["takes"]
        await wire.call("queue.tube.fifo:resume")
        assert (await worker.receive())[2][0x30] == [[0, "t", 1]]


async def test_finish_over_the_wire() -> None:
    async with node(ClientBounds(payload_bytes_max=100)) as bench:
        wire = await bench.dial()
        finish = "queue.tube.fifo:finish"
        await wire.call("queue.tube.fifo:put", "page")
        ((_, _, _, token),) = await wire.call("queue.tube.fifo:take", 0, {"token": True})
        puts = [["utube", {"url": "a"}, {"utube": "host"}], ["fifo", "b"]]
        assert await wire.call(finish, 0, [["none", 1]]) == (
            32,
            "Invalid put 1 of finish: tube none does not exist",
        )
        assert (await wire.call(finish, 0, [["fifo", "x" * 101]]))[0] == 110
        assert (await wire.call(finish, 0, [[1, "x"]]))[0] == 32
        assert (await wire.call(finish, 0, puts, {"token": token - 1}))[1] == "Task was not taken"
        assert await wire.call(finish, 0, puts, {"token": token}) == [[0, 1]]
        assert await wire.call("queue.tube.utube:peek", 0) == [[0, "r", {"url": "a"}]]
        assert await wire.call("queue.tube.fifo:take", 0) == [[1, "t", "b"]]

        class Worker(Everybody):
            def may(self, user: str, call: str) -> bool:
                return call.startswith("queue.tube.fifo:")

        bench.core.accounts = Worker()
        bench.core.forget_tables()
        code, text = await wire.call(finish, 1, [["utube", 1]])
        assert (code, "'queue.tube.utube:put'" in text) == (42, True)
        assert await wire.call(finish, 1) == [[]]


async def test_list_and_bulk_over_the_wire() -> None:
    async with node() as bench:
        wire = await bench.dial()
        await wire.call("queue.tube.utube:put_many", [[{"n": n}] for n in range(3)])
        (found,) = await wire.call("queue.tube.utube:list", {"limit": 2})
        assert found == {"tasks": [[0, "r", {"n": 0}], [1, "r", {"n": 1}]], "cursor": 1}
        (found,) = await wire.call("queue.tube.utube:list", {"limit": 2, "after": 1})
        assert found == {"tasks": [[2, "r", {"n": 2}]], "cursor": None}
        dry = {"dry_run": True, "state": "ready"}
        assert await wire.call("queue.tube.utube:bulk", "delete", dry) == [
            {"count": 3, "cursor": None}
        ]
        moved = await wire.call("queue.tube.utube:bulk", "move", {"to": "fifo", "limit": 2})
        assert moved == [{"count": 2, "cursor": 1}]
        assert await wire.call("queue.tube.fifo:peek", 1) == [[1, "r", {"n": 1}]]
