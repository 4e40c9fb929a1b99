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
        "When a change is acknowledged: durable here, or also on a replica.",
        "local, pair",
    )
    solo_after: Duration | None = duration(
        5.0,
        0.1,
        DAY,
        "With ack pair: how long without a confirmation until the node goes on alone; null: never.",
        ", null",
    )
    user: str | None = text(
        None,
        "User as whom nodes log in to each other; required with peers. If it is not among "
        "users, it has this password and the right replication.",
        "a user name, null",
        min_length=1,
        max_length=200,
    )
    password_env: str | None = text(
        None,
        "Variable with the peers' password; with peers this or password_file is required. "
        "Both ends of a link prove that they know it.",
        "name of a variable, null",
        pattern=VARIABLE,
    )
    password_file: Path | None = text(None, "File with the peers' password.", "a file, null")
    second_password_file: Path | None = text(
        None,
        "File with a second password accepted from peers, while it is rolled.",
        "a file, null",
    )
    known_nodes: tuple[str, ...] | None = text(
        None,
        "Names or ids of nodes that may follow this one and feed it; null: any that knows "
        "the password.",
        "a list of names or UUIDs, null",
    )
    older_peers: bool = text(
        False,
        "During an upgrade: accept peers of versions without a proof.",
        "true, false",
    )
    heartbeat: Duration = duration(1.0, 0.05, 60.0, "Interval of heartbeats.")
    lease: Duration = duration(
        5.0,
        0.2,
        3600.0,
        "How long a silent link counts as alive; more than heartbeat.",
    )
    startup_timeout: Duration = duration(
        60.0,
        1.0,
        DAY,
        "Longest wait for synchronisation before this node becomes master.",
    )
    mixed_modes: bool = text(
        False,
        "With ack pair: accept a replica with another wal.mode. The promise is then the "
        "weaker of both, as status says; else such a replica is refused.",
        "true, false",
    )
    window_bytes: Bytes = size(
        16 * MIB,
        64 * KIB,
        GIB,
        "Unconfirmed bytes under way to one replica.",
    )
    retain_bytes: Bytes = size(
        GIB,
        MIB,
        1 << 50,
        "Most log kept for an absent replica; one that lacks more gets a snapshot.",
    )
