"""`make attack`: each attack against a fresh node; a line for each, held or broken.

    python -m tests.attack [--short] [--only WORD] [--frames N] [--planted]

Exit code 1 when one is broken. With --planted each node lacks the bound that the attack is about
(planted.py): then every line must say broken, and exit code 1 is for one that does not.
"""

from __future__ import annotations

import argparse
import contextlib
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from tests.attack import insiders, strangers
from tests.attack.target import (
    BUSY_SHARE,
    MEMORY_TIMES,
    OTHER_CORES,
    P99_MS,
    STRANGER_CORE,
    Node,
    Toll,
)

SECONDS, SHORT_SECONDS = 10.0, 2.0
FRAMES, SHORT_FRAMES = 200_000, 10_000
HEAD = """The stranger has core {0}; nodes and the other client, whose p99 this is, have cores {1}.
Held: p99 by the clock at most {2:g} ms, memory at most {3:g} times that of the idle node, the same
role. Where nodes waited for a processor for more than {4:.0%} of the time, others keep this machine
busy: then the clock less these waits is judged."""
FAILED = "the attack itself failed"
PLANTED = str(Path(__file__).with_name("planted.py"))
#: Of what was broken in one attack, so much is said.
TOLD_MAX = 3
Attack = Callable[[Path, float], "Toll | list[str]"]
ATTACKS: tuple[tuple[str, Attack], ...] = (
    ("1  60 MiB before login", strangers.large_frames),
    ("2  _vspace, 500 tubes", strangers.schema),
    ("3  EVAL of 10 MB", strangers.expressions),
    ("4  100 + 100 unfinished requests", strangers.unfinished),
    ("5  more guests than places", strangers.guests),
    ("5  one address in all places", strangers.one_address),
    ("6  silence on the admin port", strangers.silent_probes),
    ("7  long names, guessed passwords", strangers.names_and_guesses),
    ("7  TLS handshakes never begun", strangers.silent_handshakes),
    ("8  one who pipelines", strangers.pipelining),
    ("8  the same on a pair's master", strangers.pipelining_a_pair),
    ("8  one at its quota", strangers.at_the_quota),
    ("9  a rogue upstream", insiders.rogue_upstream),
    ("10 who may follow", insiders.subscribers),
    ("11 rights at the edges", insiders.rights),
    ("   malformed requests", strangers.garbage),
)


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="attack", description=__doc__)
    parser.add_argument("--short", action="store_true", help="two seconds each, as CI does")
    parser.add_argument("--only", default="", help="attacks with this in their name")
    parser.add_argument("--frames", type=int, help="malformed requests to send")
    parser.add_argument("--planted", action="store_true", help="against nodes that lack a bound")
    options = parser.parse_args(argv)
    seconds = SHORT_SECONDS if options.short else SECONDS
    frames = options.frames or (SHORT_FRAMES if options.short else FRAMES)
    found = 0
    print(HEAD.format(STRANGER_CORE, sorted(OTHER_CORES), P99_MS, MEMORY_TIMES, BUSY_SHARE))
    with tempfile.TemporaryDirectory(prefix="tandemq-attack-") as home:
        for number, (name, attack) in enumerate(ATTACKS):
            if options.only not in name:
                continue
            if attack is strangers.garbage:
                attack = partial(strangers.garbage, frames=frames)
            with planted(name) if options.planted else contextlib.nullcontext():
                broken, told = tried(attack, Path(home) / str(number), seconds)
            said = "; ".join([*broken[:TOLD_MAX], told])
            seen = bool(broken) and not (options.planted and broken[0].startswith(FAILED))
            found += seen is not options.planted
            print(f"{'BROKEN' if broken else 'held':6} {name:34} {said}")
            sys.stdout.flush()
    if options.planted:
        print(f"{found} saw nothing" if found else "all saw what was planted")
    else:
        print(f"{found} broken" if found else "all held")
    return 1 if found else 0


@contextlib.contextmanager
def planted(name: str) -> Iterator[None]:
    """Nodes that are started meanwhile lack what the attack of this name is about."""
    whole, Node.program = Node.program, [sys.executable, "-P", PLANTED, name]
    try:
        yield
    finally:
        Node.program = whole


def tried(attack: Attack, home: Path, seconds: float) -> tuple[list[str], str]:
    """What was broken, and what it cost."""
    began = time.monotonic()
    try:
        outcome = attack(home, seconds)
    except Exception as error:
        return [f"{FAILED}: {type(error).__name__}: {error}"], ""
    took = f"{time.monotonic() - began:.0f} s"
    if isinstance(outcome, Toll):
        return outcome.broken(), outcome.line()
    return outcome, took


if __name__ == "__main__":
    sys.exit(main())
