"""Scenarios with an arbiter: nobody forces anything, so nothing acknowledged may ever be cut.

`python -m tests.simulation.sim_seated SEED [COUNT]` replays one, or runs many.
"""

from __future__ import annotations

import sys
import time
from dataclasses import replace
from functools import partial
from random import Random

from tests.simulation.sim_arbiter import PLACE, SimArbiter, Weather
from tests.simulation.sim_checks import Violation
from tests.simulation.sim_plan import RUN_US, Action, Plan, make_plan
from tests.simulation.sim_scenario import Scenario
from tests.simulation.sim_world import MS, SECOND

BATCH = 20
ACTIONS_MAX = 40


def seated_plan(seed: int) -> Plan:
    """A narrow plan in pair mode, without force and other disks, and what befalls the arbiter."""
    chance = Random(f"{seed}/seat")
    plan = make_plan(seed, wide=False)
    actions = [one for one in plan.actions if one.kind != "force"]
    for _ in range(chance.randint(1, 5)):
        kind = chance.choice(("w_down", "w_cut", "w_cut", "w_weather", "w_island", "w_island"))
        node = chance.choice(plan.nodes)
        lasts = chance.randint(50 * MS, 8 * SECOND)
        actions.append(Action(chance.randint(0, RUN_US), kind, node, lasts))
    # Whoever leads is struck again and again, so that leads are taken over more than once.
    at = chance.randint(0, 2 * SECOND)
    while at < RUN_US and len(actions) < ACTIONS_MAX:
        kind = chance.choice(("w_kill", "w_kill", "w_pause"))
        actions.append(Action(at, kind, plan.nodes[0], chance.randint(50 * MS, 3 * SECOND)))
        at += chance.randint(SECOND, 3 * SECOND)
    return replace(
        plan,
        ack="pair",
        solo_after=chance.choice((0.5, 1.0)),
        # A power cut may take from a replica what it confirmed, where nothing is synced.
        wal_mode="fsync",
        seated=True,
        actions=tuple(sorted(actions, key=lambda one: one.at)),
    )


class SeatedScenario(Scenario):
    def __init__(self, plan: Plan) -> None:
        super().__init__(plan)
        chance = Random(f"{plan.seed}/weather")
        share = chance.choice((0.0, 0.02, 0.1))
        self.weather = Weather(lost=share, late=share, doubled=share)
        self.arbiter = SimArbiter(self.world)
        for node in self.machines.values():
            node.arbiter = self.arbiter
            node.options["failover"] = {"per_minute": 60, "per_hour": 3600}

    def _begin(self) -> None:
        super()._begin()
        self.arbiter.weather = self.weather

    def _do(self, action: Action) -> None:
        after, arbiter = self.world.after, self.arbiter
        if not action.kind.startswith("w_"):
            super()._do(action)
            return
        self.world.say(f"* {action}")
        if action.kind == "w_down":
            arbiter.down = True
            after(action.lasts, partial(setattr, arbiter, "down", False))
        elif action.kind in ("w_kill", "w_pause"):
            seat = arbiter.reading.seat
            if seat is not None:
                struck = replace(action, kind=action.kind[2:], node=seat.master)
                super()._do(struck)
        elif action.kind in ("w_cut", "w_island"):
            # An island reaches neither the arbiter nor its peer; clients reach it.
            ends = [PLACE] if action.kind == "w_cut" else [PLACE, *self.plan.nodes]
            ways = [(action.node, end) for end in ends if end != action.node]
            for way in (*ways, *((end, node) for node, end in ways)):
                self.network.set_cut(*way, True)
                after(action.lasts, partial(self.network.set_cut, *way, False))
        else:
            arbiter.weather = Weather(lost=0.4, late=0.3, doubled=0.3)
            after(action.lasts, partial(setattr, arbiter, "weather", self.weather))

    def _heal(self) -> None:
        """By itself; only who was made read-only by an operator is told that it may serve."""
        self.world.say("* heal")
        self.network.heal()
        self.arbiter.calm()
        for node in self.machines.values():
            node.heal_disk()
            node.resume()
            if not node.alive:
                node.start()
        for _ in range(3):
            if self.world.run_while(lambda: not self._in_step(), 15.0):
                return
            for node in self.machines.values():
                seat = self.arbiter.reading.seat
                if node.alive and seat is not None and seat.master == node.name:
                    self.world.say(f"* {node.name} may serve")
                    node.request(False)
        raise Violation(f"liveness: no single master in step: {self._states()}")

    def _in_step(self) -> bool:
        seat = self.arbiter.reading.seat
        return super()._in_step() and seat is not None and seat.partner is not None


def run(seed: int) -> tuple[int, str]:
    """(how often the lead was taken after the first time, what was violated or nothing)."""
    scenario = SeatedScenario(seated_plan(seed))
    try:
        scenario.run()
    except Violation as violation:
        lines = "\n".join(scenario.world.lines)
        replay = f"replay: .venv/bin/python -m tests.simulation.sim_seated {seed}"
        return 0, f"{scenario.plan}\n{lines}\n{violation}\n{replay}"
    return max(0, len({seat.no for _, seat in scenario.arbiter.swaps}) - 1), ""


def run_batch(first: int) -> tuple[int, list[str]]:
    found = [run(seed) for seed in range(first, first + BATCH)]
    return sum(failovers for failovers, _ in found), [text for _, text in found if text]


def main(first: int, count: int) -> int:
    began, failovers, failures = time.process_time(), 0, 0
    for seed in range(first, first + count):
        found, problem = run(seed)
        failovers += found
        if problem:
            failures += 1
            print(problem if count == 1 else f"seed {seed}: {problem.splitlines()[-2]}", flush=True)
    seconds = time.process_time() - began
    print(f"{count} scenarios, {failovers} failovers, {failures} failures, {seconds:.1f} s")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 1))
