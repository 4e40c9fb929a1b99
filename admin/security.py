"""Who may ask what: Host, bearer token, cross-site requests, and what must hold before listening.

Browsers are the danger on loopback (DNS rebinding, cross-site posting), the network is elsewhere.
"""

from __future__ import annotations

import hmac
import ipaddress
import re
import ssl
from collections.abc import Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from urllib.parse import urlsplit

from aiohttp import hdrs, web

from tandemq_server.admin.problems import Problem
from tandemq_server.config.units import is_loopback

#: Answered to anybody: load balancers have no token, and the document is public.
PROBES = ("/primary", "/replica", "/health", "/liveness", "/readiness")
#: Answered without the token: they tell nothing of what is in the node.
OPEN = frozenset((*PROBES, "/openapi.json", "/"))
OPEN_PREFIX = "/console/"
SAFE_METHODS = frozenset(("GET", "HEAD"))
TOKEN_MIN = 16
_WILDCARDS = ("0.0.0.0", "::")
_HOST = re.compile(r"(?:\[(?P<six>[0-9A-Fa-f:.]{2,45})\]|(?P<name>[^\s\[\]:@/?#]+))(?::\d{1,5})?")
#: Read with the API's token, or with one of its own (`audit.token_file`).
TRAIL_PATH = "/v1/audit-trail"
_REALM = 'Bearer realm="tandemq"'


class AdminRefused(Exception):
    """The API must not listen like this. The text is one line."""


@dataclass(frozen=True, slots=True)
class AdminConfig:
    """Where and for whom the API listens.

    hosts: further names it is known by (a service name, a proxy's). tls: None only on loopback.
    flip_wait_s: how long a request waits for a new state before it is answered 202.
    heartbeat_s: how often a silent event stream says that it lives. write_s: how long a listener
    may leave its events unread before it is cut off. ask_s: how long a connection may take over a
    TLS handshake, and over its first request.
    """

    host: str
    port: int
    token: str | None = field(default=None, repr=False)
    second_token: str | None = field(default=None, repr=False, kw_only=True)
    trail_token: str | None = field(default=None, repr=False, kw_only=True)
    tls: ssl.SSLContext | None = None
    hosts: tuple[str, ...] = ()
    flip_wait_s: float = 10.0
    heartbeat_s: float = 15.0
    write_s: float = 30.0
    body_s: float = 10.0
    ask_s: float = 5.0
    connections_max: int = 256
    streams_max: int = 64

    def check(self) -> None:
        """Raise `AdminRefused` when this would leave the node open to others."""
        where = f"admin {self.host}:{self.port}"
        if self.token is not None:
            if not all("!" <= char <= "~" for char in self.token):
                raise AdminRefused(f"{where}: the token has characters other than visible ASCII")
            if len(self.token) < TOKEN_MIN:
                raise AdminRefused(f"{where}: the token is shorter than {TOKEN_MIN} characters")
        if is_loopback(self.host):
            return
        if self.token is None:
            raise AdminRefused(f"{where}: off loopback a token is needed, set admin_token_env")
        if self.tls is None:
            raise AdminRefused(f"{where}: off loopback TLS is needed, set tls.cert and tls.key")


def host_of(header: str) -> str | None:
    """The host a Host header names, lower case, without port; None when it is malformed."""
    found = _HOST.fullmatch(header)
    return plain_host(found["six"] or found["name"]) if found else None


def plain_host(host: str) -> str:
    """One spelling of a host: lower case, addresses in their short form."""
    host = host.lower().removesuffix(".")
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return host
    mapped = getattr(address, "ipv4_mapped", None)
    return str(mapped or address)


class RequestGuard:
    """Checks one request before any handler sees it; each check raises `Problem`."""

    def __init__(self, config: AdminConfig) -> None:
        names = ["localhost", "127.0.0.1", "::1", *config.hosts]
        if config.host not in _WILDCARDS:
            names.append(config.host)
        self._hosts = frozenset(plain_host(name) for name in names)
        self.take(config.token, config.second_token, config.trail_token)

    def take(self, token: str | None, second: str | None, trail: str | None = None) -> None:
        """Which tokens are valid from now on; none at all without the first.

        `trail`: the only one that reads the audit trail, and nothing else.
        """
        self._trail = None if trail is None else _digest(trail)
        given = (token, second) if token is not None else ()
        self._tokens = [_digest(one) for one in given if one is not None]

    def check_caller(self, request: web.Request) -> None:
        """401, 403: whether this caller is answered at all."""
        self._check_host(request)
        if request.path == TRAIL_PATH and self._trail is not None:
            _check_token(request, [self._trail])
        elif self._tokens and not _is_open(request.path):
            _check_token(request, self._tokens)

    def check_change(self, request: web.Request) -> None:
        """403, 415: whether a request that changes something came from one of our own."""
        if request.method not in SAFE_METHODS:
            _check_site(request)
            _check_type(request)

    def _check_host(self, request: web.Request) -> None:
        headers = request.headers.getall(hdrs.HOST, [])
        if not headers and request.version < (1, 1) and request.path in PROBES:
            return  # A load balancer's plain HTTP/1.0 check: no browser leaves the header out.
        host = host_of(headers[0]) if len(headers) == 1 else None
        if host is None or not (host in self._hosts or host == _own_address(request)):
            raise Problem(
                "foreign-host",
                "send the Host header this node is configured with, an address it listens on, "
                "or localhost",
            )


def _check_token(request: web.Request, tokens: Sequence[bytes]) -> None:
    values = request.headers.getall(hdrs.AUTHORIZATION, [])
    scheme, _, token = (values[0] if len(values) == 1 else "").partition(" ")
    if scheme.lower() != "bearer" or not token.strip():
        challenge = {"WWW-Authenticate": _REALM}
        raise Problem("unauthorized", "send Authorization: Bearer TOKEN", None, challenge)
    given = _digest(token.strip())
    if not sum(hmac.compare_digest(given, one) for one in tokens):
        challenge = {"WWW-Authenticate": f'{_REALM}, error="invalid_token"'}
        raise Problem("unauthorized", "this is not the node's token", None, challenge)


def _is_open(path: str) -> bool:
    return path in OPEN or path.startswith(OPEN_PREFIX)


def _digest(token: str) -> bytes:
    """Of equal length for all tokens, so that the comparison tells nothing of the real one's."""
    return sha256(token.encode("utf-8", "surrogateescape")).digest()


def _own_address(request: web.Request) -> str | None:
    """The address this connection came in on: reaching us by number is no rebinding."""
    transport = request.transport
    name = transport.get_extra_info("sockname") if transport is not None else None
    return plain_host(name[0]) if isinstance(name, tuple) else None


def _same_origin(origin: str, request: web.Request) -> bool:
    # The scheme is not compared: a proxy may have taken TLS off.
    try:
        parts = urlsplit(origin.lower())
    except ValueError:
        return False
    return parts.scheme in ("http", "https") and parts.netloc == request.headers[hdrs.HOST].lower()


def _check_type(request: web.Request) -> None:
    """415 unless the body is declared as plain JSON: what a cross-site form cannot send."""
    accept = {"Accept": "application/json"}
    charset = (request.charset or "utf-8").lower()
    if request.headers.get(hdrs.CONTENT_TYPE) is None or request.content_type != "application/json":
        raise Problem("not-json-type", "send Content-Type: application/json", None, accept)
    if charset not in ("utf-8", "utf8", "us-ascii"):
        raise Problem("not-json-type", f"charset {charset} is not utf-8", None, accept)
    if request.headers.get(hdrs.CONTENT_ENCODING, "identity").lower() != "identity":
        raise Problem("not-json-type", "a compressed body is not accepted", None, accept)


def _check_site(request: web.Request) -> None:
    """A browser says whose page asks; only our own may change something."""
    site = request.headers.get("Sec-Fetch-Site", "none").lower()
    if site not in ("none", "same-origin"):
        raise Problem("cross-site", f"Sec-Fetch-Site is {site!r}, not same-origin")
    for origin in request.headers.getall(hdrs.ORIGIN, []):
        if not _same_origin(origin, request):
            raise Problem("cross-site", "the Origin header names another site")
