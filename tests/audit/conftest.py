"""Logs of scenes, each made once a session by the real engine."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.audit.faults import STAGED
from tests.audit.rewrite import Edited, read
from tests.audit.stage import Stage


@pytest.fixture(scope="session")
def played(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """The directory of a scene, by name."""
    root = tmp_path_factory.mktemp("scenes")
    done: dict[str, Path] = {}

    def play(name: str) -> Path:
        if name not in done:
            stage = Stage(root / name)
            STAGED[name](stage)
            stage.close()
            done[name] = root / name
        return done[name]

    return play


@pytest.fixture(scope="session")
def records(played: Callable[[str], Path]) -> Callable[[str], Edited]:
    """The records of a scene, to be changed."""
    done: dict[str, Edited] = {}

    def of(name: str) -> Edited:
        if name not in done:
            done[name] = read(played(name))
        return done[name].copy()

    return of
