"""The brokers that are measured beside each other, each a process on a loopback port of its own.

Here: starting, awaiting and ending them, their versions and settings. Must not be here: load.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from demo.nodes import AsyncNodeProcess, cpu_seconds, free_ports

READY_SECONDS_MAX = 60.0
STOP_SECONDS_MAX = 20.0
RABBITMQ = Path("/usr/lib/rabbitmq")
#: The peers' clients, which are in no lock file of ours.
CLIENTS = Path(__file__).resolve().parents[1] / ".tools" / "peers"
PACKAGES = {"redis": "redis==8.1.0", "taskiq_redis": "taskiq-redis==1.2.4"}
PROGRAMS = {"redis-server": "redis-server", "rabbitmq-server": "rabbitmq-server"}
#: Debian has some servers in folders that only root has among its paths.
_PATH = os.pathsep.join((os.environ.get("PATH", ""), "/usr/sbin", "/usr/local/sbin", "/sbin"))


class PeerMissing(Exception):
    """A peer is not on this machine; the text names what is missing."""


def fetch(
    say: Callable[[str], None],
    packages: Mapping[str, str] = PACKAGES,
    programs: Mapping[str, str] = PROGRAMS,
) -> None:
    """What is missing, where it can be had; what is not there then is skipped.

    packages: the requirement by module; programs: the Debian package by program.
    """
    sys.path.append(str(CLIENTS))
    wanted = [one for name, one in packages.items() if not (CLIENTS / name).is_dir()]
    if wanted:
        say(f"fetching {' '.join(wanted)}")
        words = ["install", "-q", "--no-deps", "--target", str(CLIENTS), *wanted]
        subprocess.run([sys.executable, "-m", "pip", *words], check=False)
    missing = [name for one, name in programs.items() if not shutil.which(one, path=_PATH)]
    if missing and os.geteuid() == 0 and shutil.which("apt-get"):
        say(f"installing {' '.join(missing)}")
        # Nothing that is installed may be started as a service.
        quiet = {**os.environ, "DEBIAN_FRONTEND": "noninteractive", "RUNLEVEL": "1"}
        for told in (["update", "-qq"], ["install", "-y", "-qq", *missing]):
            subprocess.run(["apt-get", *told], check=False, capture_output=True, env=quiet)


class Started:
    """A process and all below it; they share a session, so that none is lost sight of."""

    def __init__(self, words: Sequence[str], out: Path, **given: object) -> None:
        self._out = out.open("ab")
        self.process = subprocess.Popen(
            words,
            stdin=subprocess.DEVNULL,
            stdout=self._out,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            **given,  # type: ignore[call-overload]
        )

    def pids(self) -> list[int]:
        """Those of the session that run, and below them whoever began a session of his own."""
        parents: dict[int, int] = {}
        found = set()
        for path in Path("/proc").glob("[0-9]*/stat"):
            with contextlib.suppress(OSError):
                pid = int(path.parent.name)
                fields = path.read_text(errors="replace").rsplit(")", 1)[1].split()
                parents[pid] = int(fields[1])
                if int(fields[3]) == self.process.pid:
                    found.add(pid)
        while more := {pid for pid, parent in parents.items() if parent in found} - found:
            found |= more
        return sorted(found)

    def cpu_seconds(self) -> float:
        """CPU seconds of the session's processes that run."""
        total = 0.0
        for pid in self.pids():
            with contextlib.suppress(OSError):
                total += cpu_seconds(pid)
        return total

    async def end(self) -> None:
        """SIGTERM to the first, then SIGKILL to what is left of the session."""
        limit = time.monotonic() + STOP_SECONDS_MAX
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        while self.process.poll() is None and time.monotonic() < limit:
            await asyncio.sleep(0.02)
        for pid in self.pids():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.process.wait()
        self._out.close()


class Server:
    """A broker that serves: where, and what CPU it used."""

    def __init__(self, url: str, cpu: Callable[[], float]) -> None:
        self.url = url
        self.cpu_seconds = cpu


@contextlib.asynccontextmanager
async def tandem(directory: Path, celery: bool = False) -> AsyncIterator[Server]:
    """A node with the settings `serve` has by itself: wal.mode write."""
    async with AsyncNodeProcess(directory) as node:
        address = f"127.0.0.1:{node.port}"
        yield Server(f"tandemq://{address}" if celery else address, node.cpu_seconds)


@contextlib.asynccontextmanager
async def redis(directory: Path, fsync: str = "everysec") -> AsyncIterator[Server]:
    """Redis that keeps what it was told when the process dies, as Tandem does.

    fsync: of its log of operations; always or everysec.
    """
    program, port = redis_program(), free_ports(1)[0]
    directory.mkdir(parents=True)
    words = [program, "--port", str(port), "--bind", "127.0.0.1", "--dir", str(directory)]
    words += ["--appendonly", "yes", "--appendfsync", fsync, "--save", "", "--daemonize", "no"]
    server = Started(words, directory / "out.log")
    try:
        await answers(server, port, lambda s: s.sendall(b"PING\r\n") or s.recv(7) == b"+PONG\r\n")
        yield Server(f"redis://127.0.0.1:{port}", server.cpu_seconds)
    finally:
        await server.end()


@contextlib.asynccontextmanager
async def rabbitmq(directory: Path) -> AsyncIterator[Server]:
    """RabbitMQ as it is installed, without plugins; queues and messages are Celery's, durable."""
    program, port, names = rabbitmq_program(), *free_ports(2)
    directory.mkdir(parents=True)
    environment = {
        **os.environ,
        "HOME": str(directory),
        "ERL_EPMD_PORT": str(names),
        "ERL_EPMD_ADDRESS": "127.0.0.1",
        "RABBITMQ_NODENAME": "bench@localhost",
        "RABBITMQ_NODE_IP_ADDRESS": "127.0.0.1",
        "RABBITMQ_NODE_PORT": str(port),
        "RABBITMQ_DIST_PORT": str(free_ports(1)[0]),
        "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": "-kernel inet_dist_use_interface {127,0,0,1}",
        "RABBITMQ_MNESIA_BASE": str(directory / "mnesia"),
        "RABBITMQ_LOG_BASE": str(directory / "log"),
        "RABBITMQ_PID_FILE": str(directory / "pid"),
        "RABBITMQ_CONFIG_FILE": str(directory / "none"),
        "RABBITMQ_ENABLED_PLUGINS_FILE": str(directory / "plugins"),
        "RABBITMQ_ALLOW_INPUT": "1",  # the Erlang machine itself in place of a script around it
    }
    (directory / "plugins").write_text("[].\n")
    epmd = Started([shutil.which("epmd") or "epmd"], directory / "epmd.log", env=environment)
    server = Started([program, "-noinput"], directory / "out.log", env=environment)
    try:
        await answers(server, port, lambda s: s.sendall(b"AMQP\0\0\x09\x01") or bool(s.recv(1)))
        yield Server(f"amqp://guest:guest@127.0.0.1:{port}//", server.cpu_seconds)
    finally:
        await server.end()
        await epmd.end()


async def answers(server: Started, port: int, asks: Callable[[socket.socket], bool]) -> None:
    """Wait until the port answers. Raises PeerMissing with the log's end when it does not."""
    limit = time.monotonic() + READY_SECONDS_MAX
    while time.monotonic() < limit and server.process.poll() is None:
        try:
            with socket.create_connection(("127.0.0.1", port), 1.0) as connection:
                connection.settimeout(2.0)
                if await asyncio.to_thread(asks, connection):
                    return
        except OSError:
            await asyncio.sleep(0.05)
    tail = Path(server._out.name).read_text(errors="replace")[-1500:]
    await server.end()
    raise PeerMissing(f"{server.process.args} did not come up:\n{tail}")


def redis_program() -> str:
    """Raises PeerMissing."""
    if found := shutil.which("redis-server"):
        return found
    raise PeerMissing("the Debian package redis-server is missing")


def rabbitmq_program() -> str:
    """The script below its wrapper, which changes the user. Raises PeerMissing."""
    program = RABBITMQ / "bin" / "rabbitmq-server"
    if program.exists() and shutil.which("epmd"):
        return str(program)
    raise PeerMissing("the Debian package rabbitmq-server is missing")


def redis_version() -> str:
    """As the program says it. Raises PeerMissing."""
    said = subprocess.run([redis_program(), "--version"], capture_output=True, text=True).stdout
    found = re.search(r"v=(\S+)", said)
    return found[1] if found else "?"


def rabbitmq_version() -> str:
    """As its folder has it. Raises PeerMissing."""
    rabbitmq_program()
    folders = sorted((RABBITMQ / "lib").glob("rabbitmq_server-*"))
    return folders[-1].name.partition("-")[2] if folders else "?"


def package_version(name: str) -> str:
    """Of a package of Python. Raises PeerMissing."""
    try:
        return version(name)
    except PackageNotFoundError:
        raise PeerMissing(f"the Python package {name} is missing") from None
