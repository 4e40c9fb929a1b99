"""The list of mutants fits the code: every entry applies exactly once, compiles, changes it."""

from __future__ import annotations

import ast

import pytest

from tests.mutants.mutants import ROOT, Fate, Mutant, Stale, load, table

MUTANTS = load()
#: So many there must be.
LEAST = 60


def test_there_are_enough_and_each_has_its_own_name() -> None:
    assert len(MUTANTS) >= LEAST
    assert len({mutant.name for mutant in MUTANTS}) == len(MUTANTS)
    assert len({(mutant.file, mutant.old, mutant.new) for mutant in MUTANTS}) == len(MUTANTS)


@pytest.mark.parametrize("room", ["replication", "statemachine", "storage", "node"])
def test_every_room_has_some(room: str) -> None:
    assert sum(mutant.file.startswith(f"{room}/") for mutant in MUTANTS) >= 10


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_it_applies_once_and_compiles(mutant: Mutant) -> None:
    text = (ROOT / mutant.file).read_text(encoding="utf-8")
    changed = mutant.apply(text)
    assert ast.dump(ast.parse(changed)) != ast.dump(ast.parse(text))
    assert mutant.harm
    for test in mutant.tests:
        assert (ROOT / test.split("::")[0]).is_file(), test


def test_an_entry_that_no_longer_fits_is_an_error() -> None:
    mutant = Mutant("gone", "x.py", "a = 1", "a = 2", "wrong", ())
    assert mutant.apply("a = 1\n") == "a = 2\n"
    for text in ("b = 1\n", "a = 1\na = 1\n"):
        with pytest.raises(Stale, match="gone"):
            mutant.apply(text)


def test_the_table_counts() -> None:
    mutant = Mutant("one", "storage/x.py", "a", "b", "wrong", ())
    fates = [Fate(mutant, by, 1.0) for by in ("tests/x.py::test", "simulation, seed 1: C1", "")]
    assert table(fates).splitlines()[2:] == [
        "| `storage/x.py` | 3 | 1 | 1 | 1 |",
        "| all | 3 | 1 | 1 | 1 |",
    ]
