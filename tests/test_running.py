"""What lets the tests run in several processes: ports of their own, files that stay together."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests import ports
from tests.shares import rank, share_of

ROOT = Path(__file__).resolve().parent.parent


def test_ports_are_given_once_and_not_by_the_system() -> None:
    given = ports.free_ports(300)
    assert len(set(given)) == 300
    assert max(given) < ports._below()


def test_another_process_gets_other_ports() -> None:
    mine = ports.free_port()
    command = [sys.executable, "-c", "from tests.ports import free_port; print(free_port())"]
    theirs = int(subprocess.check_output(command, cwd=ROOT, text=True, timeout=60))
    assert mine // ports.SIZE != theirs // ports.SIZE


def test_a_file_stays_together_and_so_does_all_of_spark() -> None:
    assert share_of("tests/node/test_tls.py::test_a") == share_of("tests/node/test_tls.py::B::test")
    assert share_of("tests/spark/test_sink.py::test_a[1]") == share_of(
        "tests/spark/test_stream.py::test_b"
    )
    assert share_of("tests/crash/test_kill9.py::test_a[0]") != share_of(
        "tests/crash/test_kill9.py::test_a[1]"
    )


def test_what_takes_long_comes_first() -> None:
    files = ["tests/wire/test_x.py", "tests/crash/test_kill9.py", "tests/spark/test_sink.py"]
    assert sorted(files, key=rank) == files[::-1]
