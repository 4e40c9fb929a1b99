"""The audit trail: who did what, by IPROTO, admin API and signals; its file, and its failures."""

from __future__ import annotations

import asyncio
import json
import signal
import time
import urllib.request
from pathlib import Path
from typing import Any

import pytest
import yaml

from tandemq_server.node.core.trail import Noted, administrative, shown
from tandemq_server.node.loop import trail as trails
from tandemq_server.node.loop.trail import AuditTrail
from tests.admin.harness import api
from tests.cluster.cluster_nodes import Member, until
from tests.node.harness import node
from tests.node.test_rights_of_calls import as_user, users
from tests.ports import free_ports

TOKEN, READER = "a-token-of-some-length", "the-auditors-own-token"


def told(bench: Any) -> list[Noted]:
    found: list[Noted] = []
    bench.core.noted = found.append
    return found


@pytest.mark.asyncio
async def test_calls_are_noted_with_who_and_how_they_ended() -> None:
    accounts = users(boss=["*"], ann=["queue.tube.*:put"])
    async with node(accounts=accounts) as bench:
        found = told(bench)
        boss, ann = await as_user(bench, "boss"), await as_user(bench, "ann")
        for name, *args in (
            ("queue.create_tube", "jobs", "fifo", {"if_not_exists": True}),
            ("queue.tube.jobs:put", "secret payload"),
            ("queue.tube.jobs:grant", "ann", {"call": True}),
            ("queue.tube.jobs:pause", "puts"),
            ("queue.tube.jobs:drop",),
        ):
            boss.send_call(name, *args)
            assert (await boss.receive())[1] == 0, name
        ann.send_call("queue.tube.jobs:drop")
        ann.send_call("queue.tube.other:take", 0)
        boss.send_call("queue.create_tube", "x", "no such type")
        assert [(await ann.receive())[1], (await ann.receive())[1]] == [42, 42]
        assert (await boss.receive())[1]
    assert [(one.user, one.action, one.target, one.outcome) for one in found] == [
        ("boss", "queue.create_tube", "jobs", "done"),
        ("boss", "grant", "jobs", "done"),
        ("boss", "pause", "jobs", "done"),
        ("boss", "drop", "jobs", "done"),
        ("ann", "drop", "jobs", "refused"),
        ("boss", "queue.create_tube", "x", "refused"),
    ]
    assert found[0].details == ["jobs", "fifo", {"if_not_exists": True}]
    assert "denied for user 'ann'" in found[4].error
    assert "Unknown tube type" in found[5].error
    assert all(one.by == "iproto" and one.address.startswith("127.0.0.1:") for one in found)


@pytest.mark.asyncio
async def test_by_eval_and_by_a_late_answer_it_is_noted_once() -> None:
    async with node() as bench:
        found = told(bench)
        wire = await bench.dial()
        asked: list[tuple[Any, int]] = []

        def later(connection: Any, ticket: int, args: bytes) -> None:
            asked.append((connection, ticket))

        bench.core.handlers["box.snapshot"] = later
        wire.send(0x08, {0x27: "return queue.create_tube('jobs', 'fifo')", 0x21: []})
        assert (await wire.receive())[1] == 0
        wire.send_call("box.snapshot")
        wire.send(0x40, {})
        await wire.receive()
        assert [one.action for one in found] == ["queue.create_tube"]
        ((connection, ticket),) = asked
        connection.deliver(ticket, "ok")
        bench.shell.ask_flush()
        assert (await wire.receive())[1] == 0
        assert [(one.action, one.outcome) for one in found[1:]] == [("box.snapshot", "done")]


def test_what_works_on_tasks_is_not_administrative() -> None:
    for name in ("put", "take", "ack", "kick", "delete", "list", "info", "touch"):
        assert not administrative(f"queue.tube.jobs:{name}"), name
    assert administrative("queue.tube.jobs:secret:drop")
    assert administrative("box.space.records:truncate")
    assert administrative("tandem.rescue_replay")


def test_no_secrets_and_no_floods_in_what_is_kept() -> None:
    kept = shown(
        [{"read_only": True, "replication": "me:pass@host", "Password": "x", "n": b"\xff"}]
    )
    assert kept == [{"read_only": True, "replication": "***", "Password": "***", "n": "ff"}]
    assert len(json.dumps(shown(["x" * 100_000] * 50))) < 1100
    assert json.dumps(shown({"\ud800": "\ud800"}))


# -- the file --------------------------------------------------------------------------------------


def lines_of(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def did(trail: AuditTrail, action: str, outcome: str = "done", target: str = "") -> None:
    trail.note(Noted("iproto", "ann", "10.0.0.1:77", action, target, None, outcome, "why"))


def test_lines_are_appended_for_the_owner_alone_and_known_after_a_restart(tmp_path: Path) -> None:
    path = tmp_path / "trail.jsonl"
    for action in ("drop", "truncate"):
        trail = AuditTrail("a", path, 1 << 20, 2, pytest.fail)
        did(trail, action)
        trail.close()
    assert [one["action"] for one in lines_of(path)] == ["drop", "truncate"]
    assert path.stat().st_mode & 0o777 == 0o600
    again = AuditTrail("a", path, 1 << 20, 2, pytest.fail)
    assert [one.action for one in again.page(10, 0).entries] == ["truncate", "drop"]
    assert [one.action for one in again.page(10, 2).entries] == ["drop"]
    again.close()


def test_it_is_rotated_by_size_and_opened_anew_when_told(tmp_path: Path) -> None:
    path = tmp_path / "trail.jsonl"
    trail = AuditTrail("a", path, 1024, 2, pytest.fail)
    for number in range(40):
        did(trail, f"drop{number}")
    until(lambda: "drop39" in path.read_text(), 10)
    names = sorted(one.name for one in tmp_path.iterdir())
    assert names == ["trail.jsonl", "trail.jsonl.1", "trail.jsonl.2"]
    assert all(one.stat().st_size <= 1024 for one in tmp_path.iterdir())
    path.rename(tmp_path / "moved")
    trail.reopen()
    did(trail, "last")
    trail.close()
    assert [one["action"] for one in lines_of(path)] == ["last"]


def test_refusals_that_repeat_are_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trail = AuditTrail("a", tmp_path / "trail.jsonl", 1 << 20, 2, pytest.fail)
    for number in range(5000):
        did(trail, "drop", "refused", f"tube{number}")
    did(trail, "drop")
    trail.close()
    found = [(one["outcome"], one["repeated"]) for one in lines_of(tmp_path / "trail.jsonl")]
    assert found == [("refused", 0), ("done", 0), ("refused", 4999)]


def test_a_disk_that_refuses_is_told_and_confessed(tmp_path: Path) -> None:
    said: list[str] = []
    path = tmp_path / "trail.jsonl"
    trail = AuditTrail("a", path, 1 << 20, 2, said.append)
    write, full = trails._OwnerOnlyFile.write, [True]

    def failing(self: Any, line: str) -> None:
        if full[0]:
            raise OSError(28, "No space left on device")
        write(self, line)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(trails._OwnerOnlyFile, "write", failing)
        for _ in range(3):
            did(trail, "drop")
        until(lambda: trail.lost == 3, 10)
        assert "No space left" in trail.page(1, 0).problem
        assert len(trail.page(10, 0).entries) == 3
        full[0] = False
        did(trail, "grant")
        trail.close()
    assert [(one["action"], one["details"]) for one in lines_of(path)] == [
        ("lines lost", 3),
        ("grant", None),
    ]
    assert len(said) == 1
    assert "the audit trail is not written" in said[0]
    assert trail.page(1, 0).problem == ""


def test_a_disk_that_hangs_holds_up_nobody(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trails, "CLOSE_SECONDS", 0.1)
    monkeypatch.setattr(trails, "WAITING_MAX", 100)
    said: list[str] = []
    trail = AuditTrail("a", tmp_path / "trail.jsonl", 1 << 20, 2, said.append)
    over = [False]

    def hanging(self: Any, line: str) -> None:
        while not over[0]:
            time.sleep(0.01)

    monkeypatch.setattr(trails._OwnerOnlyFile, "write", hanging)
    began = time.monotonic()
    for _ in range(1000):
        did(trail, "drop")
    assert time.monotonic() - began < 5
    assert trail.lost >= 890
    assert "too slow" in said[0]
    over[0] = True
    trail.close()


# -- the admin API ---------------------------------------------------------------------------------


@pytest.mark.asyncio
async def test_changes_by_the_admin_api_are_noted_and_shown() -> None:
    async with api(token=TOKEN) as one:
        mine = {"headers": {"Authorization": f"Bearer {TOKEN}"}}
        await one.ask("PUT", "/v1/read_only", {"read_only": True}, **mine)
        await one.ask("GET", "/v1/status", **mine)
        await one.ask("POST", "/v1/switchover", {"to": 7}, **mine)
        await one.ask("PUT", "/v1/read_only", {"read_only": True})
        _, page, _ = await one.ask("GET", "/v1/audit-trail", **mine)
    found = [(e["user"], e["action"], e["target"], e["outcome"]) for e in page["entries"]]
    assert found == [
        ("", "PUT /v1/read_only", "", "refused"),
        ("token", "POST /v1/switchover", "7", "refused"),
        ("token", "PUT /v1/read_only", "True", "done"),
    ]
    assert page["entries"][0]["error"].startswith("unauthorized")
    assert TOKEN not in json.dumps(page)


@pytest.mark.asyncio
async def test_what_outlasts_its_request_is_noted_twice() -> None:
    async with api(flip_wait_s=0.05) as one:
        one.backend.gate.clear()
        assert (await one.ask("PUT", "/v1/read_only", {"read_only": True}))[0] == 202
        one.backend.gate.set()
        for _ in range(500):
            page = one.backend.trail.page(10, 0)
            if len(page.entries) == 2:
                break
            await asyncio.sleep(0.01)
    found = [(entry.action, entry.outcome) for entry in page.entries]
    assert found == [("end of /v1/read_only", "done"), ("PUT /v1/read_only", "under way")]
    assert page.entries[0].address == page.entries[1].address


@pytest.mark.asyncio
async def test_a_token_of_its_own_reads_it_and_nothing_else() -> None:
    async with api(token=TOKEN, trail_token=READER) as one:
        for path, token, wanted in (
            ("/v1/audit-trail", TOKEN, 401),
            ("/v1/audit-trail", READER, 200),
            ("/v1/status", READER, 401),
            ("/v1/status", TOKEN, 200),
        ):
            mine = {"headers": {"Authorization": f"Bearer {token}"}}
            assert (await one.ask("GET", path, **mine))[0] == wanted, (path, token)


# -- a node ----------------------------------------------------------------------------------------


def after_a_line(member: Member) -> dict[str, Any]:
    """The node's status, once something was noted."""
    assert member.ask("/v1/snapshot", {})[0] == 200
    status: dict[str, Any] = member.ask("/v1/status")[1]
    return status


@pytest.mark.integration
def test_a_node_writes_it_for_all_its_doors(tmp_path: Path) -> None:
    port, admin = free_ports(2)
    member = Member(tmp_path, "a", port, admin, [])
    config = tmp_path / "a.yaml"
    config.write_text(yaml.safe_dump({"users": []}))
    member.start("--config", str(config))
    path = member.data / "audit" / "trail.jsonl"
    client = member.connect()
    client.call("queue.create_tube", "jobs", "fifo")
    client.call("box.cfg", {"read_only": True})
    client.close()
    try:
        assert member.process is not None
        config.write_text(yaml.safe_dump({"users": [], "queue": {"ttr": "7s"}}))
        member.process.send_signal(signal.SIGHUP)
        until(lambda: "needs a restart" in path.read_text(), 20)
        assert member.ask("/v1/snapshot", {})[0] == 200
        code, page = member.ask("/v1/audit-trail")
        assert code == 200
        assert page["path"] == str(path)
        kept = path.rename(tmp_path / "kept.jsonl")
        path.symlink_to("/dev/full")
        member.process.send_signal(signal.SIGHUP)
        until(lambda: "No space left" in (after_a_line(member)["problem"] or ""), 20)
        with urllib.request.urlopen(f"http://127.0.0.1:{admin}/metrics", timeout=10) as answer:
            told = dict(line.rsplit(" ", 1) for line in answer.read().decode().splitlines())
        assert float(told["tandemq_audit_trail_lost_lines_total"]) >= 1
        assert float(told["tandemq_problems"]) == 1
        path.unlink()
        kept.rename(path)
        member.process.send_signal(signal.SIGHUP)
        until(lambda: after_a_line(member)["problem"] is None, 20)
    finally:
        assert member.end() == 0
    found = [(one["by"], one["action"], one["outcome"]) for one in lines_of(path)]
    # Behind it: how often reloads were refused, which is counted.
    assert ("signal", "end", "done") in found[-2:]
    wanted = [
        ("iproto", "queue.create_tube", "done"),
        ("node", "role", "done"),
        ("iproto", "box.cfg", "done"),
        ("signal", "reload", "refused"),
        ("admin", "POST /v1/snapshot", "done"),
    ]
    assert [one for one in wanted if one not in found] == []
    assert path.parent.stat().st_mode & 0o777 == 0o700
