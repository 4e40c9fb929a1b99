"""Every answer to HELLO, and every refusal by its name."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tandemq_server.replication.handshake import Upstream, answer, refuse
from tandemq_server.replication.lineage import Lineage
from tandemq_server.replication.messages import (
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
        # Term 2 was forced, but both went through it: that decided nothing of what parted later.
        (
            {"lineage": SOLO.lineage, "last_lsn": 80, "acked_mark": 80},
            replace(SOLO, lineage=SOLO.lineage.extend((3, C, B, 70, "u", False))),
            REFUSE,
            0,
            LOST_ACKNOWLEDGED,
        ),
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
        ({}, replace(UPSTREAM, known_nodes={X.hex()}), REFUSE, 0, UNKNOWN_NODE),
        ({}, replace(UPSTREAM, known_nodes={X.hex(), DOWN.hex()}), CONTINUE, 81, 0),
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


PAIR_UP = replace(UPSTREAM, wal_mode="fsync", pair=True)


@pytest.mark.parametrize("mode", ["none", "write"])
def test_another_mode_is_refused_in_pair_mode(mode: str) -> None:
    hello = replace(HELLO, wal_mode=mode)
    welcome = answer(hello, PAIR_UP)
    assert (welcome.answer, CODE_NAMES[welcome.code]) == (REFUSE, "other_wal_mode")
    assert f"wal.mode is {mode} on down and fsync on up" in welcome.reason
    assert "replication.mixed_modes" in welcome.reason
    # The stronger one, too: after a flip it would be the master.
    back = answer(replace(HELLO, wal_mode="fsync"), replace(PAIR_UP, wal_mode=mode))
    assert back.code == welcome.code
    # Whatever it lacks: it gets neither frames nor a snapshot, nor is it told to cut.
    assert answer(replace(hello, last_lsn=0, lineage=Lineage()), PAIR_UP).answer == REFUSE


@pytest.mark.parametrize(
    ("hello", "upstream"),
    [
        ({"wal_mode": "write"}, {"mixed_modes": True}),
        ({"wal_mode": "write"}, {"pair": False}),
        ({"wal_mode": "write"}, {"writable": False}),
        ({"wal_mode": "fsync"}, {}),
        ({"wal_mode": ""}, {}),
    ],
)
def test_what_is_not_refused_for_its_mode(hello: dict[str, Any], upstream: dict[str, Any]) -> None:
    welcome = answer(replace(HELLO, **hello), replace(PAIR_UP, **upstream))
    assert welcome.answer == CONTINUE
    assert welcome.wal_mode == "fsync"


def test_a_newer_term_and_a_conflict_come_before_the_mode() -> None:
    newer = Lineage([FIRST, SECOND, (3, C, B, 90, "down", False)])
    hello = replace(HELLO, lineage=newer, last_lsn=95, wal_mode="write")
    assert CODE_NAMES[answer(hello, PAIR_UP).code] == "newer_term"
    rival = Lineage([FIRST, (2, X, A, 50, "down", False)])
    hello = replace(HELLO, lineage=rival, wal_mode="write")
    assert CODE_NAMES[answer(hello, PAIR_UP).code] == "conflict"
