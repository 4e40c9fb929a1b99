"""TLS on the side that dials: which files, which name, and what a failure means in one line.

Here: the one object with these options, for client, worker, command line and Spark; what it works
with is imported when TLS is spoken. Must not be here: connections (dial.py), a node's own
certificate (the server's configuration).
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tandemq.client.errors import TlsRefused

if TYPE_CHECKING:
    import ssl

    #: A context, and the name to ask for; None for the host's.
    Dialling = tuple[ssl.SSLContext, str | None]

#: `ca` that stands for the machine's own authorities.
SYSTEM = "system"
#: Variable with the key's password, if it has one; OpenSSL shall never ask at a terminal.
KEY_PASSWORD = "TANDEMQ_TLS_KEY_PASSWORD"
LOOK_SECONDS = 1.0
#: What OpenSSL calls an answer that is no TLS.
_NO_TLS = frozenset(
    {"WRONG_VERSION_NUMBER", "UNEXPECTED_MESSAGE", "RECORD_LAYER_FAILURE", "HTTP_REQUEST"}
)


@dataclass(frozen=True, slots=True)
class Tls:
    """How a node's certificate is checked, and which one is shown to it; files are PEM.

    ca: authorities, `system` for the machine's. cert, key: shown to nodes that want one
    (`tls.client_ca`); without `key` it is in the same file. server_name: what the certificate
    names, where that is not the host that is dialled. Raises ValueError.
    """

    ca: str = SYSTEM
    cert: str | None = None
    key: str | None = None
    server_name: str | None = None

    def __post_init__(self) -> None:
        if self.key and not self.cert:
            raise ValueError("a TLS key without its certificate: give cert as well")

    @classmethod
    def of(
        cls,
        ca: str | None = None,
        cert: str | None = None,
        key: str | None = None,
        server_name: str | None = None,
    ) -> Tls | None:
        """From words of which each may be missing; None, which is no TLS, without any.

        Raises ValueError when others come without `ca`.
        """
        if not ca:
            if cert or key or server_name:
                raise ValueError(
                    f"TLS needs the authority of the nodes' certificates: a file, or `{SYSTEM}`"
                )
            return None
        return cls(ca, cert or None, key or None, server_name or None)

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] | None = None) -> Tls | None:
        """By TANDEMQ_TLS_CA, _CERT, _KEY and _SERVER_NAME, as the command line takes it."""
        env = os.environ if environment is None else environment
        return cls.of(*(env.get(f"TANDEMQ_TLS_{name}") for name in NAMES))

    def context(self) -> ssl.SSLContext:
        """Made anew for each way to a cluster, so that renewed files are taken.

        Raises ValueError that names the file that does not serve.
        """
        import ssl

        context = ssl.create_default_context()
        if self.ca != SYSTEM:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
            context.minimum_version = ssl.TLSVersion.TLSv1_2
            try:
                context.load_verify_locations(self.ca)
            except OSError as error:
                raise ValueError(f"TLS authority {self.ca}: {_reason(error)}") from None
        if self.cert is not None:
            password = os.environ.get(KEY_PASSWORD, "")
            try:
                context.load_cert_chain(self.cert, self.key, password=lambda: password)
            except OSError as error:
                where = self.cert if self.key is None else f"{self.cert} with {self.key}"
                raise ValueError(f"TLS certificate {where}: {_reason(error)}") from None
        return context

    def dialling(self) -> Dialling:
        """What connections need. Raises ValueError that names the file that does not serve."""
        return self.context(), self.server_name


NAMES = ("CA", "CERT", "KEY", "SERVER_NAME")


def tls_of(given: Tls | Mapping[str, str] | None) -> Tls | None:
    """Programs may give a map where their configuration holds no objects. Raises ValueError."""
    if given is None or isinstance(given, Tls):
        return given
    if unknown := sorted(set(given) - {name.lower() for name in NAMES}):
        raise ValueError(f"tls knows ca, cert, key and server_name, not {unknown[0]}")
    return Tls.of(**given)


def refused(node: str, error: BaseException) -> TlsRefused | None:
    """What a failed connection over TLS was refused for; None where that is not it."""
    import ssl

    if isinstance(error, ssl.SSLCertVerificationError):
        return TlsRefused(
            f"{node}: its certificate is not valid: {error.verify_message}",
            todo="is it of the authority that was given, and for that host or server name?",
        )
    if not isinstance(error, ssl.SSLError):
        return None
    reason = error.reason or str(error)
    if reason in _NO_TLS:
        return TlsRefused(
            f"{node} speaks no TLS", todo="leave out the authority, or give the node `tls`"
        )
    if "CERTIFICATE" in reason:
        return TlsRefused(
            f"{node} does not take our certificate: {reason}",
            todo="show one of its `tls.client_ca`",
        )
    return TlsRefused(f"{node}: TLS failed: {reason}")


def speaks_tls(node: str) -> TlsRefused:
    """A node with TLS was dialled without."""
    return TlsRefused(
        f"{node} speaks TLS, and was spoken to without",
        todo="give the authority of its certificate: --tls-ca FILE, TANDEMQ_TLS_CA, or "
        "tls=Tls(ca=FILE)",
    )


async def is_tls(host: str, port: int) -> bool:
    """Whether TLS is spoken there, whatever its certificate; False also when nobody answers."""
    import asyncio
    import ssl

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    try:
        async with asyncio.timeout(LOOK_SECONDS):
            _, writer = await asyncio.open_connection(host, port, ssl=context)
    except ssl.SSLError as error:
        return "ALERT" in (error.reason or "")
    except (OSError, TimeoutError):
        return False
    writer.transport.abort()
    return True


def _reason(error: OSError) -> str:
    import ssl

    if isinstance(error, ssl.SSLError):
        return error.reason or str(error)
    return error.strerror or str(error)
