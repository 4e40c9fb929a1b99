"""An owner for the fiber: carries out its effects, fails or withholds the ones it is told to."""

from __future__ import annotations

from collections.abc import Collection

from tandemq_server.statemachine import effects
from tandemq_server.statemachine.effects import (
    Done,
    Effect,
    EffectStep,
    Failed,
    Input,
    Progress,
    RoleRequest,
    TermOpened,
    Tick,
)
from tandemq_server.statemachine.fiber import QueueStateFiber
from tandemq_server.statemachine.promotion import Facts
from tandemq_server.statemachine.roles import Role

ALONE = Facts(last_lsn=10, term_number=1, term_id=b"1" * 16)
SECOND = 1_000_000


class Owner:
    """`done`: names of all effects in order. fail / withhold: names of steps to treat so."""

    def __init__(self, facts: Facts | None = ALONE, **options: int) -> None:
        self.now = 0
        self.fiber = QueueStateFiber(0, **options)
        self.facts = facts
        self.fail: Collection[str] = ()
        self.withhold: Collection[str] = ()
        self.done: list[str] = []
        self.settled: list[effects.Settled] = []
        self.effects: list[Effect] = []
        self.waiting: list[tuple[EffectStep, float]] = []
        self.terms: list[effects.WriteTerm] = []
        self.following = False
        self.drivers = False
        self.send(Tick())

    @property
    def role(self) -> Role:
        return self.fiber.role

    def send(self, item: Input) -> None:
        # An answer out of the blue to a step that is withheld: it was carried out after all.
        for held in [one for one in self.waiting if isinstance(item, Done)]:
            if held[0].step == item.step and held[1] == self.fiber.state.counts.total():
                self.waiting.remove(held)
                self.finish(held[0])
        queue = [item]
        while queue:
            for effect in self.fiber.step(self.now, queue.pop(0)):
                queue += self.carry_out(effect)

    def later(self, us: int) -> None:
        self.now += us
        self.send(Tick())

    def go(self, read_only: bool = False, force: bool = False, command: bool = True) -> None:
        self.send(RoleRequest(read_only, force, command))

    def carry_out(self, effect: Effect) -> list[Input]:
        name = type(effect).__name__
        self.effects.append(effect)
        if isinstance(effect, effects.StateChanged):
            self.done.append(f"-> {effect.transition.target}")
            # Serving ends with the state; StopDrivers only tells the drivers.
            self.drivers = self.drivers and effect.transition.target is Role.RUNNING
            return []
        self.done.append(name)
        if isinstance(effect, effects.Settled):
            self.settled.append(effect)
        if isinstance(effect, effects.Follow):
            assert not self.drivers or self.role is not Role.WAITING
            self.following = True
        if isinstance(effect, effects.CheckSync) and self.facts is not None:
            return [Progress(self.facts)]
        if not isinstance(effect, EffectStep):
            return []
        if name in self.fail:
            return [Failed(effect.step, "boom")]
        if name in self.withhold:
            self.waiting.append((effect, self.fiber.state.counts.total()))
            return []
        return self.finish(effect)

    def finish(self, effect: EffectStep) -> list[Input]:
        match effect:
            case effects.StopFollowing():
                self.following = False
            case effects.WriteTerm():
                assert not self.following, "nothing is written while an upstream may still write"
                self.terms.append(effect)
                return [TermOpened(effect.number, bytes(16)), Done(effect.step)]
            case effects.StartDrivers():
                self.drivers = True
            case effects.StopDrivers():
                self.drivers = False
            case effects.Drain():
                return [Done(effect.step, 77)]
        return [Done(effect.step)]

    def release(self) -> None:
        """Answer everything withheld so far. A step is void once the state has changed."""
        self.withhold = ()
        waiting, self.waiting = self.waiting, []
        for effect, transitions in waiting:
            void = transitions != self.fiber.state.counts.total()
            for item in [Done(effect.step)] if void else self.finish(effect):
                self.send(item)
