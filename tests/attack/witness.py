"""Another client meanwhile: puts, takes and acks at its own pace, and says how long each took.

By the clock, and by that less what the nodes' loops and this process waited for a processor: on a
machine that others keep busy only the second says what the node did. Sleeping, disks and locks
count in both. A process of its own; ends when its input does.
"""

from __future__ import annotations

import json
import os
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


def main(port: int, pids: list[int], user: str, password: str, authority: str) -> None:
    wire = Wire(port, user, password, wait=60.0, authority=authority)
    times: list[float] = []
    net: list[float] = []
    errors: list[str] = []

    def spent() -> tuple[int, int, int]:
        """(what the asked node ran, what all nodes waited, what this process waited)."""
        nodes = [ran_ns(pid) for pid in pids]
        return nodes[0][0], sum(one[1] for one in nodes), ran_ns(os.getpid())[1]

    began_all, waited = time.perf_counter(), spent()[1]
    print("ready", flush=True)
    while not select.select([sys.stdin], [], [], EVERY_SECONDS)[0]:
        try:
            taken = 0
            for name, argument in (("put", "x"), ("take", 0), ("ack", None)):
                before, began = spent(), time.perf_counter()
                code, answer = wire.call(f"{TUBE}:{name}", taken if name == "ack" else argument)
                took = time.perf_counter() - began
                ran, nodes, mine = (
                    (now - then) / 1e9 for now, then in zip(spent(), before, strict=True)
                )
                times.append(took)
                net.append(max(ran, took - nodes - mine))
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
        "net_p99": share(net, 0.99),
        "waited": (spent()[1] - waited) / 1e9 / (time.perf_counter() - began_all),
        "errors": errors,
    }
    print(json.dumps(told), flush=True)


def share(times: list[float], part: float) -> float:
    """A quantile, in ms."""
    times.sort()
    return times[min(len(times) - 1, int(part * len(times)))] * 1000 if times else 0.0


if __name__ == "__main__":
    main(int(sys.argv[1]), [int(one) for one in sys.argv[2].split(",")], *sys.argv[3:6])
