"""What a writer does with answers, against a node that follows a script; no Spark, no process."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from typing import Any

import pytest
from asynctnt.exceptions import TarantoolDatabaseError, TarantoolNotConnectedError

from tandemq.spark import target

LOST = TarantoolNotConnectedError("lost")
READ_ONLY = TarantoolDatabaseError(7, "read-only", None)
LOADING = TarantoolDatabaseError(116, "not initialized yet", None)
NO = TarantoolDatabaseError(32, "ttl must not be negative", None)


class Scripted:
    """A connection that answers each frame with what comes next: an error, or None for stored."""

    def __init__(self, answers: list[Exception | None]) -> None:
        self.answers = answers
        self.stored: list[int] = []

    async def call(self, name: str, args: list[Any]) -> None:
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if answer is not None:
            raise answer
        self.stored += [row[0] for row in args[0]]

    async def disconnect(self) -> None:
        pass


def put(
    monkeypatch: pytest.MonkeyPatch, answers: list[Exception | None], frames: Iterator[target.Frame]
) -> tuple[target.Put, Scripted]:
    node = Scripted(answers)

    async def find(*_: Any, **__: Any) -> tuple[Any, str, int]:
        return node, "node", 1

    monkeypatch.setattr(target, "find_writable", find)
    to = target.Target([("127.0.0.1", 1)], "t", timeout_s=0.2, window=1)
    return asyncio.run(to.put_all(frames, lambda _: None)), node


def test_a_refusal_ends_the_time_of_failing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two losses far apart, with nothing stored between them, are not one long failure."""

    def frames() -> Iterator[target.Frame]:
        yield [[1, {}]]
        time.sleep(0.4)
        yield [[2, {}]]

    done, node = put(monkeypatch, [LOST, NO, LOST, None], frames())
    assert (done.stored, node.stored, [row[0] for row, _ in done.refused]) == (1, [2], [1])


def test_who_serves_and_refuses_to_write_is_not_asked_for_ever(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with pytest.raises(target.TargetError, match=r"no frame was taken .* for 0\.2 s \(read-only\)"):
        put(monkeypatch, [READ_ONLY], iter([[[1, {}]]]))


def test_a_node_that_still_loads_refuses_no_row(monkeypatch: pytest.MonkeyPatch) -> None:
    done, node = put(monkeypatch, [LOADING, None], iter([[[1, {}]], [[2, {}]]]))
    assert (done.stored, done.refused, done.resent, node.stored) == (2, [], 1, [1, 2])


def test_rows_of_a_refused_frame_come_before_the_next_one(monkeypatch: pytest.MonkeyPatch) -> None:
    frames = [[[1, {}], [2, {}], [3, {}]], [[4, {}]]]
    done, node = put(monkeypatch, [NO, None, NO, None, None], iter(frames))
    assert node.stored == [1, 3, 4]
    assert [row[0] for row, _ in done.refused] == [2]


def test_what_the_source_fails_with_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def frames() -> Iterator[target.Frame]:
        yield [[1, {}]]
        raise ValueError("no such column")

    with pytest.raises(ValueError, match="no such column"):
        put(monkeypatch, [None], frames())
