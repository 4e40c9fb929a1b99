"""Everything that may be configured: the one schema that flags, variables and files share.

The documentation and the checks are made from it too. The parts are in sections.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from tandemq_server.config import units
from tandemq_server.config.failover import Failover
from tandemq_server.config.kinds import Address, CallPattern, Host, Reference
from tandemq_server.config.memory import Memory
from tandemq_server.config.replication import Replication
from tandemq_server.config.sections import (
    VARIABLE,
    Audit,
    Compat,
    Limits,
    LogSettings,
    Queue,
    Snapshot,
    TlsSettings,
    TubeSettings,
    User,
    Wal,
    text,
)

ENV_PREFIX = "TANDEMQ_"
NAME = r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,62}$"

Words = Annotated[tuple[Address, ...], BeforeValidator(units.words)]
Hosts = Annotated[tuple[Host, ...], BeforeValidator(units.words)]
Guest = Annotated[tuple[CallPattern, ...], BeforeValidator(units.parse_guest)]


class Settings(BaseModel):
    """One node's configuration. `Settings.load` is the way in; nothing changes afterwards."""

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)

    name: str = text(
        "node",
        "What this node is called in its cluster.",
        "letters, digits, _ . -, 63 at most",
        pattern=NAME,
    )
    listen: Address = text(
        "127.0.0.1:3301",
        "Where clients and peers connect; port 0: any free one.",
        "host:port",
    )
    dialect: Literal["tube", "queue15"] = text(
        "tube",
        "What queue.NAME means on listen: the module's calls or those of Tarantool 1.5.",
        "tube, queue15",
    )
    listen_queue15: Address | None = text(
        None,
        "A second client address, for the dialect queue15.",
        "host:port, null",
    )
    admin: Address | None = text(
        None,
        "Where the admin API listens, if anywhere.",
        "host:port, null",
    )
    admin_token_env: str | None = text(
        None,
        "Variable with the admin API's bearer token; off loopback a token is required.",
        "name of a variable, null",
        pattern=VARIABLE,
    )
    admin_token_file: Path | None = text(
        None,
        "File with the admin API's bearer token.",
        "a file, null",
    )
    admin_second_token_file: Path | None = text(
        None,
        "File with a second valid token, while it is rolled.",
        "a file, null",
    )
    admin_hosts: Hosts = text(
        (),
        "More host names under which the admin API may be reached, beside its address and "
        "localhost; requests with another Host are refused.",
        "names or addresses of hosts, without port",
    )
    data_dir: Path = text(Path("data"), "Log and snapshots; created if missing.", "a directory")
    init: bool = text(
        False,
        "Whether an empty node may found a cluster although a peer cannot be reached. For "
        "the first start of the first node only; otherwise an empty node joins its peer's "
        "cluster, or waits.",
        "true, false",
    )
    read_only: bool = text(False, "Start as a replica, in state WAITING.", "true, false")
    peers: Words = text((), "The other nodes of the cluster.", "addresses host:port")
    guest: Guest = text((), "Calls allowed without a login.", "none, all, patterns of call names")
    allow_open: bool = text(
        False,
        "Allow guest all on an address that other machines can reach.",
        "true, false",
    )
    users: tuple[User, ...] = text((), "Who may log in.", "a list of users")
    roles: dict[str, tuple[CallPattern, ...]] = text(
        {},
        "Rights by the name of a role.",
        "a map of lists of patterns",
    )
    drivers: dict[str, Reference] = text(
        {},
        "More tube types, each with its class.",
        "a map to module:Class",
    )
    on_task_change: dict[str, Reference] = text(
        {},
        "Functions called for each change of a tube's tasks.",
        "a map to module:function",
    )
    functions: tuple[Reference, ...] = text(
        (),
        "More functions that tubes may name as worker or id generator.",
        "a list of module:function",
    )
    tubes: tuple[TubeSettings, ...] = text((), "Tubes to create at the start.", "a list of tubes")
    replication: Replication = Field(
        Replication.model_construct(), description="Links to the peers."
    )
    failover: Failover = Field(
        Failover.model_construct(),
        description="Who may lead, kept by an arbiter, and automatic takeover.",
    )
    queue: Queue = Field(Queue.model_construct(), description="Settings of the module.")
    compat: Compat = Field(
        Compat.model_construct(), description="The original's behaviour, where it differs."
    )
    wal: Wal = Field(Wal.model_construct(), description="The log.")
    snapshot: Snapshot = Field(Snapshot.model_construct(), description="Snapshots.")
    limits: Limits = Field(Limits.model_construct(), description="What clients may use.")
    memory: Memory = Field(
        Memory.model_construct(), description="Bounds on the memory of the process."
    )
    tls: TlsSettings | None = Field(None, description="Encryption; null for none.")
    log: LogSettings = Field(LogSettings.model_construct(), description="Lines on standard error.")
    audit: Audit = Field(Audit.model_construct(), description="The audit trail.")

    @classmethod
    def load(
        cls,
        config_file: Path | str | None = None,
        flags: Mapping[str, Any] | None = None,
        env: Mapping[str, str] | None = None,
    ) -> Settings:
        """Flags (by dotted key) before TANDEMQ_* variables before the file before defaults.

        `env` is the whole environment. Raises ConfigError; nothing but the files named is read.
        """
        from tandemq_server.config.load import load

        return load(config_file, flags or {}, env or {})

    @property
    def listen_host(self) -> str:
        return units.split_address(self.listen)[0]

    @property
    def listen_port(self) -> int:
        return units.split_address(self.listen)[1]

    @property
    def queue15_address(self) -> tuple[str, int] | None:
        return units.split_address(self.listen_queue15) if self.listen_queue15 is not None else None

    @property
    def admin_address(self) -> tuple[str, int] | None:
        return units.split_address(self.admin) if self.admin is not None else None

    @property
    def audit_path(self) -> Path | None:
        """None for no file."""
        return self.data_dir / self.audit.path if self.audit.path is not None else None

    @property
    def peer_addresses(self) -> tuple[tuple[str, int], ...]:
        return tuple(units.split_address(peer) for peer in self.peers)

    def guest_rights(self) -> tuple[str, ...]:
        """Patterns of the calls guest may make."""
        return self.guest
