"""The yardstick: beanstalkd from Debian's packages, binlog on, under the same shape of load.

Here: finding, starting and loading it. Must not be here: anything about our own server.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import time
from collections import deque
from collections.abc import Callable, Coroutine, Sequence
from pathlib import Path
from typing import cast

from demo.nodes import cpu_seconds, free_ports

_START_SECONDS_MAX = 5.0


class YardstickMissing(Exception):
    """beanstalkd is not here and cannot be installed; the text says what to do."""


def find(say: Callable[[str], None]) -> str:
    """The path of the program, installed with apt-get first when we are root and it is missing."""
    if path := shutil.which("beanstalkd"):
        return path
    if os.geteuid() == 0 and shutil.which("apt-get"):
        say("installing beanstalkd from Debian's packages")
        for words in (["update", "-qq"], ["install", "-y", "-qq", "beanstalkd"]):
            subprocess.run(
                ["apt-get", *words],
                check=False,
                capture_output=True,
                env={**os.environ, "DEBIAN_FRONTEND": "noninteractive"},
            )
    if path := shutil.which("beanstalkd"):
        return path
    raise YardstickMissing("the yardstick is missing: install the Debian package beanstalkd")


class Connection(asyncio.Protocol):
    """A pipelined client: one future per command, answered in order."""

    def __init__(self) -> None:
        self._waiting: deque[asyncio.Future[bytes]] = deque()
        self._buffer = b""
        self._transport: asyncio.WriteTransport | None = None
        self._loop = asyncio.get_running_loop()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.WriteTransport", transport)

    def data_received(self, data: bytes) -> None:
        buffer, start = self._buffer + data, 0
        while (end := buffer.find(b"\r\n", start)) >= 0:
            line, following = buffer[start:end], end + 2
            if line.startswith(b"RESERVED"):
                following += int(line[line.rindex(b" ") :]) + 2
                if following > len(buffer):
                    break
            self._waiting.popleft().set_result(line)
            start = following
        self._buffer = buffer[start:]

    def connection_lost(self, exc: Exception | None) -> None:
        for future in self._waiting:
            future.cancel()

    def command(self, words: bytes) -> asyncio.Future[bytes]:
        """Send one command; the future gives the first line of its answer."""
        future: asyncio.Future[bytes] = self._loop.create_future()
        self._waiting.append(future)
        assert self._transport is not None
        self._transport.write(words)
        return future

    def close(self) -> None:
        """Drop the connection."""
        if self._transport is not None:
            self._transport.close()


class Beanstalkd:
    """One beanstalkd in a process of its own, with connections to it. An async context manager."""

    def __init__(self, program: str, directory: Path) -> None:
        self.port = free_ports(1)[0]
        directory.mkdir(parents=True, exist_ok=True)
        self._words = [program, "-l", "127.0.0.1", "-p", str(self.port), "-b", str(directory)]
        self._process: asyncio.subprocess.Process | None = None

    async def __aenter__(self) -> Beanstalkd:
        self._process = await asyncio.create_subprocess_exec(
            *self._words, stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.DEVNULL
        )
        limit = time.monotonic() + _START_SECONDS_MAX
        while True:
            try:
                connection = await self.connect()
            except OSError as error:
                if self._process.returncode is not None or time.monotonic() > limit:
                    raise YardstickMissing(f"beanstalkd does not come up: {error}") from error
                await asyncio.sleep(0.01)
            else:
                connection.close()
                return self

    async def __aexit__(self, *_: object) -> None:
        assert self._process is not None
        if self._process.returncode is None:
            self._process.terminate()
        await self._process.wait()

    async def connect(self) -> Connection:
        """One more connection."""
        loop = asyncio.get_running_loop()
        return (await loop.create_connection(Connection, "127.0.0.1", self.port))[1]

    def cpu_seconds(self) -> float:
        """CPU seconds the server has used since its start."""
        assert self._process is not None
        return cpu_seconds(self._process.pid)


async def _lanes(
    connections: Sequence[Connection],
    in_flight: int,
    lane: Callable[[Connection], Coroutine[None, None, None]],
) -> None:
    async with asyncio.TaskGroup() as group:
        for connection in connections:
            for _ in range(in_flight):
                group.create_task(lane(connection))


async def put(
    connections: Sequence[Connection], in_flight: int, payload_bytes: int, count: int
) -> int:
    """`count` puts into the default tube; returns operations done."""
    words = b"put 0 0 60 %d\r\n%s\r\n" % (payload_bytes, b"x" * payload_bytes)
    each = count // (len(connections) * in_flight)

    async def lane(connection: Connection) -> None:
        for _ in range(each):
            line = await connection.command(words)
            assert line.startswith(b"INSERTED"), line

    await _lanes(connections, in_flight, lane)
    return each * len(connections) * in_flight


async def take_ack(connections: Sequence[Connection], in_flight: int, count: int) -> int:
    """Reserve and delete `count` jobs; returns operations done (two a job)."""
    each = count // (len(connections) * in_flight)

    async def lane(connection: Connection) -> None:
        for _ in range(each):
            line = await connection.command(b"reserve\r\n")
            await connection.command(b"delete %s\r\n" % line.split()[1])

    await _lanes(connections, in_flight, lane)
    return 2 * each * len(connections) * in_flight
