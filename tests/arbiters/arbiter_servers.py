"""Real arbiters as processes: etcd clusters and witnesses, started, stopped, killed, paused."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.cluster_nodes import until
from tests.ports import free_ports

ROOT = Path(__file__).resolve().parents[2]
TANDEMQ = str(Path(sys.executable).with_name("tandemq"))


def etcd_program() -> str:
    """Debian's, unpacked or installed. Without it: skipped by name, or failed under CI=true."""
    unpacked = ROOT / ".tools/etcd/usr/bin/etcd"
    found = str(unpacked) if unpacked.exists() else shutil.which("etcd")
    if found is None:
        reason = "etcd is not there (tests/tools/ensure_tools.sh fetches it)"
        if os.environ.get("CI") == "true":
            pytest.fail(reason)
        pytest.skip(reason)
    return found


class Process:
    """One server. Directory and ports outlive it, so that `start` after `end` is a restart."""

    def __init__(self, home: Path, command: Sequence[str]) -> None:
        self.home = home
        self.command = list(command)
        self.log = home / "log"
        self.process: subprocess.Popen[bytes] | None = None
        self.env: dict[str, str] = {}

    def start(self, *flags: str) -> None:
        self.home.mkdir(parents=True, exist_ok=True)
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [*self.command, *flags],
                stdout=log,
                stderr=log,
                env={**os.environ, **self.env},
            )

    def text(self) -> str:
        return self.log.read_text() if self.log.exists() else ""

    def send(self, number: int) -> None:
        assert self.process is not None
        self.process.send_signal(number)

    def pause(self) -> None:
        self.send(signal.SIGSTOP)

    def go_on(self) -> None:
        self.send(signal.SIGCONT)

    def end(self, number: int = signal.SIGTERM) -> int:
        process, self.process = self.process, None
        if process is None:
            return 0
        process.send_signal(number)
        with contextlib.suppress(ProcessLookupError):
            process.send_signal(signal.SIGCONT)
        try:
            return process.wait(15)
        except subprocess.TimeoutExpired:
            process.kill()
            return process.wait(15)


class EtcdCluster:
    """Members on loopback. tls: flags of every member, with which its URLs are https."""

    def __init__(
        self, home: Path, members: int, *flags: str, tls: Sequence[str] = (), quick: bool = True
    ) -> None:
        program = etcd_program()
        ports = free_ports(2 * members)
        self.ports = ports[:members]
        scheme = "https" if tls else "http"
        peers = [f"http://127.0.0.1:{port}" for port in ports[members:]]
        everybody = ",".join(f"m{number}={url}" for number, url in enumerate(peers))
        # A tenth of the usual, so that an election is over within a test's patience.
        pace = ("--heartbeat-interval", "30", "--election-timeout", "300") if quick else ()
        self.urls = tuple(f"{scheme}://127.0.0.1:{port}" for port in self.ports)
        self.members = [
            Process(
                home / f"m{number}",
                [
                    *(program, "--name", f"m{number}", "--data-dir", str(home / f"m{number}/data")),
                    *("--listen-client-urls", self.urls[number]),
                    *("--advertise-client-urls", self.urls[number]),
                    *("--listen-peer-urls", peers[number]),
                    *("--initial-advertise-peer-urls", peers[number]),
                    *("--initial-cluster", everybody, *pace, *tls, *flags),
                ],
            )
            for number in range(members)
        ]

    def __enter__(self) -> EtcdCluster:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        for member in self.members:
            member.end(signal.SIGKILL)

    def start(self) -> None:
        for member in self.members:
            member.start()
        if self.urls[0].startswith("http:"):
            until(lambda: all(map(self.healthy, range(len(self.members)))), 30.0, 0.1)

    def healthy(self, number: int) -> bool:
        assert self.members[number].process.poll() is None, self.members[number].text()[-2000:]
        url = self.urls[number] + "/health"
        with contextlib.suppress(OSError), urllib.request.urlopen(url, timeout=1) as answer:
            return bool(json.loads(answer.read())["health"] == "true")
        return False

    def post(self, path: str, body: dict[str, Any], number: int = 0) -> dict[str, Any]:
        request = urllib.request.Request(self.urls[number] + path, json.dumps(body).encode())
        with urllib.request.urlopen(request, timeout=5) as answer:
            found: dict[str, Any] = json.loads(answer.read())
            return found

    def leader(self) -> int:
        """The number of the member that leads."""
        status = self.post("/v3/maintenance/status", {})
        for number in range(len(self.members)):
            own = self.post("/v3/maintenance/status", {}, number)["header"]["member_id"]
            if own == status["leader"]:
                return number
        raise AssertionError("nobody leads")


class WitnessProcess(Process):
    """`tandemq witness` on a port that stays its own."""

    def __init__(self, home: Path, *flags: str, host: str = "127.0.0.1") -> None:
        (self.port,) = free_ports(1)
        self.data = home / "data"
        super().__init__(
            home,
            [
                *(TANDEMQ, "witness", "--listen", f"{host}:{self.port}"),
                *("--data-dir", str(self.data), *flags),
            ],
        )
        scheme = "https" if "--tls-cert" in flags else "http"
        self.url = f"{scheme}://127.0.0.1:{self.port}"

    def __enter__(self) -> WitnessProcess:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.end(signal.SIGKILL)

    def start(self, *flags: str) -> None:
        said = self.text().count("ready ")
        super().start(*flags)
        until(lambda: self.text().count("ready ") > said or self._ended())

    def _ended(self) -> bool:
        assert self.process is not None
        if (code := self.process.poll()) is not None:
            raise AssertionError(f"ended with {code}: {self.text()[-2000:]}")
        return False


def paused_for(process: Process, seconds: float) -> None:
    process.pause()
    time.sleep(seconds)
    process.go_on()
