"""What a turn leaves for the log: whole frames of the present term that say what is committed."""

from __future__ import annotations

import os

from tandemq.model.record import decode_body, decode_header, frame_body
from tandemq_server.drivers import BUILT_IN
from tandemq_server.engine import admin
from tandemq_server.engine.queue import Engine
from tandemq_server.node.core.core import Core
from tandemq_server.node.core.identity import Identity, Limits
from tests.node.harness import CLUSTER, NODE, Everybody

TERM = b"t" * 16


def test_a_frame_is_of_its_term_and_says_how_far_the_log_is_committed() -> None:
    engine = Engine(BUILT_IN, lambda: os.urandom(16), lambda _text, _error=None: None)
    core = Core(engine, Identity("a", NODE, CLUSTER), Limits(), Everybody())
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
