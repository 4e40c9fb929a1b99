"""Scenes: what tubes, sessions, options and policies do on an ordinary day, each in its own log.

Each is a function of a stage; `SCENES` has them by name. None of them breaks a promise.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgpack

from tandemq.model.terms import Term
from tandemq_server.engine import altering, keys, listing, pause
from tandemq_server.engine.admin import drop_tube
from tests.audit.stage import Stage, attempts, finish, importing, operator

Scene = Callable[[Stage], None]
SCENES: dict[str, Scene] = {}
PLAIN = ("fifo", "utube")
TIMED = ("fifottl", "limfifottl", "utubettl")
BUILT_IN = (*PLAIN, *TIMED)


def scene(function: Scene) -> Scene:
    SCENES[function.__name__] = function
    return function


def opts_of(kind: str, number: int = 0, **more: Any) -> dict[str, Any]:
    own = {"utube": f"u{number % 3}"} if kind.startswith("utube") else {}
    return {**own, **more}


def _everyday(kind: str) -> Scene:
    def run(s: Stage) -> None:
        tube = s.tube("day", kind, **({"capacity": 100} if kind == "limfifottl" else {}))
        for number in range(12):
            s.put(tube, {"n": number}, **opts_of(kind, number))
        s.done()
        for client in (1, 2, 3):
            s.acked(tube, client)
        one = s.take(tube, 4)
        s.done()
        tube.release(s.clients[4], one)
        s.done()
        two = s.take(tube, 4)
        tube.bury(s.clients[4], two)
        s.done()
        tube.kick(s.clients[5], 5)
        s.done()
        tube.delete(s.clients[5], two)
        s.done()
        while s.acked(tube, 2) is not None:
            pass

    return run


for _kind in BUILT_IN:
    SCENES[f"everyday_{_kind}"] = _everyday(_kind)


def _batches(kind: str) -> Scene:
    def run(s: Stage) -> None:
        tube = s.tube("batch", kind)
        pri = (lambda n: {"pri": 9 - n % 4}) if kind in TIMED else (lambda _n: {})
        items = [({"n": n}, opts_of(kind, n, **pri(n)) or None) for n in range(20)]
        s.many(tube, items)
        taken = s.take_many(tube, 7)
        from tandemq_server.engine import batches

        batches.ack_many(tube, s.clients[1], taken[:2])
        s.done()
        batches.release_many(tube, s.clients[1], taken[2:])
        s.done()
        while got := s.take_many(tube, 4, 2):
            batches.ack_many(tube, s.clients[2], got)
            s.done()

    return run


for _kind in BUILT_IN:
    SCENES[f"batches_{_kind}"] = _batches(_kind)


def _times(kind: str) -> Scene:
    def run(s: Stage) -> None:
        tube = s.tube("timed", kind, ttl=100, ttr=10)
        s.put(tube, "delayed", **opts_of(kind, 0, delay=5))
        s.put(tube, "short", **opts_of(kind, 1, ttl=2))
        s.put(tube, "long", **opts_of(kind, 2, ttl=50, ttr=3, pri=2))
        s.done()
        held = s.take(tube, 1)
        s.done()
        s.wait(1)
        tube.touch(s.clients[1], held, 2)
        s.done()
        s.wait(8)
        again = s.take(tube, 2)
        s.done()
        tube.release(s.clients[2], again, {"delay": 3})
        s.done()
        s.wait(5)
        third = s.take(tube, 3)
        s.done()
        tube.bury(s.clients[3], third)
        s.done()
        s.wait(120)

    return run


for _kind in TIMED:
    SCENES[f"times_{_kind}"] = _times(_kind)


def _policy(kind: str, **options: Any) -> Scene:
    def run(s: Stage) -> None:
        s.tube("letters", kind)
        dead = {"dead_letter": "letters"} if options.get("letter") else {}
        more = {name: value for name, value in options.items() if name != "letter"}
        tube = s.tube("tries", kind, max_attempts=2, **dead, **more)
        for number in range(4):
            s.put(tube, number, **opts_of(kind, number))
        s.done()
        for _ in range(3):
            for client in (1, 2, 3):
                task = s.take(tube, client)
                s.done()
                if task is not None:
                    tube.release(s.clients[client], task, {"reason": "no"})
                    s.done()
            s.wait(20)
        task = s.take(tube, 1)
        s.done()
        if task is not None:
            tube.bury(s.clients[1], task, {"reason": "enough"})
            s.done()
        tube.kick(s.clients[0], 10)
        s.done()
        if dead:
            letters = s.engine.tubes["letters"]
            attempts.redrive(letters, s.clients[0], 1, None, lambda _name: None)
            s.done()
            attempts.redrive(letters, s.clients[0], 5, None, lambda _name: None)
            s.done()
        while s.acked(tube, 4) is not None:
            pass

    return run


for _kind in BUILT_IN:
    SCENES[f"policy_{_kind}"] = _policy(_kind)
    SCENES[f"dead_letters_{_kind}"] = _policy(_kind, letter=True)
for _kind in TIMED:
    SCENES[f"retries_{_kind}"] = _policy(_kind, letter=True, retry_delay=1, ttr=5)


@scene
def priorities_in_one_take(s: Stage) -> None:
    """A take of many over mixed priorities hands out by priority, not by id."""
    tube = s.tube("mixed", "fifottl")
    s.many(tube, [(n, {"pri": p}) for n, p in enumerate((5, 1, 3, 1, 0, 7))])
    s.take_many(tube, 4)
    s.put(tube, "urgent", pri=0)
    s.done()
    s.take_many(tube, 3, 2)


@scene
def keys_and_headers(s: Stage) -> None:
    tube = s.tube("keyed", "fifottl")
    for key in ("a", "b", "a"):
        s.put(tube, key, key=key, window=30, headers={"trace": key})
    s.done()
    s.many(tube, [(n, {"key": f"m{n % 3}"}) for n in range(5)])
    s.acked(tube)
    s.wait(31)
    s.put(tube, "again", key="a", window=5)
    s.done()
    s.put(tube, "x", key="b")
    s.done()
    s.wait(4000)


@scene
def pauses(s: Stage) -> None:
    tube = s.tube("stop", "fifo")
    s.put(tube, 1)
    s.done()
    for what in ("puts", "takes", None):
        pause.change(tube, s.clients[0], what, True)
        s.done()
        assert s.take(tube, 1) is None or what == "puts"
        s.done()
        pause.change(tube, s.clients[0], what, False)
        s.done()
    s.put(tube, 2)
    s.done()
    while s.acked(tube, 2) is not None:
        pass


@scene
def room(s: Stage) -> None:
    tube = s.tube("small", "limfifottl", capacity=2)
    other = s.tube("bytes", "fifo", capacity=3, capacity_bytes=100, overflow="wait")
    for number in range(2):
        s.put(tube, number)
        s.put(other, "x" * 20)
    s.done()
    tube.put(s.clients[5], "t", msgpack.packb("waits"), {"timeout": 10})
    other.put(s.clients[6], "t", msgpack.packb("y" * 60), {"timeout": 10})
    s.done()
    s.acked(tube)
    s.acked(other)
    s.acked(other)


@scene
def finished_with_puts(s: Stage) -> None:
    one, two = s.tube("first", "fifo"), s.tube("second", "utubettl")
    for number in range(3):
        s.put(one, number)
    s.done()
    task = s.take(one, 1)
    s.done()
    puts = [(two, msgpack.packb(n), {"utube": "u", "key": f"k{n}"}) for n in range(2)]
    finish.finish(one, s.clients[1], task, puts)
    s.done()
    task = s.take(one, 1)
    s.done()
    finish.finish(one, s.clients[1], task, [(one, msgpack.packb("next"), None)])
    s.done()
    s.acked(two, 2)


@scene
def truncated_and_dropped(s: Stage) -> None:
    tube = s.tube("gone", "fifottl", max_attempts=3)
    for _ in range(2):
        for number in range(4):
            s.put(tube, number, key=f"k{number}")
        s.done()
        task = s.take(tube, 1)
        s.done()
        tube.release(s.clients[1], task)
        s.take(tube, 1)
        s.done()
        tube.truncate(s.clients[0])
        s.done()
    drop_tube(s.engine, tube)
    s.done()
    tube = s.tube("gone", "utube")
    s.put(tube, 1, utube="a")
    s.done()
    s.acked(tube)


@scene
def sessions_shared(s: Stage) -> None:
    tube = s.tube("work", "fifottl", ttr=1000)
    for number in range(6):
        s.put(tube, number)
    s.done()
    session = s.identify(1)
    task = s.take(tube, 1)
    s.done()
    s.leave(1)
    s.wait(20)
    s.identify(2, session)
    tube.ack(s.clients[2], task)
    s.done()
    s.take(tube, 2)
    s.take(tube, 3)
    s.done()
    s.leave(2)
    s.leave(3)
    s.wait(100)
    assert not s.engine.taken.rows


@scene
def sessions_unlogged(s: Stage) -> None:
    s.engine.configure(10, False)
    s.done()
    tube = s.tube("quick", "fifo")
    for number in range(3):
        s.put(tube, number)
    s.done()
    s.take(tube, 1)
    s.done()
    s.leave(1)
    s.wait(20)
    while s.acked(tube, 2) is not None:
        pass
    s.take(tube, 2)
    s.done()
    s.engine.configure(10, True)
    s.done()


@scene
def ownership_begins_to_be_logged(s: Stage) -> None:
    s.engine.configure(None, False)
    s.done()
    tube = s.tube("later", "fifo")
    for number in range(4):
        s.put(tube, number)
    s.done()
    first, second = s.take(tube, 1), s.take(tube, 2)
    s.done()
    s.engine.configure(None, True)
    s.done()
    tube.ack(s.clients[1], first)
    tube.ack(s.clients[2], second)
    s.done()


@scene
def switch_over(s: Stage) -> None:
    tube = s.tube("flip", "utubettl", ttr=100)
    for number in range(6):
        s.put(tube, number, utube=f"u{number}")
    s.done()
    session = s.identify(1)
    task = s.take(tube, 1)
    s.take(tube, 2)
    s.done()
    s.promote()
    s.identify(3, session)
    tube = s.engine.tubes["flip"]
    tube.ack(s.clients[3], task)
    s.done()
    s.wait(70)
    s.promote(30)
    while s.acked(tube, 2) is not None:
        pass


@scene
def switch_over_without_sessions(s: Stage) -> None:
    s.engine.configure(0, None)
    s.done()
    tube = s.tube("flip", "fifo", max_attempts=3)
    for number in range(4):
        s.put(tube, number)
    s.done()
    s.take(tube, 1)
    s.take(tube, 2)
    s.done()
    s.promote()
    while s.acked(tube, 2) is not None:
        pass


@scene
def frozen_time(s: Stage) -> None:
    """Nobody led for a while: leases and sessions get that time back."""
    tube = s.tube("frozen", "fifottl", ttr=20)
    for number in range(4):
        s.put(tube, number)
    s.done()
    s.identify(1)
    s.take(tube, 1)
    s.done()
    s.leave(1)
    s.engine.now += 30_000_000
    s.engine.frozen_us = 30_000_000
    s.promote()
    s.wait(10)
    from tandemq_server.engine import leases

    leases.prolong(s.engine, 5_000_000)
    s.done()
    s.wait(100)


@scene
def solo_terms(s: Stage) -> None:
    tube = s.tube("alone", "fifo")
    for number in range(2, 5):
        s.put(tube, number)
        s.turn()
        term_id = bytes([number]) * 16
        s.term = Term(number, term_id, s.term.id, s.log.last_lsn + 1, "a", number % 2 == 0)
        s.log.open_term(s.term, s.log.last_lsn + 1)
        s.engine.open_term(s.term)
        s.turn()
    while s.acked(tube) is not None:
        pass


@scene
def operators(s: Stage) -> None:
    one, two = s.tube("from", "fifottl"), s.tube("to", "utubettl")
    for number in range(6):
        s.put(one, number, delay=100 if number == 5 else 0)
    s.done()
    taken = s.take(one, 1)
    s.done()
    operator.act(one, taken, "release")
    operator.act(one, 1, "bury")
    operator.act(one, 1, "kick")
    operator.act(one, 2, "delete")
    operator.act(one, 3, "move", two)
    operator.act(one, 5, "move", two)
    s.done()
    one.release_all(None)
    s.done()
    s.take(one, 2)
    s.done()
    one.release_all(s.clients[0])
    s.done()


@scene
def imported(s: Stage) -> None:
    tube = s.tube("old", "fifottl")
    now = s.engine.now
    rows = [
        ([number, state, now + 10**7, 10**7, 10**6, 0, now - 5], msgpack.packb(number))
        for number, state in ((3, "r"), (7, "t"), (9, "!"), (12, "~"))
    ]
    importing.take_in(s.engine, tube, "elsewhere", [(list(f), p) for f, p in rows])
    s.done()
    s.put(tube, "new")
    s.done()
    s.acked(tube)
    s.wait(100)


@scene
def waiting_takes(s: Stage) -> None:
    tube = s.tube("wait", "utube")
    for client in (1, 2, 3):
        tube.take(s.clients[client], client, 30)
    s.done()
    for number in range(5):
        s.put(tube, number, utube=f"u{number % 2}")
        s.done()
    s.wait(40)


@scene
def lanes_of_queue15(s: Stage) -> None:
    s.lanes()
    for number in range(6):
        s.put15("t", pri=number % 3, urgent=number == 4)
    s.put15("other", delay=2, ttl=30, ttr=5)
    one, two = s.take15(), s.take15(client=2)
    s.q15(1, "ack", one)
    s.q15(2, "requeue", two)
    three = s.take15()
    s.q15(1, "touch", three)
    s.q15(1, "bury", three)
    s.q15(3, "dig", three)
    four = s.take15()
    s.q15(1, "release", four, 2, 20)
    five = s.take15()
    s.q15(1, "done", five, msgpack.packb(["result"]))
    s.wait(3)
    s.take15("other", 3)
    s.wait(20)
    s.q15(0, "truncate", "other")
    while (task := s.take15()) is not None:
        s.q15(1, "ack", task)


@scene
def lanes_expire(s: Stage) -> None:
    s.lanes()
    for _ in range(3):
        s.put15("t", ttl=10, ttr=3)
    s.take15()
    s.wait(2)
    s.leave(1)
    s.wait(15)


def _records(name: str, text: bool = False, **features: Any) -> None:
    def run(s: Stage) -> None:
        tube = s.records("q", text, **features)
        asked = features.get("id", "time64")
        for number in range(8):
            key = {"id": f"k{number}" if text else number + 5} if asked == "required" else {}
            s.put_x(tube, {"delay": 2} if number == 6 else None, priority=number % 3, **key)
        one, two = s.x(tube, "take"), s.x(tube, "take", client=2)
        s.x(tube, "ack", one)
        s.x(tube, "release", two, {"delay": 1}, client=2)
        three = s.x(tube, "take", 0, {"ttr": 5})
        s.x(tube, "touch", three, {"increment": 3})
        s.x(tube, "bury", three, {"update": [["=", "payload", "bad"]]})
        s.x(tube, "dig", 1)
        s.x(tube, "take", 0, {"ttr": 2})
        s.wait(10)
        s.leave(1)
        four = s.x(tube, "take", client=3)
        if "zombie" in features:
            s.x(tube, "ack", four, {"delay": 3}, client=3)
        else:
            s.x(tube, "release", four, {"ttl": 4}, client=3)
        s.wait(20)
        five = s.x(tube, "take", client=4)
        if five is not None:
            s.x(tube, "kill", five, client=4)

    SCENES[name] = run


_records("records")
_records("records_counted", id="auto_increment", ttl=60)
_records("records_of_text", text=True, id="required")
_records("records_of_numbers", id="required", ttr=9)
_records("records_of_uuids", text=True, id="uuid")
_records("records_kept", keep=True)
_records("records_zombies", zombie=5)


@scene
def snapshots(s: Stage) -> None:
    tube = s.tube("shot", "fifottl", max_attempts=4)
    for number in range(6):
        s.put(tube, number, key=f"k{number}")
    s.done()
    s.take(tube, 1)
    task = s.take(tube, 2)
    tube.release(s.clients[2], task)
    s.done()
    s.snapshot()
    for _ in range(2):
        s.acked(tube, 3)
    s.snapshot()


@scene
def emptied_of_keys(s: Stage) -> None:
    tube = s.tube("many", "fifo")
    for number in range(30):
        s.put(tube, number, key=f"k{number}", window=1 + number % 3)
    s.done()
    s.wait(10)
    assert not s.engine.keys.of(tube).rows
    assert keys.WINDOW_S


@scene
def altered(s: Stage) -> None:
    """Options change while tasks are there: what was done before was right then."""
    s.tube("letters", "fifo")
    tube = s.tube("bends", "fifottl", max_attempts=1, capacity=2)
    for number in range(2):
        s.put(tube, number)
    s.done()
    task = s.take(tube, 1)
    s.done()
    tube.release(s.clients[1], task)
    s.done()
    wider = {"max_attempts": 3, "capacity": 9, "dead_letter": "letters", "ttl": 50}
    altering.alter_tube(s.engine, "bends", wider)
    s.done()
    tube = s.engine.tubes["bends"]
    for number in range(4):
        s.put(tube, number)
    tube.kick(s.clients[0], 1)
    s.done()
    for _ in range(7):
        task = s.take(tube, 2)
        s.done()
        tube.release(s.clients[2], task)
        s.done()
    altering.alter_tube(s.engine, "bends", {"max_attempts": None, "dead_letter": None})
    s.done()
    while s.acked(tube, 3) is not None:
        pass


@scene
def many_by_hand(s: Stage) -> None:
    """Calls of an operator on all tasks that fit a filter."""
    tube, other = s.tube("heap", "fifottl", max_attempts=5), s.tube("aside", "utubettl")
    for number in range(12):
        s.put(tube, number, delay=50 if number % 3 == 0 else 0)
    s.done()
    for _ in range(3):
        task = s.take(tube, 1)
        s.done()
        tube.bury(s.clients[1], task)
        s.done()
    bulk = listing.bulk
    for action, given in (
        ("kick", {"state": "delayed"}),
        ("kick", {"state": "buried"}),
        ("move", {"state": "ready", "limit": 3, "to": "aside"}),
        ("delete", {"state": "ready", "limit": 4}),
    ):
        bulk(tube, s.clients[5], action, given, lambda _name: None)
        s.done()
    while s.acked(tube, 3) is not None or s.acked(other, 3) is not None:
        pass


@scene
def nothing(s: Stage) -> None:
    """An empty log but for its term and settings."""
