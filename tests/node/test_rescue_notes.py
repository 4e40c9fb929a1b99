"""Notes of cuts that share records: each record is told of once, at the edges too."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tandemq.log.disk import write_file
from tandemq.log.meta import open_meta
from tandemq.model.terms import Term
from tandemq_server.node.loop.rescue_files import RescueFiles, note_name
from tandemq_server.replication.lineage import Lineage
from tandemq_server.replication.rescue import RescueNote, encode_rescue
from tandemq_server.storage.memory import MemoryDisk

ONE = Term(1, b"1" * 16, None, 1, "a", False)
TWO = Term(2, b"2" * 16, ONE.id, 11, "a", False)
OTHER = Term(2, b"o" * 16, ONE.id, 11, "b", False)


def note(first_lsn: int, last_lsn: int, *terms: Term) -> RescueNote:
    lineage = Lineage([ONE, *terms])
    return RescueNote(b"c" * 16, b"n" * 16, lineage, first_lsn, last_lsn, 0, 0, "parted", {})


@pytest.mark.parametrize(
    ("known", "untold"),
    [
        ([], 5),
        # The same cut, a shorter one before it, one that ends where it begins.
        ([(5, 15)], 16),
        ([(3, 15)], 16),
        ([(5, 9)], 10),
        ([(5, 5)], 6),
        ([(2, 5)], 6),
        ([(2, 4)], 5),
        ([(6, 15)], 5),
        # Two that join, touch, or leave one record between them.
        ([(5, 9), (10, 15)], 16),
        ([(5, 9), (8, 12)], 13),
        ([(5, 9), (11, 15)], 10),
        ([(5, 14), (5, 6)], 15),
        ([(5, 20)], 16),
    ],
)
def test_the_first_record_no_note_tells_of(known: list[tuple[int, int]], untold: int) -> None:
    disk = MemoryDisk()
    open_meta(disk, b"c" * 16, b"n" * 16, 0)
    for first_lsn, last_lsn in known:
        one = note(first_lsn, last_lsn, TWO)
        write_file(disk, note_name(one) + str(last_lsn) + ".note", encode_rescue(one, ()))
    assert RescueFiles(disk).untold(note(5, 15, TWO)) == untold


@pytest.mark.parametrize(("last_lsn", "untold"), [(11, 11), (15, 11)])
def test_a_note_of_another_fork_tells_of_what_both_have(last_lsn: int, untold: int) -> None:
    disk = MemoryDisk()
    open_meta(disk, b"c" * 16, b"n" * 16, 0)
    other = note(5, last_lsn, OTHER)
    write_file(disk, note_name(other), encode_rescue(other, ()))
    assert RescueFiles(disk).untold(note(5, 15, TWO)) == untold
    assert RescueFiles(disk).untold(replace(note(5, 15, TWO), first_lsn=12)) == 12
