"""The commit point: by hand, and against a twin that looks at the whole history every time."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tandemq_server.replication.commit import CommitPoint, GoSolo, PairAgain, weaker

T1, T2, OTHER = b"1" * 16, b"2" * 16, b"o" * 16
R, Q = b"r" * 16, b"q" * 16
SECOND = 1_000_000


def pair(solo_after_us: int | None = 5 * SECOND) -> CommitPoint:
    point = CommitPoint("pair", solo_after_us)
    point.open_term(T1, False, 0)
    return point


def test_local_commits_what_is_durable_here() -> None:
    point = CommitPoint("local", None)
    point.open_term(T1, False, 0)
    assert point.own(7, 0) == 7
    assert point.ack(R, T1, 99, 0) == 7
    assert point.tick(99 * SECOND) is None


def test_pair_needs_both() -> None:
    point = pair()
    assert point.own(7, 0) == 0
    assert point.waiting_records == 7
    assert point.ack(R, T1, 5, 0) == 5
    assert point.ack(Q, T1, 9, 0) == 7
    assert point.own(12, 0) == 9
    assert point.ack(R, T1, 12, 0) == 12


def test_slack_counts_while_the_lease_runs_and_is_looked_at_when_records_are_durable() -> None:
    """A sync that outlasts the lease acknowledges nothing by it."""
    point = pair()
    point.needs(R, 0)
    point.slack, point.lease_us = 3, SECOND
    assert point.own(5, SECOND - 1) == 3
    assert point.own(9, SECOND) == 3
    assert point.ack(R, T1, 4, SECOND) == 4
    late = pair()
    late.needs(R, 0)
    late.slack, late.lease_us = 3, SECOND
    late.tick(SECOND - 1)
    assert late.own(5, SECOND) == 0


def test_a_confirmation_of_another_term_never_counts() -> None:
    point = pair()
    point.own(7, 0)
    assert point.ack(R, OTHER, 7, 0) == 0
    assert point.ignored_acks == 1
    point.open_term(T2, False, 0)
    assert point.ack(R, T1, 7, 0) == 0
    assert point.ack(R, T2, 7, 0) == 7


def test_older_confirmations_do_not_reach_into_a_new_term() -> None:
    point = pair()
    point.ack(R, T1, 50, 0)
    point.own(10, 0)
    assert point.commit_lsn == 10
    point.open_term(T2, False, 0)
    assert point.own(40, 0) == 10


def test_solo_is_asked_for_once_and_only_begins_with_its_term() -> None:
    point = pair()
    point.own(3, SECOND)
    assert point.solo_due_us == 5 * SECOND
    assert ticked(point, SECOND, 4 * SECOND) is None
    assert ticked(point, 4 * SECOND, 5 * SECOND) == GoSolo("no replica confirmed for 5000 ms")
    assert point.tick(9 * SECOND) is None
    assert point.commit_lsn == 0
    point.open_term(T2, True, 10 * SECOND)
    assert point.commit_lsn == 3
    assert point.own(8, 10 * SECOND) == 8


def test_a_replica_that_confirms_slowly_is_not_given_up() -> None:
    point = pair()
    point.link_up(R)
    point.own(1000, 0)
    for second in range(1, 60):
        point.ack(R, T1, second, second * SECOND)
        assert point.tick(second * SECOND + 1) is None


def test_an_idle_pair_with_its_link_stays_a_pair_and_without_goes_solo() -> None:
    point = pair()
    point.link_up(R)
    point.own(5, 0)
    point.ack(R, T1, 5, 0)
    assert point.tick(3600 * SECOND) is None
    assert point.solo_due_us is None
    point.link_down(R)
    assert ticked(point, 3600 * SECOND, 3604 * SECOND) is None
    assert ticked(point, 3604 * SECOND, 3606 * SECOND) is not None


def ticked(point: CommitPoint, begin: int, end: int) -> object:
    """As the node does it, several times a second; what the first tick that says something says."""
    said = (point.tick(now) for now in range(begin, end + 1, SECOND // 5))
    return next((one for one in said if one is not None), None)


def test_a_pause_of_this_process_is_no_silence_of_the_replica() -> None:
    point = pair()
    point.link_up(R)
    point.own(5, 0)
    assert ticked(point, 0, 3 * SECOND) is None
    # Stopped for an hour; the replica's confirmation waits in a buffer.
    hour = 3600 * SECOND
    assert point.tick(hour) is None
    assert ticked(point, hour, hour + 4 * SECOND) is None
    point.ack(R, T1, 5, hour + 4 * SECOND)
    assert ticked(point, hour + 4 * SECOND, hour + 60 * SECOND) is None
    # A replica that is silent while this process is awake has its time, and no more.
    point.own(6, hour + 60 * SECOND)
    assert ticked(point, hour + 60 * SECOND, hour + 64 * SECOND) is None
    assert isinstance(ticked(point, hour + 64 * SECOND, hour + 66 * SECOND), GoSolo)


def test_the_clock_of_a_replica_starts_with_the_record_it_lacks() -> None:
    point = pair()
    point.link_up(R)
    point.own(5, 0)
    point.ack(R, T1, 5, 0)
    point.tick(SECOND)
    ticked(point, SECOND, 100 * SECOND)
    point.own(6, 100 * SECOND)
    assert ticked(point, 100 * SECOND, 104 * SECOND) is None
    assert isinstance(ticked(point, 104 * SECOND, 105 * SECOND), GoSolo)


def test_never_alone() -> None:
    point = pair(None)
    point.own(5, 0)
    assert point.tick(10**12) is None
    assert point.solo_due_us is None
    assert point.commit_lsn == 0


def test_pair_again_when_a_replica_keeps_up() -> None:
    point = pair()
    point.open_term(T2, True, 0)
    point.own(100_000, 0)
    point.link_up(R)
    assert point.tick(0) is None
    # The first round takes long: it catches up, but does not keep up yet.
    point.own(200_000, 3 * SECOND)
    point.ack(R, T2, 100_000, 3 * SECOND)
    assert point.tick(3 * SECOND) is None
    point.own(201_000, 3 * SECOND + 200_000)
    point.ack(R, T2, 200_500, 3 * SECOND + 300_000)
    assert point.tick(3 * SECOND + 300_000) == PairAgain(R)
    assert point.commit_lsn == 201_000, "solo until the new term is open"
    point.open_term(T1, False, 4 * SECOND)
    assert point.own(201_001, 4 * SECOND) == 201_000
    assert point.ack(R, T1, 201_001, 4 * SECOND) == 201_001


def test_a_replica_of_another_term_does_not_end_solo() -> None:
    point = pair()
    point.open_term(T2, True, 0)
    point.own(10, 0)
    point.link_up(R)
    point.ack(R, T1, 10, 0)
    assert point.tick(0) is None


EVENTS = st.lists(
    st.one_of(
        st.tuples(st.just("own"), st.integers(1, 5)),
        st.tuples(
            st.just("ack"), st.sampled_from([R, Q]), st.sampled_from([T1, T2]), st.integers(0, 60)
        ),
        st.tuples(st.just("term"), st.sampled_from([T1, T2]), st.booleans()),
        st.tuples(st.just("link"), st.sampled_from([R, Q]), st.booleans()),
        st.tuples(st.just("tick"), st.integers(0, 10 * SECOND)),
    ),
    max_size=40,
)


@given(st.sampled_from(["local", "pair"]), EVENTS)
def test_against_the_twin(mode: str, events: list[tuple[object, ...]]) -> None:
    """After every event: the highest LSN that ever met the rule of the term it was judged in."""
    point = CommitPoint(mode, 5 * SECOND)
    point.open_term(T1, False, 0)
    now = durable = best = 0
    term, solo, acks = T1, False, dict.fromkeys((R, Q), 0)
    for event in events:
        match event:
            case ("own", int(more)):
                durable += more
                point.own(durable, now)
            case ("ack", bytes(node), bytes(of), int(lsn)):
                point.ack(node, of, lsn, now)
                if of == term:
                    acks[node] = max(acks[node], lsn)
            case ("term", bytes(of), bool(alone)):
                term, solo, acks = of, alone, dict.fromkeys((R, Q), 0)
                point.open_term(of, alone, now)
            case ("link", bytes(node), bool(up)):
                (point.link_up if up else point.link_down)(node)
            case ("tick", int(more)):
                now += more
                asked = point.tick(now)
                assert asked is None or mode == "pair"
                assert not isinstance(asked, GoSolo if solo else PairAgain)
        met = [
            lsn
            for lsn in range(durable + 1)
            if mode == "local" or solo or any(acked >= lsn for acked in acks.values())
        ]
        best = max([best, *met])
        assert point.commit_lsn == best
        assert point.commit_lsn <= durable


def test_the_weaker_mode_is_what_is_promised() -> None:
    assert weaker("fsync") == weaker("fsync", "fsync") == "fsync"
    assert weaker("fsync", "write") == weaker("write", "fsync") == "write"
    assert weaker("write", "none", "fsync") == "none"
    # A node that does not say promises nothing that anybody could count on.
    assert weaker("fsync", "") == weaker("none", "later") == "unknown"
