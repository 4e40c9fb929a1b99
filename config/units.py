"""Values as people write them: sizes, durations, addresses, patterns of call names, hashes.

Each parser takes what a file, variable or flag gave and raises ValueError with the reason only;
naming the key and the accepted range is the loader's business. The schema's types are in kinds.py:
commands that only read a duration or an address do without the schema and what it imports.
"""

from __future__ import annotations

import base64
import binascii
import ipaddress
import math
import re
from typing import Any

_SIZES = {
    "": 1,
    "b": 1,
    "kb": 1000,
    "mb": 1000**2,
    "gb": 1000**3,
    "k": 1 << 10,
    "m": 1 << 20,
    "g": 1 << 30,
    "kib": 1 << 10,
    "mib": 1 << 20,
    "gib": 1 << 30,
}
_SECONDS = {"us": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0}
_SIZE = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([a-z]*)\s*", re.IGNORECASE)
_DURATION = re.compile(r"(\d+(?:\.\d+)?)\s*(us|ms|s|m|h|d)\s*")
_PLAIN = re.compile(r"-?\d+(?:\.\d+)?")
_REFERENCE = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*")
_CALL_PATTERN = re.compile(r"[^\s\x00-\x1f,]{1,200}")
_HOST = re.compile(r"[A-Za-z0-9_](?:[A-Za-z0-9_.-]{0,252})")
PORT_MAX = 65_535
CHAP_BYTES = 20
PAP_BYTES = 32


class ConfigError(Exception):
    """The configuration cannot be used. `lines` has one complaint each, most important first."""

    def __init__(self, lines: list[str]) -> None:
        super().__init__("\n".join(lines))
        self.lines = lines


def parse_bytes(value: Any) -> int:
    """A number of bytes from 1024, "64MiB", "1.5 GB"; binary for KiB, K; decimal for kB."""
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    found = _SIZE.fullmatch(value) if isinstance(value, str) else None
    factor = _SIZES.get(found.group(2).lower()) if found else None
    if found is None or factor is None:
        raise ValueError("is not a size in bytes, such as 1048576 or 1MiB")
    size = float(found.group(1)) * factor
    if size != int(size):
        raise ValueError("is not a whole number of bytes")
    return int(found.group(1)) * factor if found.group(1).isdigit() else int(size)


def parse_seconds(value: Any) -> float:
    """Seconds from 5, 0.5, "500ms", "1h30m"."""
    if isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value):
        return float(value)
    text = value.strip() if isinstance(value, str) else ""
    if _PLAIN.fullmatch(text):
        return float(text)
    # A sign is understood, so that the complaint can be about the range.
    digits = text.removeprefix("-")
    total, at = 0.0, 0
    for part in _DURATION.finditer(digits):
        if part.start() != at:
            break
        total += float(part.group(1)) * _SECONDS[part.group(2)]
        at = part.end()
    if not digits or at != len(digits):
        raise ValueError("is not a duration, such as 5, 500ms or 1h30m")
    return total if digits == text else -total


def parse_count(value: Any) -> Any:
    """Whole numbers only: true is not 1, 2.0 is not 2."""
    if isinstance(value, bool | float):
        raise ValueError("is not a whole number")
    return value


def show_bytes(value: int) -> str:
    for unit, size in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if value >= size and value % size == 0:
            return f"{value // size}{unit}"
    return str(value)


def show_seconds(value: float) -> str:
    for unit in ("d", "h"):
        if value >= _SECONDS[unit] and value % _SECONDS[unit] == 0:
            return f"{value / _SECONDS[unit]:g}{unit}"
    return f"{value * 1000:g}ms" if 0 < value < 1 else f"{value:g}s"


def split_address(text: str) -> tuple[str, int]:
    """("127.0.0.1", 3301) of "127.0.0.1:3301"; IPv6 in brackets. Raises ValueError."""
    host, colon, port = text.strip().rpartition(":")
    if not colon or not host:
        raise ValueError("is not an address, such as 127.0.0.1:3301 or [::1]:3301")
    if not (port.isascii() and port.isdigit()) or int(port) > PORT_MAX:
        raise ValueError(f"has no port number from 0 to {PORT_MAX} after its last colon")
    if host.startswith("[") and host.endswith("]"):
        try:
            return str(ipaddress.IPv6Address(host[1:-1])), int(port)
        except ValueError:
            raise ValueError("has no IPv6 address in its brackets") from None
    if not _HOST.fullmatch(host):
        raise ValueError("is not an address, such as 127.0.0.1:3301 or [::1]:3301")
    return host, int(port)


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach the address. A name other than localhost is not."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def parse_address(text: str) -> str:
    split_address(text)
    return text.strip()


def parse_host(text: str) -> str:
    try:
        return str(ipaddress.ip_address(text.strip().strip("[]")))
    except ValueError:
        pass
    if not _HOST.fullmatch(text.strip()):
        raise ValueError("is not the name of a host, without port")
    return text.strip().lower()


def parse_reference(text: str) -> str:
    if not _REFERENCE.fullmatch(text):
        raise ValueError("is not of the form module:name")
    return text


def parse_call_pattern(text: str) -> str:
    if not _CALL_PATTERN.fullmatch(text):
        raise ValueError("is not a pattern of call names, such as queue.tube.jobs:* or *")
    return text


def words(value: Any) -> Any:
    """A list from a variable or flag: items separated by commas."""
    if isinstance(value, str):
        return [word.strip() for word in value.split(",") if word.strip()]
    return value


def parse_guest(value: Any) -> Any:
    """`none`, `all`, or patterns."""
    if value in ("none", None):
        return []
    return ["*"] if value == "all" else words(value)


def parse_chap(value: Any) -> bytes:
    """sha1(sha1(password)) as 40 hex digits, or as base64 like Tarantool keeps it."""
    if isinstance(value, bytes) and len(value) == CHAP_BYTES:
        return value
    if isinstance(value, str):
        for decode in (bytes.fromhex, lambda text: base64.b64decode(text, validate=True)):
            try:
                data = decode(value.strip())
            except (ValueError, binascii.Error):
                continue
            if len(data) == CHAP_BYTES:
                return data
    raise ValueError("is not a chap-sha1 hash: run `tandemq hash-password`")


def parse_pap(value: Any) -> tuple[bytes, bytes]:
    """(salt, sha256(salt + password)) from "salt:hash" in hex."""
    if isinstance(value, tuple):
        return value
    if isinstance(value, str):
        salt, _, stored = value.strip().partition(":")
        try:
            pair = bytes.fromhex(salt), bytes.fromhex(stored)
        except ValueError:
            pair = b"", b""
        if pair[0] and len(pair[1]) == PAP_BYTES:
            return pair
    raise ValueError("is not a pap-sha256 hash (salt:hash): run `tandemq hash-password`")


def parse_share(value: Any) -> str:
    """A size in bytes, as a number in text, or a share of what there is, as "80%"."""
    text = value.strip() if isinstance(value, str) else value
    if isinstance(text, str) and text.endswith("%"):
        share = text[:-1].strip()
        if not _PLAIN.fullmatch(share) or not 1 <= float(share) <= 100:
            raise ValueError("is not a share from 1% to 100%")
        return f"{float(share):g}%"
    size = parse_bytes(text)
    if not 1 << 20 <= size <= 1 << 50:
        raise ValueError("is not from 1MiB to 1024TiB, nor a share such as 80%")
    return str(size)
