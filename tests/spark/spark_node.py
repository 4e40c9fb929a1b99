"""A real node process on a port that stays its own over kills."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import msgpack
import tarantool

from tests.ports import free_port

TANDEMQ = str(Path(sys.executable).with_name("tandemq"))


class Node:
    """`tandemq serve` in one directory; every question is a connection of its own."""

    def __init__(self, data: Path) -> None:
        self.data = data
        self.port = free_port()
        self.address = f"127.0.0.1:{self.port}"
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> Node:
        command = [TANDEMQ, "serve", "--listen", self.address, "--admin", "127.0.0.1:0"]
        command += ["--data-dir", str(self.data), "--guest", "all", "--wal-mode", "write"]
        with self.data.with_suffix(".log").open("ab") as log:
            self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log)
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line.startswith(b"ready"), self.data.with_suffix(".log").read_text()
        return self

    def _end(self, number: int) -> None:
        assert self.process is not None
        self.process.send_signal(number)
        self.process.wait(20)
        assert self.process.stdout is not None
        self.process.stdout.close()
        self.process = None

    def kill(self) -> None:
        self._end(9)

    def stop(self) -> None:
        if self.process is not None:
            self._end(15)

    def call(self, name: str, *args: Any) -> Any:
        client = tarantool.Connection("127.0.0.1", self.port, fetch_schema=False, encoding=None)
        try:
            return client.call(name, args).data
        finally:
            client.close()

    def create(self, tube: str, kind: str) -> None:
        self.call("queue.create_tube", tube, kind)

    def count(self, tube: str) -> int:
        found = self.call("queue.statistics", tube)[0]
        return int(found[b"tasks"][b"total"])

    def payloads(self, tube: str) -> list[bytes]:
        """MessagePack of every task, taken from the node."""
        found: list[bytes] = []
        client = tarantool.Connection("127.0.0.1", self.port, fetch_schema=False, encoding=None)
        try:
            while rows := client.call(f"queue.tube.{tube}:take_many", (10_000,)).data[0]:
                found += [msgpack.packb(row[2]) for row in rows]
        finally:
            client.close()
        return found
