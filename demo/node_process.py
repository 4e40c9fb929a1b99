"""A node as a process: started, awaited until it says `ready`, asked, ended by its own id.

The demonstration, the benchmarks and every test that needs one start it here. Nothing of the
product is imported: what runs is the program beside the Python that runs this.
"""

from __future__ import annotations

import contextlib
import os
import select
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Self

TANDEMQ = str(Path(sys.executable).with_name("tandemq"))
READY_SECONDS, END_SECONDS = 120.0, 30.0
_LOG_LINES_SHOWN = 20


class NodeFailed(RuntimeError):
    """The node did not come up or went away; the text names the log and shows its last lines."""


def program() -> tuple[str, ...]:
    """The words that run `tandemq` of this very installation."""
    if Path(TANDEMQ).exists():
        return (TANDEMQ,)
    found = shutil.which("tandemq")
    return (found,) if found else (sys.executable, "-m", "tandemq_server.node.main")


class NodeProcess:
    """`tandemq serve`. It can be started again: log, words and environment stay.

    log: where its standard error goes. command: another program than the installed one; verb:
    another of its commands. env: beside the environment of this process, of which variables that
    are settings are left out. before: called in the new process. address: where it listens, known
    once it is ready.
    """

    def __init__(
        self,
        log: Path,
        *words: str,
        command: Sequence[str] | None = None,
        verb: str = "serve",
        env: Mapping[str, str] | None = None,
        cwd: Path | None = None,
        before: Callable[[], None] | None = None,
    ) -> None:
        self.log, self.words, self.verb = log, words, verb
        self.command = tuple(command or program())
        self.env = dict(env or {})
        self.cwd = cwd
        self.before = before
        self.address = ""
        self.process: subprocess.Popen[bytes] | None = None

    def start(self, *flags: str, wait: bool = True) -> Self:
        """Run it, and wait for `ready` unless told not to. Raises NodeFailed."""
        inherited = {k: v for k, v in os.environ.items() if not k.startswith("TANDEMQ_")}
        self.log.parent.mkdir(parents=True, exist_ok=True)
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [*self.command, self.verb, *self.words, *flags],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
                env=inherited | self.env,
                cwd=self.cwd,
                preexec_fn=self.before,
            )
        return self.ready() if wait else self

    def ready(self, seconds: float = READY_SECONDS) -> Self:
        """Wait until it is ready. Raises NodeFailed when it ends first or takes longer."""
        if not self.came(seconds):
            self.kill()
            raise NodeFailed(f"no node: not ready within {seconds:g} s{self.tail()}")
        return self

    def came(self, seconds: float) -> bool:
        """Whether it said `ready ADDRESS`, which is all a node says on standard output.

        Waits so long for it. Raises NodeFailed when the node has ended.
        """
        assert self.process is not None
        out = self.process.stdout
        assert out is not None
        if not select.select([out], [], [], seconds)[0]:
            return False
        line = out.readline().decode()
        if not line.startswith("ready "):
            # It closed its output on the way out: its own exit code says more than ours would.
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(1)
            said = f", having said {line!r}" if line else ""
            raise NodeFailed(f"no node: exit code {self.end(signal.SIGKILL)}{said}{self.tail()}")
        self.address = line.split()[1]
        return True

    @property
    def alive(self) -> bool:
        return self.process is not None and self.process.poll() is None

    def tail(self) -> str:
        """The last lines of its log, as a suffix for an error's text."""
        lines = self.text().splitlines()[-_LOG_LINES_SHOWN:]
        return f"; {self.log} ends:\n  " + "\n  ".join(lines) if lines else f"; {self.log} is empty"

    def text(self) -> str:
        """What it logged in all its lives."""
        return self.log.read_text(errors="replace") if self.log.exists() else ""

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
