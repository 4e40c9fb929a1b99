"""Letters with Taskiq: `taskiq worker with_taskiq:broker`, and `python with_taskiq.py 100` sends.

SERVERS names the nodes. What was sent is printed by the worker, a line each.
"""

import asyncio
import os
import sys

from tandemq.taskiq import TandemBroker

broker = TandemBroker(
    os.environ.get("SERVERS", "127.0.0.1:3301"),
    tube="letters",
    max_attempts=5,
    dead_letter="letters-given-up",
    tube_options={"retry_delay": 0.1},
)


@broker.task("send")
async def send(number: int) -> None:
    """Send a letter."""
    await asyncio.sleep(0.01)
    print(f"sent {number}", flush=True)


async def main(count: int) -> None:
    await broker.startup()
    for number in range(count):
        # Put again under the same key, it would be the same task.
        await send.kicker().with_labels(key=f"letter-{number}", priority=number % 10).kiq(number)
    await broker.shutdown()


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1])))
