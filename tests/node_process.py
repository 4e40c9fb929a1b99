"""A node as a process: started, awaited until it says `ready`, asked, ended by its own id.

Every test that needs one starts it here. Nothing of the product is imported: what runs is the
program beside the Python that runs the tests.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Self

TANDEMQ = str(Path(sys.executable).with_name("tandemq"))
READY_SECONDS, END_SECONDS = 120.0, 30.0


class NodeProcess:
    """`tandemq serve`. It can be started again: log, words and environment stay.

    log: where its standard error goes. command: another program than the installed one. env: beside
    the environment of the tests, of which variables that are settings are left out. before: called
    in the new process. address: where it listens, known once it is ready.
    """

    def __init__(
        self,
        log: Path,
        *words: str,
        command: Sequence[str] = (TANDEMQ,),
        env: Mapping[str, str] | None = None,
        cwd: Path | None = None,
        before: Callable[[], None] | None = None,
    ) -> None:
        self.log, self.words, self.command = log, words, tuple(command)
        self.env = dict(env or {})
        self.cwd = cwd
        self.before = before
        self.address = ""
        self.process: subprocess.Popen[bytes] | None = None

    def start(self, *flags: str, wait: bool = True) -> Self:
        """Run it, and wait for `ready` unless told not to. Raises RuntimeError with its log."""
        inherited = {k: v for k, v in os.environ.items() if not k.startswith("TANDEMQ_")}
        self.log.parent.mkdir(parents=True, exist_ok=True)
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [*self.command, "serve", *self.words, *flags],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
                env=inherited | self.env,
                cwd=self.cwd,
                preexec_fn=self.before,
            )
        return self.ready() if wait else self

    def ready(self) -> Self:
        """Wait for the line `ready ADDRESS`, which is all a node says on standard output."""
        line = self._line()
        if not line.startswith("ready "):
            self.kill()
            raise RuntimeError(f"no node: {line!r}\n{self.text()[-4000:]}")
        self.address = line.split()[1]
        return self

    def _line(self) -> str:
        assert self.process is not None
        assert self.process.stdout is not None
        until, out = time.monotonic() + READY_SECONDS, self.process.stdout
        while (left := until - time.monotonic()) > 0:
            if select.select([out], [], [], left)[0]:
                return out.readline().decode()
        return ""

    @property
    def alive(self) -> bool:
        return self.process is not None and self.process.poll() is None

    def text(self) -> str:
        """What it logged in all its lives."""
        return self.log.read_text() if self.log.exists() else ""

    def end(self, number: int = signal.SIGTERM, seconds: float = END_SECONDS) -> int:
        """Send a signal, to a stopped process too, and wait; the exit code.

        Raises `subprocess.TimeoutExpired` when it does not end, and kills it.
        """
        assert self.process is not None, "not started"
        if self.alive:
            self.process.send_signal(number)
            with contextlib.suppress(ProcessLookupError):
                self.process.send_signal(signal.SIGCONT)
        try:
            return self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            raise
        finally:
            assert self.process.stdout is not None
            self.process.stdout.close()
            self.process = None

    def kill(self) -> None:
        """SIGKILL, whatever it is doing; nothing if it does not run."""
        if self.process is not None:
            self.end(signal.SIGKILL)

    def __enter__(self) -> Self:
        return self if self.process is not None else self.start()

    def __exit__(self, *_: object) -> None:
        if self.process is not None:
            self.end()
