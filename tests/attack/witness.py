"""Another client meanwhile: puts, takes and acks at its own pace, and says how long each took.

By the clock, and by what the node's loop ran meanwhile: on a machine that others keep busy only the
second says what the node did. A process of its own; ends when its input does.
"""

from __future__ import annotations

import json
import select
import sys
import time
from pathlib import Path

from tests.attack.wire import Gone, Wire

EVERY_SECONDS = 0.004
TUBE = "queue.tube.witness"


def ran_ns(pid: int) -> tuple[int, int]:
    """How long a process's first thread has run, and has waited for a processor."""
    words = Path(f"/proc/{pid}/schedstat").read_text(encoding="ascii").split()
    return int(words[0]), int(words[1])


def main(port: int, pid: int, user: str, password: str) -> None:
    wire = Wire(port, user, password, wait=60.0)
    times: list[float] = []
    own: list[float] = []
    errors: list[str] = []
    began_all, waited = time.perf_counter(), ran_ns(pid)[1]
    print("ready", flush=True)
    while not select.select([sys.stdin], [], [], EVERY_SECONDS)[0]:
        try:
            taken = 0
            for name, argument in (("put", "x"), ("take", 0), ("ack", None)):
                ran, began = ran_ns(pid)[0], time.perf_counter()
                code, answer = wire.call(f"{TUBE}:{name}", taken if name == "ack" else argument)
                times.append(time.perf_counter() - began)
                own.append((ran_ns(pid)[0] - ran) / 1e9)
                if code:
                    errors.append(str(answer))
                elif name == "take":
                    taken = answer[0][0]
        except (OSError, Gone) as error:
            errors.append(f"{type(error).__name__}: {error}")
            break
    told = {
        "count": len(times),
        "p99": share(times, 0.99),
        "own_p99": share(own, 0.99),
        "waited": (ran_ns(pid)[1] - waited) / 1e9 / (time.perf_counter() - began_all),
        "errors": errors,
    }
    print(json.dumps(told), flush=True)


def share(times: list[float], part: float) -> float:
    """A quantile, in ms."""
    times.sort()
    return times[min(len(times) - 1, int(part * len(times)))] * 1000 if times else 0.0


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], sys.argv[4])
