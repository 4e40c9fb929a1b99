"""Relay and follower on real logs: segments feed the downstream, a rewind leaves rescue files."""

from __future__ import annotations

from typing import Any

from tandemq.log.disk import Disk
from tandemq.log.meta import open_meta
from tandemq.log.rescue import read_rescue
from tandemq.model.record import KIND_NOOP, KIND_TERM, TERM, Record, decode_header, encode_frame
from tandemq.model.terms import Term
from tandemq_server.replication.applier import Applier
from tandemq_server.replication.decisions import Append, Rewind
from tandemq_server.replication.followed import FollowedLog
from tandemq_server.replication.handshake import Upstream, answer
from tandemq_server.replication.lineage import Lineage
from tandemq_server.replication.messages import CONTINUE, REWIND, Message
from tandemq_server.replication.pulse import Pulse
from tandemq_server.replication.relay import LogFrame, Mode, Relay
from tandemq_server.replication.replay import replay_plan
from tandemq_server.storage.log import Log
from tandemq_server.storage.memory import MemoryDisk
from tandemq_server.storage.recovery import open_log, recover
from tandemq_server.storage.runs import RunReader

CLUSTER = b"K" * 16


class _Nothing:
    """A sink: these tests look at the log, not at spaces."""

    def catalogue(self, ops: Any) -> None: ...
    def rows(self, space_id: int, rows: Any) -> None: ...
    def records(self, first_lsn: int, records: Any, lenient: bool, term: Any) -> None: ...


class Side:
    """A node's log on a disk, and its lineage."""

    def __init__(self, name: str) -> None:
        self.id = name.encode() * 16
        self.disk: Disk = MemoryDisk()
        open_meta(self.disk, CLUSTER, self.id, 0)
        self.log: Log = open_log(self.disk, recover(self.disk, _Nothing()), 2_000)
        self.followed = FollowedLog(Lineage(), 0, 0)
        self.runs = RunReader(self.disk)

    def append(self, data: bytes) -> None:
        header = decode_header(data)
        self.log.append(data, header.first_lsn, header.last_lsn, 0)

    def take(self, run: Append) -> None:
        if run.opens_term or self.log.term is None:
            self.log.open_term(run.term, run.span.first_lsn)
        self.log.append(run.data, *run.span, 0, run.frames)
        self.followed.applied(run.span.last_lsn)

    def promote(self, number: int, solo: bool = False) -> None:
        lineage = self.followed.lineage
        parent = lineage.last.id if lineage.last else None
        term = Term(number, bytes([number]) + self.id[1:], parent, self.log.last_lsn + 1, "n", solo)
        self.followed.lineage = lineage.extend(term)
        self.log.open_term(term, self.log.last_lsn + 1)
        self.write([(0, KIND_TERM, None, [(TERM, *term)])])

    def write(self, records: list[Record]) -> bytes:
        last = self.followed.lineage.last
        assert last is not None
        data = encode_frame(records, last.number, last.id, self.log.last_lsn + 1, 0)
        self.append(data)
        self.followed.last_lsn = self.log.last_lsn
        return data

    def read(self, lsn: int, size: int) -> list[LogFrame]:
        return [self.runs.read(self.log, lsn, size)]

    def upstream(self) -> Upstream:
        log = self.log
        lineage = self.followed.lineage
        ends = (log.first_lsn, log.last_lsn, log.commit_lsn)
        return Upstream(CLUSTER, self.id, "up", lineage, *ends, "RUNNING", True)


def noop(number: int) -> Record:
    return (number, KIND_NOOP, None, [])


def follow(down: Side, up: Side, kind: int) -> None:
    """One connection, until it is at the end of the upstream's log or has to cut."""
    applier = Applier(down.followed, CLUSTER, down.id, "down", Pulse(0))
    welcome = answer(applier.hello("WAITING", True), up.upstream())
    assert welcome.answer == kind, welcome.reason
    todo = applier.receive(welcome, 0, 0)
    if kind == REWIND:
        rewind = next(d for d in todo if isinstance(d, Rewind))
        down.log.truncate_from(rewind.to_lsn + 1)
        down.followed.rewound(rewind.to_lsn)
        return
    options = {"window_bytes": 3_000, "read_bytes": 1_000}
    relay = Relay(welcome.lsn, up.log.last_lsn, Pulse(0), **options)

    def deliver(messages: list[Message]) -> None:
        for message in messages:
            for decision in applier.receive(message, 0, 0):
                assert isinstance(decision, Append)
                down.take(decision)
        down.followed.flushed(down.log.sync(), down.followed.generation)
        ack = applier.ack()
        if ack is not None:
            relay.ack(ack, 0)

    while (lsn := relay.wants_read()) is not None:
        deliver(relay.feed(up.read(lsn, relay.read_bytes)))
    assert relay.mode is Mode.LIVE
    data = up.write([noop(1), noop(2)])
    last = up.followed.lineage.last
    assert last is not None
    deliver(relay.live(decode_header(data), data, last.id, 0))
    assert relay.lag_records == 0


def test_catching_up_from_segments_rewinding_and_going_on() -> None:
    a, b = Side("a"), Side("b")
    a.promote(1)
    for number in range(100):
        a.write([noop(number)] * (number % 3 + 1))
    assert len(a.log.segments) > 2
    follow(b, a, CONTINUE)
    assert [data for _, data in a.log.read_from(1)] == [data for _, data in b.log.read_from(1)]
    a.write([noop(7)] * 3)
    fork = b.log.last_lsn
    b.promote(2, solo=True)
    follow(a, b, REWIND)
    follow(a, b, CONTINUE)
    assert [data for _, data in a.log.read_from(1)] == [data for _, data in b.log.read_from(1)]
    [name] = [name for name in a.disk.list() if name.startswith("rescue/")]
    cut = [
        (header.first_lsn + at, record)
        for header, _, records in read_rescue(a.disk, a.log._meta, name)
        for at, record in enumerate(records)
    ]
    assert [lsn for lsn, _ in cut] == [fork + 1, fork + 2, fork + 3]
    assert replay_plan(cut, {}).tasks == ()
