"""Both ends of a link prove who they are; who does not is no peer, whatever it says next."""

from __future__ import annotations

import asyncio
import base64
import contextlib
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any

import msgpack
import pytest

from tandemq_server.config import Settings
from tandemq_server.node.core.users import Users
from tandemq_server.node.loop.dialer import Dialer
from tandemq_server.wire import constants as c
from tandemq_server.wire.auth import (
    DOWNSTREAM,
    UPSTREAM,
    chap_sha1_hash,
    check_chap_sha1,
    check_link_proof,
    link_proof,
)
from tandemq_server.wire.client import ClientError
from tandemq_server.wire.greeting import greeting
from tandemq_server.wire.replies import ok_reply
from tests.node.harness import Everybody
from tests.node.test_doors import closed, frame, logged_in, node

SECRET = chap_sha1_hash("secret")
NONCE = bytes(range(32))
ACCESS_DENIED, WRONG_CREDENTIALS = 42, 47


# -- the upstream's side ---------------------------------------------------------------------------


def accepting(bench: Any) -> list[Any]:
    """Let the bench accept links; who became one."""
    found: list[Any] = []

    def subscribed(connection: Any, reply: bytes) -> None:
        found.append(connection)
        connection.send(reply)

    bench.core.on_subscribe = subscribed
    return found


async def subscribe(wire: Any, body: dict[int, Any]) -> tuple[int, int, dict[int, Any]]:
    wire.writer.write(frame(c.SUBSCRIBE, body))
    found: tuple[int, int, dict[int, Any]] = await wire.receive()
    return found


def salt_of(wire: Any) -> bytes:
    return base64.b64decode(wire.greeting[64:108])


@pytest.mark.asyncio
async def test_a_downstream_that_proves_itself_is_given_a_proof() -> None:
    async with closed() as bench:
        links = accepting(bench)
        wire = await logged_in(bench, "peer")
        salt = salt_of(wire)
        proof = link_proof(SECRET, DOWNSTREAM, salt, NONCE)
        _, code, body = await subscribe(wire, {c.KEY_NONCE: NONCE, c.KEY_PROOF: proof})
        assert (code, len(links)) == (0, 1)
        assert check_link_proof(body[c.KEY_PROOF], SECRET, UPSTREAM, salt, NONCE)


@pytest.mark.asyncio
@pytest.mark.parametrize(
    "wrong", ["nothing", "no proof", "short nonce", "other secret", "other salt", "other side"]
)
async def test_a_downstream_without_proof_is_refused(wrong: str) -> None:
    async with closed() as bench:
        links = accepting(bench)
        wire = await logged_in(bench, "peer")
        salt = salt_of(wire)
        proof = link_proof(SECRET, DOWNSTREAM, salt, NONCE)
        body: dict[int, Any] = {
            "nothing": {},
            "no proof": {c.KEY_NONCE: NONCE},
            "short nonce": {c.KEY_NONCE: NONCE[:8], c.KEY_PROOF: proof},
            "other secret": {
                c.KEY_NONCE: NONCE,
                c.KEY_PROOF: link_proof(chap_sha1_hash("guess"), DOWNSTREAM, salt, NONCE),
            },
            "other salt": {
                c.KEY_NONCE: NONCE,
                c.KEY_PROOF: link_proof(SECRET, DOWNSTREAM, bytes(32), NONCE),
            },
            "other side": {
                c.KEY_NONCE: NONCE,
                c.KEY_PROOF: link_proof(SECRET, UPSTREAM, salt, NONCE),
            },
        }[wrong]
        _, code, _ = await subscribe(wire, body)
        assert (code, links) == (WRONG_CREDENTIALS, [])
        assert any("without proof" in line for line in bench.lines)


@pytest.mark.asyncio
async def test_nobody_follows_as_guest_whatever_guests_may_do() -> None:
    async with node(accounts=Everybody()) as bench:
        links = accepting(bench)
        wire = await bench.dial()
        _, code, _ = await subscribe(wire, {})
        assert (code, links) == (ACCESS_DENIED, [])


@pytest.mark.asyncio
async def test_older_downstreams_are_taken_while_that_is_asked_for() -> None:
    async with closed() as bench:
        links = accepting(bench)
        bench.core.older_peers = True
        wire = await logged_in(bench, "peer")
        _, code, body = await subscribe(wire, {})
        assert (code, body, len(links)) == (0, {}, 1)


# -- the downstream's side -------------------------------------------------------------------------


@contextlib.asynccontextmanager
async def impostor(answer: Any) -> AsyncIterator[int]:
    """Something on a port that greets, takes any login, and answers SUBSCRIBE with `answer`.

    `answer` gets salt, nonce and the downstream's proof.
    """
    salt = bytes(32)
    wires: list[asyncio.StreamWriter] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        wires.append(writer)
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            writer.write(greeting("2.11.0", "11111111-1111-4111-8111-111111111111", salt))
            for _ in range(2):
                length = msgpack.unpackb(await reader.readexactly(5))
                unpacker = msgpack.Unpacker(strict_map_key=False)
                unpacker.feed(await reader.readexactly(length))
                header, body = unpacker.unpack(), unpacker.unpack()
                given = {}
                if header[0] == c.SUBSCRIBE:
                    given = answer(salt, body[c.KEY_NONCE], body[c.KEY_PROOF])
                writer.write(ok_reply(header[1], given))

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        yield server.sockets[0].getsockname()[1]
        for writer in wires:
            writer.close()
            with contextlib.suppress(ConnectionError):
                await writer.wait_closed()


def dialer(port: int, **more: Any) -> tuple[Dialer, list[str]]:
    """A dialer of a node with that one peer, and the links it made."""
    made: list[str] = []
    links = {"user": "r", "password_env": "PASSWORD", **more}
    settings = Settings(peers=(f"127.0.0.1:{port}",), replication=links)
    peering = SimpleNamespace(
        window_bytes=1 << 20,
        settings=settings,
        connect=lambda address, _socket: made.append(address) or SimpleNamespace(lost=lambda: None),
    )
    found: Any = Dialer(peering, settings, None)  # type: ignore[arg-type]
    return found, made


@pytest.fixture(autouse=True)
def password(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PASSWORD", "secret")


@pytest.mark.asyncio
@pytest.mark.parametrize(
    "answer",
    [
        lambda _salt, _nonce, _proof: {},
        lambda _salt, _nonce, proof: {c.KEY_PROOF: proof},
        lambda salt, nonce, _proof: {
            c.KEY_PROOF: link_proof(chap_sha1_hash("guess"), UPSTREAM, salt, nonce)
        },
        lambda salt, _nonce, _proof: {c.KEY_PROOF: link_proof(SECRET, UPSTREAM, salt, NONCE)},
        lambda _salt, _nonce, _proof: {c.KEY_PROOF: "text"},
    ],
    ids=["no proof", "sent back", "other secret", "other nonce", "text"],
)
async def test_an_upstream_without_proof_is_not_followed(answer: Any) -> None:
    async with impostor(answer) as port:
        dials, made = dialer(port)
        with pytest.raises(ClientError, match="does not prove that it knows the password of r"):
            await dials._connect(f"127.0.0.1:{port}")
        assert made == []


@pytest.mark.asyncio
async def test_an_upstream_that_proves_itself_is_followed() -> None:
    def answer(salt: bytes, nonce: bytes, proof: bytes) -> dict[int, Any]:
        assert check_link_proof(proof, SECRET, DOWNSTREAM, salt, nonce)
        return {c.KEY_PROOF: link_proof(SECRET, UPSTREAM, salt, nonce)}

    async with impostor(answer) as port:
        dials, made = dialer(port)
        socket = await dials._connect(f"127.0.0.1:{port}")
        assert made == [f"127.0.0.1:{port}"]
        socket.transport.abort()


@pytest.mark.asyncio
async def test_older_upstreams_are_followed_while_that_is_asked_for() -> None:
    async with impostor(lambda _salt, _nonce, _proof: {}) as port:
        dials, made = dialer(port, older_peers=True)
        socket = await dials._connect(f"127.0.0.1:{port}")
        assert made
        socket.transport.abort()


def test_peers_need_no_entry_among_users() -> None:
    links = {"replication.user": "r", "replication.password_env": "PASSWORD"}
    env = {"PASSWORD": "secret"}
    people = Users(Settings.load(None, {"peers": ["h:1"], **links}, env))
    assert people.may("r", "replication")
    assert not people.may("r", "queue.tube.jobs:put")
    (secret,) = people.link_secrets("r")
    assert secret == SECRET
    assert check_chap_sha1(secret, bytes(20), _scramble())
    assert not Users(Settings.load(None, links, env)).may("r", "replication")


def _scramble() -> bytes:
    from tandemq_server.wire.auth import chap_sha1_scramble

    return chap_sha1_scramble("secret", bytes(20))
