"""The judges: what must hold of every history, and of the two nodes once they are healed."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import msgpack
from sim_clients import History, Op
from sim_node import SimNode
from sim_plan import Plan

from model.record import CREATE, HEADER_SIZE, TERM, decode_body
from storage.rescue import read_rescue, rescue_names


class Violation(Exception):
    """A promise was broken. str() says which and how it shows."""


class Rescued:
    """What lies in the rescue files of all nodes: payloads put, and every task touched."""

    def __init__(self, machines: dict[str, SimNode]) -> None:
        self.payloads: set[tuple[int, int]] = set()
        self.touched: set[tuple[int, int]] = set()
        self.files = 0
        for node in machines.values():
            for name in rescue_names(node.disk):
                self.files += 1
                for _, _, records in read_rescue(node.disk, node.storage.meta, name):
                    for record in records:
                        for op in record[3]:
                            self._op(op)

    def _op(self, op: list[Any]) -> None:
        if op[0] in (CREATE, TERM) or op[1] < 512 or len(op) < 3:
            return
        row = op[2]
        if isinstance(row, list) and row and op[1] >= 1024:
            self.touched.add((op[1], row[0]))
            if isinstance(row[-1], (int, bytes)):
                self.payloads.add((op[1], _number(row[-1])))
        elif isinstance(row, int):
            self.touched.add((op[1], row))


def _number(raw: Any) -> int:
    """A payload as the log has it: raw MessagePack of a small number, or the number."""
    if isinstance(raw, int):
        return raw
    value = msgpack.unpackb(raw)
    return value if isinstance(value, int) else -1


def check_history(history: History, machines: dict[str, SimNode], plan: Plan, forced: bool) -> None:
    """C1 total queue, C3 finality of acks, C4 no stale finish, C8 rescue accounting."""
    rescued = Rescued(machines)
    master = next(node for node in machines.values() if node.core.state == "RUNNING")
    spaces = {name: tube.space.id for name, tube in master.engine.tubes.items()}
    by_key: dict[tuple[str, int], list[Op]] = defaultdict(list)
    for op in history.ops:
        if op.key[1] is not None:
            by_key[op.key].append(op)
    put = {op.key for op in history.ops if op.kind == "put"}
    for key, ops in sorted(by_key.items()):
        space = spaces[key[0]]
        cut = (space, key[1]) in rescued.payloads or any(
            op.task_id is not None and (space, op.task_id) in rescued.touched for op in ops
        )
        if key not in put:
            raise Violation(f"C1: {key} was never put and came out")
        _check_lost(key, ops, cut)
        _check_twice(key, ops, cut)
    if plan.ack == "pair" and plan.solo_after is None and not forced:
        _check_pair(by_key, spaces, rescued)


def _check_lost(key: tuple[str, int], ops: list[Op], cut: bool) -> None:
    acked = any(op.kind == "put" and op.outcome.ok is not None for op in ops)
    came_out = any(op.kind == "take" and op.task_id is not None for op in ops)
    if acked and not came_out and not cut:
        raise Violation(f"C1: {key} was acknowledged and never came out: {_story(ops)}")
    puts = [op for op in ops if op.kind == "put"]
    refused = all(op.outcome.error is not None for op in puts)
    if refused and came_out:
        raise Violation(f"C1: {key} was refused and came out: {_story(ops)}")


def _check_twice(key: tuple[str, int], ops: list[Op], cut: bool) -> None:
    if cut:
        return
    acks = [op for op in ops if op.kind == "ack" and op.outcome.ok is not None]
    unknown_puts = sum(op.kind == "put" and op.outcome.unknown for op in ops)
    if len(acks) > 1 + unknown_puts:
        raise Violation(f"C3: {key} was finished {len(acks)} times: {_story(ops)}")
    takes = [op for op in ops if op.kind == "take" and op.task_id is not None]
    for ack in acks:
        for take in takes:
            assert take.ended is not None
            assert ack.ended is not None
            if take.began > ack.ended and not unknown_puts:
                raise Violation(f"C3: {key} came out after its ack: {_story(ops)}")
            stale = take.client != ack.client and take.ended < ack.began
            own = max((t.ended or 0 for t in takes if t.client == ack.client), default=-1)
            if (
                stale
                and own < take.began
                and take.task_id in {t.task_id for t in takes if t.client == ack.client}
            ):
                raise Violation(f"C4: {key} was finished by who had lost it: {_story(ops)}")


def _check_pair(
    by_key: dict[tuple[str, int], list[Op]], spaces: dict[str, int], rescued: Rescued
) -> None:
    """P1: pair mode that never goes alone, and nobody forced: nothing acknowledged is cut."""
    for key, ops in by_key.items():
        for op in ops:
            if op.kind == "put" and op.outcome.ok and (spaces[key[0]], key[1]) in rescued.payloads:
                raise Violation(f"P1: {key} was acknowledged in pair mode and cut: {_story(ops)}")


def _story(ops: list[Op]) -> str:
    return "; ".join(
        f"{op.began / 1e6:.4f}-{(op.ended or 0) / 1e6:.4f} {op.client} {op.kind} at {op.node}: "
        + ("unknown" if op.outcome.unknown else "ok" if op.outcome.ok is not None else "refused")
        for op in ops
    )


def check_end(machines: dict[str, SimNode]) -> None:
    """C6 one history, C7 equal nodes and logs, spaces in order."""
    nodes = list(machines.values())
    for node in nodes:
        if node.peering.replica.alarms:
            raise Violation(f"C6: {node.name} raised an alarm: the logs differ")
        node.engine.store.check()
    first, second = nodes
    if first.engine.store.lineage != second.engine.store.lineage:
        raise Violation("C6: the lineages differ")
    for space_id, space in first.engine.store.spaces.items():
        other = second.engine.store.spaces.get(space_id)
        if space.temporary or other is None or other.temporary:
            if other is None or other.temporary != space.temporary:
                raise Violation(f"C7: space {space.name} is not the same on both nodes")
            continue
        if _plain(space.rows) != _plain(other.rows):
            raise Violation(f"C7: space {space.name} differs: {_difference(space, other)}")
    _same_logs(first, second)


def _plain(rows: dict[Any, Any]) -> dict[Any, Any]:
    return {key: tuple(row) for key, row in rows.items()}


def _difference(space: Any, other: Any) -> str:
    keys = [k for k in {*space.rows, *other.rows} if space.rows.get(k) != other.rows.get(k)]
    return "; ".join(f"{space.rows.get(k)} / {other.rows.get(k)}" for k in keys[:3])


def _same_logs(first: SimNode, second: SimNode) -> None:
    start = max(node.storage.log.first_lsn for node in (first, second))  # type: ignore[union-attr]
    records = []
    for node in (first, second):
        assert node.storage.log is not None
        found: dict[int, Any] = {}
        for header, frame in node.storage.log.read_from(start):
            body = memoryview(frame)[HEADER_SIZE:]
            for number, record in enumerate(decode_body(body, header.count)):
                found[header.first_lsn + number] = (header.term, record)
        records.append({lsn: record for lsn, record in found.items() if lsn >= start})
    if records[0] != records[1]:
        lsn = min(k for k in {*records[0], *records[1]} if records[0].get(k) != records[1].get(k))
        raise Violation(f"C7: the logs differ from LSN {lsn} on")
