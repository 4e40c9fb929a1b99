"""The client's side of IPROTO: what nodes need among each other, and the command line with one."""

from __future__ import annotations

import base64
import binascii
from typing import Any

import msgpack

from tandemq_server.wire import constants as c
from tandemq_server.wire.auth import chap_sha1_scramble
from tandemq_server.wire.greeting import GREETING_BYTES, SALT_BYTES

LENGTH_BYTES = 5
#: Replies to AUTH and SUBSCRIBE are a few dozen bytes; an error's text may be longer.
REPLY_BYTES_MAX = 1 << 16


class ClientError(Exception):
    """The server refused, or does not speak IPROTO. str() is one line."""


def salt_of(greeting: bytes) -> bytes:
    """The salt of a greeting of 128 bytes. Raises `ClientError`."""
    lines = greeting.split(b"\n")
    try:
        salt = base64.b64decode(lines[1].strip(), validate=True)
    except (IndexError, binascii.Error) as error:
        raise ClientError("what answers is not an IPROTO server") from error
    if (
        len(greeting) != GREETING_BYTES
        or not lines[0].startswith(b"Tarantool ")
        or (len(salt) != SALT_BYTES)
    ):
        raise ClientError("what answers is not an IPROTO server")
    return salt


def auth_request(user: str, password: str, salt: bytes) -> bytes:
    scramble = chap_sha1_scramble(password, salt)
    return request(c.AUTH, {c.KEY_USER: user, c.KEY_TUPLE: ["chap-sha1", scramble]})


def request(rtype: int, body: dict[int, Any]) -> bytes:
    packet = msgpack.packb({c.KEY_TYPE: rtype, c.KEY_SYNC: 1}) + msgpack.packb(body)
    return b"\xce" + len(packet).to_bytes(4, "big") + bytes(packet)


def reply_length(head: bytes, bytes_max: int = REPLY_BYTES_MAX) -> int:
    """How many bytes follow the first five. Raises `ClientError`."""
    length = int.from_bytes(head[1:LENGTH_BYTES], "big")
    if head[0] != 0xCE or length > bytes_max:
        raise ClientError("what answers is not an IPROTO server: its reply has no length")
    return length


def check_reply(packet: bytes) -> dict[int, Any]:
    """The body. Raises `ClientError` with the server's text when the reply is an error."""
    unpacker = msgpack.Unpacker(strict_map_key=False, unicode_errors="surrogateescape")
    unpacker.feed(packet)
    try:
        header, body = unpacker.unpack(), unpacker.unpack()
        failed = header[c.KEY_TYPE] != 0
        text = body.get(c.KEY_ERROR_TEXT, "no reason given")
    except (ValueError, KeyError, AttributeError, TypeError, msgpack.UnpackException) as error:
        raise ClientError("what answers is not an IPROTO server: its reply is garbage") from error
    if failed:
        raise ClientError(f"refused: {text}")
    found: dict[int, Any] = body
    return found
