"""A node without one of its bounds: the attack on it must be told as broken, or it sees nothing.

    python -P tests/attack/planted.py ATTACK serve --config FILE

What `python -m tests.attack --planted` runs instead of `tandemq`, one plant for each attack.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import Any

from tandemq.command import main
from tandemq_server.admin import handlers
from tandemq_server.node.core import core, requests, strangers
from tandemq_server.node.core.permits import Permits
from tandemq_server.node.loop import dialer, doors, places

STALL_SECONDS, STALL_EVERY = 0.08, 20


def stall() -> None:
    """One read in some takes long: by the clock, not by what the node runs."""
    real, reads = core.Core.receive, [0]

    def receive(self: core.Core, *args: Any) -> None:
        reads[0] += 1
        if reads[0] % STALL_EVERY == 0:
            time.sleep(STALL_SECONDS)
        real(self, *args)

    _put(core.Core, "receive", receive)


def anybody() -> None:
    """Nobody is a stranger, and everybody may do everything."""
    _put(strangers, "is_stranger", lambda *_: False)
    _put(Permits, "allowed", lambda *_: True)
    _put(requests, "_proved", lambda *_: {})


def no_budget() -> None:
    """Unfinished requests are not counted."""
    _put(doors.InputRoom, "hold", lambda *_: None)


def nobody_goes() -> None:
    """Strangers keep their places."""
    _put(places.Places, "stranger", lambda *_: None)
    _put(places.Places, "proved", lambda *_: None)


def no_share() -> None:
    """One address may have all places."""
    _put(doors.ConnectionBounds, "of_one_address", property(lambda room: room.connections_max))


def slow_probe() -> None:
    real = handlers.Handlers.probe

    async def probe(self: Any, *args: Any, **named: Any) -> Any:
        time.sleep(1.5)
        return await real(self, *args, **named)

    _put(handlers.Handlers, "probe", probe)


def free_guesses() -> None:
    _put(doors.Guesses, "wait", lambda *_: 0.0)


def no_proof() -> None:
    """Whoever sits on a peer's address is believed."""
    _put(dialer, "check_link_proof", lambda *_: True)


def _put(where: Any, name: str, what: Any) -> None:
    assert hasattr(where, name), name
    setattr(where, name, what)


#: By the attack's name as the program prints it.
PLANTS: dict[str, Callable[[], None]] = {
    "1  60 MiB before login": anybody,
    "2  _vspace, 500 tubes": anybody,
    "3  EVAL of 10 MB": stall,
    "4  100 + 100 unfinished requests": no_budget,
    "5  more guests than places": nobody_goes,
    "5  one address in all places": no_share,
    "6  silence on the admin port": slow_probe,
    "7  long names, guessed passwords": free_guesses,
    "7  TLS handshakes never begun": stall,
    "8  one who pipelines": stall,
    "8  the same on a pair's master": stall,
    "8  one at its quota": stall,
    "9  a rogue upstream": no_proof,
    "10 who may follow": anybody,
    "11 rights at the edges": anybody,
    "   malformed requests": stall,
}

if __name__ == "__main__":
    PLANTS[sys.argv.pop(1)]()
    sys.exit(main())
