"""The section of the configuration that lets the other node take over automatically."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from tandemq_server.config.arbiters import EtcdSettings, WitnessSettings
from tandemq_server.config.kinds import Count
from tandemq_server.config.kinds import Seconds as Duration
from tandemq_server.config.sections import Section, count, duration, text

CLUSTER = r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,62}$"


class Failover(Section):
    """Automatic failover: who may lead is one register in an arbiter, and nobody else's opinion."""

    arbiter: Literal["etcd", "witness"] | None = text(
        None,
        "Where the register is; null for none: then only an operator promotes a node.",
        "etcd, witness, null",
    )
    cluster: str | None = text(
        None,
        "The name under which an arbiter keeps this cluster, the same on all its nodes; "
        "needed where there is an arbiter.",
        "letters, digits, _ . -, 63 at most, null",
        pattern=CLUSTER,
    )
    candidate: bool = text(
        True,
        "Whether this node may take over automatically. An operator can promote it either way.",
        "true, false",
    )
    heartbeat: Duration = duration(
        0.5,
        0.05,
        60.0,
        "How often a link says that it lives, with an arbiter; instead of replication.heartbeat.",
    )
    liveness_ttl: Duration = duration(
        3.0,
        2.0,
        600.0,
        "How long an arbiter takes a node for living that it hears nothing of; each node says "
        "every second that it lives.",
    )
    silence: Duration = duration(
        2.0,
        0.2,
        600.0,
        "How long a silent link counts as living, with an arbiter; instead of replication.lease. "
        "A master that is silent for longer, and whose time at the arbiter is over, is replaced.",
    )
    step_down_after: Duration = duration(
        4.0,
        0.5,
        600.0,
        "How long a master that hears neither its partner nor the arbiter holds replies back "
        "before it becomes read-only.",
    )
    timeout: Duration = duration(
        1.0, 0.05, 60.0, "How long an answer of the arbiter is waited for, over all its addresses."
    )
    max_loss_records: Count | None = Field(
        None,
        ge=0,
        le=1 << 40,
        description="With ack local: how many acknowledged records may be lost when the other node "
        "takes over automatically. Demanded there, as nobody else can say it.",
        json_schema_extra={"accepted": "0 to 1099511627776, null"},
    )
    per_minute: Count = count(
        1, 1, 60, "How often in a minute this node takes over automatically at most."
    )
    per_hour: Count = count(
        3,
        1,
        3600,
        "How often in an hour; beyond that it is paused, with an alert, until an operator resumes.",
    )
    etcd: EtcdSettings = Field(EtcdSettings.model_construct(), description="With arbiter etcd.")
    witness: WitnessSettings = Field(
        WitnessSettings.model_construct(), description="With arbiter witness."
    )
