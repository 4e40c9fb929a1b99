"""One kind of arbiter with as many clients as a test wants, of a register nobody else uses."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable
from typing import Any

from tandemq_server.arbiters.base import Arbiter
from tandemq_server.arbiters.etcd import Etcd
from tandemq_server.arbiters.memory import MemoryArbiter, Register
from tandemq_server.arbiters.witness_client import Witness
from tandemq_server.statemachine.seat import Seat
from tests.chaos.chaos_toxi import Link, Server

KINDS = ("memory", "etcd with one member", "etcd with three members", "witness")
#: How long an answer may take beyond its bound, on a busy machine.
SLACK_S = 0.5


def a_seat(no: int = 1, master: str = "a", partner: str | None = "b", by: str = "test") -> Seat:
    return Seat(no, secrets.token_hex(16), master, partner, time.time_ns() // 1000, by)


class World:
    """Clients of one register. `server` is None for the one in memory."""

    def __init__(self, kind: str, server: Any, toxiproxy: Callable[[], Server]) -> None:
        self.kind = kind
        self.server = server
        self.cluster = "c" + secrets.token_hex(6)
        self._toxiproxy = toxiproxy
        self._register: Register | None = None
        self.clients: list[Arbiter] = []

    def client(
        self, cluster: str = "", ttl_s: float = 3.0, timeout_s: float = 1.0, links: Any = ()
    ) -> Arbiter:
        """One more. links: proxies to go through instead of straight to the server."""
        ports = [link.port for link in links]
        found: Arbiter
        if self.kind == "memory":
            if self._register is None:
                self._register = Register(time.monotonic, ttl_s)
            found = MemoryArbiter(self._register if not cluster else Register(time.monotonic))
        elif self.kind == "witness":
            url = f"http://127.0.0.1:{ports[0]}" if ports else self.server.url
            found = Witness(url, cluster or self.cluster, ttl_s=ttl_s, timeout_s=timeout_s)
        else:
            urls = tuple(f"http://127.0.0.1:{port}" for port in ports) or self.server.urls
            found = Etcd(urls, cluster or self.cluster, ttl_s=ttl_s, timeout_s=timeout_s)
        self.clients.append(found)
        return found

    def links(self) -> list[Link]:
        """A proxy before each of its ports."""
        ports = [self.server.port] if self.kind == "witness" else self.server.ports
        return [self._toxiproxy().link(f"{self.cluster}-{port}", port) for port in ports]

    async def __aenter__(self) -> World:
        return self

    async def __aexit__(self, *_: object) -> None:
        for client in self.clients:
            await client.close()


_SERVERS = {
    "etcd with one member": "etcd_one",
    "etcd with three members": "etcd_three",
    "witness": "witness",
}


def world_of(kind: str, fixture: Callable[[str], Any]) -> World:
    server = fixture(_SERVERS[kind]) if kind in _SERVERS else None
    return World(kind, server, lambda: fixture("toxiproxy"))
