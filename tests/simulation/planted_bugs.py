"""Bugs planted one at a time, to prove that the judges see them. Each is a few words changed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tandemq.model.record import DELETE, DROP, TRUNCATE
from tandemq_server.engine import attempts, keys, lifecycle, listing
from tandemq_server.engine.sessions import Sessions
from tandemq_server.node.cluster.peering import Peering
from tandemq_server.node.loop.clock import LogClock
from tandemq_server.node.loop.recovered import Storage
from tandemq_server.node.loop.wal_writer import WalWriter
from tandemq_server.replication import handshake
from tandemq_server.replication.applier import Applier
from tandemq_server.replication.commit import CommitPoint
from tandemq_server.replication.followed import FollowedLog
from tandemq_server.replication.lineage import Lineage
from tandemq_server.replication.messages import CONTINUE
from tandemq_server.spaces.store import Store
from tandemq_server.statemachine import notes
from tandemq_server.statemachine.notes import RoleNotes
from tandemq_server.statemachine.promotion import Advice, Answer
from tandemq_server.storage.log import Log
from tandemq_server.storage.recovery import open_log, recover

Patch = pytest.MonkeyPatch
_delete = listing._delete


def skip_fsync(patch: Patch) -> None:
    def sync(log: Log) -> int:
        log.synced_lsn = log.last_lsn
        return log.synced_lsn

    patch.setattr(Log, "sync", sync)


def acknowledge_early(patch: Patch) -> None:
    submit = WalWriter.submit

    def early(wal: WalWriter, turn: Any, time_us: int) -> None:
        wal.release(turn)
        turn.replies = []
        submit(wal, turn, time_us)

    patch.setattr(WalWriter, "submit", early)


def compare_terms_by_number(patch: Patch) -> None:
    def shared_with(ours: Lineage, theirs: Lineage) -> int:
        pairs = zip(ours.terms, theirs.terms, strict=False)
        count = 0
        for a, b in pairs:
            if a.number != b.number:
                break
            count += 1
        return count

    patch.setattr(Lineage, "shared_with", shared_with)


def sleep_instead_of_barrier(patch: Patch) -> None:
    patch.setattr(notes, "advise", lambda _facts, _waited, _force: Advice(Answer.READY))


def forget_to_release_at_promotion(patch: Patch) -> None:
    patch.setattr(lifecycle, "_give_back", lambda *_args: None)


def rewind_without_rescue(patch: Patch) -> None:
    patch.setattr(Log, "rescue_from", lambda _log, _lsn: [])


def confirm_before_durable(patch: Patch) -> None:
    flushed = FollowedLog.applied

    def applied(log: FollowedLog, lsn: int) -> None:
        flushed(log, lsn)
        log.durable_lsn = lsn

    patch.setattr(FollowedLog, "applied", applied)


def ignore_newer_terms(patch: Patch) -> None:
    patch.setattr(RoleNotes, "_seen", lambda _notes, _item, _role: None)


def lose_deletes_on_the_replica(patch: Patch) -> None:
    apply = Store.apply

    def lossy(store: Store, ops: Any, lenient: bool = False) -> None:
        apply(store, [op for op in ops if op[0] != DELETE], lenient)

    patch.setattr(Store, "apply", lossy)


def lose_truncations_on_the_replica(patch: Patch) -> None:
    apply = Store.apply

    def lossy(store: Store, ops: Any, lenient: bool = False) -> None:
        apply(store, [op for op in ops if op[0] != TRUNCATE], lenient)

    patch.setattr(Store, "apply", lossy)


def lose_drops_on_the_replica(patch: Patch) -> None:
    apply = Store.apply

    def lossy(store: Store, ops: Any, lenient: bool = False) -> None:
        apply(store, [op for op in ops if op[0] != DROP], lenient)

    patch.setattr(Store, "apply", lossy)


def go_on_writing_after_the_handoff(patch: Patch) -> None:
    patch.setattr(lifecycle, "stop", lambda _engine: None)


def continue_where_a_rewind_is_due(patch: Patch) -> None:
    def from_fork(hello: Any, upstream: Any, fork: int) -> Any:
        return handshake._welcome(upstream, CONTINUE, min(hello.last_lsn, upstream.last_lsn) + 1)

    patch.setattr(handshake, "_from_fork", from_fork)


def count_own_disk_as_two(patch: Patch) -> None:
    def advance(point: CommitPoint) -> int:
        point.commit_lsn = max(point.commit_lsn, point.durable_lsn)
        return point.commit_lsn

    patch.setattr(CommitPoint, "_advance", advance)


def let_time_stand_after_a_promotion(patch: Patch) -> None:
    patch.setattr(LogClock, "at_least", lambda _clock, _moment: None)


def keep_a_rewound_state_in_memory(patch: Patch) -> None:
    def load(storage: Storage) -> None:
        class Nowhere:
            def __getattr__(self, _name: str) -> Any:
                return lambda *_args: None

        storage.recovered = recover(storage.disk, Nowhere(), strict_commit=False)  # type: ignore[arg-type]
        storage.engine.lsn = storage.recovered.last_lsn
        storage.log = open_log(storage.disk, storage.recovered)

    patch.setattr(Storage, "_load", load)


def follow_while_leading(patch: Patch) -> None:
    patch.setattr(Peering, "stop_following", lambda _peering: None)


def never_say_what_is_durable(patch: Patch) -> None:
    patch.setattr(Applier, "ack", lambda _applier: None)


def take_a_failed_sync_for_done(patch: Patch) -> None:
    synced = WalWriter._synced

    def deaf(wal: WalWriter, epoch: int, covers: int, started: float, _error: Any) -> None:
        assert wal.log is not None
        wal.log.failure = None
        synced(wal, epoch, covers, started, None)

    patch.setattr(WalWriter, "_synced", deaf)


def count_what_was_written_during_a_sync(patch: Patch) -> None:
    synced = WalWriter._synced

    def late(wal: WalWriter, epoch: int, _covers: int, started: float, error: Any) -> None:
        synced(wal, epoch, wal.written_lsn, started, error)

    patch.setattr(WalWriter, "_synced", late)


def forget_idempotency_keys(patch: Patch) -> None:
    patch.setattr(keys, "find", lambda _tube, _key: None)


def roll_without_syncing_the_directory(patch: Patch) -> None:
    roll = Log._roll

    def lazy(log: Log, term: Any) -> Any:
        sync_dir = log._disk.sync_dir
        log._disk.sync_dir = lambda: None  # type: ignore[method-assign]
        try:
            return roll(log, term)
        finally:
            log._disk.sync_dir = sync_dir  # type: ignore[method-assign]

    patch.setattr(Log, "_roll", lazy)


def end_sessions_with_their_connection(patch: Patch) -> None:
    patch.setattr(Sessions, "_over", Sessions.end)


def forget_sessions_at_a_promotion(patch: Patch) -> None:
    restart = Sessions.restart
    patch.setattr(Sessions, "restart", lambda sessions, _ttr_us: restart(sessions, 0))


def lose_what_is_moved_by_filter(patch: Patch) -> None:
    patch.setattr(listing, "_move", lambda tube, client, _to, rows: _delete(tube, client, rows))


def leave_what_is_moved_by_filter(patch: Patch) -> None:
    move = attempts.move

    def copy(tube: Any, target: Any, task_id: int) -> Any:
        row = tube.space.rows[task_id]
        new, done = move(tube, target, task_id)
        tube.space.insert(row)
        return new, done

    patch.setattr(attempts, "move", copy)


PLANTED: dict[str, Callable[[Patch], None]] = {
    bug.__name__: bug
    for bug in (
        skip_fsync,
        acknowledge_early,
        compare_terms_by_number,
        sleep_instead_of_barrier,
        forget_to_release_at_promotion,
        rewind_without_rescue,
        confirm_before_durable,
        ignore_newer_terms,
        lose_deletes_on_the_replica,
        lose_truncations_on_the_replica,
        lose_drops_on_the_replica,
        go_on_writing_after_the_handoff,
        continue_where_a_rewind_is_due,
        count_own_disk_as_two,
        let_time_stand_after_a_promotion,
        keep_a_rewound_state_in_memory,
        follow_while_leading,
        never_say_what_is_durable,
        take_a_failed_sync_for_done,
        count_what_was_written_during_a_sync,
        forget_idempotency_keys,
        roll_without_syncing_the_directory,
        end_sessions_with_their_connection,
        forget_sessions_at_a_promotion,
        leave_what_is_moved_by_filter,
        lose_what_is_moved_by_filter,
    )
}
