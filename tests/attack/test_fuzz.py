"""The fuzzers in their short forms; `python -m tests.attack.fuzz` runs millions."""

from __future__ import annotations

from pathlib import Path

from tests.attack.fuzz import BATCH, Frames, Requests, frames, requests

FRAMES, REQUESTS = 20_000, 400


def test_malformed_frames_are_held(tmp_path: Path) -> None:
    toll = frames(tmp_path / "n", FRAMES, 1)
    assert toll.broken() == [], toll.line()
    assert toll.samples == FRAMES


def test_malformed_http_is_held(tmp_path: Path) -> None:
    toll = requests(tmp_path / "n", REQUESTS, 1)
    assert toll.broken() == [], toll.line()
    assert toll.samples == REQUESTS


def test_a_seed_says_the_same_again_and_much_that_differs() -> None:
    one, other = Frames(5), Frames(5)
    made = [one.batch(True) for _ in range(20)]
    assert made == [other.batch(True) for _ in range(20)]
    assert len(set(made)) == 20
    singles = {Frames(seed).one(False) for seed in range(500)}
    assert len(singles) > 400
    assert len({Requests(seed).one() for seed in range(500)}) > 350
    assert BATCH == 100
