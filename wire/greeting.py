"""The first 128 bytes a server says, in one write: version, instance, salt.

The salt comes from the caller; nothing here is random.
"""

from __future__ import annotations

import base64
import re
from typing import Final
from uuid import UUID

GREETING_BYTES: Final = 128
SALT_BYTES: Final = 32
_LINE_BYTES: Final = 63
# One connector reads digits and dots only and hangs on anything else; a longer version would push
# the salt out of its place and break every one of them.
_VERSION = re.compile(r"\d+\.\d+\.\d+").fullmatch
_VERSION_CHARS_MAX: Final = 7
_UUID_CHARS: Final = 36


def instance_uuid(node_id: str) -> str:
    """The id a node shows connectors; `node_id` is UUID text.

    net.box refuses a greeting whose UUID has a variant that was never defined (the fourth group
    begins with e or f), as ids made of 16 random bytes have once in eight times. Such a node shows
    the version 4 UUID made of the same bytes.
    """
    return node_id if node_id[19:20] not in "efEF" else str(UUID(node_id, version=4))


def greeting(version: str, instance: str, salt: bytes) -> bytes:
    """`version` as MAJOR.MINOR.PATCH (at most 7 characters), uuid of 36, 32 fresh random bytes.

    The first 20 bytes of `salt` are what AUTH is checked with. Raises ValueError.
    """
    if not _VERSION(version) or len(version) > _VERSION_CHARS_MAX:
        raise ValueError(f"version {version!r} does not fit a greeting")
    if len(instance) != _UUID_CHARS or not instance.isascii():
        raise ValueError(f"instance uuid {instance!r} should have {_UUID_CHARS} characters")
    if len(salt) != SALT_BYTES:
        raise ValueError(f"a salt has {SALT_BYTES} bytes, not {len(salt)}")
    line = f"Tarantool {version} (Binary) {instance}".encode("ascii")
    encoded = base64.b64encode(salt)
    message = line.ljust(_LINE_BYTES) + b"\n" + encoded.ljust(_LINE_BYTES) + b"\n"
    assert len(message) == GREETING_BYTES
    return message
