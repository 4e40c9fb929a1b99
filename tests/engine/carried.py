"""A second life of an engine under test, from its log or from a snapshot."""

from __future__ import annotations

from tests.engine.engine_bench import Bench, assert_replica_agrees


def restarted(bench: Bench, snapshot: bool) -> Bench:
    """The node begins to serve anew with what was logged, everybody gone."""
    other = assert_replica_agrees(bench)
    if snapshot:
        log, other = other.log, Bench(now=bench.engine.now, name=b"snap", log=[])
        other.log = log
        other.engine.store.apply(bench.engine.store.catalogue(), lenient=True)
        for space_id, rows in bench.engine.store.rows_for_snapshot(3):
            for row in rows:
                other.engine.store.spaces[space_id].put(row)
    other.start()
    return other
