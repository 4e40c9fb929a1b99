"""Backups of a log that is cut meanwhile, and directories that go back before its end."""

from __future__ import annotations

from tandemq.log.meta import read_commit
from tandemq_server.storage.memory import MemoryDisk
from tests.storage.storage_samples import Writing, loaded
from tests.storage.test_storage_backup import copied, restored


def test_a_log_that_is_cut_while_it_is_copied_is_copied_as_it_came_out() -> None:
    """At whatever moment: what the node has put into rescue files is in no backup's log."""
    for moment in range(100):
        writing = Writing(MemoryDisk(), 1_500)
        for _ in range(12):
            writing.frame(5)
        reached: list[int] = []

        def rewind(
            step: int,
            moment: int = moment,
            writing: Writing = writing,
            reached: list[int] = reached,
        ) -> None:
            if step == moment and not reached:
                reached.append(step)
                writing.log.truncate_from(30)
                del writing.records[29:]
                writing.new_term()
                writing.frame(3)

        found, sink = loaded(copied(writing.disk, between=rewind))
        if not reached:
            assert moment > 5
            return
        assert found.last_lsn == 32, moment
        assert sink.strict == writing.records, moment
    raise AssertionError("there is no end to it")


def test_a_restored_directory_says_no_more_committed_than_it_has() -> None:
    writing = Writing(MemoryDisk(), 1_500)
    for _ in range(12):
        writing.frame(5)
    writing.log.sync()
    writing.log.publish_commit(60)
    backup = copied(writing.disk)
    for until, committed in ((42, 42), (60, 60)):
        target = MemoryDisk()
        assert restored(backup, target, until_lsn=until).last_lsn == until
        assert read_commit(target)[0] == committed
        assert loaded(target)[0].last_lsn == until
