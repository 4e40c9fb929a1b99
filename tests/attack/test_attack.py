"""Every attack in its short form; `make attack` runs them longer and prints what each cost."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.attack.__main__ import ATTACKS, SHORT_FRAMES, SHORT_SECONDS, planted, tried
from tests.attack.insiders import subscribers
from tests.attack.planted import PLANTS
from tests.attack.strangers import garbage
from tests.attack.target import Toll


@pytest.mark.parametrize(("name", "attack"), ATTACKS, ids=[name for name, _ in ATTACKS])
def test_it_is_held(name: str, attack: object, tmp_path: Path) -> None:
    if attack is garbage:
        broken, told = tried(lambda *a: garbage(*a, frames=SHORT_FRAMES), tmp_path / "n", 1.0)
    else:
        broken, told = tried(attack, tmp_path / "n", SHORT_SECONDS)  # type: ignore[arg-type]
    print(told)
    assert broken == []


def test_every_attack_has_a_plant_and_one_is_seen(tmp_path: Path) -> None:
    """`python -m tests.attack --planted` runs them all."""
    assert list(PLANTS) == [name for name, _ in ATTACKS]
    with planted("10 who may follow"):
        assert "became a replica without proof" in tried(subscribers, tmp_path / "n", 1.0)[0][0]


@pytest.mark.parametrize(
    ("changed", "wanted"),
    [
        ({}, []),
        ({"p99_ms": 51.0}, ["others' p99 is 51 ms"]),
        ({"p99_ms": 51.0, "waited": 0.06}, []),
        ({"net_p99_ms": 51.0, "waited": 0.06}, ["others' p99 is 51 ms"]),
        ({"memory_most": 201}, ["memory grew 2.0 times"]),
        ({"same_role": False}, ["its role changed"]),
        ({"calls": 0}, ["another client was never answered"]),
        ({"errors": ["it ended"]}, ["it ended"]),
    ],
)
def test_what_is_judged(changed: dict[str, object], wanted: list[str]) -> None:
    toll = Toll(calls=9, memory_before=100, memory_most=200)
    for name, value in changed.items():
        setattr(toll, name, value)
    assert toll.broken() == wanted
