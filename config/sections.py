"""The parts of the configuration: each value with its default, range and one sentence of meaning.

Here: sections and users. Must not be here: where values come from, rules between sections.
"""

from __future__ import annotations

import os
import ssl
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from tandemq.model.bounds import REQUEST_BYTES_MAX
from tandemq.model.units import GIB, KIB, MIB
from tandemq_server.config import units
from tandemq_server.config.kinds import Bytes, CallPattern, ChapHash, Count, PapHash
from tandemq_server.config.kinds import Seconds as Duration

DAY = 86_400.0
VARIABLE = r"^[A-Za-z_][A-Za-z0-9_]*$"


def size(default: int | None, low: int, high: int, text: str, also: str = "") -> Any:
    """A field in bytes; `also` names what else is accepted (null)."""
    accepted = f"{units.show_bytes(low)} to {units.show_bytes(high)}{also}"
    return Field(
        default,
        ge=low,
        le=high,
        description=text,
        json_schema_extra={
            "accepted": accepted,
            "unit": "bytes",
        },
    )


def duration(default: float | None, low: float, high: float, text: str, also: str = "") -> Any:
    """A field in seconds."""
    accepted = f"{units.show_seconds(low)} to {units.show_seconds(high)}{also}"
    return Field(
        default,
        ge=low,
        le=high,
        description=text,
        json_schema_extra={
            "accepted": accepted,
            "unit": "seconds",
        },
    )


def count(default: int, low: int, high: int, text: str) -> Any:
    """A field that counts."""
    return Field(
        default,
        ge=low,
        le=high,
        description=text,
        json_schema_extra={
            "accepted": f"{low} to {high}",
        },
    )


def text(default: Any, meaning: str, accepted: str, **more: Any) -> Any:
    """Any other field, with what it accepts in words."""
    return Field(default, description=meaning, json_schema_extra={"accepted": accepted}, **more)


class Section(BaseModel, defer_build=True):  # what validates it is built with the whole
    """Part of the configuration: unknown keys are errors, values never change."""

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)


class Queue(Section):
    """The module's own settings, as `queue.cfg` has them."""

    ttr: Duration = duration(
        0.0,
        0.0,
        36_500 * DAY,
        "How long a session keeps its tasks without a connection. Default with peers: 60 s.",
    )
    in_replicaset: bool = text(
        False,
        "Whether the holders of tasks are logged and replicated, to survive a restart or "
        "switch-over. Default with peers: true, unless one of its tubes is temporary.",
        "true, false",
    )
    shared_sessions: bool = text(
        False,
        "Whether other users may claim a session by its UUID.",
        "true, false",
    )


class Compat(Section):
    """The original's behaviour, where it differs."""

    read_only_reply: Literal["error", "nil"] = text(
        "error",
        "Answer to changing calls on a node that is not RUNNING.",
        "error, nil",
    )
    promotion: Literal["proved", "original"] = text(
        "proved",
        "When a node that cannot reach its peer may serve without force: with proof that "
        "nothing acknowledged is missing and that the peer does not serve, or, like the "
        "original, after twice the lag last seen.",
        "proved, original",
    )


class Wal(Section):
    """The log."""

    mode: Literal["none", "write", "fsync"] = text(
        "fsync",
        "What an acknowledged change survives: nothing, a process crash, a machine crash.",
        "none, write, fsync",
    )
    segment_bytes: Bytes = size(
        32 * MIB,
        64 * KIB,
        GIB,
        "Size at which a log file is sealed.",
    )


class Snapshot(Section):
    """Copies of the whole state, so that a start need not read the whole log."""

    every_bytes: Bytes | None = size(
        256 * MIB,
        64 * KIB,
        1 << 40,
        "Log between snapshots; null: on demand only.",
        ", null",
    )
    keep: Count = count(
        2,
        1,
        100,
        "Snapshots kept, with the log behind the oldest; with a log at least 2, so that "
        "losing one loses nothing.",
    )


class Limits(Section):
    """What clients may use."""

    frame_bytes_max: Bytes = size(64 * MIB, KIB, REQUEST_BYTES_MAX, "Largest request.")
    login_bytes_max: Bytes = size(
        8 * KIB,
        KIB,
        MIB,
        "Largest request before login, unless guests have rights.",
    )
    payload_bytes_max: Bytes = size(
        MIB, 1, REQUEST_BYTES_MAX, "Largest payload of a task, encoded."
    )
    output_bytes_max: Bytes = size(
        64 * MIB,
        64 * KIB,
        4 * GIB,
        "Unread replies of a client before it is cut off.",
    )
    connections_max: Count = count(10_000, 1, 1_000_000, "Connections at one time.")
    connections_reserved: Count = count(
        16,
        0,
        10_000,
        "Of these, kept for users with the right `replication` or `*`: peers and operators.",
    )
    connections_per_address: Count | None = Field(
        None,
        ge=1,
        le=1_000_000,
        description="Of connections_max, for one address (IPv6: one /64 network); null: "
        "four fifths. Set it higher behind a proxy.",
        json_schema_extra={"accepted": "1 to 1000000, null"},
    )
    input_bytes_max: Bytes = size(
        256 * MIB,
        MIB,
        64 * GIB,
        "Incomplete requests of all connections together; beyond, all but the oldest wait.",
    )
    nesting_max: Count = count(128, 1, 500, "Nesting of arrays and maps.")
    handshake_seconds: Duration = duration(
        10.0,
        0.05,
        3600.0,
        "Time limit for a connection's first or any begun request.",
    )
    idle_seconds: Duration | None = duration(
        None,
        0.05,
        365 * DAY,
        "How long a connection may be silent; null: for ever.",
        ", null",
    )


class TlsSettings(Section):
    """Encryption of the listener (and of the admin port off loopback)."""

    cert: Path = text(..., "Certificate chain, PEM.", "a file")
    key: Path = text(..., "Private key, PEM.", "a file")
    key_password_env: str | None = text(
        None,
        "Variable with the key's password.",
        "name of a variable, null",
        pattern=VARIABLE,
    )
    client_ca: Path | None = text(
        None,
        "Authorities of client certificates; if set, clients must show one.",
        "a file, null",
    )
    min_version: Literal["1.2", "1.3"] = text("1.2", "Oldest TLS version accepted.", "1.2, 1.3")

    def context(self, env: Mapping[str, str] | None = None) -> ssl.SSLContext:
        """For a server socket; `env` is where the key's password is (None: this process's).

        Raises OSError (ssl.SSLError is one) when a file does not serve.
        """
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = getattr(
            ssl.TLSVersion, f"TLSv{self.min_version.replace('.', '_')}"
        )
        # Never let OpenSSL ask for it at a terminal.
        password = (os.environ if env is None else env).get(self.key_password_env or "", "")
        context.load_cert_chain(self.cert, self.key, password=lambda: password)
        if self.client_ca is not None:
            context.load_verify_locations(self.client_ca)
            context.verify_mode = ssl.CERT_REQUIRED
        return context

    def peer_context(self) -> ssl.SSLContext:
        """For links to peers: they must show a certificate of the same authority.

        That is `client_ca`; without it the node's own certificate file, for peers that share it.
        """
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.load_verify_locations(self.client_ca or self.cert)
        password = os.environ.get(self.key_password_env or "", "")
        context.load_cert_chain(self.cert, self.key, password=lambda: password)
        return context


class PasswordHash(Section):
    """What is kept instead of a password; `tandemq hash-password` makes both."""

    chap_sha1: ChapHash = text(..., "For chap-sha1, which every connector speaks.", "40 hex digits")
    pap_sha256: PapHash | None = text(
        None,
        "For pap-sha256, over TLS only.",
        "salt:hash in hex, null",
    )


class Quota(Section):
    """How much one user may take; null for any amount. Each node counts connections and rate."""

    tasks: Count | None = Field(
        None,
        ge=1,
        description="Tasks it has put that still exist, in all tubes together.",
        json_schema_extra={"accepted": "1 or more, null"},
    )
    bytes: Bytes | None = size(None, 1, 1 << 50, "Bytes of their payloads.")
    rate: float | None = Field(
        None,
        gt=0,
        le=1e9,
        allow_inf_nan=False,
        description="Calls a second, with a second's worth at once.",
        json_schema_extra={"accepted": "a number above 0, null"},
    )
    connections: Count | None = Field(
        None,
        ge=1,
        description="Logged-in connections at a time.",
        json_schema_extra={"accepted": "1 or more, null"},
    )


class User(Section):
    """Somebody who may log in."""

    name: str = text(..., "Login name.", "1 to 200 characters", min_length=1, max_length=200)
    password_hash: PasswordHash | None = Field(None, description="Hashes of the password.")
    password_env: str | None = text(
        None,
        "Variable with the password, instead of password_hash.",
        "name of a variable, null",
        pattern=VARIABLE,
    )
    password_file: Path | None = text(
        None, "File with the password, instead of password_hash.", "a file, null"
    )
    second_password_hash: PasswordHash | None = Field(
        None, description="Hashes of a second valid password, while clients change to it."
    )
    second_password_file: Path | None = text(
        None, "File with it, instead of second_password_hash.", "a file, null"
    )
    roles: tuple[str, ...] = text((), "Roles whose rights this user has, too.", "names of roles")
    grants: tuple[CallPattern, ...] = text(
        (),
        "Calls this user may make; queue.tube.NAME:grant adds more at run time.",
        "patterns of call names",
    )

    dialect: Literal["tube", "queue15"] | None = text(
        None,
        "What queue.NAME means for this user: the module's calls or those of Tarantool "
        "1.5; null: as the listener.",
        "tube, queue15, null",
    )
    quota: Quota | None = Field(None, description="How much it may use.")

    @property
    def hashes(self) -> tuple[PasswordHash, ...]:
        """Of all passwords that are valid: one, or two while one is rolled."""
        assert self.password_hash is not None, "set when the configuration was loaded"
        second = self.second_password_hash
        return (self.password_hash, second) if second is not None else (self.password_hash,)

    def rights(self, roles: Mapping[str, tuple[str, ...]]) -> tuple[str, ...]:
        """Patterns of all calls this user may make."""
        inherited = (pattern for role in self.roles for pattern in roles.get(role, ()))
        return (*self.grants, *inherited)


class TubeSettings(Section):
    """A tube that exists from the first start on."""

    name: str = text(
        ..., "Its name.", "1 to 65000 printable characters", min_length=1, max_length=65_000
    )
    type: str = text(
        ...,
        "Its driver.",
        "fifo, fifottl, limfifottl, utube, utubettl, queue15, or one of drivers",
        min_length=1,
    )
    options: dict[str, Any] = text({}, "Options of create_tube.", "a map")


class LogSettings(Section):
    """What the node says of itself, on standard error."""

    level: Literal["debug", "info", "warning", "error"] = text(
        "info",
        "Least important lines written.",
        "debug, info, warning, error",
    )
    format: Literal["human", "json"] = text(
        "human",
        "For people, or one JSON object a line.",
        "human, json",
    )


class Audit(Section):
    """The audit trail: who did which administrative thing, one JSON object a line."""

    path: Path | None = text(
        Path("audit/trail.jsonl"),
        "Its file; relative to data_dir. null: in memory only.",
        "a file, null",
    )
    max_bytes: Bytes = size(
        64 * MIB, KIB, GIB, "Size at which it is rotated; FILE.1 is the newest."
    )
    keep: Count = Field(
        8,
        ge=0,
        le=1000,
        description="Rotated files kept.",
        json_schema_extra={"accepted": "0 to 1000"},
    )
    token_file: Path | None = text(
        None,
        "File with the only token that may read it; null: the API's token.",
        "a file, null",
    )
