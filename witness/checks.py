"""What the witness refuses, and in which words: callers, names, numbers, bodies.

Every refusal is a `Problem` of RFC 9457 and changes nothing.
"""

from __future__ import annotations

import asyncio
import hmac
from hashlib import sha256
from typing import Any

from aiohttp import web

from tandemq_server.admin.problems import Problem
from tandemq_server.admin.strict_json import parse
from tandemq_server.arbiters.base import ID, NUMBER_MAX, is_name, seat_of
from tandemq_server.statemachine.seat import Seat

BODY_MAX = 16_384
TOKEN_MIN = 16
_REALM = 'Bearer realm="tandemq-witness"'


class Token:
    """The one token; compared in a time that tells nothing of it."""

    def __init__(self, token: str | None) -> None:
        self._digest = None if token is None else _digest(token)

    def check(self, request: web.Request) -> None:
        """Raises `Problem` 401."""
        if self._digest is None:
            return
        values = request.headers.getall("Authorization", [])
        scheme, _, given = (values[0] if len(values) == 1 else "").partition(" ")
        if scheme.lower() != "bearer" or not given.strip():
            headers = {"WWW-Authenticate": _REALM}
            raise Problem("unauthorized", "send Authorization: Bearer TOKEN", None, headers)
        if not hmac.compare_digest(_digest(given.strip()), self._digest):
            headers = {"WWW-Authenticate": f'{_REALM}, error="invalid_token"'}
            raise Problem("unauthorized", "this is not the witness's token", None, headers)


def _digest(token: str) -> bytes:
    return sha256(token.encode("utf-8", "surrogateescape")).digest()


def name_in(request: web.Request, what: str) -> str:
    """The name of a cluster or node in the path. Raises `Problem` 400."""
    name = request.match_info[what]
    if not is_name(name):
        raise Problem("bad-request", f"{what}: is not 1 to 63 of letters, digits, _ . -")
    return name


def number_in(request: web.Request, what: str, default: float, most: float) -> float:
    """A number from 0 to `most` in the query. Raises `Problem` 400."""
    given = request.query.get(what)
    if given is None:
        return default
    try:
        found = float(given) if given.isascii() and len(given) < 32 else -1.0
    except ValueError:
        found = -1.0
    if not 0 <= found <= most:
        raise Problem("bad-request", f"{what}: is not a number from 0 to {most:g}")
    return found


def revision_in(request: web.Request) -> int:
    """The revision in the query. Raises `Problem` 400."""
    given = request.query.get("revision", "0")
    if not (given.isascii() and given.isdigit() and len(given) < 20):
        raise Problem("bad-request", "revision: is not a whole number from 0")
    return int(given)


async def swap_in(request: web.Request, seconds: float) -> tuple[int, Seat, str]:
    """(revision, seat, id of the swap) of a body. Raises `Problem` 400, 408, 413, 422."""
    try:
        async with asyncio.timeout(seconds):
            raw = await request.read()
    except TimeoutError:
        headers = {"Connection": "close"}
        raise Problem("timeout", f"the body took more than {seconds:g} s", None, headers) from None
    body = parse(raw)
    if not isinstance(body, dict):
        raise Problem("invalid", "the body is not an object")
    if unknown := sorted(set(body) - {"revision", "seat", "swap"}):
        raise Problem("invalid", f"{unknown[0][:63]!r} is not a field of this request")
    revision, swap = body.get("revision"), body.get("swap")
    if type(revision) is not int or not 0 <= revision <= NUMBER_MAX:
        raise Problem("invalid", "revision: is not a whole number from 0 to 2^63 - 1")
    if not isinstance(swap, str) or not ID.fullmatch(swap):
        raise Problem("invalid", "swap: is not 32 hex digits, which this request alone has")
    return revision, _seat(body.get("seat")), swap


def _seat(value: Any) -> Seat:
    try:
        seat = seat_of(value)
    except ValueError as error:
        raise Problem("invalid", f"seat: {error}") from None
    if unknown := sorted(set(value) - set(Seat._fields)):
        raise Problem("invalid", f"seat: {unknown[0][:63]!r} is not a field of a seat")
    return seat
