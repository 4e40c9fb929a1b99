"""A real server process for black-box tests: started on a free port, stopped by its own id.

Nothing here knows what a test asks of the server, and nothing imports the product.
"""

from __future__ import annotations

import contextlib
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

from tests.ports import free_port

ROOT = Path(__file__).resolve().parents[2]
READY_SECONDS = 30.0
STOP_SECONDS = 10.0


def command() -> list[str]:
    """The program under test: `tandemq` beside the Python that runs the tests, else of `.venv`.

    COMPAT_PROGRAM names another one, to put this suite to an installed server.
    """
    if "COMPAT_PROGRAM" in os.environ:
        return [os.environ["COMPAT_PROGRAM"]]
    for directory in (Path(sys.executable).parent, ROOT / ".venv" / "bin"):
        program = directory / "tandemq"
        if program.exists():
            return [str(program)]
    raise FileNotFoundError("no tandemq program: run `make setup` first")


class Server:
    """One server process. port: where it listens; data: its data directory; log: its stderr."""

    def __init__(self, directory: Path, *, flags: list[str] | None = None, guest: bool = True):
        """Nothing runs before `start`. `flags` come after the usual ones; guest=False leaves the
        rights of guest to the configuration named in `flags`.
        """
        self.port = free_port()
        self.data = directory / "data"
        self.log = directory / "server.log"
        self.directory = directory
        self.flags = flags or []
        self.guest = guest
        self.process: subprocess.Popen[str] | None = None

    def arguments(self) -> list[str]:
        usual = ["--listen", f"127.0.0.1:{self.port}", "--data-dir", str(self.data)]
        usual += ["--wal-mode", "write"]
        if self.guest:
            usual += ["--guest", "all"]
        return [*command(), "serve", *usual, *self.flags]

    def start(self) -> Server:
        """Run it; returns once it said `ready`. Raises RuntimeError with its log if it does not."""
        self.directory.mkdir(parents=True, exist_ok=True)
        environment = {k: v for k, v in os.environ.items() if not k.startswith("TANDEMQ_")}
        environment["PYTHONPATH"] = str(self.directory)
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                self.arguments(),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                cwd=self.directory,
                env=environment,
            )
        self._await_ready(self.process)
        return self

    def _await_ready(self, process: subprocess.Popen[str]) -> None:
        lines: queue.Queue[str | None] = queue.Queue()

        def read() -> None:
            assert process.stdout is not None
            with process.stdout as out:
                for line in out:
                    lines.put(line)
            lines.put(None)

        threading.Thread(target=read, daemon=True).start()
        deadline = time.monotonic() + READY_SECONDS
        while (left := deadline - time.monotonic()) > 0:
            with contextlib.suppress(queue.Empty):
                line = lines.get(timeout=left)
                if line is None:
                    break
                if line.startswith("ready"):
                    return
        self.kill()
        raise RuntimeError(f"server did not get ready:\n{self.log.read_text()[-4000:]}")

    def stop(self) -> int:
        """SIGTERM, then wait; the exit code. Raises if it does not end in time (and kills it)."""
        process = self.process
        assert process is not None, "not started"
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
        try:
            code = process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self.kill()
            raise
        self.process = None
        return code

    def kill(self) -> None:
        """SIGKILL, whatever it is doing."""
        if self.process is not None:
            self.process.kill()
            self.process.wait(STOP_SECONDS)
            self.process = None

    def restart(self, *, hard: bool = False) -> Server:
        """Stop (or kill) and start again over the same data."""
        if hard:
            self.kill()
        else:
            self.stop()
        return self.start()
