"""What a CI that keeps only part of the output shows of a failed walk: the walk."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

TESTS = Path(__file__).resolve().parent.parent
FAILING = """
from hypothesis import settings, strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule

class Walk(RuleBasedStateMachine):
    steps = 0

    @rule(by=st.integers(1, 3))
    def go(self, by):
        self.steps += by
        assert self.steps < 5, f"too far: {self.steps}"

TestWalk = Walk.TestCase
TestWalk.settings = settings(database=None, print_blob=True)

def test_long():
    raise OSError("\\n".join(f"line {number}" for number in range(1000)))
"""


def test_reasons_stand_before_the_tracebacks(tmp_path: Path) -> None:
    (tmp_path / "test_walk.py").write_text(FAILING, encoding="utf-8")
    (tmp_path / "pytest.ini").write_text("[pytest]\n", encoding="utf-8")
    ended = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "conftest", "-p", "no:asyncio"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(TESTS)},
        stdout=subprocess.PIPE,
        text=True,
        timeout=120,
    )
    assert ended.returncode == 1
    _, _, rest = ended.stdout.partition(" WHY, IN SHORT ")
    short, _, tracebacks = rest.partition(" FAILURES ")
    assert tracebacks
    assert len(short) < 7000
    assert "test_walk.py:11: AssertionError: too far: " in short
    assert short.count("    state.go(by=") >= 2
    assert "@reproduce_failure(" in short
    assert "test_walk.py::test_long" in short
    assert all(f"line {number}\n" in short for number in (0, 999))
