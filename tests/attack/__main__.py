"""`make attack`: each attack against a fresh node; a line for each, held or broken.

    python -m tests.attack [--short] [--only WORD] [--frames N]

Exit code 1 when one is broken.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from tests.attack import insiders, strangers
from tests.attack.target import Toll

SECONDS, SHORT_SECONDS = 10.0, 2.0
FRAMES, SHORT_FRAMES = 200_000, 10_000
Attack = Callable[[Path, float], "Toll | list[str]"]
ATTACKS: tuple[tuple[str, Attack], ...] = (
    ("1  60 MiB before login", strangers.large_frames),
    ("2  _vspace, 500 tubes", strangers.schema),
    ("3  EVAL of 10 MB", strangers.expressions),
    ("4  100 + 100 unfinished requests", strangers.unfinished),
    ("5  more guests than places", strangers.guests),
    ("6  silence on the admin port", strangers.silent_probes),
    ("7  long names, guessed passwords", strangers.names_and_guesses),
    ("7  TLS handshakes never begun", strangers.silent_handshakes),
    ("8  one who pipelines", strangers.pipelining),
    ("8  the same on a pair's master", strangers.pipelining_a_pair),
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
    options = parser.parse_args(argv)
    seconds = SHORT_SECONDS if options.short else SECONDS
    frames = options.frames or (SHORT_FRAMES if options.short else FRAMES)
    found = 0
    with tempfile.TemporaryDirectory(prefix="tandemq-attack-") as home:
        for number, (name, attack) in enumerate(ATTACKS):
            if options.only not in name:
                continue
            if attack is strangers.garbage:
                attack = partial(strangers.garbage, frames=frames)
            broken, told = tried(attack, Path(home) / str(number), seconds)
            found += bool(broken)
            print(f"{'BROKEN' if broken else 'held':6} {name:34} {'; '.join(broken) or told}")
            sys.stdout.flush()
    print(f"{found} broken" if found else "all held")
    return 1 if found else 0


def tried(attack: Attack, home: Path, seconds: float) -> tuple[list[str], str]:
    """What was broken, and what it cost."""
    began = time.monotonic()
    try:
        outcome = attack(home, seconds)
    except Exception as error:
        return [f"the attack itself failed: {type(error).__name__}: {error}"], ""
    took = f"{time.monotonic() - began:.0f} s"
    if isinstance(outcome, Toll):
        return [f"{one} ({outcome.line()})" for one in outcome.broken()], outcome.line()
    return outcome, took


if __name__ == "__main__":
    sys.exit(main())
