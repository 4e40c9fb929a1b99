"""The downstream's end: what it appends, ignores, refuses, and when it confirms."""

from __future__ import annotations

import zlib
from dataclasses import replace
from typing import Any

import pytest

from tandemq.model.record import TERM as TERM_OP
from tandemq.model.record import Record, decode_header, encode_frame
from tandemq_server.replication.applier import Applier
from tandemq_server.replication.decisions import (
    Alarm,
    Append,
    Broken,
    DropSnapshot,
    HandedOff,
    Idle,
    InstallSnapshot,
    Resubscribe,
    Rewind,
    SeenTerm,
    StartSnapshot,
    SubscribeRefused,
    WriteSnapshot,
)
from tandemq_server.replication.followed import RECENT_FRAMES, FollowedLog
from tandemq_server.replication.lineage import Lineage
from tandemq_server.replication.messages import (
    AGAIN,
    BOOTSTRAP,
    CONTINUE,
    IDLE,
    NEWER_TERM,
    NO_CLUSTER,
    REFUSE,
    REWIND,
    SELF,
    SILENT,
    STOPPING,
    WRONG_CLUSTER,
    Ack,
    Bye,
    Fence,
    Frame,
    Handoff,
    Heartbeat,
    LinkError,
    SnapshotBegin,
    SnapshotChunk,
    SnapshotEnd,
    Welcome,
)
from tandemq_server.replication.pulse import Pulse

A, B, X = b"a" * 16, b"b" * 16, b"x" * 16
CLUSTER, UP, DOWN = b"K" * 16, b"u" * 16, b"d" * 16
ONE = (1, A, None, 1, "u", False)
LINEAGE = Lineage([ONE])
WELCOME = Welcome(CONTINUE, 11, 0, "", 1, CLUSTER, UP, "up", LINEAGE, 10, 0, "RUNNING", True)
BEAT = Heartbeat(1, A, "RUNNING", 10, 0, 0, False, True)


def frame(
    first: int, count: int = 1, term: int = 1, own: bytes = A, commit: int = 0, salt: int = 0
) -> Frame:
    records: list[Record] = [(salt, 20, None, []) for _ in range(count)]
    return Frame(own, encode_frame(records, term, own, first, commit))


def opening(first: int, *op: Any, term: int = 2, own: bytes = B) -> Frame:
    record: Record = (0, 18, None, [(TERM_OP, *op)] if op else [])
    return Frame(own, encode_frame([record], term, own, first, 0))


def log_at(last: int = 10, **more: Any) -> FollowedLog:
    return FollowedLog(LINEAGE if last else Lineage(), last, last, **more)


def link(log: FollowedLog, welcome: Welcome | None = WELCOME) -> Applier:
    applier = Applier(log, CLUSTER, DOWN, "down", Pulse(0))
    if welcome is not None:
        applier.receive(welcome, 0, 0)
    return applier


def test_hello_says_what_is_here() -> None:
    hello = link(log_at(10, commit_lsn=7, acked_mark=12), None).hello("WAITING", True)
    assert (hello.last_lsn, hello.durable_lsn, hello.commit_lsn, hello.acked_mark) == (
        10,
        10,
        7,
        12,
    )
    assert (hello.cluster_id, hello.node_id, hello.lineage) == (CLUSTER, DOWN, LINEAGE)


def test_a_frame_is_appended_and_confirmed_once_durable() -> None:
    log = log_at()
    applier = link(log)
    [append] = applier.receive(frame(11, 3), 0, 0)
    assert isinstance(append, Append)
    assert (append.span, len(append.records), append.opens_term) == ((11, 13), 3, False)
    assert append.data == frame(11, 3).data
    assert applier.ack() == Ack(A, 10, 10)
    log.applied(13)
    assert applier.ack() == Ack(A, 10, 13)
    log.flushed(12, log.generation)
    assert applier.ack() == Ack(A, 12, 13)
    assert applier.ack() is None


def test_a_flush_that_began_before_a_cut_proves_nothing() -> None:
    log = log_at()
    applier = link(log)
    applier.receive(frame(11, 3), 0, 0)
    before = log.generation
    log.rewound(10)
    log.last_lsn = 15
    log.flushed(13, before)
    assert log.durable_lsn == 10
    assert applier.receive(frame(14), 0, 0) == [
        Resubscribe("the log was cut or replaced meanwhile")
    ]


def test_a_repetition_is_ignored_after_comparing() -> None:
    log = log_at()
    applier = link(log)
    applier.receive(frame(11, 3), 0, 0)
    assert applier.receive(frame(11, 3), 0, 0) == []
    assert (log.repeated, log.unchecked) == (1, 0)
    [alarm] = applier.receive(frame(11, 3, salt=9), 0, 0)
    assert isinstance(alarm, Alarm)
    assert alarm.lsn == 11
    assert "CRC" in alarm.reason
    assert applier.closed
    assert log.last_lsn == 13


def test_an_old_repetition_is_looked_up_in_the_log() -> None:
    crc = decode_header(frame(9, 2).data).crc
    for known, outcome in ((crc, []), (crc ^ 1, [Alarm])):
        log = log_at(lookup=lambda lsn, known=known: (10, known) if lsn == 9 else None)
        assert [type(d) for d in link(log).receive(frame(9, 2), 0, 0)] == outcome
    log = log_at()
    assert link(log).receive(frame(9, 2), 0, 0) == []
    assert log.unchecked == 1


def test_recent_frames_are_bounded() -> None:
    log = log_at()
    applier = link(log)
    for lsn in range(11, 11 + 2 * RECENT_FRAMES + 50):
        applier.receive(frame(lsn), 0, 0)
        assert len(log._recent) <= 2 * RECENT_FRAMES
    assert set(range(lsn - RECENT_FRAMES, lsn)) <= set(log._recent)


def test_frames_that_come_together_are_appended_as_one() -> None:
    log = log_at(commit_lsn=2)
    applier = link(log)
    data = frame(11, 2, commit=10).data + frame(13, commit=12).data + frame(14, 3, commit=11).data
    [append] = applier.receive(Frame(A, data), 0, 0)
    assert isinstance(append, Append)
    assert (append.data, append.span, append.frames) == (data, (11, 16), 3)
    assert len(append.records) == 6
    assert (log.last_lsn, log.commit_lsn, log.acked_mark) == (16, 12, 12)
    log.flushed(16, log.generation)
    assert applier.ack() == Ack(A, 16, 10)
    for lsn, count in ((11, 2), (13, 1), (14, 3)):
        assert applier.receive(frame(lsn, count), 0, 0)[0].reason.count("CRC") == 1  # type: ignore[union-attr]
        applier.closed = ""


def test_repetitions_in_front_are_passed_over_and_the_rest_is_appended() -> None:
    log = log_at()
    applier = link(log)
    applier.receive(frame(11, 3), 0, 0)
    data = frame(11, 3).data + frame(14).data
    [append] = applier.receive(Frame(A, data), 0, 0)
    assert isinstance(append, Append)
    assert (append.data, append.span, append.frames) == (frame(14).data, (14, 14), 1)
    assert (log.repeated, log.unchecked) == (1, 0)


@pytest.mark.parametrize(
    ("behind", "kind", "reason"),
    [
        (b"more", Broken, "a frame: not a frame: magic"),
        (frame(13).data[:-1], Broken, "frame of LSN 13: CRC is"),
        (frame(13).data[:-1] + b"\x55", Broken, "frame of LSN 13: CRC is"),
        (frame(13, own=X).data, Broken, "frame of LSN 13: CRC is"),
        (encode_frame([], 1, A, 13, 0), Broken, "frame of LSN 13 holds no record"),
        (encode_frame({1: 2}, 1, A, 13, 0), Broken, "frame of LSN 13: body does not"),  # type: ignore[arg-type]
        (frame(14).data, Resubscribe, "LSN 14 came, the log here ends at 12"),
        (frame(12, 2).data, Resubscribe, "LSN 12 came, the log here ends at 12"),
        (frame(11, 2, salt=1).data, Alarm, "records 11..12 have CRC"),
        (frame(13, term=2).data, Alarm, "which no record has opened"),
    ],
)
def test_what_stands_in_front_of_the_first_bad_frame_counts(
    behind: bytes, kind: type, reason: str
) -> None:
    log = log_at()
    applier = link(log)
    good = frame(11, 2).data
    append, found = applier.receive(Frame(A, good + behind + frame(13).data), 0, 0)
    assert isinstance(append, Append)
    assert (append.data, append.span) == (good, (11, 12))
    assert type(found) is kind
    assert reason in found.reason  # type: ignore[union-attr]
    assert applier.closed
    assert log.last_lsn == 12
    assert applier.receive(frame(13), 0, 0) == [], "the link is over"


def test_a_term_opens_and_goes_on_in_one_message() -> None:
    log = log_at(acked_mark=15)
    data = opening(11, 2, B, A, 11, "b", False).data + frame(12, 4, 2, B, commit=11).data
    [append] = link(log).receive(Frame(B, data), 0, 0)
    assert isinstance(append, Append)
    assert (append.opens_term, append.term.number, append.span) == (True, 2, (11, 15))
    assert (log.acked_mark, log.commit_lsn) == (11, 11)


@pytest.mark.parametrize("message", [frame(12), frame(10, 2), frame(99)])
def test_a_gap_or_an_overlap_asks_anew(message: Frame) -> None:
    log = log_at()
    applier = link(log)
    [decision] = applier.receive(message, 0, 0)
    assert isinstance(decision, Resubscribe)
    assert "ends at 10" in decision.reason
    assert log.last_lsn == 10
    assert applier.receive(frame(11), 0, 0) == [], "the link is over"
    assert applier.ack() is None


def test_a_new_term_extends_the_lineage() -> None:
    log = log_at(acked_mark=15)
    applier = link(log)
    [append] = applier.receive(opening(11, 2, B, A, 11, "b", True), 0, 0)
    assert isinstance(append, Append)
    assert append.opens_term
    assert append.term.solo
    assert log.lineage.number == 2
    assert log.acked_mark == 10, "what the old term acknowledged beyond lost against the new one"
    assert isinstance(applier.receive(frame(12, 1, 2, B), 0, 0)[0], Append)


@pytest.mark.parametrize(
    "message",
    [
        frame(11, 1, 2, B),
        frame(11, 1, 2, A),
        opening(11, 2, B, X, 11, "b", False),
        opening(11, 2, B, A, 12, "b", False),
        opening(11, 3, B, A, 11, "b", False),
        opening(11, 2, X, A, 11, "b", False),
        opening(11, 1, B, A, 11, "b", False, term=1),
        opening(11),
        opening(11, "not", "a", "term"),
        Frame(B, encode_frame([5], 2, B, 11, 0)),  # type: ignore[list-item]
        Frame(B, encode_frame([(0, 18, None, 5)], 2, B, 11, 0)),  # type: ignore[list-item]
        Frame(B, encode_frame([(0, 18, None, [5])], 2, B, 11, 0)),  # type: ignore[list-item]
    ],
)
def test_a_term_from_nowhere_raises_the_alarm(message: Frame) -> None:
    log = log_at()
    [alarm] = link(log).receive(message, 0, 0)
    assert isinstance(alarm, Alarm)
    assert (log.last_lsn, log.lineage) == (10, LINEAGE)


@pytest.mark.parametrize("lsn", [11, 12], ids=["where that term began", "behind it"])
def test_frames_of_a_master_that_lost_since_are_no_fork(lsn: int) -> None:
    """Another link brought the newer term: the handshake settles it, nobody is alarmed."""
    log = log_at()
    loser = link(log)
    opened = opening(11, 2, B, A, 11, "u", False)
    assert [type(one) for one in link(log).receive(opened, 0, 0)] == [Append]
    [decision] = loser.receive(frame(lsn), 0, 0)
    assert isinstance(decision, Resubscribe)
    assert f"LSN {lsn} is of term 1 there and of term 2 here" in decision.reason
    assert (log.last_lsn, log.lineage.last.number) == (11, 2)  # type: ignore[union-attr]
    assert loser.closed


def test_a_repetition_of_another_term_raises_the_alarm() -> None:
    [alarm] = link(log_at()).receive(frame(5, 1, 1, X), 0, 0)
    assert isinstance(alarm, Alarm)
    assert "of term 1 here and of term 1" in alarm.reason


@pytest.mark.parametrize("lsn", [11, 12], ids=["where both began", "behind it"])
def test_two_terms_of_one_number_brought_by_two_links_are_for_the_handshake(lsn: int) -> None:
    """One of them was opened by force: which one stands the handshake knows, which sees both."""
    log = log_at()
    other = link(log)
    opened = opening(11, 2, X, A, 11, "x", False, own=X)
    assert [type(one) for one in link(log).receive(opened, 0, 0)] == [Append]
    [decision] = other.receive(frame(lsn, 1, 2, B), 0, 0)
    assert isinstance(decision, Resubscribe)
    assert "is of term 2" in decision.reason
    assert other.closed
    assert log.lineage.last.id == X  # type: ignore[union-attr]


def test_a_newer_term_where_another_link_brought_an_older_one_is_asked_for_anew() -> None:
    """The winner's frames, behind those of the loser: the handshake settles it, as above."""
    [decision] = link(log_at()).receive(frame(5, 1, 7, X), 0, 0)
    assert isinstance(decision, Resubscribe)
    assert "of term 7 there and of term 1 here" in decision.reason


@pytest.mark.parametrize(
    "message",
    [
        Frame(A, b""),
        Frame(A, b"nonsense" * 9),
        Frame(A, frame(11).data[:-1]),
        Frame(X, frame(11).data),
        Frame(A, encode_frame([], 1, A, 11, 0)),
        Frame(A, frame(11).data[:-1] + b"\x55"),
        Frame(A, encode_frame({1: 2}, 1, A, 11, 0)),  # type: ignore[arg-type]
        Ack(A, 1, 1),
        WELCOME,
    ],
)
def test_what_breaks_the_protocol_changes_nothing(message: Any) -> None:
    log = log_at()
    with pytest.raises(LinkError):
        link(log).receive(message, 0, 0)
    assert log.last_lsn == 10


def test_nothing_is_taken_before_the_handshake_or_without_a_promise() -> None:
    with pytest.raises(LinkError, match="before WELCOME"):
        link(log_at(), None).receive(frame(11), 0, 0)
    idle = replace(WELCOME, answer=IDLE, lsn=0, reason="later")
    applier = link(log_at(), None)
    assert applier.receive(idle, 0, 0) == [SeenTerm(1, A, True), Idle("later")]
    with pytest.raises(LinkError, match="feeds nothing"):
        applier.receive(frame(11), 0, 0)
    assert applier.ack() is None


@pytest.mark.parametrize(
    ("change", "decision"),
    [
        ({"answer": REFUSE, "code": NEWER_TERM, "reason": "r"}, SubscribeRefused(NEWER_TERM, "r")),
        ({"node_id": DOWN}, SubscribeRefused(SELF, "the upstream is this very node")),
        (
            {"cluster_id": X},
            SubscribeRefused(WRONG_CLUSTER, f"the upstream belongs to cluster {X.hex()}"),
        ),
        ({"lsn": 12}, Resubscribe("LSN 12 is not next here any more")),
        ({"answer": REWIND, "lsn": 7, "reason": "r"}, Rewind(7, 3, 2, "r", LINEAGE)),
        (
            {"answer": REWIND, "lsn": 11},
            Resubscribe("told to rewind to where the log does not reach"),
        ),
    ],
)
def test_answers_that_end_the_connection(change: dict[str, Any], decision: object) -> None:
    log = log_at(acked_mark=9)
    applier = link(log, None)
    assert applier.receive(replace(WELCOME, **change), 0, 0)[-1] == decision
    assert applier.closed or isinstance(decision, Rewind)
    assert log.last_lsn == 10
    assert not applier.feeding


def test_a_node_without_a_cluster_takes_the_upstreams() -> None:
    applier = Applier(log_at(0), NO_CLUSTER, DOWN, "down", Pulse(0))
    applier.receive(replace(WELCOME, lsn=1), 0, 0)
    assert applier.feeding
    assert applier.upstream is not None
    assert applier.upstream.cluster_id == CLUSTER


def test_two_links_feed_one_log_and_each_is_confirmed_what_it_has() -> None:
    log = log_at()
    one, two = link(log), link(log)
    one.receive(frame(11, 2), 0, 0)
    log.applied(12)
    log.flushed(12, log.generation)
    assert two.ack() == Ack(A, 10, 10)
    assert two.receive(frame(11, 2), 0, 0) == []
    assert two.ack() == Ack(A, 12, 12)
    assert isinstance(two.receive(frame(13), 0, 0)[0], Append)
    assert one.receive(frame(13), 0, 0) == []


def test_commit_marks() -> None:
    log = log_at()
    applier = link(log, replace(WELCOME, commit_lsn=8))
    assert (log.commit_lsn, log.acked_mark) == (8, 8)
    applier.receive(frame(11, commit=10), 0, 0)
    assert log.commit_lsn == 10
    applier.receive(replace(BEAT, commit_lsn=30), 0, 0)
    assert (log.commit_lsn, log.acked_mark) == (11, 30), "known to be acknowledged, not here yet"
    applier.receive(replace(BEAT, commit_lsn=99, term_id=X), 0, 0)
    assert log.acked_mark == 30, "a term nobody knows has no say"


def test_an_old_term_has_no_say_past_its_end() -> None:
    log = FollowedLog(Lineage([ONE, (2, B, A, 6, "b", True)]), 10, 10)
    log.committed(9, A, LINEAGE)
    assert (log.commit_lsn, log.acked_mark) == (5, 5)
    log.committed(9, B, LINEAGE)
    assert log.commit_lsn == 9


def test_heartbeats_tell_terms_lag_and_clock() -> None:
    log = log_at()
    applier = link(log)
    assert applier.receive(replace(BEAT, clock_us=5_000), 10, 1_000) == [SeenTerm(1, A, True)]
    assert applier.receive(BEAT, 10, 0) == []
    assert applier.receive(replace(BEAT, writable=False), 10, 0) == [SeenTerm(1, A, False)]
    assert applier.clock.offset_us == 4_000
    applier.receive(frame(11), 20, 0)
    applier.receive(replace(BEAT, writable=False, last_lsn=31), 1_000_000, 0)
    assert applier.lag_records == 20
    assert applier.lag_bytes == 20 * len(frame(11).data)
    assert applier.lag_us(3_000_000) == 2_000_000
    assert applier.receive(Fence(4, X), 0, 0) == [SeenTerm(4, X, False)]
    assert applier.receive(Handoff(5, 40), 0, 0) == [HandedOff(5, 40)]
    assert applier.lag_records == 29


def test_silence_and_goodbye() -> None:
    applier = link(log_at())
    assert applier.tick(0, BEAT) == ([BEAT], [])
    for second in range(1, 6):
        assert applier.tick(second * 1_000_000, BEAT)[1] == []
    messages, decisions = applier.tick(5_500_000, BEAT)
    assert messages == [Bye(SILENT, "nothing heard for 5500 ms")]
    assert decisions == [Resubscribe("nothing heard for 5500 ms")]
    assert applier.tick(6_000_000, BEAT) == ([], [])
    assert link(log_at()).receive(Bye(AGAIN, "now"), 0, 0) == [Resubscribe("now")]
    assert link(log_at()).receive(Bye(STOPPING, "end"), 0, 0) == [SubscribeRefused(STOPPING, "end")]


# -- snapshots -------------------------------------------------------------------------------------

DATA = bytes(range(200))
BEGIN = SnapshotBegin(50, len(DATA), "50.snap", zlib.crc32(DATA))
BOOT = replace(WELCOME, answer=BOOTSTRAP, lsn=0, reason="too old", commit_lsn=45)


def chunk(at: int, to: int) -> SnapshotChunk:
    return SnapshotChunk(at, DATA[at:to], zlib.crc32(DATA[at:to]))


def test_a_snapshot_over_two_connections() -> None:
    log = log_at()
    one = link(log, BOOT)
    assert one.receive(BEGIN, 0, 0) == [StartSnapshot("50.snap", 200, 0)]
    assert one.receive(chunk(0, 90), 0, 0) == [WriteSnapshot("50.snap", 0, DATA[:90])]
    assert one.ack() == Ack(bytes(16), 0, 0, 90)
    assert log.snapshot.joining
    two = link(log, None)
    assert two.hello("INIT", True).partial == ("50.snap", 90)
    two.receive(BOOT, 0, 0)
    assert two.receive(BEGIN, 0, 0) == [StartSnapshot("50.snap", 200, 90)]
    two.receive(chunk(90, 200), 0, 0)
    assert log.last_lsn == 10, "the old state until everything is here"
    assert two.receive(SnapshotEnd(50), 0, 0) == [InstallSnapshot("50.snap", 50)]
    assert log.snapshot.joining
    longer = Lineage([ONE, (2, B, A, 30, "b", False)])
    log.installed(longer, 50)
    two.installed()
    assert not log.snapshot.joining
    assert two.ack() == Ack(B, 50, 50, 0)
    assert isinstance(two.receive(frame(51, 1, 2, B), 0, 0)[0], Append)
    assert (log.commit_lsn, log.acked_mark) == (45, 45)


def test_another_snapshot_drops_the_unfinished_one() -> None:
    log = log_at()
    applier = link(log, BOOT)
    applier.receive(BEGIN, 0, 0)
    applier.receive(chunk(0, 90), 0, 0)
    other = replace(BEGIN, name="60.snap", end_lsn=60)
    assert applier.receive(other, 0, 0) == [
        DropSnapshot("50.snap", "the upstream sends another snapshot"),
        StartSnapshot("60.snap", 200, 0),
    ]


def test_a_log_that_continues_needs_no_snapshot() -> None:
    log = log_at()
    link(log, BOOT).receive(BEGIN, 0, 0)
    applier = link(log, None)
    dropped = DropSnapshot("50.snap", "the log continues without it")
    assert applier.receive(WELCOME, 0, 0) == [SeenTerm(1, A, True), dropped]
    assert isinstance(applier.receive(frame(11), 0, 0)[0], Append)


def test_while_a_snapshot_is_installed_links_come_later() -> None:
    log = log_at()
    applier = link(log, BOOT)
    for message in (BEGIN, chunk(0, 200), SnapshotEnd(50)):
        applier.receive(message, 0, 0)
    assert [type(d) for d in link(log, None).receive(WELCOME, 0, 0)] == [SeenTerm, Resubscribe]
    assert [type(d) for d in link(log, BOOT).receive(BEGIN, 0, 0)] == [Resubscribe]
    with pytest.raises(LinkError, match="a chunk of no snapshot"):
        applier.receive(chunk(0, 1), 0, 0)


def test_a_snapshot_whose_whole_is_wrong_starts_over() -> None:
    log = log_at()
    applier = link(log, BOOT)
    applier.receive(replace(BEGIN, crc=1), 0, 0)
    applier.receive(chunk(0, 200), 0, 0)
    dropped, again = applier.receive(SnapshotEnd(50), 0, 0)
    assert isinstance(dropped, DropSnapshot)
    assert isinstance(again, Resubscribe)
    assert not log.snapshot.joining
    assert log.snapshot.partial is None


@pytest.mark.parametrize(
    "message",
    [
        replace(chunk(0, 5), crc=0),
        SnapshotChunk(0, bytes(201), zlib.crc32(bytes(201))),
        SnapshotEnd(50),
        SnapshotEnd(51),
        frame(11),
    ],
)
def test_bad_pieces_lose_nothing_of_what_is_here(message: Any) -> None:
    log = log_at()
    applier = link(log, BOOT)
    applier.receive(BEGIN, 0, 0)
    with pytest.raises(LinkError):
        applier.receive(message, 0, 0)
    assert log.snapshot.partial == ("50.snap", 0)


def test_two_links_bring_one_snapshot_and_the_newer_goes_on() -> None:
    log = log_at()
    one, two = link(log, BOOT), link(log, BOOT)
    one.receive(BEGIN, 0, 0)
    one.receive(chunk(0, 90), 0, 0)
    assert two.receive(BEGIN, 0, 0) == [StartSnapshot("50.snap", 200, 90)]
    assert two.receive(chunk(0, 60), 0, 0) == []
    assert two.receive(chunk(60, 100), 0, 0) == [WriteSnapshot("50.snap", 90, DATA[90:100])]
    assert [type(d) for d in one.receive(chunk(90, 200), 0, 0)] == [Resubscribe]
    assert one.closed
    two.receive(chunk(100, 200), 0, 0)
    assert two.receive(SnapshotEnd(50), 0, 0) == [InstallSnapshot("50.snap", 50)]


@pytest.mark.parametrize("message", [chunk(1, 5), SnapshotEnd(1)])
def test_pieces_of_no_snapshot_or_of_a_later_place_ask_anew(message: Any) -> None:
    log = log_at()
    applier = link(log, BOOT)
    assert [type(d) for d in applier.receive(message, 0, 0)] == [Resubscribe]
    applier = link(log, BOOT)
    applier.receive(BEGIN, 0, 0)
    assert [type(d) for d in applier.receive(chunk(1, 5), 0, 0)] == [Resubscribe]
    assert log.snapshot.partial == ("50.snap", 0)


def test_a_snapshot_that_would_go_back_is_not_begun() -> None:
    log = log_at()
    decisions = link(log, BOOT).receive(replace(BEGIN, end_lsn=10), 0, 0)
    assert [type(d) for d in decisions] == [Resubscribe]
    assert not log.snapshot.joining


def test_after_a_cut_nothing_is_confirmed_over_the_old_link() -> None:
    log = log_at()
    applier = link(log)
    applier.receive(frame(11, 3), 0, 0)
    log.applied(13)
    log.flushed(13, log.generation)
    assert applier.ack() == Ack(A, 13, 13)
    log.rewound(10)
    # Another upstream's records now stand where this one's stood.
    log.last_lsn = log.applied_lsn = log.durable_lsn = 12
    confirmed = applier.ack()
    assert confirmed is None or confirmed.durable_lsn == 0
