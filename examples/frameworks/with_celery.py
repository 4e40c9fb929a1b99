"""Letters with Celery: `celery -A with_celery worker`, and `python with_celery.py 100` sends.

SERVERS names the nodes. What was sent is printed by the worker, a line each.
"""

import os
import sys
import time

from celery import Celery

import tandemq.celery

nodes = os.environ.get("SERVERS", "127.0.0.1:3301").split(",")
app = Celery("letters", broker=";".join(f"tandemq://{node}" for node in nodes))
app.conf.update(tandemq.celery.AFTER_THE_WORK, task_default_queue="letters")
app.conf.update(worker_redirect_stdouts=False, task_ignore_result=True)


@app.task(name="send", autoretry_for=(OSError,), retry_backoff=True, max_retries=5)
def send(number: int) -> None:
    """Send a letter."""
    time.sleep(0.01)
    print(f"sent {number}", flush=True)


if __name__ == "__main__":
    for number in range(int(sys.argv[1])):
        # Put again under the same key, it would be the same task.
        options = {tandemq.celery.KEY: f"letter-{number}"}
        send.apply_async((number,), headers=options, priority=number % 10)
    app.close()
