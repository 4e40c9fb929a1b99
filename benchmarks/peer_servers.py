"""The queues people weigh against each other, each a process on loopback with its own settings.

Here: starting and ending them, their versions. Must not be here: load, tables. What is shared with
the frameworks' brokers is in `broker_servers`.
"""

from __future__ import annotations

import contextlib
import os
import pwd
import re
import shutil
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path

from benchmarks.broker_servers import PeerMissing, Server, Started, answers
from demo.nodes import free_ports

POSTGRES = Path("/usr/lib/postgresql")
#: How Tarantool is told what the queue module needs, and nothing more.
_LUA = """
package.path = '{queue}/?.lua;{queue}/?/init.lua;' .. package.path
box.cfg{{wal_mode = 'write', log_level = 2, work_dir = '{data}'}}
box.schema.user.grant('guest', 'read,write,execute', 'universe')
queue = require('queue')
queue.create_tube('fifo', 'fifo', {{if_not_exists = true}})
box.cfg{{listen = '127.0.0.1:{port}'}}
"""


def program(name: str, package: str) -> str:
    """Where it is. Raises PeerMissing, which names the package."""
    if found := shutil.which(name):
        return found
    raise PeerMissing(f"the Debian package {package} is missing")


def said_version(words: list[str]) -> str:
    """The first thing in what a program says that looks like a version."""
    said = subprocess.run(words, capture_output=True, text=True, check=False)
    found = re.search(r"\d+(\.\d+)+", said.stdout + said.stderr)
    return found[0] if found else "?"


def postgres_program(name: str) -> str:
    """Of the newest version installed. Raises PeerMissing."""
    found = sorted(POSTGRES.glob(f"*/bin/{name}"), key=lambda path: int(path.parts[-3]))
    if found:
        return str(found[-1])
    raise PeerMissing("the Debian package postgresql is missing")


@contextlib.asynccontextmanager
async def postgres(directory: Path, synchronous: str) -> AsyncIterator[Server]:
    """As `initdb` makes it; synchronous_commit as given. `url` is the directory of its socket.

    It refuses to run as root, and runs as the user that Debian's package makes then.
    """
    initdb, server = postgres_program("initdb"), postgres_program("postgres")
    directory.mkdir(parents=True)
    who: dict[str, object] = {}
    if os.geteuid() == 0:
        try:
            user = pwd.getpwnam("postgres")
        except KeyError:
            raise PeerMissing("there is no user postgres to run PostgreSQL as") from None
        shutil.chown(directory, user.pw_uid, user.pw_gid)
        who = {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []}
    data, port = directory / "data", free_ports(1)[0]
    made = subprocess.run(
        [initdb, "-D", str(data), "-U", "postgres", "-A", "trust"],
        capture_output=True,
        text=True,
        check=False,
        cwd=directory,
        **who,  # type: ignore[call-overload]
    )
    if made.returncode:
        raise PeerMissing(f"initdb: {made.stderr.strip()[-300:]}")
    words = [server, "-D", str(data), "-k", str(directory), "-p", str(port)]
    words += ["-c", "listen_addresses=127.0.0.1", "-c", f"synchronous_commit={synchronous}"]
    process = Started(words, directory.with_suffix(".log"), cwd=directory, **who)
    try:
        asks = [postgres_program("pg_isready"), "-q", "-h", "127.0.0.1", "-p", str(port)]
        await answers(process, port, lambda _: not subprocess.run(asks, check=False).returncode)
        yield Server(f"postgresql://postgres@127.0.0.1:{port}/postgres", process.cpu_seconds)
    finally:
        await process.end()


@contextlib.asynccontextmanager
async def nats(directory: Path) -> AsyncIterator[Server]:
    """JetStream with file storage, as it is by itself."""
    server, port = program("nats-server", "nats-server"), free_ports(1)[0]
    directory.mkdir(parents=True)
    words = [server, "-a", "127.0.0.1", "-p", str(port), "-js", "-sd", str(directory)]
    process = Started(words, directory / "out.log")
    try:
        await answers(process, port, lambda s: s.recv(4) == b"INFO")
        yield Server(f"nats://127.0.0.1:{port}", process.cpu_seconds)
    finally:
        await process.end()


@contextlib.asynccontextmanager
async def tarantool(directory: Path, queue: Path | None) -> AsyncIterator[Server]:
    """Tarantool with its queue module, from `queue`, a checkout of github.com/tarantool/queue."""
    server, port = program("tarantool", "tarantool"), free_ports(1)[0]
    if queue is None or not (queue / "queue").is_dir():
        raise PeerMissing("the queue module is missing: --queue DIR of github.com/tarantool/queue")
    directory.mkdir(parents=True)
    script = directory / "init.lua"
    script.write_text(_LUA.format(queue=queue.resolve(), port=port, data=directory))
    process = Started([server, str(script)], directory / "out.log")
    try:
        await answers(process, port, lambda s: s.recv(9) == b"Tarantool")
        yield Server(f"127.0.0.1:{port}", process.cpu_seconds)
    finally:
        await process.end()
