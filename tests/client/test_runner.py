"""`tandemq work`: as many at a time as asked, an orderly end, exit codes."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import tandemq
from tests.cluster.cluster_nodes import TANDEMQ, Member, until

pytestmark = [pytest.mark.integration]

HANDLER = """
import asyncio, sys, threading, time

async def slow(task):
    print(task.data, flush=True)
    await asyncio.sleep(0.5)

together = threading.Barrier(12, timeout=30)

def all_at_once(task):
    together.wait()
    task.ack()
    sys.stdout.write("met\\n")
    sys.stdout.flush()
    if task.data == 0:
        raise StopIteration("after the ack")

def names(task):
    print(task.task.tube.name, flush=True)

def fails(task):
    time.sleep(0.05)
    raise KeyError(f"no address in {task.data}")

def stuck(task):
    print("begun", flush=True)
    time.sleep(600)
"""
Run = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def run(node: Member, tmp_path: Path) -> Iterator[Run]:
    (tmp_path / "handlers.py").write_text(HANDLER)
    started: list[subprocess.Popen[str]] = []

    def start(*words: str) -> subprocess.Popen[str]:
        runner = subprocess.Popen(
            [TANDEMQ, "work", *words, "--server", f"127.0.0.1:{node.port}"],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=tmp_path,
        )
        started.append(runner)
        return runner

    yield start
    for runner in started:
        if runner.poll() is None:
            runner.kill()
            runner.communicate()


def first_lines(runner: subprocess.Popen[str], count: int) -> list[str]:
    """Byte by byte: what a buffer read ahead would be lost to `communicate`."""
    assert runner.stdout is not None
    fd, found = runner.stdout.fileno(), b""
    while found.count(b"\n") < count and (byte := os.read(fd, 1)):
        found += byte
    return found.decode().splitlines(keepends=True)


def drained(runner: subprocess.Popen[str]) -> tuple[str, str]:
    runner.send_signal(signal.SIGTERM)
    out, err = runner.communicate(timeout=30)
    assert runner.returncode == 0, err
    return out, err


def test_it_drains_on_sigterm(node: Member, run: Run) -> None:
    with tandemq.connect_sync(f"127.0.0.1:{node.port}") as client:
        tube = client.create_tube("run", "fifo")
        tube.put_many(range(50))
        runner = run("handlers:slow", "--tube", "run", "--concurrency", "3")
        assert first_lines(runner, 1) == ["0\n"]
        out, err = drained(runner)
        done = 1 + len(out.split())
        assert f"drained: {done} done, 0 failed, 0 lost, 0 unknown" in err
        assert client.statistics("run")["tasks"]["ready"] == 50 - done


def test_plain_functions_run_at_once_and_may_ack_themselves(node: Member, run: Run) -> None:
    with tandemq.connect_sync(f"127.0.0.1:{node.port}") as client:
        tube = client.create_tube("plain-run", "fifo")
        tube.put_many(range(12))
        runner = run("handlers:all_at_once", "--tube", "plain-run", "--concurrency", "12")
        assert first_lines(runner, 12) == ["met\n"] * 12
        _, err = drained(runner)
        assert "drained: 11 done, 1 failed, 0 lost, 0 unknown" in err
        assert client.statistics("plain-run")["tasks"]["total"] == 0


def test_what_does_not_end_in_time_is_released(node: Member, run: Run) -> None:
    with tandemq.connect_sync(f"127.0.0.1:{node.port}") as client:
        client.create_tube("stuck", "fifo").put("x")
        runner = run("handlers:stuck", "--tube", "stuck", "--drain", "0.3")
        assert first_lines(runner, 1) == ["begun\n"]
        _, err = drained(runner)
        assert "1 tasks took longer than 0.3 s to drain: released" in err
        assert client.statistics("stuck")["tasks"]["ready"] == 1


def test_several_tubes_are_served_by_their_weights(node: Member, run: Run) -> None:
    with tandemq.connect_sync(f"127.0.0.1:{node.port}") as client:
        client.create_tube("often", "fifo").put_many(range(90))
        client.create_tube("seldom", "fifo").put_many(range(90))
        runner = run("handlers:names", "--tube", "often=4", "--tube", "seldom")
        served = [line.strip() for line in first_lines(runner, 60)]
        assert {"often", "seldom"} == set(served)
        assert served.count("often") > 1.8 * served.count("seldom")
        first_lines(runner, 120)
        # Empty, and then one more in each: none is forgotten.
        client.tube("seldom").put("late")
        assert first_lines(runner, 1) == ["seldom\n"]
        client.tube("often").put("late")
        assert first_lines(runner, 1) == ["often\n"]
        _, err = drained(runner)
        assert "working on often, seldom at" in err
        assert "drained: 182 done, 0 failed" in err


def test_a_failure_is_logged_with_its_trace_its_attempt_and_what_comes_next(
    node: Member, run: Run
) -> None:
    with tandemq.connect_sync(f"127.0.0.1:{node.port}") as client:
        client.create_tube("dead-post", "fifo")
        tube = client.create_tube(
            "post", max_attempts=2, dead_letter="dead-post", retry_delay=0.2, retry_jitter=0
        )
        tube.put("Ann")
        runner = run("handlers:fails", "--tube", "post")
        until(lambda: client.statistics("dead-post")["tasks"]["ready"] == 1)
        _, err = drained(runner)
        assert "task 0 of post failed at attempt 1 with KeyError" in err
        assert "next try within 0.2 s" in err
        assert "task 0 of post failed at attempt 2 with KeyError" in err
        assert "given up: now a dead letter" in err
        assert err.count("Traceback (most recent call last)") == 2
        assert 'raise KeyError(f"no address in {task.data}")' in err
        info = client.call("queue.tube.dead-post:info", 0)[0]
        assert [one["reason"] for one in info["failures"]] == ["KeyError: 'no address in Ann'"] * 2


@pytest.mark.parametrize(
    ("words", "code", "text"),
    [
        (("handlers:stuck", "--tube", "a=0"), 2, "0 in a=0 is no weight"),
        (("handlers:stuck", "--tube", "run", "--tube", "run"), 2, "each once"),
        (("handlers:nothing", "--tube", "run"), 2, "handlers has no nothing"),
        (("handlers", "--tube", "run"), 2, "not MODULE:FUNCTION"),
        (("handlers:stuck", "--tube", "nowhere"), 1, "create it"),
    ],
)
def test_exit_codes(run: Run, words: tuple[str, ...], code: int, text: str) -> None:
    failing = run(*words)
    _, err = failing.communicate(timeout=30)
    assert (failing.returncode, text in err) == (code, True), err
