"""Two nodes of which nobody said more than who their peers are; and the demo cluster's end."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tandemq_server.cli import main
from tests.cluster.cluster_nodes import Pair, pair, until

pytestmark = [
    pytest.mark.slow,
    pytest.mark.integration,
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
]
LOOSE = "every task in hand is given to another worker"

ROOT = Path(__file__).resolve().parents[2]


def take_and_switch(nodes: Pair) -> object:
    """A task is taken at a, b becomes the master: its state there."""
    worker = nodes.a.connect()
    worker.call("queue.create_tube", "jobs", "fifo")
    worker.call("queue.tube.jobs:put", "x")
    worker.call("queue.tube.jobs:take", 0)
    nodes.in_step()
    nodes.a.switch_to(nodes.b)
    return nodes.b.connect(encoding="utf-8").call("queue.tube.jobs:peek", 0).data[0][1]


def test_with_peers_a_task_in_hand_survives_a_switch_over(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pair(tmp_path) as nodes:
        assert take_and_switch(nodes) == "t"
        status = nodes.b.status()
        assert (status["session_ttr"], status["in_replicaset"]) == (60.0, True)
        assert LOOSE not in nodes.a.text()
        main(["doctor", f"127.0.0.1:{nodes.b.admin_port}"])
        assert "tasks in hand: stay 60 s with a worker" in capsys.readouterr().out
        # In words of people, on both sides.
        until(lambda: nodes.b.status()["summary"] == "master, followed by a, 0 behind")
        until(lambda: nodes.a.status()["summary"] == "replica, following b, 0 behind")
        assert main(["status", "--admin", f"127.0.0.1:{nodes.a.admin_port}"]) == 0
        shown = capsys.readouterr().out
        assert re.search(r"is +replica, following b, 0 behind", shown)
        assert re.search("why read-only +it was told to be, by read_only or", shown)


def test_switched_off_knowingly_it_is_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pair(tmp_path, "--alone", "--ttr", "0") as nodes:
        assert take_and_switch(nodes) == "r"
        assert "queue.in_replicaset is off and queue.ttr is 0: at a switch-over" in nodes.a.text()
        assert LOOSE in nodes.b.text()
        main(["doctor", f"127.0.0.1:{nodes.b.admin_port}"])
        assert LOOSE in capsys.readouterr().out
    config = tmp_path / "node.yaml"
    config.write_text(
        "peers: 127.0.0.1:1\nqueue: {in_replicaset: false}\n"
        "replication: {user: r, password_env: HOME}\n"
    )
    main(["doctor", "--config", str(config), "--set", f"data_dir={tmp_path / 'none'}"])
    assert "tasks in hand: queue.in_replicaset is off: at a" in capsys.readouterr().out


def test_what_was_set_by_a_call_stays(tmp_path: Path) -> None:
    with pair(tmp_path) as nodes:
        nodes.a.connect().call("queue.cfg", {"ttr": 7, "in_replicaset": False})
        nodes.in_step()
        nodes.a.switch_to(nodes.b)
        status = nodes.b.status()
        assert (status["session_ttr"], status["in_replicaset"]) == (7.0, False)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_the_demo_cluster_takes_its_nodes_along(tmp_path: Path, number: int) -> None:
    words = [
        sys.executable,
        "-m",
        "demo",
        "cluster",
        "--any-ports",
        "--dir",
        str(tmp_path / "data"),
    ]
    # What was interrupted starts again, in the same directory.
    for _ in range(2 if number == signal.SIGINT else 1):
        demo = subprocess.Popen(
            words,
            cwd=ROOT,
            stdout=subprocess.PIPE,
            text=True,
            # Also where whoever runs the tests has it ignored, as shells do in the background.
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        )
        try:
            assert demo.stdout is not None
            lines = iter(demo.stdout.readline, "")
            told = (re.match(r"[ab]: .*pid (\d+)", line) for line in lines)
            found = (int(match[1]) for match in told if match is not None)
            pids = [next(found) for _ in "ab"]
            demo.send_signal(number)
            assert demo.wait(30) == 130
            for pid in pids:
                with pytest.raises(ProcessLookupError):
                    os.kill(pid, 0)
        finally:
            if demo.poll() is None:
                demo.kill()
                demo.wait()
            with contextlib.suppress(AttributeError):
                demo.stdout.close()  # type: ignore[union-attr]
