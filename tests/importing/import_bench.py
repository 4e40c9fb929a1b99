"""Runs of `tandemq import`, and what both sides hold.

TANDEMQ_IMPORT_TASKS: how many tasks of each layout the source holds.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgpack
import tarantool

from tandemq_server.cli.raw_client import RawConnection
from tests.compat.compat_server import Server

TASKS = int(os.environ.get("TANDEMQ_IMPORT_TASKS", "400"))
COMMAND = str(Path(sys.executable).parent / "tandemq")


def run(server: Server, source: str, *more: str) -> tuple[int, list[dict[str, Any]], str]:
    """Exit code, what it printed, what it noted."""
    done = subprocess.run(
        [COMMAND, "import", "--from", source, "--server", f"127.0.0.1:{server.port}", "--json",
         *more],
        capture_output=True, text=True, timeout=60 + TASKS // 100, check=False,
    )  # fmt: skip
    return done.returncode, [json.loads(line) for line in done.stdout.splitlines()], done.stderr


def counts(rows: list[dict[str, Any]]) -> dict[str, tuple[int, int]]:
    return {row["tube"]: (row["tasks"], row["copied"]) for row in rows}


def lsn(server: Server) -> int:
    connection = tarantool.Connection("127.0.0.1", server.port)
    try:
        return int(connection.call("box.info").data[0]["lsn"])
    finally:
        connection.close()


def unpack(raw: bytes) -> list[Any]:
    row: list[Any] = msgpack.unpackb(raw, strict_map_key=False)
    return row


def space_id(side: RawConnection, name: str) -> int:
    return int(unpack(side.select(281, [name], index=2)[0])[0])


def all_rows(side: RawConnection, name: str) -> list[bytes]:
    return side.select(space_id(side, name), [], iterator=2)
