"""The upstream's end: window, catch-up and live without gap or repetition, lag, death."""

from __future__ import annotations

import zlib
from random import Random

import pytest

from tandemq.model.record import FrameHeader, decode_body, decode_header, encode_frame, frame_body
from tandemq_server.replication.messages import (
    AGAIN,
    SILENT,
    Ack,
    Bye,
    Frame,
    Heartbeat,
    LinkError,
    SnapshotBegin,
    SnapshotChunk,
    SnapshotEnd,
)
from tandemq_server.replication.pulse import Pulse
from tandemq_server.replication.relay import CHUNK_BYTES, LogFrame, Mode, Relay

TERM = b"t" * 16
BEAT = Heartbeat(1, TERM, "RUNNING", 0, 0, 0, False, True)


def frame(first: int, count: int = 1, size: int = 0) -> LogFrame:
    data = encode_frame([(n, 20, b"x" * size, []) for n in range(count)], 1, TERM, first, 0)
    return decode_header(data), data, TERM


def lsns(messages: list[object]) -> list[int]:
    found: list[int] = []
    for message in messages:
        assert isinstance(message, Frame)
        header = decode_header(message.data)
        frame_body(message.data, 0, header, message.term_id)
        found += range(header.first_lsn, header.last_lsn + 1)
    return found


def test_live_at_the_end_of_the_log() -> None:
    relay = Relay(11, 10, Pulse(0))
    assert relay.mode is Mode.LIVE
    assert lsns(relay.live(*frame(11, 3), 0)) == [11, 12, 13]
    assert relay.wants_read() is None
    assert (relay.next_lsn, relay.lag_records) == (14, 3)
    relay.ack(Ack(TERM, 13, 13), 0)
    assert (relay.lag_records, relay.lag_bytes, relay.in_flight_bytes) == (0, 0, 0)
    assert relay.acked_term == TERM


def test_a_live_frame_out_of_order_is_our_own_fault() -> None:
    with pytest.raises(AssertionError, match="LSN 12 does not follow 10"):
        Relay(11, 10, Pulse(0)).live(*frame(12), 0)


def test_the_window_stops_live_frames_and_the_log_takes_over() -> None:
    size = len(frame(11, 1, 100)[1])
    relay = Relay(11, 10, Pulse(0), window_bytes=2 * size, read_bytes=2 * size)
    sent = [lsns(relay.live(*frame(lsn, 1, 100), 0)) for lsn in range(11, 15)]
    assert sent == [[11], [12], [], []]
    assert relay.mode is Mode.CATCH_UP
    assert relay.wants_read() is None, "the window is full"
    relay.ack(Ack(TERM, 11, 11), 0)
    assert relay.wants_read() == 13
    assert relay.read_bytes == size
    assert lsns(relay.feed([frame(13, 1, 100)])) == [13]
    assert relay.live(*frame(15, 1, 100), 0) == []
    relay.ack(Ack(TERM, 13, 13), 0)
    assert lsns(relay.feed([frame(14, 1, 100), frame(15, 1, 100)])) == [14, 15]
    assert relay.mode is Mode.LIVE


def test_one_frame_larger_than_the_window_still_passes() -> None:
    relay = Relay(11, 10, Pulse(0), window_bytes=64, read_bytes=64)
    assert lsns(relay.live(*frame(11, 1, 500), 0)) == [11]
    assert relay.live(*frame(12, 1, 500), 0) == []
    relay.ack(Ack(TERM, 11, 11), 0)
    assert lsns(relay.feed([frame(12, 1, 500), frame(13, 1, 500)])) == [12]


def test_a_frame_that_lacks_room_is_not_read_again_before_a_confirmation() -> None:
    size = len(frame(11, 1, 100)[1])
    relay = Relay(11, 20, Pulse(0), window_bytes=4 * size, read_bytes=2 * size)
    assert lsns(relay.feed([frame(lsn, 1, 100) for lsn in (11, 12)])) == [11, 12]
    assert relay.wants_read() == 13
    assert relay.feed([frame(13, 1, 500)]) == []
    assert relay.wants_read() is None
    relay.ack(Ack(TERM, 11, 11), 0)
    assert relay.wants_read() == 13
    relay.ack(Ack(TERM, 12, 12), 0)
    assert lsns(relay.feed([frame(13, 1, 500)])) == [13]


def test_a_portion_may_overlap_start_early_or_have_a_gap() -> None:
    relay = Relay(13, 20, Pulse(0))
    assert relay.wants_read() == 13
    out = relay.feed([frame(8, 3), frame(11, 4), frame(15, 2), frame(18, 3)])
    assert lsns(out) == [13, 14, 15, 16]
    first = out[0]
    assert isinstance(first, Frame)
    header = decode_header(first.data)
    assert [r[0] for r in decode_body(first.data[36:], header.count)] == [2, 3]
    assert relay.wants_read() == 17


def test_a_record_that_left_the_log_ends_the_link() -> None:
    relay = Relay(5, 20, Pulse(0))
    assert relay.gone(9) == [Bye(AGAIN, "LSN 5 left the log, which starts at 9")]
    assert relay.mode is Mode.GONE
    assert relay.end(AGAIN, "twice") == []
    assert relay.live(*frame(21), 0) == []
    assert relay.feed([frame(5)]) == []
    assert relay.tick(0, BEAT) == []
    relay.ack(Ack(TERM, 99, 99), 0)


def test_confirming_what_was_never_sent_is_an_error() -> None:
    relay = Relay(11, 10, Pulse(0))
    with pytest.raises(LinkError, match="LSN 11 is confirmed, only 10 was sent"):
        relay.ack(Ack(TERM, 11, 11), 0)


def test_heartbeats_and_death() -> None:
    relay = Relay(11, 10, Pulse(0))
    assert relay.tick(0, BEAT) == [BEAT]
    assert relay.tick(500_000, BEAT) == []
    relay.heard(500_000)
    for at in range(1, 6):
        assert relay.tick(at * 1_000_000, BEAT) == [BEAT]
    assert relay.tick(5_600_000, BEAT) == [Bye(SILENT, "nothing heard for 5100 ms")]
    assert relay.mode is Mode.GONE


def test_lag_in_records_bytes_and_time() -> None:
    relay = Relay(6, 10, Pulse(0), backlog_bytes=1000)
    assert (relay.lag_records, relay.lag_bytes, relay.lag_us(7)) == (5, 1000, 7)
    _, data, _ = frame(11)
    relay.live(*frame(11), 1_000_000)
    assert (relay.lag_records, relay.lag_bytes) == (6, 1000 + len(data))
    relay.feed([frame(6, 5), frame(11)])
    relay.ack(Ack(TERM, 10, 10), 2_000_000)
    assert relay.lag_records == 1
    assert relay.lag_us(2_500_000) == 1_500_000
    relay.ack(Ack(TERM, 11, 11), 3_000_000)
    assert (relay.lag_records, relay.lag_bytes, relay.lag_us(4_000_000)) == (0, 0, 0)


def snapshot_of(data: bytes) -> SnapshotBegin:
    return SnapshotBegin(20, len(data), "20.snap", zlib.crc32(data))


@pytest.mark.parametrize("size", [0, 1, CHUNK_BYTES, 3 * CHUNK_BYTES + 5])
def test_a_snapshot_then_the_log_behind_it(size: int) -> None:
    data = Random(size).randbytes(size)
    begin = snapshot_of(data)
    relay = Relay(26, 25, Pulse(0))
    assert relay.snapshot(begin, None) == [begin]
    assert relay.live(*frame(26), 0) == []
    got, ended = b"", False
    while (wanted := relay.wants_snapshot()) is not None:
        at, length = wanted
        for message in relay.feed_snapshot(data[at : at + length]):
            if isinstance(message, SnapshotChunk):
                assert message.offset == len(got)
                assert zlib.crc32(message.data) == message.crc
                got += message.data
            else:
                assert message == SnapshotEnd(20)
                ended = True
    assert ended
    assert got == data
    assert relay.mode is Mode.INSTALLING
    assert relay.wants_read() is None
    relay.ack(Ack(TERM, 3, 3, size), 0)
    assert relay.mode is Mode.INSTALLING, "its old log is still what counts there"
    relay.ack(Ack(TERM, 20, 20, size), 0)
    assert relay.wants_read() == 21
    assert lsns(relay.feed([frame(21, 5), frame(26)])) == list(range(21, 27))
    assert relay.mode is Mode.LIVE


def test_snapshot_bytes_in_flight_are_bounded() -> None:
    data = bytes(4 * CHUNK_BYTES)
    relay = Relay(21, 20, Pulse(0), window_bytes=CHUNK_BYTES, read_bytes=CHUNK_BYTES)
    relay.snapshot(snapshot_of(data), None)
    assert relay.wants_snapshot() == (0, CHUNK_BYTES)
    relay.feed_snapshot(data[:CHUNK_BYTES])
    assert relay.wants_snapshot() is None
    relay.ack(Ack(TERM, 0, 0, 1000), 0)
    assert relay.wants_snapshot() == (CHUNK_BYTES, 1000)
    relay.ack(Ack(TERM, 0, 0, 10**9), 0)
    assert relay.wants_snapshot() == (CHUNK_BYTES, CHUNK_BYTES), (
        "more than was sent is not believed"
    )


@pytest.mark.parametrize(
    ("partial", "at"), [(("20.snap", 70), 70), (("19.snap", 70), 0), (("20.snap", 101), 0)]
)
def test_a_snapshot_is_resumed_if_it_is_the_same(partial: tuple[str, int], at: int) -> None:
    relay = Relay(21, 20, Pulse(0))
    relay.snapshot(snapshot_of(bytes(100)), partial)
    assert relay.wants_snapshot() == (at, 100 - at)


def test_random_schedules_send_every_record_once_and_in_order() -> None:
    for seed in range(200):
        rng = Random(seed)
        log = [frame(1, rng.randint(1, 4), rng.randint(0, 60))]

        def grow(log: list[LogFrame], rng: Random) -> LogFrame:
            log.append(frame(log[-1][0].last_lsn + 1, rng.randint(1, 4), rng.randint(0, 60)))
            return log[-1]

        for _ in range(rng.randint(0, 20)):
            grow(log, rng)
        start = rng.randint(1, log[-1][0].last_lsn + 1)
        window = rng.randint(50, 800)
        relay = Relay(start, log[-1][0].last_lsn, Pulse(0), window_bytes=window, read_bytes=window)
        sent: list[int] = []
        portion: list[LogFrame] | None = None
        for _ in range(300):
            match rng.randrange(4):
                case 0:
                    sent += lsns(relay.live(*grow(log, rng), 0))
                case 1 if portion is None and (lsn := relay.wants_read()) is not None:
                    # Read now, fed later: the log may grow in between.
                    portion = [one for one in log if one[0].last_lsn >= lsn][: rng.randint(1, 5)]
                case 2 if portion is not None:
                    sent += lsns(relay.feed(portion))
                    portion = None
                case 3 if sent:
                    relay.ack(Ack(TERM, rng.choice(sent), 0), 0)
            limit = window + max(len(one[1]) for one in log)
            assert relay.in_flight_bytes <= limit
        while relay.mode is not Mode.LIVE:
            if sent:
                relay.ack(Ack(TERM, sent[-1], 0), 0)
            sent += lsns(relay.feed([one for one in log if one[0].last_lsn >= relay.next_lsn]))
        assert sent == list(range(start, log[-1][0].last_lsn + 1))


def test_headers_are_what_planning_needs() -> None:
    assert isinstance(frame(1)[0], FrameHeader)
