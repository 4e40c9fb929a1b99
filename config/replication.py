"""Settings of the links between the nodes of a cluster."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from tandemq.model.units import GIB, KIB, MIB
from tandemq_server.config.kinds import Bytes
from tandemq_server.config.kinds import Seconds as Duration
from tandemq_server.config.sections import (
    DAY,
    VARIABLE,
    Section,
    duration,
    size,
    text,
)


class Replication(Section):
    """How this node and its peers keep each other's log."""

    ack: Literal["local", "pair"] = text(
        "local",
        "When a change is acknowledged: durable here, or also at one replica.",
        "local, pair",
    )
    solo_after: Duration | None = duration(
        5.0,
        0.1,
        DAY,
        "With ack pair: how long no replica may confirm before the node goes on "
        "alone; null for never.",
        ", null",
    )
    user: str | None = text(
        None,
        "Name under which the nodes of a cluster log in at each other; required with peers. One "
        "that is not among users is known here by this password, with the right replication.",
        "a user name, null",
        min_length=1,
        max_length=200,
    )
    password_env: str | None = text(
        None,
        "Variable of the environment that holds the password for the peers; with peers this or "
        "password_file is required. Both ends of a link prove that they know it.",
        "name of a variable, null",
        pattern=VARIABLE,
    )
    password_file: Path | None = text(
        None, "File that holds the password for the peers, instead of password_env.", "a file, null"
    )
    second_password_file: Path | None = text(
        None,
        "File that holds a password that peers may say as well, while it is rolled.",
        "a file, null",
    )
    known_nodes: tuple[str, ...] | None = text(
        None,
        "Names or ids of the nodes that may follow this one and feed it; null for any that knows "
        "the password.",
        "a list of names or UUIDs, null",
    )
    older_peers: bool = text(
        False,
        "For the time of an upgrade: take also peers of a version that proves nothing.",
        "true, false",
    )
    heartbeat: Duration = duration(1.0, 0.05, 60.0, "How often a link says that it lives.")
    lease: Duration = duration(
        5.0,
        0.2,
        3600.0,
        "How long a silent link counts as living; more than heartbeat.",
    )
    startup_timeout: Duration = duration(
        60.0,
        1.0,
        DAY,
        "The longest wait for synchronisation when this node is to become master.",
    )
    mixed_modes: bool = text(
        False,
        "With ack pair: let a replica confirm whose wal.mode is another one. An acknowledgement "
        "then promises the weaker of both, and status says so; else such a replica is refused.",
        "true, false",
    )
    window_bytes: Bytes = size(
        16 * MIB,
        64 * KIB,
        GIB,
        "What may be under way to one replica before it confirms.",
    )
    retain_bytes: Bytes = size(
        GIB,
        MIB,
        1 << 50,
        "How much log is kept at most for a replica that is away; one that lacks more gets a "
        "snapshot.",
    )
