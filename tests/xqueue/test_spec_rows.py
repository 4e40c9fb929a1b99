"""Every row of the tables of timers, transitions, notifications and statistics (sections 7, 9, 11).

By asynctnt over a real socket; only the node's clock is moved by hand.
"""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.xqueue.socket_x import PASS, Calls, serving

TASK = {"priority": 0, "tube": "a", "payload": None}
BOTH = {"tube_stats": ["a", "b"]}
TO_B = {"update": [["=", "tube", "b"]]}
PUT, TAKE, BURY = ("put", TASK), ("take", 0), ("bury", 1)


def put(**opts: Any) -> tuple[Any, ...]:
    return ("put", TASK, opts)


def take(**opts: Any) -> tuple[Any, ...]:
    return ("take", 0, opts)


def case(name: str, features: Any, calls: Any, status: str, runat: Any, move: str) -> Any:
    return pytest.param(features, calls, status, runat, move, id=name)


#: Features, calls, then: the record's status (X: gone), its runat in seconds from the last
#: step on (0: none), and the transition that was counted last.
ROWS = [
    case("timer-W", {}, [put(delay=5), PASS(5)], "R", 0, "W-R"),
    case("timer-W-default-ttl", {"ttl": 20}, [put(delay=5), PASS(5)], "R", 20, "W-R"),
    case("timer-R", {}, [put(ttl=5), PASS(5)], "X", None, "R-X"),
    case("timer-Z", {"zombie": 5}, [PUT, TAKE, ("ack", 1), PASS(5)], "X", None, "Z-X"),
    case("timer-T", {}, [PUT, take(ttr=5), PASS(5)], "R", 0, "T-R"),
    case("timer-T-keeps-ttl", {}, [put(ttl=9), take(ttr=5), PASS(5)], "R", 4, "T-R"),
    case("timer-B", {}, [put(ttl=5), take(ttr=5), BURY, PASS(99)], "B", 0, "T-B"),
    case("timer-D", {"keep": True}, [PUT, take(ttr=5), ("ack", 1), PASS(99)], "D", 0, "T-D"),
    case("timer-T-without-ttr", {}, [put(ttl=5), TAKE, PASS(99)], "T", 0, "R-T"),
    case("X-R", {}, [PUT], "R", 0, "X-R"),
    case("X-R-ttl", {}, [put(ttl=7)], "R", 7, "X-R"),
    case("X-R-default-ttl", {"ttl": 8}, [PUT], "R", 8, "X-R"),
    case("X-W", {}, [put(delay=7)], "W", 7, "X-W"),
    case("X-W-at-once", {}, [put(delay=-1), PASS(0.001)], "R", 0, "W-R"),
    case("R-T", {}, [PUT, TAKE], "T", 0, "R-T"),
    case("R-T-ttr", {}, [PUT, take(ttr=7)], "T", 7, "R-T"),
    case("R-T-default-ttr", {"ttr": 6}, [PUT, TAKE], "T", 6, "R-T"),
    case("T-R-release", {}, [PUT, TAKE, ("release", 1)], "R", 0, "T-R"),
    case("T-R-release-ttl", {}, [PUT, TAKE, ("release", 1, {"ttl": 7})], "R", 7, "T-R"),
    case("T-R-release-default-ttl", {"ttl": 8}, [PUT, TAKE, ("release", 1)], "R", 8, "T-R"),
    case("T-W", {}, [PUT, TAKE, ("release", 1, {"delay": 7})], "W", 7, "T-W"),
    case("T-R-disconnect", {}, [put(ttl=9), TAKE, "disconnect"], "R", 9, "T-R"),
    case("T-R-restart", {}, [put(ttl=9), TAKE, "restart"], "R", 9, ""),
    case("T-X", {}, [PUT, TAKE, ("ack", 1)], "X", None, "T-X"),
    case("T-X-zombie-without-time", {"zombie": True}, [PUT, TAKE, ("ack", 1)], "X", None, "T-X"),
    case("T-Z", {"zombie": 5}, [PUT, TAKE, ("ack", 1)], "Z", 5, "T-Z"),
    case("T-Z-delay", {"zombie": True}, [PUT, TAKE, ("ack", 1, {"delay": 6})], "Z", 6, "T-Z"),
    case("T-D", {"keep": True}, [PUT, TAKE, ("ack", 1)], "D", 0, "T-D"),
    case("T-B", {}, [PUT, TAKE, BURY], "B", 0, "T-B"),
    case("B-R-kick", {}, [PUT, TAKE, BURY, ("kick", 1)], "R", 0, "B-R"),
    case("B-R-dig-all", {}, [PUT, TAKE, BURY, ("dig",)], "R", 0, "B-R"),
    case("B-R-dig-id", {}, [PUT, TAKE, BURY, ("dig", [1])], "R", 0, "B-R"),
    case("B-R-dig-ttl", {}, [PUT, TAKE, BURY, ("dig", [1], {"ttl": 5})], "R", 5, "B-R"),
    case("B-W", {}, [PUT, TAKE, BURY, ("dig", 1, {"delay": 5})], "W", 5, "B-W"),
    case("kill-R", {}, [PUT, ("kill", 1)], "X", None, "R-X"),
    case("kill-W", {}, [put(delay=5), ("kill", 1)], "X", None, "W-X"),
    case("kill-T", {}, [PUT, TAKE, ("kill", 1)], "X", None, "T-X"),
    case("kill-B", {}, [PUT, TAKE, BURY, ("kill", 1)], "X", None, "B-X"),
    case("kill-Z", {"zombie": 5}, [PUT, TAKE, ("ack", 1), ("kill", 1)], "X", None, "Z-X"),
    case("kill-D", {"keep": True}, [PUT, TAKE, ("ack", 1), ("kill", 1)], "X", None, "D-X"),
    case("touch-R", {}, [put(ttl=5), ("touch", 1, {"increment": 4})], "R", 9, "R-R"),
    case("touch-T", {}, [PUT, take(ttr=5), ("touch", 1, {"increment": 4})], "T", 9, "T-T"),
    case("touch-B", {}, [PUT, TAKE, BURY, ("touch", 1, {"increment": 4})], "B", 0, "T-B"),
    case("touch-without-time", {}, [PUT, ("touch", 1, {"increment": 4})], "R", 0, "X-R"),
]


@pytest.mark.parametrize(("features", "calls", "status", "runat", "move"), ROWS)
def test_row_of_section_7(features: Any, calls: Any, status: str, runat: Any, move: str) -> None:
    async def work(node: Calls) -> None:
        for step in calls:
            await node.step(step)
            made = node.now()
        found = await node("get", 1)
        stats = (await node("stats"))[0]
        wanted = {letter: int(letter == status) for letter in "RTWBZD"}
        assert stats["counts"] == wanted
        if move:
            assert list(stats["transition"])[-1] == move
        if status == "X":
            assert found == []
            return
        assert found[0][1] == status
        if runat:
            assert found[0][2] - made == pytest.approx(runat, abs=0.8)
        else:
            assert found[0][2] == 0

    serving(work, features)


MOVES = [
    ("release", {}, None, "S-R", "T-R"),
    ("release", {}, {"delay": 5}, "S-W", "T-W"),
    ("ack", {"zombie": 5}, None, "S-Z", "T-Z"),
    ("ack", {"keep": True}, None, "S-D", "T-D"),
    ("bury", {}, None, "S-B", "T-B"),
]


@pytest.mark.parametrize(("name", "features", "attr", "entered", "whole"), MOVES)
def test_transition_between_tubes(
    name: str, features: Any, attr: Any, entered: str, whole: str
) -> None:
    async def work(node: Calls) -> None:
        await node("put", TASK)
        await node("take", 0)
        await node(name, 1, {**TO_B, **(attr or {})})
        stats = (await node("stats"))[0]
        assert stats["tube"]["a"]["transition"] == {"X-R": 1, "R-T": 1, "T-S": 1}
        assert stats["tube"]["b"]["transition"] == {entered: 1}
        assert stats["transition"] == {"X-R": 1, "R-T": 1, whole: 1}
        assert not any(stats["tube"]["a"]["counts"].values())
        assert stats["tube"]["b"]["counts"] == stats["counts"]
        assert sum(stats["counts"].values()) == 1

    serving(work, features, **BOTH)


LATER = [TAKE, ("release", 1, {"delay": 2})]
#: Who waits for a task (by `wait`, and the producer) is told what: section 9, and its defects.
TOLD = [
    ("ack that deletes", {}, [TAKE, ("ack", 1, {"update": [["=", "payload", 7]]})], True, "T", 7),
    ("ack to Z", {"zombie": 5}, [TAKE, ("ack", 1)], True, "Z", None),
    ("ack to D", {"keep": True}, [TAKE, ("ack", 1)], True, "D", None),
    ("bury", {}, [TAKE, BURY], False, "B", None),
    ("ttl of R", {"ttl": 30}, [PASS(30)], False, "R", None),
    ("kill", {}, [TAKE, ("kill", 1)], False, "B", None),
    ("later ack", {}, [TAKE, ("release", 1), TAKE, ("ack", 1)], True, "T", None),
    ("ack after ttr", {"ttr": 3}, [TAKE, PASS(3), TAKE, ("ack", 1)], True, "T", None),
    ("ack after a delay", {}, [*LATER, PASS(2), TAKE, ("ack", 1)], True, "T", None),
    ("its own end", {}, [PASS(60)], False, "R", None),
]  # fmt: skip


@pytest.mark.parametrize(
    ("features", "calls", "processed", "status", "payload"),
    [pytest.param(*row[1:], id=row[0]) for row in TOLD],
)
def test_row_of_section_9(
    features: Any, calls: Any, processed: bool, status: str, payload: Any
) -> None:
    async def work(node: Calls) -> None:
        waits = [asyncio.ensure_future(node.other("put", TASK, {"wait": 60}))]
        await node.parked(1)
        waits.append(asyncio.ensure_future(node.other("wait", [1], 60)))
        await node.parked(2)
        for step in calls:
            assert not any(wait.done() for wait in waits)
            await node.step(step)
        for task, flag in await asyncio.gather(*waits):
            assert (task["id"], task["status"], task["payload"]) == (1, status, payload)
            assert flag is processed

    serving(work, features)


@pytest.mark.parametrize(
    ("features", "end", "flag"),
    [({}, BURY, False), ({"zombie": 9}, ("ack", 1), True), ({"keep": True}, ("ack", 1), True)],
)
def test_wait_for_what_is_over_answers_at_once(features: Any, end: Any, flag: bool) -> None:
    async def work(node: Calls) -> None:
        for step in (PUT, TAKE, end):
            await node.step(step)
        assert (await node("wait", 1))[1] is flag

    serving(work, features)


def test_a_truncate_answers_who_waits() -> None:
    async def work(node: Calls) -> None:
        wait = asyncio.ensure_future(node.other("put", TASK, {"wait": 60}))
        await node.parked(1)
        await node("truncate")
        assert await wait == "! Task {1} was not found"
        assert (await node("stats"))[0]["transition"] == {}

    serving(work)


def test_rows_of_section_11() -> None:
    async def work(node: Calls) -> None:
        none = dict.fromkeys("RTWBZD", 0)
        empty = {"counts": none, "transition": {}}
        assert await node("stats") == [{**empty, "tube": {"a": empty, "b": empty}}]
        for tube in ("a", "b", "c"):
            await node("put", {**TASK, "tube": tube})
        await node("take", 0, {"tube": "a"})
        await node("ack", 1, {"update": [["=", "payload", 1]]})
        # Untracked to tracked, tracked to untracked.
        await node("take", 0, {"tube": "c"})
        await node("release", 3, {"update": [["=", "tube", "a"]]})
        await node("take", 0, {"tube": "b"})
        await node("release", 2, {"update": [["=", "tube", "c"]]})
        stats = (await node("stats"))[0]
        assert stats == {
            "counts": {**none, "R": 2},
            "transition": {"X-R": 3, "R-T": 3, "T-T": 1, "T-X": 1, "T-R": 2},
            "tube": {
                "a": {
                    "counts": {**none, "R": 1},
                    "transition": {"X-R": 1, "R-T": 1, "T-T": 1, "T-X": 1, "S-R": 1},
                },
                "b": {"counts": none, "transition": {"X-R": 1, "R-T": 1, "T-S": 1}},
            },
        }
        pretty = (await node("stats", True))[0]
        assert pretty["counts"] == {
            "Ready": 2, "Taken": 0, "Waiting": 0, "Buried": 0, "Zombie": 0, "Done": 0,
        }  # fmt: skip
        await node("truncate")
        assert await node("stats") == [{**empty, "tube": {"a": empty, "b": empty}}]

    serving(work, **BOTH)
