"""A real node process on a port that stays its own over kills."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgpack
import tarantool

from demo.node_process import NodeProcess
from tests.ports import free_port


class Node(NodeProcess):
    """`tandemq serve` in one directory; every question is a connection of its own."""

    def __init__(self, data: Path) -> None:
        self.data = data
        self.port = free_port()
        words = ["--listen", f"127.0.0.1:{self.port}", "--admin", "127.0.0.1:0"]
        words += ["--data-dir", str(data), "--guest", "all", "--wal-mode", "write"]
        super().__init__(data.with_suffix(".log"), *words)
        self.address = f"127.0.0.1:{self.port}"

    def stop(self) -> None:
        if self.process is not None:
            self.end()

    def call(self, name: str, *args: Any) -> Any:
        client = tarantool.Connection("127.0.0.1", self.port, fetch_schema=False, encoding=None)
        try:
            return client.call(name, args).data
        finally:
            client.close()

    def create(self, tube: str, kind: str) -> None:
        self.call("queue.create_tube", tube, kind)

    def failed(self, tube: str, reason: str) -> None:
        """Take a task and give it back, as a worker does that failed at it."""
        client = tarantool.Connection("127.0.0.1", self.port, fetch_schema=False, encoding=None)
        try:
            ident = client.call(f"queue.tube.{tube}:take", (10,)).data[0][0]
            client.call(f"queue.tube.{tube}:release", (ident, {"reason": reason}))
        finally:
            client.close()

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
