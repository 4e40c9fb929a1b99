"""Celery on Tandem and on RabbitMQ, with and without the confirmation of what was published.

Both acknowledge after the work and take nothing ahead: one guarantee, two brokers.
"""

from __future__ import annotations

from celery import Celery

import tandemq.celery
from benchmarks.frameworks.load import BROKER, PAYLOAD, URL, begun, produce_blocking

app = Celery("notes", broker=URL)
app.conf.update(tandemq.celery.AFTER_THE_WORK, task_default_queue="notes", task_ignore_result=True)
app.conf.update(worker_redirect_stdouts=False, worker_hijack_root_logger=False)
if BROKER == "rabbitmq-confirmed":
    app.conf.update(broker_transport_options={"confirm_publish": True})


@app.task(name="note")
def note(sent_ns: int, _payload: str) -> None:
    """Nothing but the note."""
    begun(sent_ns)


if __name__ == "__main__":
    produce_blocking(lambda sent_ns: note.apply_async((sent_ns, PAYLOAD)))
    app.close()
