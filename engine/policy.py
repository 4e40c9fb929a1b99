"""Options of a tube that hold for every driver: attempts and dead letters, retries, room.

Here they are checked and turned into numbers; what they do stands in attempts.py and room.py. A
tube without any of them has no policy and pays for none.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import isfinite
from typing import TYPE_CHECKING, Any

from tandemq.model.errors import QueueError, failure
from tandemq.model.task import INFINITY_S, NEVER_US
from tandemq.model.units import SECOND_US
from tandemq_server.engine.room import REJECT, WAIT

if TYPE_CHECKING:
    from tandemq_server.engine.ports import EnginePort

RETRY_OPTIONS = frozenset({"retry_delay", "retry_factor", "retry_delay_max", "retry_jitter"})
OPTIONS = RETRY_OPTIONS | {
    "max_attempts",
    "dead_letter",
    "capacity",
    "capacity_bytes",
    "overflow",
    "key_window",
    "age_max",
}
ATTEMPTS_MAX = 1_000_000
FACTOR_MAX = 100
#: Unless the tube says otherwise: each retry waits twice as long, an hour at most, and up to half
#: of that less, so that tasks which failed together do not come back together.
RETRY_FACTOR, RETRY_DELAY_MAX_S, RETRY_JITTER = 2, 3600, 0.5


@dataclass(frozen=True, slots=True)
class Retry:
    """How long a failed task waits. Times in µs; jitter: the share of it that chance decides."""

    delay_us: int
    factor: float
    delay_max_us: int
    jitter: float

    def delay(self, attempts: int, chance: float) -> int:
        """µs to wait after so many failed attempts (1 or more); `chance` is 0 to 1."""
        try:
            wait = min(self.delay_us * self.factor ** (attempts - 1), self.delay_max_us)
        except OverflowError:
            wait = self.delay_max_us
        return int(wait * (1 - self.jitter * chance))


@dataclass(frozen=True, slots=True)
class Policy:
    """What a tube's options ask for.

    max_attempts: failed deliveries until a task is given up, 0 = never, they are only counted.
    dead_letter: the tube it goes to then, None = it is buried where it is.
    """

    max_attempts: int = 0
    dead_letter: str | None = None
    retry: Retry | None = None


def of(opts: dict[str, Any]) -> Policy | None:
    """The policy of a tube, its options checked when it was created."""
    if opts.get("max_attempts") is None and opts.get("retry_delay") is None:
        return None
    return Policy(opts.get("max_attempts") or 0, opts.get("dead_letter"), _retry(opts))


def _retry(opts: dict[str, Any]) -> Retry | None:
    if opts.get("retry_delay") is None:
        return None

    def given(option: str, default: float) -> float:
        value = opts.get(option)
        return default if value is None else value

    return Retry(
        int(opts["retry_delay"] * SECOND_US),
        given("retry_factor", RETRY_FACTOR),
        int(given("retry_delay_max", RETRY_DELAY_MAX_S) * SECOND_US),
        given("retry_jitter", RETRY_JITTER),
    )


# -- checks, when a tube is created ---------------------------------------------------------------


def check(engine: EnginePort, driver: Any, name: str, kind: str, opts: dict[str, Any]) -> None:
    """Refuse bad options, each by its name and with what would be accepted (code 32)."""
    _number(opts, "max_attempts", 0, ATTEMPTS_MAX, whole=True)
    _check_dead_letter(engine, name, opts)
    _check_retry(driver, kind, opts)
    _number(opts, "capacity", 0, NEVER_US, whole=True)
    _number(opts, "capacity_bytes", 0, NEVER_US, whole=True)
    _number(opts, "key_window", 0.001, INFINITY_S)
    _number(opts, "age_max", 0, INFINITY_S)
    overflow = opts.get("overflow")
    if overflow is not None and overflow not in (REJECT, WAIT):
        raise bad("overflow", overflow, f"{REJECT} or {WAIT}")
    if overflow is not None and not (opts.get("capacity") or opts.get("capacity_bytes")):
        raise failure("Invalid option overflow: it needs capacity or capacity_bytes")


def _check_dead_letter(engine: EnginePort, name: str, opts: dict[str, Any]) -> None:
    target = opts.get("dead_letter")
    if target is None:
        return
    if not opts.get("max_attempts"):
        raise failure("Invalid option dead_letter: it needs max_attempts of 1 or more")
    if type(target) is not str or target == name:
        raise bad("dead_letter", target, "the name of another tube")
    tube = engine.tubes.get(target)
    if tube is None:
        raise bad("dead_letter", target, "a tube that exists: create it first")
    if tube.space.temporary and not opts.get("temporary"):
        raise bad("dead_letter", target, "a tube that is not temporary")


def _check_retry(driver: Any, kind: str, opts: dict[str, Any]) -> None:
    asked = sorted(option for option in RETRY_OPTIONS if opts.get(option) is not None)
    if not asked:
        return
    if not driver.delays:
        raise failure(f"Invalid option {asked[0]}: {kind} queue does not support delays")
    if opts.get("retry_delay") is None:
        raise failure(f"Invalid option {asked[0]}: it needs retry_delay")
    _number(opts, "retry_delay", 0, INFINITY_S)
    _number(opts, "retry_factor", 1, FACTOR_MAX)
    _number(opts, "retry_delay_max", 0, INFINITY_S)
    _number(opts, "retry_jitter", 0, 1)


def _number(
    opts: dict[str, Any], option: str, least: float, most: float, whole: bool = False
) -> None:
    value = opts.get(option)
    if value is None:
        return
    if whole and type(value) is float and value.is_integer():
        value = opts[option] = int(value)
    wrong = type(value) not in ((int,) if whole else (int, float)) or not isfinite(value)
    if wrong or not least <= value <= most:
        raise bad(option, value, f"{least} to {most}")


def bad(option: str, value: Any, expected: str) -> QueueError:
    return failure(f"Invalid value of {option}: {value} (expected {expected})")
