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
        "Where the register is; null: none, and only an operator promotes a node.",
        "etcd, witness, null",
    )
    cluster: str | None = text(
        None,
        "The cluster's name at the arbiter, the same on all its nodes; required with one.",
        "letters, digits, _ . -, 63 at most, null",
        pattern=CLUSTER,
    )
    candidate: bool = text(
        True,
        "Whether this node may take over automatically; an operator can always promote it.",
        "true, false",
    )
    heartbeat: Duration = duration(
        0.5,
        0.05,
        60.0,
        "Interval of heartbeats with an arbiter, instead of replication.heartbeat.",
    )
    liveness_ttl: Duration = duration(
        3.0,
        2.0,
        600.0,
        "How long the arbiter counts a silent node as alive; nodes report every second.",
    )
    silence: Duration = duration(
        2.0,
        0.2,
        600.0,
        "How long a silent link counts as alive with an arbiter, instead of "
        "replication.lease. A master silent for longer, and expired at the arbiter, is "
        "replaced.",
    )
    step_down_after: Duration = duration(
        4.0,
        0.5,
        600.0,
        "How long a master that hears neither partner nor arbiter holds replies before it "
        "becomes read-only.",
    )
    timeout: Duration = duration(
        1.0, 0.05, 60.0, "Time limit for the arbiter's answer, over all its addresses."
    )
    max_loss_records: Count | None = Field(
        None,
        ge=0,
        le=1 << 40,
        description="With ack local: how many acknowledged records an automatic takeover "
        "may lose. Required there.",
        json_schema_extra={"accepted": "0 to 1099511627776, null"},
    )
    per_minute: Count = count(1, 1, 60, "Automatic takeovers by this node in a minute, at most.")
    per_hour: Count = count(
        3,
        1,
        3600,
        "The same in an hour; then it is paused, with an alert, until an operator resumes.",
    )
    etcd: EtcdSettings = Field(EtcdSettings.model_construct(), description="With arbiter etcd.")
    witness: WitnessSettings = Field(
        WitnessSettings.model_construct(), description="With arbiter witness."
    )
