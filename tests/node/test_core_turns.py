"""What a turn leaves for the log: whole frames of the present term that say what is committed."""

from __future__ import annotations

import os
from typing import Any

import msgpack
import pytest

from tandemq.model import record
from tandemq.model.errors import failure
from tandemq.model.record import decode_body, decode_header, frame_body
from tandemq_server.drivers import BUILT_IN
from tandemq_server.engine import admin
from tandemq_server.engine.clients import EngineClient
from tandemq_server.engine.engine import Engine
from tandemq_server.node.core.connection import Connection
from tandemq_server.node.core.core import Core
from tandemq_server.node.core.identity import ClientBounds, Identity
from tests.node.harness import CLUSTER, NODE, Everybody

TERM = b"t" * 16


class Nobody(EngineClient):
    def deliver(self, ticket: Any, outcome: Any) -> None:
        raise AssertionError("nobody waits here")


def serving() -> Core:
    """RUNNING in a term of its own, with the tube `one`; all it did is flushed."""
    engine = Engine(BUILT_IN, lambda: os.urandom(16), lambda _text, _error=None: None)
    core = Core(engine, Identity("a", NODE, CLUSTER), ClientBounds(), Everybody())
    engine.start()
    core.set_state("RUNNING")
    admin.create_tube(engine, "one", "fifo", {})
    core.term, core.term_id = 3, TERM
    core.flush()
    return core


def test_a_frame_is_of_its_term_and_says_how_far_the_log_is_committed() -> None:
    engine = Engine(BUILT_IN, lambda: os.urandom(16), lambda _text, _error=None: None)
    core = Core(engine, Identity("a", NODE, CLUSTER), ClientBounds(), Everybody())
    engine.start()
    core.set_state("RUNNING")
    core.flush()
    before = engine.lsn
    core.term, core.term_id, core.commit_lsn = 3, TERM, 7
    admin.create_tube(engine, "one", "fifo", {})
    turn = core.flush()
    assert turn.frame is not None
    header = decode_header(turn.frame)
    assert (header.term, header.first_lsn, header.last_lsn) == (3, before + 1, engine.lsn)
    assert header.commit_lsn == 7
    # Its CRC is seeded with the term's id: as a frame of any other term it is damaged.
    assert decode_body(frame_body(turn.frame, 0, header, TERM), header.count)
    assert core.flush().frame is None


def test_a_turn_too_large_for_one_frame_is_several_that_leave_nothing_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(record, "FRAME_BODY_BYTES_AIM", record.FRAME_EXTRA_BYTES + 300)
    core = serving()
    engine, first = core.engine, core.engine.lsn + 1
    for _ in range(60):
        engine.tubes["one"].put(Nobody(1), 0, b"\xa5" + b"x" * 5)
    turn = core.flush()
    assert turn.frame is not None
    frames = [*turn.before, (turn.frame, turn.first_lsn, turn.last_lsn)]
    assert len(frames) > 2
    lsn = first
    for frame, begin, end in frames:
        header = decode_header(frame)
        assert (header.first_lsn, header.last_lsn) == (begin, end)
        assert begin == lsn
        assert len(decode_body(frame_body(frame, 0, header, TERM), header.count)) == end - begin + 1
        lsn = end + 1
    assert lsn == engine.lsn + 1


def test_time_of_the_log_never_runs_back() -> None:
    core = serving()
    core.advance(1_000)
    core.advance(400)
    assert core.engine.now == 1_000


def test_a_call_that_is_refused_half_way_leaves_nothing() -> None:
    core = serving()
    tube = core.engine.tubes["one"]

    def half(_connection: Connection, _ticket: int, _args: bytes) -> bytes:
        tube.driver.put(b"\xc0", None, core.engine.now)
        raise failure("changed its mind")

    core.handlers["half"] = half
    connection = Connection(core, 1, bytes(32), "c:1", False)
    core.connect(connection)
    packet = msgpack.packb({0: 0x0A, 1: 7}) + msgpack.packb({0x22: "half", 0x21: []})
    before = core.engine.lsn
    core.receive(connection, msgpack.packb(len(packet)) + packet, 1)
    # Somebody else's call in the same turn.
    tube.put(Nobody(2), 0, b"\xc0")
    assert list(tube.space.rows) == [0]
    turn = core.flush()
    assert turn.frame is not None
    assert core.engine.lsn == before + 1
    assert b"changed its mind" in turn.replies[0][1]


def test_what_is_submitted_is_told_with_its_turn_and_not_before() -> None:
    core, told = serving(), []
    tube = core.engine.tubes["one"]
    core.submit(lambda: tube.put(Nobody(1), 0, b"\xc0")[0], lambda *how: told.append(how), 900)
    core.when_committed(lambda: told.append("the turn"))
    assert core.engine.now == 900
    turn = core.flush()
    assert turn.frame is not None
    assert (turn.replies, told) == ([], [])
    for tell in turn.committed:
        tell()
    assert told == [(0, None), "the turn"]
    assert not core.flush().committed


def test_what_is_submitted_and_fails_is_told_at_once_and_taken_back() -> None:
    core, told = serving(), []
    tube = core.engine.tubes["one"]

    def half() -> None:
        tube.driver.put(b"\xc0", None, core.engine.now)
        raise failure("changed its mind")

    core.submit(half, lambda *how: told.append(how), 1)
    ((result, error),) = told
    assert (result, str(error)) == (None, str(failure("changed its mind")))
    turn = core.flush()
    assert (turn.frame, list(turn.committed), list(tube.space.rows)) == (None, [], [])
