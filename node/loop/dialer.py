"""Reaching the peers: connect, log in, SUBSCRIBE, then bytes to and from the link; again and again.

One task a peer. What a link means is decided by `node.cluster.peering`; here is only the socket.
"""

from __future__ import annotations

import asyncio
import os
import random
import ssl
from typing import TYPE_CHECKING, Any

from tandemq.model.units import KIB
from tandemq_server.config.credentials import link_password
from tandemq_server.wire import client
from tandemq_server.wire import constants as c
from tandemq_server.wire.auth import (
    DOWNSTREAM,
    NONCE_BYTES,
    UPSTREAM,
    chap_sha1_hash,
    check_link_proof,
    link_proof,
)
from tandemq_server.wire.greeting import GREETING_BYTES

if TYPE_CHECKING:
    from tenacity import RetryCallState

    from tandemq_server.config import Settings
    from tandemq_server.node.cluster.follow import UpstreamLink
    from tandemq_server.node.cluster.peering import Peering

#: A peer that does not answer a step of the log-in within this time is tried again, in seconds.
ANSWER_SECONDS = 5.0
FIRST_PAUSE, LONGEST_PAUSE = 0.05, 3.0
#: After a refusal by name the peer is asked again this slowly, in seconds.
REFUSED_PAUSE = 2.0
#: A link that ends because a role changed is made anew at once, so many times in a row (a
#: switch-over ends two), and after that so many times a second.
AT_ONCE, AT_ONCE_A_SECOND = 8.0, 2.0
#: A closed link's last words that nobody reads are not waited for longer than this, in seconds.
LINGER_SECONDS = 1.0
_FAILURES = (OSError, TimeoutError, client.ClientError, EOFError)


class Dialer:
    """Keeps a link to every configured peer."""

    def __init__(self, peering: Peering, settings: Settings, tls: ssl.SSLContext | None) -> None:
        self.peering = peering
        self.take(settings)
        self.tls = tls
        self._nudges = {address: asyncio.Event() for address in settings.peers}
        self._tasks: list[asyncio.Task[None]] = []
        peering.redial = self.redial

    def take(self, settings: Settings) -> None:
        """Whom links that begin from now on log in as. Raises OSError, ValueError."""
        #: Peers without a user are refused by the configuration.
        self.user = settings.replication.user or ""
        self.older_peers = settings.replication.older_peers
        self._password = link_password(settings, os.environ)

    def start(self) -> None:
        loop = asyncio.get_running_loop()
        self._tasks = [loop.create_task(self._keep(address)) for address in self._nudges]

    def redial(self) -> None:
        """Do not wait out a pause: peers without a link are tried now."""
        for nudge in self._nudges.values():
            nudge.set()

    async def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _keep(self, address: str) -> None:
        nudge, peer = self._nudges[address], self.peering.peers[address]
        quick, at_once = 0, AtOnce(asyncio.get_running_loop().time())
        while True:
            try:
                socket = await self._reach(address)
            except Exception as error:
                # A fault of our own must not leave the node without its peer for good.
                self.peering.tried(address, f"failed: {type(error).__name__}: {error}")
                await _pause(nudge, LONGEST_PAUSE)
                continue
            loop = asyncio.get_running_loop()
            began = loop.time()
            nudge.clear()
            await socket.ended.wait()
            # A link that ends at once, time and again, must not become a busy loop.
            quick = quick + 1 if loop.time() - began < 1.0 else 0
            if peer.refused:
                pause = REFUSED_PAUSE
            elif peer.again:
                pause = 0.0 if at_once.may(loop.time()) else 1.0 / AT_ONCE_A_SECOND
            else:
                pause = min(FIRST_PAUSE * 2**quick, LONGEST_PAUSE)
            await _pause(nudge, pause)

    async def _reach(self, address: str) -> PeerSocket:
        """Try until a link stands."""
        from tenacity import AsyncRetrying, retry_if_exception_type
        from tenacity.wait import wait_exponential_jitter

        nudge = self._nudges[address]
        wait = wait_exponential_jitter(FIRST_PAUSE, LONGEST_PAUSE, jitter=FIRST_PAUSE)

        def tell(state: RetryCallState) -> None:
            assert state.outcome is not None
            error = state.outcome.exception()
            dead = isinstance(error, ConnectionError | EOFError)
            self.peering.tried(address, _why(error), dead)

        retrying = AsyncRetrying(
            retry=retry_if_exception_type(_FAILURES),
            wait=wait,
            sleep=lambda seconds: _pause(nudge, seconds),
            before_sleep=tell,
        )
        socket: PeerSocket = await retrying(self._connect, address)
        return socket

    async def _connect(self, address: str) -> PeerSocket:
        host, _, port = address.rpartition(":")
        loop = asyncio.get_running_loop()
        async with asyncio.timeout(ANSWER_SECONDS):
            _, socket = await loop.create_connection(
                lambda: PeerSocket(
                    self.peering.window_bytes,
                    self.peering.settings.replication.ack == "local",
                ),
                host.strip("[]"),
                int(port),
                ssl=self.tls,
                server_hostname=host.strip("[]") if self.tls else None,
            )
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                await self._log_in(socket)
        except BaseException:
            socket.transport.abort()
            raise
        socket.link = self.peering.connect(address, socket)
        socket.hand_over()
        return socket

    async def _log_in(self, socket: PeerSocket) -> None:
        """Both ends prove that they know the password; what does not is no peer."""
        salt, nonce = client.salt_of(await socket.read(GREETING_BYTES)), os.urandom(NONCE_BYTES)
        await self._ask(socket, client.auth_request(self.user, self._password, salt))
        secret = chap_sha1_hash(self._password)
        proof = link_proof(secret, DOWNSTREAM, salt, nonce)
        body = await self._ask(
            socket, client.request(c.SUBSCRIBE, {c.KEY_NONCE: nonce, c.KEY_PROOF: proof})
        )
        if c.KEY_PROOF not in body and self.older_peers:
            return
        if not check_link_proof(body.get(c.KEY_PROOF), secret, UPSTREAM, salt, nonce):
            raise client.ClientError(
                f"does not prove that it knows the password of {self.user}: it is not followed"
            )

    async def _ask(self, socket: PeerSocket, packet: bytes) -> dict[int, Any]:
        socket.write(packet)
        length = client.reply_length(await socket.read(client.LENGTH_BYTES))
        return client.check_reply(await socket.read(length))


class AtOnce:
    """An allowance of links made without a pause. times: seconds of the event loop."""

    def __init__(self, now: float) -> None:
        self._left, self._since = AT_ONCE, now

    def may(self, now: float) -> bool:
        """Whether one more is allowed; it is counted then."""
        self._left = min(AT_ONCE, self._left + (now - self._since) * AT_ONCE_A_SECOND)
        self._since = now
        if self._left < 1.0:
            return False
        self._left -= 1.0
        return True


def _why(error: BaseException | None) -> str:
    """One line, the same for the same cause."""
    if isinstance(error, TimeoutError):
        return "does not answer"
    if isinstance(error, EOFError):
        return "closed the connection during login"
    if isinstance(error, OSError) and error.errno:
        return f"cannot be reached: {os.strerror(error.errno)}"
    return str(error)


async def _pause(nudge: asyncio.Event, seconds: float) -> None:
    """Wait, but not longer than until the nudge, nor for one that came since the link stood.

    Whoever ends a link because the role changes nudges in the same turn, before the pause begins.
    """
    try:
        async with asyncio.timeout(seconds * random.uniform(0.8, 1.2)):
            await nudge.wait()
    except TimeoutError:
        pass
    nudge.clear()


def close_soon(transport: Any) -> None:
    """Send what was written, but do not wait for a peer that does not read it."""
    transport.close()
    asyncio.get_running_loop().call_later(LINGER_SECONDS, transport.abort)


#: A read that follows the one before within so many seconds is followed by a rest, of so many
#: seconds at least and at most, that should gather so many bytes.
BUSY_SECONDS, SHORTEST_REST, LONGEST_REST, REST_BYTES = 0.001, 0.002, 0.005, 32 * KIB
#: A read of so many bytes is of a backlog: go on at once.
RESTLESS_BYTES = 64 * KIB


class PeerSocket(asyncio.Protocol):
    """One outgoing connection: first read by the log-in, then by the link."""

    def __init__(self, window_bytes: int, rests: bool = False) -> None:
        """`rests`: nobody waits for each confirmation, so that frames may be read in groups."""
        self.link: UpstreamLink | None = None
        self.ended = asyncio.Event()
        self._high = 2 * window_bytes
        self._buffer = bytearray()
        self._more = asyncio.Event()
        self._gone = False
        self._rests = rests
        self._busy_until = 0.0
        self._pause = SHORTEST_REST
        self.transport: Any = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport
        self.transport.set_write_buffer_limits(high=self._high)

    async def read(self, size: int) -> bytes:
        while len(self._buffer) < size:
            if self._gone:
                raise asyncio.IncompleteReadError(bytes(self._buffer), size)
            self._more.clear()
            await self._more.wait()
        data = bytes(self._buffer[:size])
        del self._buffer[:size]
        return data

    def hand_over(self) -> None:
        """What comes from here on is the link's."""
        if self._gone:
            assert self.link is not None
            self.link.lost()
            self.ended.set()
        elif self._buffer:
            data, self._buffer = bytes(self._buffer), bytearray()
            self.data_received(data)

    def data_received(self, data: bytes) -> None:
        if self.link is None:
            self._buffer += data
            self._more.set()
        else:
            self.link.receive(data)
            if self._rests and len(data) < RESTLESS_BYTES:
                self._rest(len(data))

    def _rest(self, size: int) -> None:
        """While much comes, read every few milliseconds only: what came meanwhile costs less."""
        loop = asyncio.get_running_loop()
        now = loop.time()
        if now < self._busy_until and not self._gone and not self.transport.is_closing():
            self._pause = min(max(self._pause * REST_BYTES / size, SHORTEST_REST), LONGEST_REST)
            self.transport.pause_reading()
            loop.call_later(self._pause, self._read_on)
            now += self._pause
        self._busy_until = now + BUSY_SECONDS

    def _read_on(self) -> None:
        if not self._gone and not self.transport.is_closing():
            self.transport.resume_reading()

    def connection_lost(self, exc: Exception | None) -> None:
        self._gone = True
        self._more.set()
        if self.link is not None:
            self.link.lost(
                f"the connection was lost: {exc}" if exc else "the connection was closed"
            )
            self.ended.set()

    # -- Wire ------------------------------------------------------------------------------------

    def write(self, data: bytes) -> None:
        if not self._gone:
            self.transport.write(data)

    def close(self) -> None:
        close_soon(self.transport)
        self.ended.set()


def peer_tls(settings: Settings) -> ssl.SSLContext | None:
    """Peers are spoken to as this node is: with TLS if it has it, showing its own certificate."""
    return settings.tls.peer_context() if settings.tls is not None and settings.peers else None
