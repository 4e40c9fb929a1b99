"""AUTH: reading the request, and checking a password without ever keeping one.

Who exists, with which hash, and what to answer on failure (`denied`) is the server's business.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Collection
from typing import Any, Final

from tandemq.model.errors import ER_CREDS_MISMATCH, ER_UNKNOWN_AUTH_METHOD, QueueError
from tandemq_server.wire.arguments import malformed
from tandemq_server.wire.constants import KEY_TUPLE, KEY_USER
from tandemq_server.wire.packets import missing_field

CHAP_SHA1: Final = "chap-sha1"
PAP_SHA256: Final = "pap-sha256"
GUEST: Final = "guest"
# sha1(sha1("")), as Tarantool's guest has it.
_NO_PASSWORD: Final = hashlib.sha1(hashlib.sha1(b"").digest()).digest()
# What AUTH uses of the greeting's salt.
_CHAP_SALT_BYTES: Final = 20
_SCRAMBLE_BYTES: Final = 20
DOWNSTREAM: Final = "downstream"
UPSTREAM: Final = "upstream"
NONCE_BYTES: Final = 32


def chap_sha1_hash(password: str) -> bytes:
    """h2 = sha1(sha1(password)): what a server keeps instead of the password."""
    return hashlib.sha1(hashlib.sha1(_bytes(password)).digest()).digest()


def chap_sha1_scramble(password: str, salt: bytes) -> bytes:
    """What a client answers to the greeting's `salt`: h1 xor sha1(salt[:20] + h2)."""
    first = hashlib.sha1(_bytes(password)).digest()
    mask = hashlib.sha1(salt[:_CHAP_SALT_BYTES] + hashlib.sha1(first).digest()).digest()
    return _xor(first, mask)


def check_chap_sha1(h2: bytes, salt: bytes, scramble: bytes) -> bool:
    """Whether `scramble` was made from the password behind `h2`; in constant time."""
    if len(scramble) != _SCRAMBLE_BYTES:
        return False
    mask = hashlib.sha1(salt[:_CHAP_SALT_BYTES] + h2).digest()
    return hmac.compare_digest(hashlib.sha1(_xor(scramble, mask)).digest(), h2)


def pap_hash(password: str | bytes, salt: bytes) -> bytes:
    """sha256 over salt and password; the salt is random and kept beside the hash."""
    data = password if isinstance(password, bytes) else _bytes(password)
    return hashlib.sha256(salt + data).digest()


def check_pap(stored: bytes, salt: bytes, password: bytes) -> bool:
    """Whether the plain password an AUTH carried belongs to `stored`; in constant time."""
    return hmac.compare_digest(pap_hash(password, salt), stored)


def link_proof(h2: bytes, side: str, salt: bytes, nonce: bytes) -> bytes:
    """What an end of a link (`DOWNSTREAM`, `UPSTREAM`) says to prove that it knows the password.

    `salt` is the upstream's, of its greeting, `nonce` the downstream's: each end is challenged by
    the other. The side is part of it, so that no proof can be sent back to who made it.
    """
    return hmac.digest(h2, b"tandemq-link-1\0" + side.encode() + b"\0" + salt + nonce, "sha256")


def check_link_proof(proof: object, h2: bytes, side: str, salt: bytes, nonce: bytes) -> bool:
    """In constant time."""
    if not isinstance(proof, bytes):
        return False
    return hmac.compare_digest(link_proof(h2, side, salt, nonce), proof)


def is_guest_again(user: str, method: str, data: bytes, salt: bytes) -> bool:
    """Whether an AUTH asks to be guest: without a method, or with the password no guest has."""
    if user != GUEST:
        return False
    return not method or (method == CHAP_SHA1 and check_chap_sha1(_NO_PASSWORD, salt, data))


def parse_auth(
    body: dict[int, Any], methods: Collection[str] = (CHAP_SHA1,)
) -> tuple[str, str, bytes]:
    """(user, method, data) of an AUTH body; ("guest", "", b"") asks to be guest again.

    `data` is the scramble, or the plain password for pap-sha256. Raises QueueError 69 (key
    missing), 20 (wrong shape, or a scramble that is not 20 bytes long), 249 (not in `methods`).
    """
    user = body.get(KEY_USER)
    if user is None:
        raise missing_field("user name")
    parts = body.get(KEY_TUPLE)
    if parts is None:
        raise missing_field("tuple")
    if not isinstance(user, str) or not isinstance(parts, list):
        raise malformed("authentication request body")
    if not parts and user == GUEST:
        return user, "", b""
    if len(parts) < 2 or not isinstance(parts[0], str):
        raise malformed("authentication request body")
    method, data = parts[0], parts[1]
    if method not in methods:
        raise QueueError(ER_UNKNOWN_AUTH_METHOD, f"Unknown authentication method '{method}'")
    # python sends bin, everyone else a str that is not valid utf-8.
    if isinstance(data, str):
        data = _bytes(data)
    if not isinstance(data, bytes):
        raise malformed("authentication scramble")
    if method == CHAP_SHA1 and len(data) != _SCRAMBLE_BYTES:
        raise malformed("invalid scramble size")
    return user, method, data


def denied() -> QueueError:
    """One text for an unknown user and a wrong password."""
    return QueueError(
        ER_CREDS_MISMATCH, "User not found or supplied credentials are invalid", "ClientError"
    )


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")


def _xor(left: bytes, right: bytes) -> bytes:
    size = len(left)
    return (int.from_bytes(left, "big") ^ int.from_bytes(right, "big")).to_bytes(size, "big")
