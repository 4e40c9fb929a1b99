"""What an xqueue tube must do, in the plainest way: lists that are searched, no index, no log."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass
class Record:
    key: int
    priority: int
    tube: str
    status: str
    deadline: int = 0
    life: int = 0
    owner: int | None = None


class Model:
    """Records by key. Times in whole seconds since the start; 0 = no deadline."""

    def __init__(self) -> None:
        self.records: dict[int, Record] = {}
        self.last = 0
        self.now = 0

    def put(self, priority: int, tube: str, delay: int | None, ttl: int | None) -> int:
        self.last += 1
        record = Record(self.last, priority, tube, "R")
        self.records[self.last] = record
        self._ready(record, delay, ttl, 0)
        return self.last

    def _ready(self, record: Record, delay: int | None, ttl: int | None, left: int) -> None:
        record.owner = None
        begins = self.now + (delay or 0)
        record.life = left if ttl is None else begins + ttl
        record.status = "R" if delay is None else "W"
        record.deadline = record.life if delay is None else begins

    def back(self, record: Record) -> None:
        """Ready without anybody's asking: what is left of its life stays."""
        record.owner, record.status, record.deadline = None, "R", record.life

    def take(self, tube: str | None, ttr: int | None, owner: int) -> int | None:
        record = None
        while record is None:
            ready = [r for r in self.records.values() if r.status == "R" and tube in (None, r.tube)]
            if not ready:
                return None
            record = min(ready, key=lambda r: (r.priority, r.key))
            if record.deadline and record.deadline <= self.now:
                # Given back when its life was over already.
                del self.records[record.key]
                record = None
        record.status, record.owner = "T", owner
        record.deadline = 0 if ttr is None else self.now + ttr
        return record.key

    def ack(self, key: int) -> None:
        self.records[key].status = "Z"
        self.records[key].owner = None
        self.records[key].deadline = self.now + 7
        self.records[key].life = 0

    def release(self, key: int, delay: int | None, ttl: int | None) -> None:
        record = self.records[key]
        self._ready(record, delay, ttl, 0 if delay is None else record.life)

    def bury(self, key: int) -> None:
        record = self.records[key]
        record.status, record.owner, record.deadline = "B", None, 0

    def dig(self, count: int) -> int:
        buried = [r for r in self.records.values() if r.status == "B"]
        chosen = sorted(buried, key=lambda r: (r.priority, r.key))[:count]
        for record in chosen:
            self._ready(record, None, None, 0)
        return len(chosen)

    def pass_second(self) -> None:
        self.now += 1
        due = True
        while due:
            due = [r for r in self.records.values() if r.deadline and r.deadline <= self.now]
            for record in sorted(due, key=lambda r: (r.deadline, r.key)):
                if record.status in "WT":
                    self.back(record)
                else:
                    del self.records[record.key]

    def lost(self, owner: int | None) -> None:
        """A session ended; None: all of them."""
        for record in self.records.values():
            if record.status == "T" and owner in (None, record.owner):
                self.back(record)
