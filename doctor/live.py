"""A running node as its admin API shows it: itself, its cluster, its peers, clocks, lag, limits."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from typing import Any

from tandemq_server.admin.client import AdminClient, AdminError, AdminUnreachable, Json
from tandemq_server.doctor.findings import Bounds, Finding, Level
from tandemq_server.node.cluster.sharing import unkept

#: Descriptors a node should be allowed: ten thousand connections are its default limit.
FILES_WANTED = 4096
_SAMPLE = re.compile(r"^(\w+) ([0-9.eE+-]+|NaN)$", re.MULTILINE)


class LiveExam:
    """Iterate over findings. `status` is there afterwards, None if the node could not be asked."""

    def __init__(self, client: AdminClient, bounds: Bounds) -> None:
        self.client = client
        self.bounds = bounds
        self.where = client.address
        self.status: Json | None = None

    def __iter__(self) -> Iterator[Finding]:
        try:
            before = time.time()
            self.status = status = self.client.status()
            here = (before + time.time()) / 2
            cluster = self.client.cluster()
            metrics = samples(self.client.metrics())
        except AdminUnreachable as error:
            todo = "is the node up, with admin set, and is this the admin port?"
            if "HTTP/0.9" in str(error) or "Tarantool" in str(error):
                todo = "that is the port for clients: name the one of `admin`"
            yield self._found("admin API", "error", str(error), todo)
            return
        except AdminError as error:
            todo = "put the token into TANDEMQ_ADMIN_TOKEN (--token-env names another variable)"
            yield self._found("admin API", "error", str(error), todo if error.status == 401 else "")
            return
        self.where = f"{status['name']} ({self.client.address})"
        yield from self._node(status)
        yield from self._cluster(cluster, status)
        yield from self._peers(status["peers"])
        yield self._clock(status, here)
        yield from self._process(metrics)

    def _found(self, check: str, level: Level, text: str, todo: str = "") -> Finding:
        return Finding(self.where, check, level, text, todo)

    def _node(self, status: Json) -> Iterator[Finding]:
        term = status["term"]["number"] if status["term"] else "none"
        text = f"{status['state']}, term {term}, LSN {status['lsn']}"
        if not status["live"]:
            yield self._found(
                "state",
                "error",
                f"{text}: {status['problem']}",
                "its log failed: promote the other",
            )
        elif not status["complete"]:
            yield self._found(
                "state", "warning", f"{text}: its copy is not whole yet", "wait, or fix the link"
            )
        elif status["problem"]:
            yield self._found("state", "error", f"{text}: {status['problem']}", _TROUBLE)
        else:
            yield self._found("state", "ok", text)
        if status["solo"]:
            yield self._found(
                "pair mode",
                "warning",
                "the node goes on alone: what it acknowledges is on one disk",
                "bring the replica back; the warning then goes away",
            )
        if (told := status.get("failover")) is not None:
            ready = told["outlook"].find("nobody") < 0 and not told["paused"]
            yield self._found(
                "failover",
                "ok" if ready else "warning",
                f"if the master died: {told['outlook']}",
                "" if ready else "bring partner and arbiter back; `tandemq failover status`",
            )
        # A node of an older version counts files only; one of them may have no task in it.
        if waiting := status.get("rescue_tasks", status["rescue_files"]):
            yield self._found(
                "rescue files",
                "warning",
                f"{waiting} tasks that a rewind cut off wait in rescue files",
                "`tandemq rescue list DIR` on that machine shows them",
            )
        if status["wal_mode"] == "none":
            yield self._found(
                "durability",
                "warning",
                "wal.mode is none: a crash loses everything",
                "set wal.mode to write or fsync, unless that is what you want",
            )

        if status["promise"] != status["wal_mode"]:
            yield self._found(
                "durability",
                "warning" if status["promise"] != "unknown" else "error",
                f"an acknowledgement of the pair promises {status['promise']}, not "
                f"{status['wal_mode']}: the replica makes it durable in another way",
                "the same wal.mode on both nodes, both of this version",
            )

        if status["peers"] and status["writable"]:
            loose = unkept(status["session_ttr"], status["in_replicaset"])
            level: Level = "warning" if loose else "ok"
            kept = f"stay {status['session_ttr']:g} s with a worker that lost its connection"
            todo = "set queue.ttr and queue.in_replicaset, or leave both out: then they are on"
            yield self._found("tasks in hand", level, loose or kept, todo if loose else "")

    def _cluster(self, cluster: Json, status: Json) -> Iterator[Finding]:
        writable = cluster["writable"]
        if cluster["conflict"] or len(writable) > 1:
            yield self._found(
                "writable node",
                "error",
                f"more than one claims to be: {', '.join(writable)}",
                "`tandemq role ro` on the one with the lower term",
            )
        elif not writable:
            why = f" ({status['ro_reason']})" if status["ro_reason"] else ""
            yield self._found(
                "writable node",
                "error",
                f"there is none{why}",
                f"`tandemq role rw --admin {self.client.address}` says what it would take",
            )
        else:
            yield self._found("writable node", "ok", f"{writable[0]} serves")

    def _peers(self, peers: list[Json]) -> Iterator[Finding]:
        for peer in peers:
            name = peer["name"] or peer["address"]
            if not peer["connected"]:
                heard = peer["heard_seconds"]
                since = f", last heard {heard:.0f} s ago" if heard is not None else ""
                yield self._found(
                    "link",
                    "warning",
                    f"{name}: {peer['problem'] or 'not connected'}{since}",
                    f"start it, or fix the network to {peer['address']}",
                )
                continue
            yield self._link(peer, name)
            offset = peer["clock_offset_seconds"]
            if offset is not None and abs(offset) > self.bounds.clock_s:
                yield self._found(
                    "clock",
                    "warning",
                    f"that of {name} is {offset:+.1f} s against this node's",
                    _CLOCK,
                )

    def _link(self, peer: Json, name: str) -> Finding:
        lag = peer["lag"]
        if peer["problem"]:
            return self._found("link", "error", f"{name}: {peer['problem']}", "see both logs")
        if lag is None:
            return self._found("link", "ok", f"{name}: connected")
        text = f"{name}: {lag['records']} records, {lag['bytes']} bytes, {lag['seconds']:.1f} s"
        if lag["seconds"] > self.bounds.lag_s:
            todo = "its disk or the network is too slow, or it catches up after an absence"
            return self._found("lag", "warning", text, todo)
        return self._found("lag", "ok", text)

    def _clock(self, status: Json, here: float) -> Finding:
        """The node's log clock against this machine's: half a round trip is the error."""
        ahead = status["started"] + status["uptime_seconds"] - here
        text = f"{ahead:+.1f} s against this machine's"
        if abs(ahead) > self.bounds.clock_s:
            return self._found("clock", "warning", text, _CLOCK)
        return self._found("clock", "ok", text)

    def _process(self, metrics: dict[str, float]) -> Iterator[Finding]:
        count = metrics.get("tandemq_wal_sync_seconds_count", 0.0)
        if count:
            mean = metrics["tandemq_wal_sync_seconds_sum"] / count
            text = f"{mean * 1000:.2f} ms on average over {count:.0f} syncs"
            slow = mean > self.bounds.sync_s
            todo = "another program on the same disk, or a dying one: switch over, then look"
            yield self._found("fsync", "warning" if slow else "ok", text, todo if slow else "")
        most, used = metrics.get("process_max_fds"), metrics.get("process_open_fds")
        if most is None or used is None:
            return
        text = f"{used:.0f} of {most:.0f} in use"
        if most < FILES_WANTED or used > most * self.bounds.files_used:
            todo = "raise the limit: LimitNOFILE= in the unit, `ulimit -n` in a shell; then restart"
            yield self._found("open files", "warning", text, todo)
        else:
            yield self._found("open files", "ok", text)


_TROUBLE = "docs/operations.md, 'What is wrong', and the logs of both nodes"
_CLOCK = "run a time service (chrony, systemd-timesyncd) on both; a node's clock follows slowly"


def samples(text: str) -> dict[str, float]:
    """The values without labels of an exposition in Prometheus's text format."""
    return {name: float(value) for name, value in _SAMPLE.findall(text)}


def compared(statuses: list[Json]) -> Iterator[Finding]:
    """What only several nodes together can tell."""
    where = ", ".join(status["name"] for status in statuses)
    ids: list[Any] = [status["node_id"] for status in statuses]
    clusters = sorted({status["cluster_id"] for status in statuses})
    if len(set(ids)) < len(ids):
        yield Finding(
            where,
            "identity",
            "error",
            "two nodes run from copies of the same directory: they have one node id",
            "stop the wrong one and start it with an empty directory and read_only: true",
        )
    if len(clusters) > 1:
        yield Finding(
            where,
            "identity",
            "error",
            f"they belong to different clusters: {', '.join(clusters)}",
            "the one that is to join starts with an empty directory and read_only: true",
        )
    writable = [status["name"] for status in statuses if status["writable"]]
    if len(writable) > 1 and len(clusters) == 1:
        yield Finding(
            where,
            "writable node",
            "error",
            f"both are writable: {', '.join(writable)}",
            "`tandemq role ro` on the one with the lower term",
        )
