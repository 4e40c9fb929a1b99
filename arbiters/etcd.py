"""etcd as the arbiter, over its JSON gateway: a key for the seat, one with a lease for each node.

Reads are linearizable and writes are transactions on the key's revision; nothing is ever asked of
one member's own memory.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import secrets
import ssl
from collections.abc import AsyncGenerator
from typing import Any

import aiohttp

from tandemq_server.arbiters.base import (
    ArbiterRefused,
    SwapLost,
    Unreachable,
    as_json,
    seat_map,
    seat_of,
    went_back,
)
from tandemq_server.arbiters.endpoints import Endpoints, NoAnswer
from tandemq_server.arbiters.etcd_calls import Calls, Json, No, b64, number, unb64
from tandemq_server.statemachine.seat import Seat, SeatReading

_STREAM_AGAIN_S = 0.2


class _Found:
    """What a read found: the reading, whose swap wrote it, and the revision of the whole store."""

    __slots__ = ("head", "reading", "swap")

    def __init__(self, reading: SeatReading, swap: str | None, head: int) -> None:
        self.reading = reading
        self.swap = swap
        self.head = head


class Etcd:
    """See `base.Arbiter`. ttl_s: of the nodes' keys, in whole seconds, which etcd may lengthen.

    timeout_s: for each answer, whatever the number of endpoints. Close it when done.
    """

    def __init__(
        self,
        endpoints: tuple[str, ...],
        cluster: str,
        *,
        ttl_s: float = 3.0,
        timeout_s: float = 1.0,
        user: str | None = None,
        password: str | None = None,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        urls = tuple(url.rstrip("/") for url in endpoints)
        self._endpoints = Endpoints("etcd", urls, timeout_s)
        self._calls = Calls(user, password, tls)
        self._ttl_s = max(1, round(ttl_s))
        self._seat_key = f"/tandemq/{cluster}/seat"
        self._alive_key = f"/tandemq/{cluster}/alive/"
        self._leases: dict[str, str] = {}

    @property
    def name(self) -> str:
        return self._endpoints.name

    async def read(self) -> SeatReading:
        return (await self._read()).reading

    async def swap(self, revision: int, seat: Seat) -> SeatReading:
        # Which swap wrote the value tells ours from the same one of somebody else, so that asking
        # again after an answer that was lost is no second swap.
        swap = secrets.token_hex(16)
        attempt = _Swap(self, revision, swap, {**seat_map(seat), "swap": swap})
        return await self._endpoints.ask(attempt.run)

    async def keep_alive(self, node: str) -> None:
        await self._endpoints.ask(lambda url: self._keep_alive(url, node))

    async def alive(self) -> frozenset[str]:
        prefix = self._alive_key
        # All keys with the prefix: up to the one that follows "/".
        body = {"key": b64(prefix), "range_end": b64(prefix[:-1] + "0"), "keys_only": True}
        answer = await self._endpoints.ask(lambda url: self._clear(url, "/v3/kv/range", body))
        found = frozenset(
            unb64(item["key"]).decode(errors="replace").removeprefix(prefix)
            for item in answer.get("kvs", [])
        )
        # A key that somebody removed comes back with the next lease.
        for node in [node for node in self._leases if node not in found]:
            del self._leases[node]
        return found

    async def watch(self, revision: int) -> AsyncGenerator[SeatReading, None]:
        while True:
            # Read first: what is asked of the stream never lies in a past that was compacted.
            found = await self._read()
            if found.reading.revision < revision:
                raise went_back(self.name, found.reading.revision, revision)
            if found.reading.revision > revision:
                revision = found.reading.revision
                yield found.reading
            async with contextlib.aclosing(self._news(found.head + 1)) as news:
                async for heard in news:
                    # A stream that is silent may be one of a member that lost the others.
                    reading = heard or (await self._read()).reading
                    if reading.revision < revision:
                        break
                    if reading.revision > revision:
                        revision = reading.revision
                        yield reading
                        if heard is None:
                            break
            await asyncio.sleep(_STREAM_AGAIN_S)

    async def close(self) -> None:
        await self._calls.close()

    # -- one endpoint ----------------------------------------------------------------------------

    async def _clear(self, url: str, path: str, body: Json) -> Json:
        """A call whose every refusal is a clear one, because it writes no seat."""
        try:
            return await self._calls.call(url, path, body)
        except No as no:
            raise self._refused(no) from None

    def _refused(self, no: No) -> ArbiterRefused:
        return ArbiterRefused(f"{self.name}: {no}")

    async def _read(self) -> _Found:
        return await self._endpoints.ask(self._read_from)

    async def _read_from(self, url: str) -> _Found:
        answer = await self._clear(url, "/v3/kv/range", {"key": b64(self._seat_key)})
        return self._found(answer, answer)

    def _found(self, answer: Json, ranged: Json) -> _Found:
        """Out of the answer to a read, or to a transaction whose `ranged` is the read in it."""
        head = number(answer.get("header", {}).get("revision"))
        for item in ranged.get("kvs", []):
            reading, swap = self._reading(item)
            return _Found(reading, swap, head)
        return _Found(SeatReading(None, 0), None, head)

    def _reading(self, item: Json) -> tuple[SeatReading, str | None]:
        try:
            value = json.loads(unb64(item.get("value", "")))
            seat = seat_of(value)
        except ValueError as error:
            reason = "is not JSON" if isinstance(error, json.JSONDecodeError) else error
            raise ArbiterRefused(f"{self.name}: the value at {self._seat_key} {reason}") from None
        return SeatReading(seat, number(item.get("mod_revision"))), value.get("swap")

    async def _keep_alive(self, url: str, node: str) -> None:
        lease = self._leases.get(node)
        if lease is not None:
            answer = await self._clear(url, "/v3/lease/keepalive", {"ID": lease})
            result = answer.get("result")
            if isinstance(result, dict) and number(result.get("TTL")) > 0:
                return
            del self._leases[node]
        answer = await self._clear(url, "/v3/lease/grant", {"TTL": self._ttl_s})
        lease = str(answer.get("ID", ""))
        body = {"key": b64(self._alive_key + node), "value": "", "lease": lease}
        await self._clear(url, "/v3/kv/put", body)
        self._leases[node] = lease

    async def _news(self, start: int) -> AsyncGenerator[SeatReading | None, None]:
        """Readings from a stream, None when it is silent for a while; ends when it breaks."""
        key = b64(self._seat_key)
        body = {"create_request": {"key": key, "start_revision": str(start)}}
        url = self._endpoints.url
        try:
            stream = self._calls.stream(url, "/v3/watch", body, self._endpoints.timeout_s)
            async with contextlib.aclosing(stream) as answers:
                async for answer in answers:
                    if answer is None:
                        yield None
                        continue
                    if answer.get("canceled"):
                        return
                    for event in answer.get("events", []):
                        if event.get("type") == "DELETE":
                            return
                        yield self._reading(event.get("kv", {}))[0]
        except (aiohttp.ClientError, OSError, NoAnswer, No):
            return


class _Swap:
    """One swap, asked for until its outcome is known or the time is over.

    All attempts write the same value on the same condition: one of them at most is carried out, and
    whose it was is read in the value.
    """

    def __init__(self, etcd: Etcd, revision: int, swap: str, value: Json) -> None:
        self._etcd = etcd
        self._revision = revision
        self._swap = swap
        key = b64(etcd._seat_key)
        self._body: dict[str, Any] = {
            "compare": [
                {
                    "key": key,
                    "target": "MOD",
                    "result": "EQUAL",
                    "mod_revision": str(revision),
                }
            ],
            "success": [{"request_put": {"key": key, "value": b64(as_json(value))}}],
            "failure": [{"request_range": {"key": key}}],
        }
        self._seat = seat_of(value)
        #: An attempt may still be under way.
        self._loose = False

    async def run(self, url: str) -> SeatReading:
        loose, self._loose = self._loose, True
        try:
            answer = await self._etcd._calls.call(url, "/v3/kv/txn", self._body)
        except No as no:
            self._loose = loose
            return await self._after(url, no)
        except aiohttp.ClientConnectorError:
            # Nothing was sent.
            self._loose = loose
            raise
        except ArbiterRefused:
            if loose:
                raise Unreachable(
                    f"{self._etcd.name}: an earlier attempt was not answered"
                ) from None
            raise
        if answer.get("succeeded"):
            return SeatReading(self._seat, number(answer.get("header", {}).get("revision")))
        (response,) = answer.get("responses", [{}]) or [{}]
        return self._settle(self._etcd._found(answer, response.get("response_range", {})))

    def _settle(self, found: _Found) -> SeatReading:
        if found.swap == self._swap:
            return found.reading
        raise SwapLost(found.reading)

    async def _after(self, url: str, no: No) -> SeatReading:
        """etcd said no. Unless that is clear, what is there says whether it did it all the same."""
        if not no.clear:
            found = await self._etcd._read_from(url)
            if found.swap == self._swap or found.reading.revision != self._revision:
                return self._settle(found)
        if self._loose:
            raise Unreachable(f"{self._etcd.name}: an earlier attempt was not answered, then: {no}")
        raise self._etcd._refused(no)
