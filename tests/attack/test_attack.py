"""Every attack in its short form; `make attack` runs them longer and prints what each cost."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.attack.__main__ import ATTACKS, SHORT_FRAMES, SHORT_SECONDS, tried
from tests.attack.strangers import garbage


@pytest.mark.parametrize(("name", "attack"), ATTACKS, ids=[name for name, _ in ATTACKS])
def test_it_is_held(name: str, attack: object, tmp_path: Path) -> None:
    if attack is garbage:
        broken, told = tried(lambda *a: garbage(*a, frames=SHORT_FRAMES), tmp_path / "n", 1.0)
    else:
        broken, told = tried(attack, tmp_path / "n", SHORT_SECONDS)  # type: ignore[arg-type]
    print(told)
    assert broken == []
