"""When the certificates that a node has or trusts end, read from their files.

Here: the one field of X.509 that an operator has to be told of in time. Must not be here: whether a
certificate is right; OpenSSL judges that.
"""

from __future__ import annotations

import base64
import binascii
import re
from calendar import timegm
from collections.abc import Iterator
from pathlib import Path
from time import strptime
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from tandemq_server.config.schema import Settings

_PEM = re.compile(rb"-----BEGIN CERTIFICATE-----(.*?)-----END CERTIFICATE-----", re.DOTALL)
_EXPLICIT_0, _UTC_TIME = 0xA0, 0x17


class CertificateEnd(NamedTuple):
    """setting: whose file it is, such as `tls.cert`. ends_s: Unix time, the first of all in it."""

    setting: str
    ends_s: int


def ends_of(settings: Settings) -> tuple[CertificateEnd, ...]:
    """Of each certificate file of a node, its arbiter's among them, that can be read."""
    tls, etcd, witness = settings.tls, settings.failover.etcd, settings.failover.witness
    files = {
        "tls.cert": None if tls is None else tls.cert,
        "tls.client_ca": None if tls is None else tls.client_ca,
        "failover.etcd.ca": etcd.ca,
        "failover.etcd.certificate": etcd.certificate,
        "failover.witness.ca": witness.ca,
    }
    found = ((name, end_of(file)) for name, file in files.items() if file is not None)
    return tuple(CertificateEnd(name, ends_s) for name, ends_s in found if ends_s is not None)


def end_of(file: Path) -> int | None:
    """When the first certificate of a PEM file ends, as Unix time; None when it cannot be told."""
    try:
        bodies = _PEM.findall(file.read_bytes())
        return min((_not_after(base64.b64decode(body)) for body in bodies), default=None)
    except (OSError, ValueError, IndexError, binascii.Error):
        return None


def _not_after(data: bytes) -> int:
    """RFC 5280: Certificate, TBSCertificate, [version], serial, signature, issuer, validity."""
    outer = _first(data)
    fields = [item for item in _items(_first(outer)) if item[0] != _EXPLICIT_0]
    _begins, (tag, text) = _items(fields[3][1])
    year = "%y" if tag == _UTC_TIME else "%Y"
    return timegm(strptime(text.decode("ascii"), f"{year}%m%d%H%M%SZ"))


def _first(data: bytes) -> bytes:
    return next(_items(data), (0, b""))[1]


def _items(data: bytes) -> Iterator[tuple[int, bytes]]:
    """(tag, content) of each DER value."""
    at = 0
    while at < len(data):
        tag, length, at = data[at], data[at + 1], at + 2
        if length & 0x80:
            size = length & 0x7F
            length, at = int.from_bytes(data[at : at + size]), at + size
        yield tag, data[at : at + length]
        at += length
