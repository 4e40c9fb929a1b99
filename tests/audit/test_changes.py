"""A random change of any field of any record: nearly all that a log can show are found."""

from __future__ import annotations

from pathlib import Path

from tests.audit.changes import free, tried


def test_random_changes_are_found(tmp_path: Path) -> None:
    hit, missed = tried(300, 7, tmp_path)
    silent = {name: count for name, count in missed.items() if not free(name)}
    asked = sum(count for name, count in hit.items() if not free(name)) + sum(silent.values())
    assert asked > 150
    assert sum(silent.values()) / asked < 0.18, silent
