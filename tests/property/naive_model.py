"""What the queue does, written as plainly as it can be: lists, dicts and sorted().

Slow and obvious on purpose: held against the engine step by step, it must never differ.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

SECOND = 1_000_000
CENTURY = 3_153_600_000 * SECOND
NEVER = 2**64 - 1
PENDING, EMPTY, NIL = "PENDING", "EMPTY", "NIL"


class Refused(Exception):
    """The call fails with this text."""


@dataclass(eq=False)
class Session:
    explicit: bool = False
    active: bool = True
    expires: int = 0
    uuid: bytes | None = None


@dataclass(eq=False)
class Connection:
    number: int
    session: Session | None = None
    told: list[tuple[Any, Any]] = field(default_factory=list)


@dataclass
class Task:
    id: int
    status: str
    data: bytes
    next_event: int
    ttl: int
    ttr: int
    pri: int
    created: int
    utube: str
    owner: Session | None = None
    attempts: int = 0
    #: Of a dead letter: (tube, id, attempts there).
    origin: tuple[str, int, int] | None = None

    def shown(self) -> tuple[int, str, bytes]:
        return (self.id, self.status, self.data)


@dataclass
class Waiter:
    conn: Connection
    ticket: int
    deadline: int
    many: int = 0
    put: tuple[bytes, dict[str, Any]] | None = None


CALLS = ("ack", "bury", "delete", "kick", "put", "release", "take", "touch", "ttl", "ttr", "delay")


class Tube:
    def __init__(
        self, name: str, kind: str, capacity: int = 0, opts: dict[str, Any] | None = None
    ) -> None:
        opts = opts or {}
        self.name = name
        self.max_attempts: int = opts.get("max_attempts", 0)
        self.dead_letter: str = opts.get("dead_letter", "")
        #: Seconds before the first retry, twice as many before each further one.
        self.retry_delay: float = opts.get("retry_delay", 0)
        self.counts = "max_attempts" in opts or "retry_delay" in opts
        self.kind = kind
        self.capacity = capacity
        self.bytes: int = opts.get("capacity_bytes", 0)
        self.rejects = (
            opts.get("overflow", "wait" if kind == "limfifottl" else "reject") == "reject"
        )
        self.ttl = kind in ("fifottl", "limfifottl", "utubettl")
        self.sub = kind in ("utube", "utubettl")
        self.tasks: dict[int, Task] = {}
        self.next_id = 0
        self.calls = dict.fromkeys(CALLS, 0)
        self.done = 0
        self.waiters: list[Waiter] = []
        self.blocked: list[Waiter] = []
        #: key -> (id of its first task, until when)
        self.keys: dict[str, tuple[int, int]] = {}
        self.paused: set[str] = set()

    def fits(self, count: int, size: int) -> bool:
        used = sum(len(task.data) for task in self.tasks.values())
        return not (
            (self.capacity and len(self.tasks) + count > self.capacity)
            or (self.bytes and used + size > self.bytes)
        )

    def ordered(self, status: str) -> list[Task]:
        return sorted(
            (t for t in self.tasks.values() if t.status == status), key=lambda t: (t.pri, t.id)
        )

    def first(self) -> Task | None:
        if "takes" in self.paused:
            return None
        busy = {t.utube for t in self.tasks.values() if t.status == "t"} if self.sub else ()
        return next((t for t in self.ordered("r") if t.utube not in busy), None)

    def owned(self, conn: Connection, task_id: int) -> Task:
        task = self.tasks.get(task_id)
        if task is None or task.owner is None or task.owner is not conn.session:
            raise Refused("Task was not taken")
        return task

    def existing(self, task_id: int) -> Task:
        if task_id not in self.tasks:
            raise Refused(f"Task {task_id} not found")
        return self.tasks[task_id]

    def statistics(self) -> dict[str, Any]:
        names = {"taken": "t", "buried": "!", "ready": "r", "delayed": "~"}
        counts = {name: len(self.ordered(status)) for name, status in names.items()}
        counts |= {"done": self.done, "total": len(self.tasks)}
        found: dict[str, Any] = {"tasks": counts, "calls": self.calls}
        if self.paused:
            found["paused"] = {one: one in self.paused for one in ("puts", "takes")}
        return found


class Model:
    """Tubes by name, in order of creation; sessions with a row; settings; the clock in µs."""

    def __init__(self, kinds: dict[str, tuple[Any, ...]], now: int) -> None:
        self.tubes = {name: Tube(name, *kind) for name, kind in kinds.items()}
        self.now = now
        self.conns: list[Connection] = []
        self.sessions: list[Session] = []
        self.ttr = 0
        self.in_replicaset = False

    # -- tasks -----------------------------------------------------------------------------------

    def _insert(self, tube: Tube, data: bytes, opts: dict[str, Any]) -> Task:
        def us(name: str, default: int) -> int:
            value = opts.get(name)
            return default if value is None else int(value * SECOND)

        utube = opts.get("utube")
        task = Task(tube.next_id, "r", data, 0, 0, 0, 0, 0, "")
        if tube.sub:
            task.utube = "nil" if utube is None else str(utube)
        if tube.ttl:
            task.ttl, task.ttr = us("ttl", CENTURY), us("ttr", CENTURY)
            task.pri, task.created = opts.get("pri") or 0, self.now
            task.next_event = self.now + task.ttl
            if delay := us("delay", 0):
                task.status, task.next_event = "~", self.now + delay
                task.ttl += delay
        if key := opts.get("key"):
            tube.keys[key] = (task.id, self.now + int(opts.get("window", 3600) * SECOND))
        tube.tasks[task.id] = task
        tube.next_id += 1
        tube.calls["put"] += 1
        return task

    def _known(self, tube: Tube, opts: dict[str, Any]) -> int | None:
        task_id, until = tube.keys.get(opts.get("key", ""), (None, 0))
        return task_id if until > self.now else None

    def _again(self, tube: Tube, task_id: int) -> tuple[int, str, bytes]:
        task = tube.tasks.get(task_id)
        return (task_id, "-", b"\xc0") if task is None else task.shown()

    def put(self, conn: Connection, tube: Tube, ticket: int, data: bytes, opts: Any) -> Any:
        if (known := self._known(tube, opts)) is not None:
            return self._again(tube, known)
        self._may_put(tube)
        if tube.blocked or not tube.fits(1, len(data)):
            if tube.bytes and len(data) > tube.bytes:
                raise Refused("never fits")
            if tube.rejects:
                raise Refused("is full")
            wait = int((opts.get("timeout") or 0) * SECOND)
            if not wait:
                return NIL
            tube.blocked.append(Waiter(conn, ticket, self.now + wait, put=(data, opts)))
            return PENDING
        return self._insert(tube, data, opts).shown()

    def _may_put(self, tube: Tube) -> None:
        if "puts" in tube.paused:
            raise Refused("are paused")

    def pause(self, tube: Tube, what: str | None, on: bool) -> dict[str, bool]:
        chosen = {what} if what else {"puts", "takes"}
        tube.paused = tube.paused | chosen if on else tube.paused - chosen
        while "puts" in tube.paused and tube.blocked:
            waiter = tube.blocked.pop(0)
            waiter.conn.told.append((waiter.ticket, "paused"))
        return {one: one in tube.paused for one in ("puts", "takes")}

    def put_many(self, tube: Tube, items: list[tuple[bytes, dict[str, Any]]]) -> list[int]:
        self._may_put(tube)
        new = {
            opts.get("key", n): len(data)
            for n, (data, opts) in enumerate(items)
            if self._known(tube, opts) is None
        }
        if not tube.fits(len(new), sum(new.values())):
            raise Refused(f"No room for {len(new)} tasks")
        ids = []
        for data, opts in items:
            known = self._known(tube, opts)
            ids.append(self._insert(tube, data, opts).id if known is None else known)
        return ids

    def _overdue(self, tube: Tube, task: Task) -> bool:
        return tube.ttl and task.created + task.ttl <= self.now

    def _remove(self, tube: Tube, task: Task) -> tuple[int, str, bytes]:
        del tube.tasks[task.id]
        tube.done += 1
        return (task.id, "-", task.data)

    def _ttl(self, tube: Tube, task: Task) -> None:
        self._remove(tube, task)
        tube.calls["delete"] += 1
        tube.calls["ttl"] += 1

    def _take(self, conn: Connection, tube: Tube, count: int) -> list[tuple[int, str, bytes]]:
        taken: list[tuple[int, str, bytes]] = []
        while len(taken) < count and (task := tube.first()) is not None:
            if self._overdue(tube, task):
                if taken:
                    break
                self._ttl(tube, task)
                continue
            task.status = "t"
            if tube.ttl:
                task.next_event = min(self.now + task.ttr, task.created + task.ttl)
            task.owner = self.session_of(conn)
            tube.calls["take"] += 1
            taken.append(task.shown())
        return taken

    def take(self, conn: Connection, tube: Tube, ticket: int, timeout: float | None) -> Any:
        taken = self._take(conn, tube, 1)
        if taken:
            return taken[0]
        return self._wait(conn, tube, ticket, timeout, 0) or EMPTY

    def take_many(
        self, conn: Connection, tube: Tube, ticket: int, count: int, timeout: float
    ) -> Any:
        taken = self._take(conn, tube, count)
        if taken or not count:
            return taken
        return self._wait(conn, tube, ticket, timeout, count) or []

    def _wait(
        self, conn: Connection, tube: Tube, ticket: int, timeout: float | None, many: int
    ) -> str:
        if timeout == 0:
            return ""
        deadline = NEVER if timeout is None else self.now + int(timeout * SECOND)
        tube.waiters.append(Waiter(conn, ticket, deadline, many))
        return PENDING

    def ack(self, conn: Connection, tube: Tube, task_id: int) -> Any:
        row = self._remove(tube, tube.owned(conn, task_id))
        tube.calls["ack"] += 1
        return row

    def _back(self, tube: Tube, task: Task, delay: float | None) -> tuple[int, str, bytes]:
        """An attempt ended without an ack: ready, delayed or given up."""
        task.owner = None
        task.status = "r"
        if tube.counts:
            task.attempts += 1
            if tube.max_attempts and task.attempts >= tube.max_attempts:
                return self._give_up(tube, task)
            if delay is None and tube.retry_delay:
                delay = min(tube.retry_delay * 2 ** (task.attempts - 1), 3600)
        if tube.ttl:
            task.next_event = task.created + task.ttl
            if delay:
                task.status, task.next_event = "~", self.now + int(delay * SECOND)
                task.ttl = min(task.ttl + int(delay * SECOND), 2**63)
        return task.shown()

    def _give_up(self, tube: Tube, task: Task) -> tuple[int, str, bytes]:
        if not tube.dead_letter:
            task.status = "!"
            if tube.ttl:
                task.next_event = task.created + task.ttl
            tube.calls["bury"] += 1
            return task.shown()
        letter = self._insert(self.tubes[tube.dead_letter], task.data, self._carried(tube, task))
        letter.origin = (tube.name, task.id, task.attempts)
        tube.calls["delete"] += 1
        return self._remove(tube, task)

    def _carried(self, tube: Tube, task: Task) -> dict[str, Any]:
        carried: dict[str, Any] = {"pri": task.pri} if tube.ttl else {}
        return carried | ({"utube": task.utube} if tube.sub else {})

    def redrive(self, tube: Tube, count: int | None, to: Tube | None) -> int:
        letters = [
            task
            for _, task in sorted(tube.tasks.items())
            if task.origin is not None and task.status in "r!"
        ][:count]
        if to is tube and letters:
            raise Refused("already")
        for task in letters:
            assert task.origin is not None
            target = to or self.tubes[task.origin[0]]
            self._insert(target, task.data, self._carried(tube, task))
            self._remove(tube, task)
            tube.calls["delete"] += 1
        return len(letters)

    def finish(
        self, conn: Connection, tube: Tube, task_id: int, puts: list[tuple[Tube, bytes, Any]]
    ) -> list[int]:
        task = tube.owned(conn, task_id)
        for target, _, _ in puts:
            self._may_put(target)
        del tube.tasks[task_id]
        for target in dict.fromkeys(put[0] for put in puts):
            new = {
                opts.get("key", n): len(data)
                for n, (into, data, opts) in enumerate(puts)
                if into is target and self._known(target, opts) is None
            }
            if not target.fits(len(new), sum(new.values())):
                tube.tasks[task_id] = task
                raise Refused(f"No room for {len(new)} tasks")
        tube.done += 1
        tube.calls["ack"] += 1
        ids = []
        for target, data, opts in puts:
            known = self._known(target, opts)
            ids.append(self._insert(target, data, opts).id if known is None else known)
        return ids

    def matching(self, tube: Tube, wanted: dict[str, Any]) -> list[Task]:
        states = {"ready": "r", "taken": "t", "buried": "!", "delayed": "~"}
        return [
            task
            for _, task in sorted(tube.tasks.items())
            if wanted.get("state") is None or task.status == states[wanted["state"]]
            if wanted.get("utube") is None or task.utube == wanted["utube"]
            if wanted.get("older_than") is None
            or task.created <= self.now - wanted["older_than"] * SECOND
        ]

    def bulk(self, tube: Tube, action: str, wanted: dict[str, Any], to: Tube | None) -> int:
        if action == "kick":
            wanted = wanted | {"state": wanted.get("state") or "buried"}
        tasks = self.matching(tube, wanted)
        if wanted.get("state") is None:
            tasks = [task for task in tasks if task.status != "t"]
        tasks = tasks[:2]
        if to is not None and tasks and not to.fits(len(tasks), sum(len(t.data) for t in tasks)):
            raise Refused("No room for")
        for task in tasks:
            if action == "kick":
                if task.status == "~":
                    task.next_event = task.created + task.ttl
                else:
                    task.attempts = 0
                task.status = "r"
                tube.calls["kick"] += 1
                continue
            if to is not None:
                carried = self._carried(tube, task)
                if task.status == "~":
                    carried["delay"] = max(0, task.next_event - self.now) / SECOND
                self._insert(to, task.data, carried)
            self._remove(tube, task)
            tube.calls["delete"] += 1
        return len(tasks)

    def _release(
        self, tube: Tube, task: Task, delay: float | None = None
    ) -> tuple[int, str, bytes]:
        tube.calls["release"] += 1
        return self._back(tube, task, delay)

    def release(self, conn: Connection, tube: Tube, task_id: int, delay: float | None) -> Any:
        return self._release(tube, tube.owned(conn, task_id), delay)

    def batch(
        self, conn: Connection, tube: Tube, ids: list[int], ack: bool, delay: float | None
    ) -> int:
        """ack_many or release_many."""
        tasks = [tube.owned(conn, task_id) for task_id in ids]
        if len(set(ids)) != len(ids):
            raise Refused("A task is in the list twice")
        for task in tasks:
            if ack:
                self._remove(tube, task)
                tube.calls["ack"] += 1
            else:
                self._release(tube, task, delay)
        return len(tasks)

    def bury(self, tube: Tube, task_id: int) -> Any:
        task = tube.existing(task_id)
        if task.status != "!":
            if tube.counts and task.status == "t":
                task.attempts += 1
            task.status, task.owner = "!", None
            if tube.ttl:
                task.next_event = task.created + task.ttl
            tube.calls["bury"] += 1
        return task.shown()

    def bury_mine(self, conn: Connection, tube: Tube, task_id: int) -> Any:
        tube.existing(task_id)
        tube.owned(conn, task_id)
        return self.bury(tube, task_id)

    def kick(self, tube: Tube, count: int) -> int:
        kicked = tube.ordered("!")[: max(0, count)]
        for task in kicked:
            task.status, task.attempts = "r", 0
        tube.calls["kick"] += len(kicked)
        return len(kicked)

    def touch(self, conn: Connection, tube: Tube, task_id: int, delta: float) -> Any:
        if delta <= 0:
            return EMPTY
        task = tube.owned(conn, task_id)
        if not tube.ttl:
            raise Refused(f"{tube.kind} queue does not support touch")
        more = NEVER if delta * SECOND > CENTURY else int(delta * SECOND)
        task.next_event = min(task.next_event + more, NEVER)
        task.ttl, task.ttr = min(task.ttl + more, 2**63), min(task.ttr + more, 2**63)
        tube.calls["touch"] += 1
        return task.shown()

    def delete(self, tube: Tube, task_id: int) -> Any:
        row = self._remove(tube, tube.existing(task_id))
        tube.calls["delete"] += 1
        return row

    def truncate(self, tube: Tube) -> str:
        tube.tasks.clear()
        tube.keys.clear()
        tube.next_id = 0
        return EMPTY

    def release_all(self, tube: Tube) -> str:
        for task in tube.ordered("t"):
            self._release(tube, task)
        return EMPTY

    # -- those who wait --------------------------------------------------------------------------

    def serve(self) -> None:
        for tube in self.tubes.values():
            while tube.blocked and tube.fits(1, len((tube.blocked[0].put or (b"",))[0])):
                waiter = tube.blocked.pop(0)
                assert waiter.put is not None
                known = self._known(tube, waiter.put[1])
                if known is not None:
                    row = self._again(tube, known)
                else:
                    row = self._insert(tube, *waiter.put).shown()
                waiter.conn.told.append((waiter.ticket, row))
            while tube.waiters:
                waiter = tube.waiters[0]
                rows = self._take(waiter.conn, tube, waiter.many or 1)
                if not rows:
                    break
                tube.waiters.pop(0)
                waiter.conn.told.append((waiter.ticket, rows if waiter.many else rows[0]))

    # -- sessions --------------------------------------------------------------------------------

    def session_of(self, conn: Connection) -> Session:
        if conn.session is None:
            conn.session = Session()
            self.sessions.append(conn.session)
        return conn.session

    def identify(self, conn: Connection, session: Session | None) -> Session:
        if session is None:
            session = self.session_of(conn)
        elif session not in self.sessions:
            raise Refused("is unknown.")
        elif conn.session is not session:
            self.leave(conn)
            conn.session = session
        session.active, session.expires, session.explicit = True, 0, True
        return session

    def _tasks_of(self, session: Session) -> list[tuple[Tube, Task]]:
        return [
            (tube, task)
            for tube in self.tubes.values()
            for task in sorted(tube.ordered("t"), key=lambda task: task.id)
            if task.owner is session
        ]

    def leave(self, conn: Connection) -> None:
        session, conn.session = conn.session, None
        if session is None or any(other.session is session for other in self.conns):
            return
        if self.ttr and (session.explicit or self._tasks_of(session)):
            session.active, session.expires = False, self.now + self.ttr
        else:
            self.end(session)

    def end(self, session: Session) -> None:
        self.sessions.remove(session)
        for tube, task in self._tasks_of(session):
            self._release(tube, task)

    def disconnect(self, conn: Connection) -> None:
        self.conns.remove(conn)
        for tube in self.tubes.values():
            tube.waiters = [w for w in tube.waiters if w.conn is not conn]
            tube.blocked = [w for w in tube.blocked if w.conn is not conn]
        self.leave(conn)

    def begin(self, everybody_gone: bool) -> None:
        """The node starts to serve: after a restart, or after a change of roles."""
        if everybody_gone:
            self.conns = []
            if not self.in_replicaset:
                self.sessions = []
            for tube in self.tubes.values():
                tube.waiters, tube.blocked = [], []
                tube.calls, tube.done = dict.fromkeys(CALLS, 0), 0
        connected = {conn.session for conn in self.conns}
        keep = self.ttr if self.in_replicaset else 0
        for session in list(self.sessions):
            if session in connected:
                continue
            if not keep:
                self.sessions.remove(session)
            elif session.active:
                session.active, session.expires = False, self.now + keep
        for tube in self.tubes.values():
            for task in tube.ordered("t"):
                if task.owner not in self.sessions:
                    self._release(tube, task)

    # -- time ------------------------------------------------------------------------------------

    def _due(self) -> list[tuple[int, int, int, Any]]:
        """(moment, kind, order, whose) of everything due."""
        due: list[tuple[int, int, int, Any]] = []
        for session in self.sessions:
            if not session.active:
                due.append((session.expires, -2, 0, session))
        for place, tube in enumerate(self.tubes.values()):
            for waiting in (tube.waiters, tube.blocked):
                due += [(w.deadline, -1, w.ticket, (tube, waiting, w)) for w in waiting]
            if tube.ttl:
                for task in tube.tasks.values():
                    if task.next_event - task.created < CENTURY:
                        due.append((task.next_event, place, task.id, (tube, task)))
        return sorted((entry for entry in due if entry[0] <= self.now), key=lambda e: e[:3])

    def advance(self, us: int) -> None:
        self.now += us
        while due := self._due():
            _, kind, _, whose = due[0]
            if kind == -1:
                self.serve()
                _, waiting, waiter = whose
                if waiter in waiting:
                    waiting.remove(waiter)
                    waiter.conn.told.append((waiter.ticket, NIL if waiter.put else EMPTY))
            elif kind == -2:
                self.end(whose)
            else:
                self._expire(*whose)

    def _expire(self, tube: Tube, task: Task) -> None:
        if task.status in "r!":
            self._ttl(tube, task)
            return
        if task.status == "t":
            tube.calls["ttr"] += 1
            self._back(tube, task, None)
            return
        tube.calls["delay"] += 1
        task.status, task.owner = "r", None
        task.next_event = task.created + task.ttl
