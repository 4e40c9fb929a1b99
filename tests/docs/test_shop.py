"""The example of a team's application: small, strictly typed, and its own tests pass."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

SHOP = Path(__file__).resolve().parents[2] / "examples" / "shop"
LINES_MAX = 110


def run(*words: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", *words], capture_output=True, text=True, cwd=SHOP, timeout=120
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_it_is_as_small_as_promised_and_strictly_typed(tmp_path: Path) -> None:
    assert len((SHOP / "shop.py").read_text().splitlines()) <= LINES_MAX
    strict = ("--strict", "--config-file=", "--cache-dir", str(tmp_path))
    run("mypy", *strict, "shop.py", "test_shop.py")


@pytest.mark.slow
@pytest.mark.integration
def test_its_own_tests_pass() -> None:
    plain = ("-q", "-p", "no:cacheprovider", "-W", "ignore", "-c", "/dev/null", "--rootdir", ".")
    assert "2 passed" in run("pytest", *plain, "test_shop.py")
