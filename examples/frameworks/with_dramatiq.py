"""Letters with Dramatiq: `dramatiq with_dramatiq`, and `python with_dramatiq.py 100` sends.

SERVERS names the nodes. What was sent is printed by the worker, a line each.
"""

import os
import sys
import time

import dramatiq

from tandemq.dramatiq import TandemBroker

broker = TandemBroker(os.environ.get("SERVERS", "127.0.0.1:3301"))
dramatiq.set_broker(broker)


@dramatiq.actor(queue_name="letters", max_retries=5, min_backoff=100)
def send(number: int) -> None:
    """Send a letter."""
    time.sleep(0.01)
    print(f"sent {number}", flush=True)


if __name__ == "__main__":
    for number in range(int(sys.argv[1])):
        # Put again under the same key, it would be the same task.
        send.send_with_options(args=(number,), key=f"letter-{number}", broker_priority=number % 10)
    broker.close()
