"""A queue15 space as simply as it can be said: one list of tasks, looked through for everything.

Seconds are whole; ids are the numbers of tasks in the order they came.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

FOREVER = 10**9


@dataclass
class Task:
    number: int
    tube: str
    status: str
    data: Any
    pri: int
    created: int
    ttl: int
    ttr: int
    event: int
    rank: int = 0
    turn: int = 0
    cbury: int = 0
    ctaken: int = 0
    owner: int | None = None

    @property
    def deadline(self) -> int:
        return self.created + self.ttl


class Naive:
    """now: seconds; waiters: (owner, tube) in order; retired: sessions with nobody, until when."""

    def __init__(self, grace: int) -> None:
        self.grace = grace
        self.now = 0
        self.put_count = 0
        self.tasks: list[Task] = []
        self.waiters: list[tuple[int, str]] = []
        self.served: list[tuple[int, int]] = []
        self.retired: dict[int, int] = {}

    def ready(self, tube: str) -> list[Task]:
        return [task for task in self.tasks if task.tube == tube and task.status == "ready"]

    def find(self, number: int) -> Task | None:
        return next((task for task in self.tasks if task.number == number), None)

    def first(self, tube: str) -> Task | None:
        ready = self.ready(tube)
        ready.sort(key=lambda task: (task.rank, -task.pri, task.number))
        front = [task for task in ready if task.rank < 0]
        plain = [task for task in ready if task.rank == 0]
        back = [task for task in ready if task.rank > 0]
        if front:
            return front[0]
        if back and all(task.number >= back[0].turn for task in plain):
            return back[0]
        return plain[0] if plain else None

    def put(self, tube: str, delay: int, ttl: int, ttr: int, pri: int, urgent: bool) -> Task:
        rank = 0
        if urgent and not delay:
            rank = min([0, *(task.rank for task in self.ready(tube))]) - 1
        life = (ttl or 25 * 86_400) + delay
        task = Task(
            self.put_count, tube, "delayed" if delay else "ready", self.put_count,
            max(-127, min(128, pri)), self.now, life, ttr or 60, self.now + (delay or life), rank,
        )  # fmt: skip
        self.put_count += 1
        self.tasks.append(task)
        self.serve()
        return task

    def take(self, owner: int, tube: str) -> Task | None:
        task = self.first(tube)
        if task is not None:
            task.status, task.owner = "taken", owner
            task.ctaken += 1
            task.event = min(self.now + task.ttr, task.deadline)
        return task

    def serve(self) -> None:
        for waiter in list(self.waiters):
            task = self.take(*waiter)
            if task is not None:
                self.waiters.remove(waiter)
                self.served.append((waiter[0], task.number))

    def refusal(self, number: int, status: str, owner: int | None, name: str) -> str | None:
        task = self.find(number)
        if task is None:
            return "! Task not found"
        if task.status != status:
            return f"! Task is not {status}"
        if owner is not None and task.owner != owner:
            return f"! Only consumer that took the task can it {name}"
        return None

    def move(self, task: Task, status: str) -> None:
        task.status, task.owner, task.event = status, None, task.deadline

    def release(self, task: Task, delay: int, ttl: int) -> None:
        if ttl:
            task.ttl = self.now - task.created + ttl + delay
        elif delay and self.now + delay >= task.deadline:
            task.ttl += delay
        self.move(task, "delayed" if delay else "ready")
        if delay:
            task.event = min(self.now + delay, task.deadline)
        self.serve()

    def requeue(self, task: Task) -> None:
        task.rank = max([0, *(other.rank for other in self.ready(task.tube))]) + 1
        task.turn = self.put_count
        self.move(task, "ready")
        self.serve()

    def dig(self, task: Task) -> None:
        task.cbury += 1
        self.move(task, "ready")
        self.serve()

    def kick(self, tube: str, count: int) -> int:
        buried = [task for task in self.tasks if task.tube == tube and task.status == "buried"]
        for task in buried[:count]:
            task.cbury += 1
            self.move(task, "ready")
        self.serve()
        return len(buried[:count])

    def truncate(self, tube: str) -> int:
        kept = [task for task in self.tasks if task.tube != tube]
        removed = len(self.tasks) - len(kept)
        self.tasks = kept
        return removed

    def pass_time(self, seconds: int) -> None:
        self.now += seconds
        for owner, until in list(self.retired.items()):
            if until <= self.now:
                del self.retired[owner]
                self.give_back(owner)
        for task in list(self.tasks):
            if task.event <= self.now and task.deadline > self.now:
                self.move(task, "ready")
            elif task.deadline <= self.now:
                self.tasks.remove(task)
        self.serve()

    def give_back(self, owner: int) -> None:
        for task in self.tasks:
            if task.owner == owner:
                self.move(task, "ready")

    def leave(self, owner: int) -> None:
        """The last connection of a session is gone."""
        self.waiters = [waiter for waiter in self.waiters if waiter[0] != owner]
        if self.grace and any(task.owner == owner for task in self.tasks):
            self.retired[owner] = self.now + self.grace
        else:
            self.give_back(owner)
        self.serve()

    def change_master(self, came_back: set[int]) -> None:
        """Another node serves; `came_back`: owners that named their session there at once."""
        self.waiters.clear()
        for task in self.tasks:
            if task.owner is None or task.owner in self.retired:
                continue
            if not self.grace:
                self.move(task, "ready")
            elif task.owner not in came_back:
                self.retired[task.owner] = self.now + self.grace
