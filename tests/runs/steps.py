"""Steps with their times, and the processes that outlast them."""

from __future__ import annotations

import contextlib
import os
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Self

WAIT_SECONDS = 300.0


class Steps:
    """What was done in a folder, step by step; each is told when it is over.

    A context: when it is left, everything that was started is ended.
    """

    def __init__(self, folder: Path, title: str) -> None:
        self.folder = folder
        self.env = {**os.environ, "PATH": f"{folder}/.venv/bin:{os.environ['PATH']}"}
        # As in a terminal of a person's own: nothing of whoever started this.
        for name in ("VIRTUAL_ENV", "PYTHONPATH", "TANDEMQ_SERVER", "MAKEFLAGS", "MAKELEVEL"):
            self.env.pop(name, None)
        self._running: list[subprocess.Popen[bytes]] = []
        self._began = time.monotonic()
        print(f"{title}\n")

    @contextlib.contextmanager
    def step(self, words: str) -> Iterator[None]:
        """One step: its words and seconds are printed behind it."""
        began = time.monotonic()
        yield
        now = time.monotonic()
        print(f"{now - began:7.1f} s  {words}", flush=True)

    def total(self, words: str) -> None:
        """Seconds since the first step."""
        print(f"{time.monotonic() - self._began:7.1f} s  {words}\n", flush=True)

    def run(self, command: str, cwd: Path | None = None, fine: tuple[int, ...] = (0,)) -> str:
        """Standard output of a command as a shell runs it. Raises AssertionError when it fails."""
        done = subprocess.run(
            ["bash", "-c", command],
            cwd=cwd or self.folder,
            env=self.env,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode in fine, f"{command}\n{done.stdout}{done.stderr}"
        return done.stdout + done.stderr

    def start(self, command: str, log: str) -> subprocess.Popen[bytes]:
        """A command that stays; what it says goes to a file in the folder."""
        with (self.folder / log).open("wb") as out:
            process = subprocess.Popen(
                ["bash", "-c", f"exec {command}"],
                cwd=self.folder,
                env={**self.env, "PYTHONUNBUFFERED": "1"},
                stdout=out,
                stderr=subprocess.STDOUT,
            )
        self._running.append(process)
        return process

    def cluster(self, words: str = "") -> None:
        """Two nodes, as `make cluster` starts them; over when both are told."""
        self.start(f"make cluster ARGS={words}", "cluster.log")

        def told() -> bool:
            said = self.said("cluster.log")
            assert "error" not in said, said
            return "\nb: clients" in said

        self.until(told, "no cluster")

    def said(self, log: str) -> str:
        """What a command that stays said so far."""
        return (self.folder / log).read_text(errors="replace")

    def until(self, condition: Callable[[], object], what: str) -> None:
        """Waits for it. Raises AssertionError after a long time."""
        ends = time.monotonic() + WAIT_SECONDS
        while not condition():
            assert time.monotonic() < ends, what
            time.sleep(0.05)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        for process in reversed(self._running):
            process.terminate()
            process.wait(60)
        self._running.clear()
