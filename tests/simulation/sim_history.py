"""A run's history as lines for the outside judge (tests/judge/FORMAT.md)."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterator
from itertools import zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.simulation.sim_clients import Contact, Op
from tests.simulation.sim_rescue import Rescued
from tests.simulation.sim_service import NEVER, kept_until
from tests.simulation.sim_tubes import DEAD, PASSING, SPACE15, dialect_of
from tests.simulation.sim_world import SECOND

if TYPE_CHECKING:
    from tests.simulation.sim_scenario import Scenario

#: An operator's calls on many tasks, which say nothing of each.
MANY = frozenset({"bulk kick", "bulk move", "bulk delete", "redrive"})
#: How much of a time nodes count is believed: their clocks drift.
BELIEVED = 0.98
KINDS = frozenset({"put", "take", "touch", "ack", "release", "bury", "delete"})


def write_history(directory: Path, scenario: Scenario, rescued: Rescued) -> None:
    """One file for each run, `sim-<seed>.jsonl`."""
    plan = scenario.plan
    run = f"sim-{plan.seed}"
    kept = plan.never_alone and not scenario.forced
    command = f".venv/bin/python -m tests.simulation.sim_run {plan.seed}"
    head = {"what": "run", "run": run, "source": "simulation", "replay": command}
    lines: list[dict[str, Any]] = [{**head, "promise": "kept" if kept else "rescued"}]
    told = _told(scenario)
    together = Counter((op.client, op.began) for op in told)
    for op in told:
        line = {"what": "op", "run": run, **_op(op, scenario)}
        if together[op.client, op.began] > 1 and line.get("result", "read_only") != "read_only":
            # All or nothing: which of its tasks was not right is not said.
            line["result"] = "batch"
        lines.append(line)
    events = [*_sessions_that_end(scenario), *_ends_of_leases(scenario)]
    events += [*_cuts(rescued), *_cut_answers(scenario, told), *_untold(scenario)]
    for tube in plan.tubes:
        events.append({"event": "drained", "tube": tube, "at_us": scenario.world.now})
    lines += [{"what": "event", "run": run, **event} for event in events]
    directory.mkdir(parents=True, exist_ok=True)
    with (directory / f"{run}.jsonl").open("w", encoding="utf-8") as file:
        for line in lines:
            file.write(json.dumps(line) + "\n")


def _told(scenario: Scenario) -> list[Op]:
    # A put that a full tube, or a node that does not serve, refused says nothing of a task.
    # Ids of a tube that was emptied or dropped begin anew, when exactly nobody is told.
    ops = scenario.history.ops
    emptied = {op.tube for op in ops if op.kind == "truncate" and op.outcome.error is None}
    emptied.add(PASSING)
    beyond = {"xqueue", SPACE15, *emptied}
    there = {op.number for op in ops if op.kind == "put" and op.tube in emptied}
    return [
        op for op in ops if op.kind in KINDS and op.tube not in beyond and op.number not in there
    ]


def _op(op: Op, scenario: Scenario) -> dict[str, Any]:
    outcome = "unknown" if op.outcome.unknown else "refused" if op.outcome.error else "ok"
    line: dict[str, Any] = {
        "client": op.client,
        "session": op.session,
        "node": op.node,
        "kind": op.kind,
        "tube": op.tube,
        "type": op.tube if op.tube != DEAD else "fifo",
        "task": op.task_id,
        "payload": op.number,
        "token": op.token,
        "began_us": op.began,
        "ended_us": None if outcome == "unknown" else op.ended,
        "outcome": outcome,
    }
    if op.outcome.error is not None:
        line["result"] = _result(*op.outcome.error)
    if op.kind == "put":
        line |= {"subqueue": op.subqueue, "key": op.key, "pri": op.pri or None}
        stepped = any(action.kind == "skew" for action in scenario.plan.actions)
        # A node that starts with a wrong clock takes that clock's word.
        line |= {"expires_us": op.began if stepped and op.expires is not None else op.expires}
    if op.delay:
        # Clocks drift and jump: it is not surely ready at once, and no more is promised.
        line["delay_us"] = 1
    if op.kind in ("take", "touch") and outcome == "ok":
        ttr = dialect_of(scenario.plan, op.tube).ttr
        # Clocks drift, and a lease is counted from the moment the node gave it.
        line["lease_until_us"] = None if ttr is None else op.began
    return {key: value for key, value in line.items() if value is not None}


def _result(code: int, text: str) -> str:
    if code == 7:
        return "read_only"
    if "not taken" in text:
        return "not_taken"
    return "not_found" if "not found" in text else "full" if "full" in text else "error"


def _sessions_that_end(scenario: Scenario) -> Iterator[dict[str, Any]]:
    """A session may end when somebody served for its ttr, and it was heard by nobody.

    It is away from the end of its connection on, or from the moment at which the node it spoke to
    stopped to lead. What a node heard whose log was cut nobody has heard.
    """
    services = {name: node.service for name, node in scenario.machines.items()}
    lineage = next(iter(scenario.machines.values())).engine.store.lineage
    kept_us = int(scenario.plan.ttr * BELIEVED * SECOND)
    sessions: dict[str, list[Contact]] = defaultdict(list)
    for client in scenario.clients:
        for contact in client.contacts:
            told = services[contact.node].answers.get((client.name, contact.sync))
            if told is None or told.stands(lineage):
                sessions[contact.session].append(contact)
    for session, contacts in sessions.items():
        for contact, following in zip_longest(contacts, contacts[1:]):
            left = NEVER if contact.until is None else contact.until
            stops = services[contact.node].stops_after(contact.asked)
            if following is not None and left == following.asked <= stops:
                continue
            ends = kept_until(services.values(), min(left, stops), kept_us)
            if ends < (NEVER if following is None else following.asked):
                yield {"event": "lease_may_end", "session": session, "from_us": ends}


def _ends_of_leases(scenario: Scenario) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for at, node in scenario.forces:
        found.append({"event": "forced", "node": node, "at_us": at})
        found.append({"event": "lease_may_end", "session": "*", "from_us": at})
    ops = scenario.history.ops
    for op in ops:
        if op.kind == "release_all" and op.tube != SPACE15 and op.outcome.error is None:
            until = scenario.world.now if op.outcome.unknown else op.ended
            event = {"event": "lease_may_end", "session": "*", "from_us": op.began, "to_us": until}
            ids = {one.task_id for one in ops if one.tube == op.tube} - {None}
            found += [{**event, "tube": op.tube, "task": task} for task in sorted(ids, key=str)]
    return found


def _cuts(rescued: Rescued) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for (tube, task, number), file in {**rescued.dumped, **rescued.put}.items():
        found.append(
            {"event": "undone", "tube": tube, "task": task, "payload": number, "file": file}
        )
    for tube, task, kind in sorted(rescued.hands, key=str):
        kinds = {"take", "touch", "release", "bury"} if kind not in ("ack",) else {"ack"}
        found.append(
            {"event": "undone", "tube": tube, "task": task, "kinds": sorted(kinds), "file": "dump"}
        )
    for (tube, task), file in rescued.again.items():
        found.append(
            {"event": "undone", "tube": tube, "task": task, "kinds": ["ack"], "file": file}
        )
    return found


def _cut_answers(scenario: Scenario, told: list[Op]) -> Iterator[dict[str, Any]]:
    """Answers from a log that was cut, one by one; and what only a saved state stands for."""
    lineage = next(iter(scenario.machines.values())).engine.store.lineage
    for op in told:
        answer = scenario.machines[op.node].service.answers.get((op.client, op.sync))
        if answer is None or answer.stands(lineage):
            continue
        when = {"client": op.client, "node": op.node, "from_us": op.began, "to_us": op.ended}
        yield {"event": "cut", **when}
        if op.untold and op.kind != "put" and op.task_id is not None and op.outcome.ok is not None:
            task = {"tube": op.tube, "task": op.task_id, "payload": op.number, "kinds": [op.kind]}
            yield {"event": "undone", **when, **task, "file": "a saved state"}


def _untold(scenario: Scenario) -> list[dict[str, Any]]:
    """Dead letters move, and kicks wake what is buried, without a line of the task.

    From an operator's first call on many tasks on, any may move.
    """
    bulk = [op.began for op in scenario.history.ops if op.kind in MANY and not op.outcome.error]
    numbers = {op.number for op in scenario.history.ops if op.kind == "bury"}
    numbers |= {op.number for op in scenario.history.ops if op.tube == DEAD}
    tubes = {op.number: op.tube for op in scenario.history.ops if op.kind == "put"}
    found = [
        {
            "event": "untold",
            "tube": tube,
            "payload": number,
            "from_us": 0,
            "why": "moved to dead letters, or kicked",
        }
        for number in sorted(one for one in numbers if one is not None)
        for tube in {tubes[number], DEAD}
    ]
    if bulk:
        event = {"event": "untold", "from_us": min(bulk), "why": "many were moved"}
        event["again"] = True
        every = [(tube, number) for tube in scenario.plan.tubes for number in tubes]
        found += [{**event, "tube": tube, "payload": number} for tube, number in every]
    return found
