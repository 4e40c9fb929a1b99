"""The fixture `tandem` as other people use it: in a pytest of its own, by the plugin alone."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tandemq_server.node.testing import TandemNode

THEIRS = """
import time
import pytest
import tandemq

def test_put_and_take(tandem):
    with tandem.connect_sync() as client:
        tube = client.create_tube("letters", ttr=60)
        tube.put({"to": "ada"})
        with tube.take(timeout=0) as task:
            assert task.data == {"to": "ada"}
    assert tandem.tasks("letters") == []

def test_each_test_has_a_node_of_its_own(tandem):
    with tandem.connect_sync() as client:
        assert client.call("queue.tube") == [[]]

def test_delay_without_waiting(tandem):
    with tandem.connect_sync() as client:
        tube = client.create_tube("later")
        tube.put("x", delay=3600)
        assert tube.take(timeout=0) is None
        began = time.monotonic()
        tandem.advance(3600)
        assert tube.take(timeout=0).data == "x"
        assert time.monotonic() - began < 5
"""


def run(directory: Path, *flags: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *flags, "."],
        cwd=directory,
        capture_output=True,
        text=True,
        env={**os.environ, "PYTEST_ADDOPTS": ""},
        timeout=120,
        check=False,
    )


def test_the_plugin_alone_is_enough(tmp_path: Path) -> None:
    (tmp_path / "test_theirs.py").write_text(THEIRS)
    done = run(tmp_path, "-p", "tandemq.testing")
    assert "3 passed" in done.stdout, done.stdout + done.stderr
    assert "ready" not in done.stdout


def test_ready_in_half_a_second(tmp_path: Path) -> None:
    """The first node of a process pays for what is imported; here it is there already."""
    times = []
    for number in range(5):
        began = time.monotonic()
        node = TandemNode(tmp_path / str(number)).start()
        times.append(time.monotonic() - began)
        node.stop()
    assert min(times) < 0.5, times


@pytest.fixture
def node(tmp_path: Path):
    with TandemNode(tmp_path) as started:
        yield started


def test_the_clock(node: TandemNode) -> None:
    with node.connect_sync() as client:
        tube = client.create_tube("t", "fifottl", ttl=100, ttr=10)
        for name in ("kept", "old"):
            tube.put(name, ttl=1000 if name == "kept" else 50)
        task = tube.take(timeout=0)
        assert task is not None
        before = node.now()
        # Its ttr ends, then the other one's life.
        node.advance(11)
        assert node.tasks("t") == [(0, "r", "kept"), (1, "r", "old")]
        node.advance(40)
        assert node.tasks("t") == [(0, "r", "kept")]
        assert 51 <= node.now() - before < 71
        with pytest.raises(ValueError, match="backwards"):
            node.advance(-1)


def test_many_deadlines_at_once(node: TandemNode) -> None:
    with node.connect_sync() as client:
        tube = client.create_tube("t")
        tube.put_many(range(3000), delay=60)
        node.advance(60)
        assert client.statistics("t")["tasks"]["ready"] == 3000


def test_a_restart_keeps_tasks_and_clock(node: TandemNode) -> None:
    with node.connect_sync() as client:
        tube = client.create_tube("t")
        tube.put("x", delay=500)
    node.advance(400)
    address = node.address
    node.restart()
    assert node.address == address
    assert node.tasks("t") == [(0, "~", "x")]
    node.advance(101)
    assert node.tasks("t") == [(0, "r", "x")]


def test_a_program_finds_the_node_again(node: TandemNode) -> None:
    with node.connect_sync(timeout=20) as client:
        tube = client.create_tube("t")
        node.restart()
        tube.put("x", key="1")
        assert [row[2] for row in node.tasks("t")] == ["x"]


def test_read_only(node: TandemNode) -> None:
    import tandemq

    with node.connect_sync(timeout=0.5) as client:
        tube = client.create_tube("t")
        node.read_only()
        with pytest.raises(tandemq.Unavailable):
            tube.put("x")
        node.read_only(False)
        tube.put("x")


def test_settings_and_what_is_wrong_with_them(tmp_path: Path) -> None:
    with TandemNode(tmp_path / "a", limits__payload_bytes_max=65536) as node:
        import tandemq

        with node.connect_sync() as client:
            tube = client.create_tube("t")
            with pytest.raises(tandemq.Refused, match="payload_bytes_max"):
                tube.put("x" * 70_000)
    with pytest.raises(Exception, match="no_such_setting"):
        TandemNode(tmp_path / "b", no_such_setting=1).start()
    (tmp_path / "c").mkdir()
    (tmp_path / "c" / "data").write_text("a file")
    with pytest.raises(Exception, match="not a directory"):
        TandemNode(tmp_path / "c").start()
    node.stop()
    with pytest.raises(RuntimeError, match="does not run"):
        node.advance(1)
