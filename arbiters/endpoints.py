"""Asking one of several addresses that are equal, within one time for all of them together.

Here: turns, shares of the time, what to say when nobody answered. Must not be here: any protocol.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeVar

import aiohttp
from tenacity import AsyncRetrying, RetryCallState, retry_if_exception_type

from tandemq_server.arbiters.base import ANSWER_MAX, ArbiterRefused, Unreachable

T = TypeVar("T")
#: Between two rounds over all addresses.
PAUSE_S = 0.05
_CONNECTIONS_MAX = 16
_NAMES_KEPT_S = 10
_IDLE_S = 30.0


class NoAnswer(Exception):
    """This address gave no clear answer; what was asked may have been done. str(): why."""


class Endpoints:
    """Addresses, the one that answered last first. All calls raise `Unreachable`."""

    def __init__(self, what: str, urls: tuple[str, ...], timeout_s: float) -> None:
        assert urls
        self.urls = urls
        self.timeout_s = timeout_s
        self.name = f"{what} at {', '.join(urls)}"
        self._first = 0

    @property
    def url(self) -> str:
        """The one that answered last."""
        return self.urls[self._first]

    async def ask(self, one: Callable[[str], Awaitable[T]]) -> T:
        """What `one` makes of the first address that answers it.

        Addresses are tried in turn, again and again, until `timeout_s` is over: in the first round
        each has an equal share of what is left, so that one that is silent does not use it up.
        `one` raises `NoAnswer` to pass on; all else it raises is the answer.
        """
        loop = asyncio.get_running_loop()
        end = loop.time() + self.timeout_s
        count, start = len(self.urls), self._first
        reasons: dict[str, str] = {}

        async def attempt(number: int) -> T:
            at = (start + number) % count
            url = self.urls[at]
            share = (end - loop.time()) / max(count - number, 1)
            try:
                async with asyncio.timeout(share):
                    answer = await one(url)
            except (TimeoutError, aiohttp.ClientError, OSError, ssl.SSLError, NoAnswer) as error:
                # A clear word says more than that the last moments brought none.
                if url not in reasons or not isinstance(error, TimeoutError):
                    reasons[url] = _reason(error, share)
                raise NoAnswer(reasons[url]) from error
            self._first = at
            return answer

        def pause(state: RetryCallState) -> float:
            return PAUSE_S if state.attempt_number % count == 0 else 0.0

        retrying = AsyncRetrying(
            retry=retry_if_exception_type(NoAnswer),
            stop=lambda _state: loop.time() + PAUSE_S >= end,
            wait=pause,
            reraise=True,
        )
        try:
            async for trial in retrying:
                with trial:
                    return await attempt(trial.retry_state.attempt_number - 1)
        except NoAnswer:
            pass
        # The next one asked begins with another.
        self._first = (start + 1) % count
        raise Unreachable("; ".join(f"{self._called(url)}: {why}" for url, why in reasons.items()))

    def _called(self, url: str) -> str:
        return self.name if len(self.urls) == 1 else url


def _reason(error: BaseException, share: float) -> str:
    if isinstance(error, NoAnswer):
        return str(error)
    if isinstance(error, TimeoutError):
        return f"no answer within {share * 1000:.0f} ms"
    cause = getattr(error, "os_error", None) or error
    text = getattr(cause, "strerror", None) or str(cause) or type(cause).__name__
    return " ".join(str(text).split())


def client_tls(
    ca: Path | None, certificate: Path | None = None, key: Path | None = None
) -> ssl.SSLContext:
    """For a connection to an arbiter: who is trusted, what is shown. Raises `ArbiterRefused`."""
    try:
        context = ssl.create_default_context(cafile=ca)
        if certificate is not None:
            # Never let OpenSSL ask for it at a terminal.
            context.load_cert_chain(certificate, key, password="")
    except (OSError, ValueError) as error:
        raise ArbiterRefused(
            f"ca, certificate or key of the arbiter cannot be used: {error}"
        ) from None
    return context


def new_session(tls: ssl.SSLContext | None, headers: dict[str, str]) -> aiohttp.ClientSession:
    """Never through a proxy; without time-outs of its own, those are `Endpoints`'."""
    connector = aiohttp.TCPConnector(
        ssl=tls if tls is not None else True,
        limit=_CONNECTIONS_MAX,
        ttl_dns_cache=_NAMES_KEPT_S,
        keepalive_timeout=_IDLE_S,
    )
    return aiohttp.ClientSession(
        connector=connector,
        headers=headers,
        timeout=aiohttp.ClientTimeout(total=None, sock_connect=None),
        cookie_jar=aiohttp.DummyCookieJar(),
    )


async def body_of(response: aiohttp.ClientResponse) -> bytes:
    """The whole body, within its bound. Raises `NoAnswer`."""
    parts: list[bytes] = []
    size = 0
    async for part in response.content.iter_any():
        size += len(part)
        if size > ANSWER_MAX:
            response.close()
            raise NoAnswer(f"the answer is longer than {ANSWER_MAX} bytes")
        parts.append(part)
    return b"".join(parts)
