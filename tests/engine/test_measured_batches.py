"""A batch is packed to be measured only where its payloads' sizes leave a doubt."""

from __future__ import annotations

import pytest

from tandemq.model.errors import QueueError
from tandemq_server.engine import batches
from tests.engine.engine_bench import Bench

ROWS = 200


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Bench:
    bench = Bench()
    bench.start()
    bench.create("t", "fifottl")
    monkeypatch.setattr("tandemq.model.record.RECORD_BYTES_MAX", 1_000_000)
    monkeypatch.setattr("tandemq_server.engine.batches.RECORD_BYTES_MAX", 1_000_000)
    return bench


def test_small_payloads_are_not_packed(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    measured = []
    monkeypatch.setattr("tandemq_server.engine.batches.check_record", measured.append)
    tube, who = bench.engine.tubes["t"], bench.worker()
    for size, options, expected in ((900, None, 0), (1_200, None, 1), (10, {"ttl": 5}, 1)):
        del measured[:]
        bench.call(batches.put_many, tube, who, [(b"x" * size, None)] * ROWS, options)
        assert len(measured) == expected, size


def test_a_batch_that_fits_no_record_changes_nothing(bench: Bench) -> None:
    tube, who = bench.engine.tubes["t"], bench.worker()
    refused = bench.call(batches.put_many, tube, who, [(b"x" * 6_000, None)] * ROWS)
    assert isinstance(refused, QueueError)
    assert "limits.frame_bytes_max" in str(refused)
    assert not tube.space.rows
