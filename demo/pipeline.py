"""`python -m demo pipeline`: two nodes under load, a switch-over and a kill, then the jobs judge.

Real processes on loopback. Every put carries a key, so a client that lost its answer asks again;
what clients were told goes to the audit as the file it takes with --clients.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import json
import os
import secrets
import threading
import time
import urllib.request
from pathlib import Path
from typing import Any

import msgpack
import tarantool

from demo.node_process import NodeProcess
from demo.nodes import free_ports

#: What a stock connector raises when a node is gone, read-only or in between.
#: Its warning that it connects anew is one, too, where warnings are errors.
GONE = (tarantool.Error, tarantool.error.NetworkWarning, OSError)
WAIT_SECONDS = 60.0


class Member(NodeProcess):
    """One node of the pair, with ports that stay its own."""

    def __init__(self, home: Path, name: str, port: int, admin: int, peer: int) -> None:
        self.name, self.port, self.admin = name, port, admin
        self.data = home / name
        words = ["--name", name, "--listen", f"127.0.0.1:{port}", "--admin", f"127.0.0.1:{admin}"]
        words += ["--data-dir", str(self.data), "--guest", "all", "--wal-mode", "write"]
        words += ["--peer", f"127.0.0.1:{peer}", "--set", "replication.heartbeat=0.5"]
        words += ["--set", "replication.lease=4", "--set", "replication.user=replicator"]
        # Both nodes read the one file.
        secret = home / "link.secret"
        if not secret.exists():
            secret.touch(mode=0o600)
            secret.write_text(secrets.token_hex(16))
        words += ["--set", f"replication.password_file={secret}"]
        super().__init__(home / f"{name}.log", *words)

    def ask(self, path: str, body: Any = None) -> Any:
        request = urllib.request.Request(
            f"http://127.0.0.1:{self.admin}{path}",
            None if body is None else json.dumps(body).encode(),
            {"Content-Type": "application/json"},
        )
        with urllib.request.urlopen(request, timeout=60) as answer:
            return json.loads(answer.read())

    def call(self, name: str, *args: Any) -> Any:
        # Closed also when the greeting does not come.
        client = tarantool.Connection("127.0.0.1", self.port, fetch_schema=False, connect_now=False)
        with contextlib.closing(client):
            client.connect()
            return client.call(name, args).data


class Crowd:
    """Producers and workers that follow whichever node is writable, until told to stop."""

    def __init__(self, members: list[Member], tube: str) -> None:
        self.members, self.tube = members, tube
        self.told: list[dict[str, Any]] = []
        self.over = threading.Event()
        self.done = threading.Event()
        self.threads = [threading.Thread(target=self.produce, args=(n,)) for n in range(2)]
        self.threads += [threading.Thread(target=self.work) for _ in range(3)]

    def produce(self, number: int) -> None:
        client, at = None, 0
        while not self.over.is_set():
            body = {"n": at}
            opts = {"key": f"{number}/{at}", "utube": f"host{at % 20}"}
            try:
                client = client or self.connect()
                put = client.call(f"queue.tube.{self.tube}:put", (body, opts))
            except GONE:
                self.dropped(client)
                client = None
                continue
            row = {"process": f"p{number}", "f": "put", "tube": self.tube, "outcome": "ok"}
            digest = hashlib.sha256(msgpack.packb(body)).hexdigest()
            self.told.append({**row, "task_id": put.data[0][0], "digest": digest})
            at += 1

    def work(self) -> None:
        client = None
        while not self.done.is_set():
            try:
                client = client or self.connect()
                taken = client.call(f"queue.tube.{self.tube}:take", (0.2,)).data
                if taken and taken[0]:
                    client.call(f"queue.tube.{self.tube}:ack", (taken[0][0],))
            except GONE:
                self.dropped(client)
                client = None

    def connect(self) -> tarantool.Connection:
        for member in self.members:
            client = tarantool.Connection(
                "127.0.0.1",
                member.port,
                fetch_schema=False,
                reconnect_max_attempts=0,
                socket_timeout=10,
                connection_timeout=2,
                connect_now=False,
            )
            with contextlib.suppress(*GONE):
                client.connect()
                if client.call("queue.state").data[0] == "RUNNING":
                    return client
            self.dropped(client)
        raise OSError("no node is writable")

    def dropped(self, client: tarantool.Connection | None) -> None:
        if client is not None:
            with contextlib.suppress(*GONE):
                client.close()
        time.sleep(0.05)


def until(what: Any, says: str) -> Any:
    deadline = time.monotonic() + WAIT_SECONDS
    while True:
        with contextlib.suppress(*GONE, KeyError, IndexError):
            if found := what():
                return found
        if time.monotonic() > deadline:
            raise RuntimeError(f"{says}: not within {WAIT_SECONDS:g} s")
        time.sleep(0.05)


def same(one: Member, other: Member) -> bool:
    mine, theirs = one.ask("/v1/status"), other.ask("/v1/status")
    return bool(mine["lsn"] == theirs["lsn"] and mine["term"] == theirs["term"])


def left(one: Member, other: Member, tube: str) -> int | None:
    """Tasks in the tube, as the writable node has it; None where none is writable."""
    for member in (one, other):
        if member.call("queue.state")[0] == "RUNNING":
            return int(member.call("queue.statistics", tube)[0]["tasks"]["total"])
    return None


def load(home: Path, seconds: float) -> tuple[list[str], Path]:
    """Run the pair under load; (data directories, file of what clients were told)."""
    ports = free_ports(4)
    a = Member(home, "a", ports[0], ports[2], ports[1])
    b = Member(home, "b", ports[1], ports[3], ports[0])
    crowd = Crowd([a, b], "crawl")
    try:
        a.start()
        b.start("--read-only")
        until(lambda: a.call("queue.state")[0] == "RUNNING", "node a serves")
        a.call("queue.create_tube", "crawl", "utube")
        until(lambda: same(a, b), "node b follows")
        for thread in crowd.threads:
            thread.start()
        time.sleep(seconds / 3)
        a.ask("/v1/switchover", {"to": "b", "dry_run": False})
        until(lambda: b.call("queue.state")[0] == "RUNNING", "node b serves")
        time.sleep(seconds / 3)
        b.end(9)
        b.start()
        until(lambda: "RUNNING" in (a.call("queue.state")[0], b.call("queue.state")[0]), "up again")
        time.sleep(seconds / 3)
        crowd.over.set()
        # Not by counting acks: of one that the kill left without an answer nobody can tell.
        until(lambda: left(a, b, "crawl") == 0, "everything is acked")
        until(lambda: same(a, b), "both logs are equal")
    finally:
        crowd.over.set()
        crowd.done.set()
        for thread in crowd.threads:
            if thread.ident is not None:
                thread.join(30)
        for member in (a, b):
            if member.process is not None:
                member.end(15)
    told = home / "clients.jsonl"
    told.write_text("".join(json.dumps(row) + "\n" for row in crowd.told))
    return [str(a.data), str(b.data)], told


def run(spark: Any, home: Path, paths: list[str], told: Path) -> Any:
    """History, report and audit over both logs; the audit's verdict."""
    from tandemq.pipeline import audit, history, report

    history.run(spark, paths, str(home / "history"))
    report.run(spark, paths, str(home / "report"), history=str(home / "history"))
    return audit.run(spark, paths, spark.read.json(str(told)))


def main(argv: list[str]) -> int:
    """Run it with these command-line words; exit code 1: the audit found something."""
    parser = argparse.ArgumentParser(
        prog="python -m demo pipeline",
        description="Two nodes under load, a switch-over and a kill, then history, report, audit.",
    )
    parser.add_argument("--out", type=Path, required=True, help="folder for logs and report")
    parser.add_argument("--seconds", type=float, default=10, help="time under load")
    parser.add_argument("--master", help="of Spark; default: this machine")
    parser.add_argument("--memory", default="2g", help="of the driver")
    options = parser.parse_args(argv)
    from tandemq.pipeline import cli

    # Some thousands of records: compiling well would take longer than it saves.
    os.environ.setdefault("TANDEM_SPARK_QUICK", "1")
    if options.out.exists() and any(options.out.iterdir()):
        parser.error(f"{options.out} is not empty")
    options.out.mkdir(parents=True, exist_ok=True)

    def show_it(spark: Any) -> Any:
        paths, told = load(options.out, options.seconds)
        return run(spark, options.out, paths, told)

    verdict = cli.run(options.master, options.memory, show_it, lean=False)
    cli.show(verdict.counts, False)
    for row in verdict.rows[:20]:
        print(f"{row['check']}: tube {row['tube']} task {row['task']} lsn {row['lsn']}")
    print(f"page {options.out / 'report' / 'report.html'}")
    print(verdict.text())
    return 0 if verdict.ok else cli.EXIT_VIOLATED
