"""A real server process for black-box tests: started on a free port, stopped by its own id.

Nothing here knows what a test asks of the server, and nothing imports the product.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from demo.node_process import NodeProcess
from tests.ports import free_port

ROOT = Path(__file__).resolve().parents[2]


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


class Server(NodeProcess):
    """One server process. port: where it listens; data: its data directory; log: its stderr."""

    def __init__(self, directory: Path, *, flags: list[str] | None = None, guest: bool = True):
        """Nothing runs before `start`. `flags` come after the usual ones; guest=False leaves the
        rights of guest to the configuration named in `flags`.
        """
        self.port = free_port()
        self.data = directory / "data"
        self.directory = directory
        words = ["--listen", f"127.0.0.1:{self.port}", "--data-dir", str(self.data)]
        words += ["--wal-mode", "write", *(("--guest", "all") if guest else ()), *(flags or ())]
        log, env = directory / "server.log", {"PYTHONPATH": str(directory)}
        super().__init__(log, *words, command=command(), env=env, cwd=directory)

    def stop(self) -> int:
        """SIGTERM, then wait; the exit code. Raises if it does not end in time (and kills it)."""
        return self.end()

    def restart(self, *, hard: bool = False) -> Server:
        """Stop (or kill) and start again over the same data."""
        if hard:
            self.kill()
        else:
            self.stop()
        return self.start()
