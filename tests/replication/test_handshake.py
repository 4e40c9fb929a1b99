"""Every answer to HELLO, and every refusal by its name."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from replication.handshake import Upstream, answer, refuse
from replication.lineage import Lineage
from replication.messages import (
    BOOTSTRAP,
    BROKEN_LINEAGE,
    CODE_NAMES,
    CONFLICT,
    CONTINUE,
    IDLE,
    LOST_ACKNOWLEDGED,
    NEWER_PROTOCOL,
    NEWER_TERM,
    NO_CLUSTER,
    REFUSE,
    REWIND,
    SELF,
    UNKNOWN_NODE,
    WRONG_CLUSTER,
    Hello,
)

A, B, C, X = (letter * 16 for letter in (b"a", b"b", b"c", b"x"))
CLUSTER, UP, DOWN = b"K" * 16, b"u" * 16, b"d" * 16
FIRST = (1, A, None, 1, "u", False)
SECOND = (2, B, A, 50, "u", False)
UPSTREAM = Upstream(CLUSTER, UP, "up", Lineage([FIRST, SECOND]), 1, 100, 90, "RUNNING", True)
HELLO = Hello(1, CLUSTER, DOWN, "down", Lineage([FIRST, SECOND]), 80, 80, "WAITING", True, 70, 70)
SOLO = replace(UPSTREAM, lineage=Lineage([FIRST, (2, B, A, 50, "u", True)]))
OLD = {"lineage": Lineage([FIRST])}


@pytest.mark.parametrize(
    ("hello", "upstream", "kind", "lsn", "code"),
    [
        ({}, UPSTREAM, CONTINUE, 81, 0),
        ({"last_lsn": 100}, UPSTREAM, CONTINUE, 101, 0),
        ({**OLD, "last_lsn": 49}, UPSTREAM, CONTINUE, 50, 0),
        ({**OLD, "last_lsn": 49}, replace(UPSTREAM, first_lsn=50), CONTINUE, 50, 0),
        ({**OLD, "last_lsn": 48}, replace(UPSTREAM, first_lsn=50), BOOTSTRAP, 0, 0),
        ({"lineage": Lineage(), "last_lsn": 0, "cluster_id": NO_CLUSTER}, UPSTREAM, CONTINUE, 1, 0),
        ({"lineage": Lineage(), "last_lsn": 0}, replace(UPSTREAM, first_lsn=9), BOOTSTRAP, 0, 0),
        # Past the end of term 1: not acknowledged, so it may go; acknowledged, so it may not.
        ({**OLD, "last_lsn": 60, "acked_mark": 49}, UPSTREAM, REWIND, 49, 0),
        ({**OLD, "last_lsn": 60, "acked_mark": 50}, UPSTREAM, REFUSE, 0, LOST_ACKNOWLEDGED),
        ({**OLD, "last_lsn": 60, "acked_mark": 50}, SOLO, REWIND, 49, 0),
        (
            {**OLD, "last_lsn": 60, "acked_mark": 50},
            replace(UPSTREAM, accept_loss=True),
            REWIND,
            49,
            0,
        ),
        ({"last_lsn": 120, "acked_mark": 100}, UPSTREAM, REWIND, 100, 0),
        ({"last_lsn": 120, "acked_mark": 101}, UPSTREAM, REFUSE, 0, LOST_ACKNOWLEDGED),
        # Nothing in common; term 2 was opened by force against the other term 1, or was not.
        ({"lineage": Lineage([(1, X, None, 1, "d", False)])}, SOLO, REWIND, 0, 0),
        (
            {"lineage": Lineage([(1, X, None, 1, "d", False)])},
            UPSTREAM,
            REFUSE,
            0,
            LOST_ACKNOWLEDGED,
        ),
        (
            {"lineage": Lineage([FIRST, SECOND, (3, C, B, 70, "d", False)])},
            UPSTREAM,
            REFUSE,
            0,
            NEWER_TERM,
        ),
        # Refusals by name.
        ({"version": 2}, UPSTREAM, REFUSE, 0, NEWER_PROTOCOL),
        ({"node_id": UP}, UPSTREAM, REFUSE, 0, SELF),
        ({"cluster_id": X}, UPSTREAM, REFUSE, 0, WRONG_CLUSTER),
        ({"cluster_id": NO_CLUSTER}, UPSTREAM, REFUSE, 0, WRONG_CLUSTER),
        ({}, replace(UPSTREAM, known_nodes={X}), REFUSE, 0, UNKNOWN_NODE),
        ({}, replace(UPSTREAM, known_nodes={X, DOWN}), CONTINUE, 81, 0),
        ({"lineage": Lineage([FIRST, (2, X, A, 60, "d", False)])}, UPSTREAM, REFUSE, 0, CONFLICT),
        ({"lineage": Lineage([(1, A, None, 2, "u", False)])}, UPSTREAM, REFUSE, 0, BROKEN_LINEAGE),
        # Not writable: only what continues, and only forward.
        ({}, replace(UPSTREAM, writable=False), CONTINUE, 81, 0),
        ({"last_lsn": 100}, replace(UPSTREAM, writable=False), IDLE, 0, 0),
        ({"last_lsn": 120}, replace(UPSTREAM, writable=False), IDLE, 0, 0),
        ({}, replace(UPSTREAM, writable=False, first_lsn=90), IDLE, 0, 0),
        ({**OLD, "last_lsn": 60}, replace(UPSTREAM, writable=False), IDLE, 0, 0),
    ],
)
def test_answers(hello: dict[str, Any], upstream: Upstream, kind: int, lsn: int, code: int) -> None:
    welcome = answer(replace(HELLO, **hello), upstream)
    assert (welcome.answer, welcome.lsn, welcome.code) == (kind, lsn, code), welcome.reason
    assert bool(welcome.reason) == (kind != CONTINUE)
    assert (welcome.node_id, welcome.lineage, welcome.writable) == (
        UP,
        upstream.lineage,
        upstream.writable,
    )


def test_a_hello_that_cannot_be_read_is_answered_too() -> None:
    welcome = refuse(UPSTREAM, NEWER_PROTOCOL, "why")
    assert (welcome.answer, welcome.code, welcome.reason) == (REFUSE, NEWER_PROTOCOL, "why")
    assert CODE_NAMES[welcome.code] == "newer_protocol"


def test_a_conflict_names_both_terms() -> None:
    rival = Lineage([FIRST, (2, X, A, 60, "other", False)])
    reason = answer(replace(HELLO, lineage=rival), UPSTREAM).reason
    assert X.hex() in reason
    assert B.hex() in reason
    assert "other" in reason
