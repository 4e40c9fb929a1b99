"""What can be tried by who is let in, or by who is dialled: points 9 to 11.

Each returns the list of what was broken.
"""

from __future__ import annotations

import contextlib
import socket
import threading
import time
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgpack

from tandemq_server.replication.codec import MessageDecoder, encode
from tandemq_server.replication.lineage import Lineage
from tandemq_server.replication.messages import (
    BOOTSTRAP,
    PROTOCOL_VERSION,
    Hello,
    SnapshotBegin,
    SnapshotChunk,
    SnapshotEnd,
    Welcome,
)
from tandemq_server.wire import constants as c
from tandemq_server.wire.auth import UPSTREAM, chap_sha1_hash, link_proof
from tandemq_server.wire.greeting import greeting
from tandemq_server.wire.replies import ok_reply
from tests.attack.strangers import started
from tests.attack.target import PASSWORD
from tests.attack.wire import DENIED, SUBSCRIBE, Gone
from tests.ports import free_ports

LINKS = {"user": "nodes", "password_env": "LINK_PASSWORD", "heartbeat": "200ms", "lease": "2s"}
EVIL = ("../../evil.snap", "/tmp/../{home}/evil.snap", "..", "a/b.snap")


class Upstream:
    """Something on the peer's port that would feed whoever comes. welcomed: HELLOs it had."""

    def __init__(self, port: int, knows: bool, name: str) -> None:
        self.knows, self.name = knows, name
        self.welcomed = 0
        self.ends = threading.Event()
        self.server = socket.create_server(("127.0.0.1", port))
        self.server.settimeout(0.2)
        self.thread = threading.Thread(target=self._serve)
        self.thread.start()

    def close(self) -> None:
        self.ends.set()
        self.thread.join()
        self.server.close()

    def _serve(self) -> None:
        while not self.ends.is_set():
            with contextlib.suppress(OSError, TimeoutError):
                made, _ = self.server.accept()
                with made:
                    made.settimeout(3)
                    with contextlib.suppress(Gone, OSError, ValueError):
                        self._talk(made)

    def _talk(self, made: socket.socket) -> None:
        salt = bytes(range(32))
        made.sendall(greeting("2.11.0", "11111111-1111-4111-8111-111111111111", salt))
        stream = made.makefile("rb")
        for _ in range(2):
            head = stream.read(5)
            if len(head) < 5:
                raise Gone
            unpacker = msgpack.Unpacker(strict_map_key=False)
            unpacker.feed(stream.read(msgpack.unpackb(head)))
            header, body = unpacker.unpack(), unpacker.unpack()
            given: dict[int, Any] = {}
            if header[0] == SUBSCRIBE and self.knows:
                secret = chap_sha1_hash(PASSWORD)
                given = {c.KEY_PROOF: link_proof(secret, UPSTREAM, salt, body[c.KEY_NONCE])}
            made.sendall(ok_reply(header[1], given))
        decoder = MessageDecoder()
        while not self.ends.is_set():
            data = stream.read1(1 << 16)
            if not data:
                raise Gone
            for message in decoder.feed(data):
                if isinstance(message, Hello):
                    self.welcomed += 1
                    self._feed(made, message)

    def _feed(self, made: socket.socket, hello: Hello) -> None:
        term = b"t" * 16
        lineage = Lineage([(9, term, None, 1, "evil", False)])
        welcome = Welcome(
            *(BOOTSTRAP, 0, 0, "evil", PROTOCOL_VERSION, b"c" * 16, b"n" * 16, "evil"),
            *(lineage, 10**6, 10**6, "RUNNING", True, "write"),
        )
        data = b"written by a peer" * 100
        begin = SnapshotBegin(10**6, len(data), self.name, zlib.crc32(data))
        chunk = SnapshotChunk(0, data, zlib.crc32(data))
        made.sendall(b"".join(map(encode, (welcome, begin, chunk, SnapshotEnd(10**6)))))


@contextlib.contextmanager
def rogue(port: int, knows: bool, name: str) -> Iterator[Upstream]:
    upstream = Upstream(port, knows, name)
    try:
        yield upstream
    finally:
        upstream.close()


def rogue_upstream(home: Path, seconds: float) -> list[str]:
    """9. Whoever sits on the peer's address: without the password, and with it and evil names."""
    broken = []
    port = free_ports(1)[0]
    more = {"peers": [f"127.0.0.1:{port}"], "replication": LINKS, "read_only": True}
    with rogue(port, False, EVIL[0]) as upstream, started(home / "a", **more):
        time.sleep(min(seconds, 1.5))
        if upstream.welcomed:
            broken.append("a node follows an upstream that proves nothing")
    for number, name in enumerate(EVIL):
        inside = home / f"b{number}"
        name = name.format(home=inside)
        with rogue(port, True, name) as upstream, started(inside, **more) as node:
            until = time.monotonic() + 10
            while not upstream.welcomed and time.monotonic() < until:
                time.sleep(0.05)
            time.sleep(0.5)
            if not upstream.welcomed:
                broken.append("a peer that knows the password was not followed: nothing was tried")
            elif not node.alive:
                broken.append(f"the node ended over a snapshot called {name}")
            outside = [
                str(path)
                for path in home.rglob("*")
                if path.is_file() and "data" not in path.parts and _holds_theirs(path)
            ]
            if outside or (home / "evil.snap").exists():
                broken.append(f"a peer wrote {outside}")
    return broken


def _holds_theirs(path: Path) -> bool:
    with path.open("rb") as file:
        return b"written by a peer" in file.read(1 << 20)


def subscribers(home: Path, seconds: float) -> list[str]:
    """10. Who subscribes: a guest who may do all, a user without the right, one without proof."""
    broken = []
    peers = {"peers": ["127.0.0.1:9"], "replication": LINKS, "init": True}
    with started(home / "a", **peers, guest="all") as node:
        for user in (None, "ann", "boss"):
            with contextlib.closing(node.wire(user)) as wire:
                code, _ = wire.ask(SUBSCRIBE, {})
                if not code:
                    broken.append(f"{user or 'guest'} became a replica without proof")
                elif user != "boss" and code != DENIED:
                    broken.append(f"SUBSCRIBE of {user or 'guest'} is answered with {code}")
    return broken


def rights(home: Path, seconds: float) -> list[str]:
    """11. What a right on one tube, and an old grant, must not reach."""
    broken = []

    def refused(wire: Any, name: str, *args: Any) -> None:
        code, answer = wire.call(name, *args)
        if code != DENIED:
            broken.append(f"{name}{args} is answered with {code}: {str(answer)[:60]}")

    with started(home) as node:
        ann, bob, boss = (node.wire(user) for user in ("ann", "bob", "boss"))
        refused(ann, "queue.tube.jobs:secret:put", 1)
        refused(ann, "queue.tube.jobs:grant", "ann", {"call": True, "prefix": "queue.tube.x"})
        refused(ann, "queue.tube.jobs:grant_role", "ann", {"call": True})
        refused(ann, "queue.tube.jobs:revoke", "bob")
        dead = {"max_attempts": 1, "dead_letter": "other"}
        refused(ann, "queue.create_tube", "new", "fifo", dead)
        refused(ann, "queue.tube.jobs:alter", dead)
        refused(ann, "queue15.put", 2, "t", 0, 0, 0, 0, "x")
        refused(ann, "queue.tube.other:put", 1)
        boss.call("queue.create_tube", "brief", "fifo")
        boss.call("queue.tube.brief:grant", "ann", {"call": True})
        if ann.call("queue.tube.brief:put", 1)[0]:
            broken.append("what was granted is refused")
        boss.call("queue.tube.brief:truncate")
        boss.call("queue.tube.brief:drop")
        boss.call("queue.create_tube", "brief", "fifo")
        refused(ann, "queue.tube.brief:put", 1)
        uuid = ann.call("queue.identify")[1][0].encode("utf-8", "surrogateescape")
        if bob.call("queue.identify", uuid)[0] == 0:
            broken.append("a session is claimed by another user")
        for one in (ann, bob, boss):
            one.close()
        modes = {oct(path.stat().st_mode & 0o777) for path in node.data.rglob("*")}
        if node.data.stat().st_mode & 0o077 or modes - {"0o600", "0o700"}:
            broken.append(f"others may read the data: {modes}")
    return broken
