"""What can be tried from outside, most of it without a password: points 1 to 8, and garbage.

Each attack runs for `seconds` against a node of its own and returns why it is broken, or what it
measured. Loads are bounded; whatever is opened is closed.
"""

from __future__ import annotations

import contextlib
import random
import socket
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import yaml

from tests.attack.target import Node, Toll, configuration, watched
from tests.attack.wire import (
    AUTH,
    CALL,
    EVAL,
    ID,
    PING,
    SELECT,
    Gone,
    Wire,
    body_of,
    frame,
    header_of,
)

LARGE = 60 << 20
JOBS = "queue.tube.jobs"
#: Tasks a user may have in `at_the_quota`.
QUOTA = 20_000
#: Wrong passwords after which the next ones wait, and some more.
FREE_GUESSES = 130
VSPACE = 281
ALL_ROWS = {0x10: VSPACE, 0x11: 0, 0x12: 100_000, 0x13: 0, 0x14: 2, 0x20: []}


@contextlib.contextmanager
def started(home: Path, authority: Path | None = None, **more: object) -> Iterator[Node]:
    node = Node(home, **more)
    node.authority = authority
    try:
        yield node.start()
    finally:
        node.stop()


@contextlib.contextmanager
def many(make: Callable[[], Wire], count: int) -> Iterator[list[Wire]]:
    made: list[Wire] = []
    try:
        for _ in range(count):
            with contextlib.suppress(OSError, Gone):
                made.append(make())
        yield made
    finally:
        for one in made:
            one.close()


def again(node: Node, wires: dict[int, Wire], at: int, user: str | None = None) -> Wire | None:
    """The connection number `at`, opened anew if it is gone."""
    if at not in wires:
        try:
            wires[at] = node.wire(user)
        except (OSError, Gone):
            return None
    return wires[at]


def hammer(node: Node, seconds: float, payload: bytes, count: int, user: str | None) -> int:
    """Send `payload` over `count` connections as fast as it goes; how often it was taken whole."""
    until, taken = time.monotonic() + seconds, 0
    wires: dict[int, Wire] = {}
    while time.monotonic() < until:
        for at in range(count):
            wire = again(node, wires, at, user)
            if wire is None:
                continue
            if wire.flood(payload):
                taken += 1
            else:
                wires.pop(at).close()
            if time.monotonic() >= until:
                break
    for wire in wires.values():
        wire.close()
    return taken


def large_frames(home: Path, seconds: float) -> Toll:
    """1. Requests of 60 MiB before login."""
    with started(home) as node, watched(node, 1.0) as toll:
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            for rtype in (EVAL, AUTH, PING, SELECT, CALL):
                with contextlib.suppress(OSError, Gone):
                    wire = node.wire()
                    wire.send(header_of(LARGE, rtype))
                    for _ in range(LARGE >> 20):
                        if not wire.send(bytes(1 << 20)):
                            break
                    else:
                        toll.errors.append(f"60 MiB of a stranger's request {rtype} were taken")
                    wire.close()
    return toll


def schema(home: Path, seconds: float) -> Toll:
    """2. Reads of `_vspace` by strangers and by a user, on a node of 500 tubes."""
    tubes = [{"name": f"t{number}", "type": "fifo"} for number in range(500)]
    tubes += [{"name": "witness", "type": "fifo"}]
    with started(home, tubes=tubes) as node:
        stranger = node.wire()
        code, text = stranger.ask(SELECT, ALL_ROWS)
        stranger.close()
        with watched(node, 1.0) as toll:
            if not code:
                toll.errors.append(f"a stranger read {len(text)} rows of _vspace")
            packet = frame(SELECT, ALL_ROWS) * 100
            hammer(node, seconds / 2, packet, 20, None)
            hammer(node, seconds / 2, packet, 4, "ann")
    return toll


def expressions(home: Path, seconds: float) -> Toll:
    """3. EVAL of 10 MB, by a stranger and by a user."""
    text = "return " + "{" * (10 << 20)
    with started(home) as node, watched(node, 1.0) as toll:
        for user in (None, "ann"):
            hammer(node, seconds / 2, frame(EVAL, {0x27: text, 0x21: []}), 4, user)
    return toll


def unfinished(home: Path, seconds: float) -> Toll:
    """4. Requests of 100 connections that are never finished, of users and of strangers.

    A user's may take `limits.input_bytes_max` together, which is set here; a stranger's nothing.
    """
    limits = {"input_bytes_max": "32MiB"}
    with started(home, limits=limits) as node, watched(node, 1.0) as toll:
        until = time.monotonic() + seconds
        with many(lambda: node.wire("ann", 2.0), 100) as users:
            for wire in users:
                wire.socket.settimeout(0.05)
                wire.send(header_of(LARGE, CALL) + bytes(4 << 20))
            with many(node.wire, 100) as strangers:
                for wire in strangers:
                    wire.send(header_of(8000, AUTH) + bytes(7000))
                while time.monotonic() < until:
                    time.sleep(0.05)
    return toll


def guests(home: Path, seconds: float) -> Toll:
    """5. More guests than there are places, after one PING each; then a user and an operator."""
    limits = {"connections_max": 300, "connections_reserved": 8}
    with started(home, limits=limits) as node, watched(node, 1.0) as toll:

        def pinged() -> Wire:
            wire = node.wire(wait=2.0)
            wire.ask(PING, {})
            return wire

        with many(pinged, 350):
            # From here on: to open them all may take as long, on a busy machine.
            until = time.monotonic() + seconds
            while time.monotonic() < until:
                for user in ("ann", "boss"):
                    try:
                        began = time.monotonic()
                        with contextlib.closing(node.wire(user, 5.0)) as wire:
                            wire.ask(PING, {})
                        if time.monotonic() - began > 2:
                            toll.errors.append(f"{user} waited for a place")
                    except (OSError, Gone) as error:
                        toll.errors.append(f"{user} was locked out: {error!r}")
                if toll.errors:
                    break
                time.sleep(0.05)
    return toll


def one_address(home: Path, seconds: float) -> Toll:
    """5. A user who takes every place it can from one address; then one who comes from another."""
    limits = {"connections_max": 300, "connections_reserved": 8}
    with (
        started(home, limits=limits) as node,
        watched(node, 1.0) as toll,
        many(lambda: node.wire("ann", 2.0), 350),
    ):
        until = time.monotonic() + seconds
        while not toll.errors and time.monotonic() < until:
            try:
                with contextlib.closing(node.wire("bob", 5.0, "127.0.0.2")) as wire:
                    wire.ask(PING, {})
            except (OSError, Gone) as error:
                toll.errors.append(f"another address was locked out: {error!r}")
            time.sleep(0.05)
    return toll


def silent_probes(home: Path, seconds: float) -> Toll:
    """6. 300 silent connections to the admin port, and the balancer's probe beside them."""
    with started(home) as node, watched(node, 1.0) as toll:
        silent = []
        try:
            for _ in range(300):
                silent.append(socket.create_connection(("127.0.0.1", node.admin), 5))
            until = time.monotonic() + seconds
            while time.monotonic() < until:
                began = time.monotonic()
                try:
                    with urllib.request.urlopen(
                        f"http://127.0.0.1:{node.admin}/primary", timeout=3
                    ) as answer:
                        answer.read()
                except OSError as error:
                    toll.errors.append(f"/primary does not answer: {error}")
                    break
                if time.monotonic() - began > 1:
                    toll.errors.append("/primary took more than a second")
                    break
                time.sleep(0.1)
        finally:
            for one in silent:
                one.close()
    return toll


def names_and_guesses(home: Path, seconds: float) -> Toll:
    """7. Call names of 16 MiB in errors, and passwords guessed as fast as it goes."""
    with started(home) as node, watched(node, 1.0) as toll:
        hammer(node, seconds / 2, frame(CALL, body_of("x" * (16 << 20))), 2, "ann")
        guess(node, 10.0, FREE_GUESSES)
        heard = guess(node, max(2.0, seconds / 2), 1 << 30)
        # A hundred cost nothing; from then on five connections a second, of three guesses.
        if heard > 15 * max(2.0, seconds / 2) + 15:
            toll.errors.append(f"{heard} guesses were answered in {max(2.0, seconds / 2):g} s")
    return toll


def guess(node: Node, seconds: float, enough: int) -> int:
    """Passwords of one user, three a connection; how many were answered."""
    until, heard = time.monotonic() + seconds, 0
    packet = frame(AUTH, {0x23: "boss", 0x21: ["chap-sha1", bytes(20)]})
    while time.monotonic() < until and heard < enough:
        with contextlib.suppress(OSError, Gone), contextlib.closing(node.wire(wait=1.0)) as wire:
            wire.send(packet * 3)
            while wire.receive()[1]:
                heard += 1
    return heard


def silent_handshakes(home: Path, seconds: float) -> Toll:
    """7. Connections to a TLS port on which no handshake begins; then one that does."""
    import ssl

    import trustme

    authority = trustme.CA()
    issued = authority.issue_cert("127.0.0.1", "localhost")
    home.mkdir(parents=True, exist_ok=True)
    key, cert, ca = home / "key.pem", home / "cert.pem", home / "ca.pem"
    authority.cert_pem.write_to_path(ca)
    issued.private_key_pem.write_to_path(key)
    issued.cert_chain_pems[0].write_to_path(cert)
    limits = {"connections_max": 300, "handshake_seconds": 2}
    tls = {"cert": str(cert), "key": str(key)}
    with (
        started(home / "n", ca, tls=tls, limits=limits) as node,
        watched(node, 1.0) as toll,
    ):
        context = ssl.create_default_context(cafile=ca)
        silent = []
        try:
            until = time.monotonic() + seconds
            while time.monotonic() < until:
                # More than there may be under way: some are ended, and begun again.
                for one in silent[:-300]:
                    one.close()
                del silent[:-300]
                for _ in range(300):
                    try:
                        silent.append(socket.create_connection(("127.0.0.1", node.port), 1))
                    except OSError:
                        break
                time.sleep(0.2)
            began, problem = time.monotonic(), "nothing was tried"
            # A handshake that never begins may take its place for `handshake_seconds`.
            while problem and time.monotonic() - began < 6:
                try:
                    plain = socket.create_connection(("127.0.0.1", node.port), 3)
                    with context.wrap_socket(plain, server_hostname="127.0.0.1") as secure:
                        problem = "" if secure.recv(128).startswith(b"Tarantool") else "no greeting"
                except OSError as error:
                    problem = str(error)
                    time.sleep(0.2)
            if problem:
                toll.errors.append(f"a TLS client was locked out: {problem}")
        finally:
            for one in silent:
                one.close()
    return toll


def pipelining(home: Path, seconds: float) -> Toll:
    """8. One user who pipelines without end. What it stores is bounded: memory is for that."""
    with started(home) as node, watched(node, 1.0) as toll:
        some = (
            frame(CALL, body_of(f"{JOBS}:put", "x" * 50))
            + frame(CALL, body_of(f"{JOBS}:take", 0))
            + frame(CALL, body_of(f"{JOBS}:statistics"))
        ) * 1000
        hammer(node, seconds, (some + frame(CALL, body_of(f"{JOBS}:truncate"))) * 3, 1, "ann")
    return toll


def at_the_quota(home: Path, seconds: float) -> Toll:
    """8. One user who has put what it may, and goes on putting: refusals are cheap, too."""
    people = configuration()["users"]
    for one in people:
        one["quota"] = {"tasks": QUOTA} if one["name"] == "ann" else None
    with started(home, users=people) as node:
        with contextlib.closing(node.wire("ann")) as wire:
            for _ in range(QUOTA // 1000):
                wire.call(f"{JOBS}:put_many", [["x"]] * 1000)
        with watched(node, 1.0) as toll:
            hammer(node, seconds, frame(CALL, body_of(f"{JOBS}:put", "x" * 50)) * 5000, 1, "ann")
    return toll


def pipelining_a_pair(home: Path, seconds: float) -> Toll:
    """8. The same on a master in pair mode: it stays in its role, and never goes alone."""
    links = {"ack": "pair", "solo_after": "2s", "heartbeat": "200ms", "lease": "2s"}
    links |= {"user": "nodes", "password_env": "LINK_PASSWORD"}
    a, b = Node(home, "a"), Node(home, "b")
    for one, other in ((a, b), (b, a)):
        file = one.home / "node.yaml"
        found = yaml.safe_load(file.read_text())
        found |= {"peers": [f"127.0.0.1:{other.port}"], "replication": links}
        found["read_only"] = one is b
        found["init"] = one is a
        file.write_text(yaml.safe_dump(found))
    try:
        a.start()
        b.start()
        until = time.monotonic() + 30
        while time.monotonic() < until and (a.role()[2] or not a.role()[3]):
            time.sleep(0.1)
        with watched(a, 1.0, b) as toll:
            some = frame(CALL, body_of(f"{JOBS}:put", "x" * 50)) * 1000
            hammer(a, seconds, (some + frame(CALL, body_of(f"{JOBS}:truncate"))) * 5, 1, "ann")
            time.sleep(0.5)
        return toll
    finally:
        for node in (a, b):
            node.stop()


def garbage(home: Path, seconds: float, frames: int | None = None) -> Toll:
    """Malformed requests, of strangers and of a user, `frames` of them or for `seconds`."""
    rng = random.Random(7)
    good = [
        frame(PING, {}),
        frame(ID, {0x54: 4}),
        frame(EVAL, {0x27: "return box.info", 0x21: []}),
        frame(SELECT, ALL_ROWS),
        frame(CALL, body_of("queue.tube.jobs:put", {"a": [1, 2, "x" * 40]}, {"ttl": 5})),
        frame(CALL, body_of("queue.identify", b"\xff" * 16)),
        frame(AUTH, {0x23: "ann", 0x21: ["chap-sha1", bytes(20)]}),
    ]
    until, sent = time.monotonic() + seconds, 0
    with started(home) as node, watched(node, 1.0) as toll:
        wires: dict[int, Wire] = {}
        while sent < frames if frames is not None else time.monotonic() < until:
            at = rng.randrange(8)
            wire = again(node, wires, at, "ann" if at % 2 else None)
            if wire is None:
                continue
            packets = []
            for _ in range(50):
                one = bytearray(rng.choice(good))
                for _ in range(rng.randrange(1, 4)):
                    one[rng.randrange(5, len(one))] = rng.randrange(256)
                packets.append(bytes(one))
            if not wire.flood(b"".join(packets)):
                wires.pop(at).close()
            sent += len(packets)
        for wire in wires.values():
            wire.close()
    toll.samples = sent
    return toll
