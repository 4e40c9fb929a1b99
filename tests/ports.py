"""Ports for nodes that tests start: nobody else's for as long as the tests run.

A node comes to its port some time after the port was chosen, and comes back to it after a kill. By
then a port the system once gave out may be another's: another test process' node, or a mere client.
So every process of tests takes a block below those the system gives out, and no port in it twice
before it has taken all.
"""

from __future__ import annotations

import atexit
import contextlib
import socket
from collections.abc import Iterator
from itertools import cycle
from pathlib import Path

FIRST, SIZE = 10_000, 500
_given: Iterator[int] | None = None


def _below() -> int:
    """The first port the system gives out by itself."""
    with contextlib.suppress(OSError):
        return int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    return 32_768


def _block() -> Iterator[int]:
    """Ports of a block whose first one this process holds until it ends."""
    for first in range(FIRST, _below() - SIZE, SIZE):
        guard = socket.socket()
        try:
            guard.bind(("127.0.0.1", first))
            guard.listen(1)
        except OSError:
            guard.close()
            continue
        atexit.register(guard.close)
        return cycle(range(first + 1, first + SIZE))
    raise RuntimeError(f"no block of {SIZE} ports from {FIRST} on is free")


def free_ports(count: int) -> list[int]:
    """Loopback TCP ports nobody listens on."""
    global _given
    if _given is None:
        _given = _block()
    found: list[int] = []
    while len(found) < count:
        with socket.socket() as probe, contextlib.suppress(OSError):
            port = next(_given)
            probe.bind(("127.0.0.1", port))
            found.append(port)
    return found


def free_port() -> int:
    return free_ports(1)[0]
