"""What the brokers for task frameworks share: options of a framework in the words of the queue.

Here: names and numbers. Must not be here: anything of one framework, connections.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any
from urllib.parse import urlsplit

from tandemq.client.api import Client

#: Seconds a worker that fell silent keeps a task; while it lives the task is touched.
TTR = 120.0
#: Seconds for which a put that nobody answered may be repeated without becoming two.
WINDOW = 300.0
#: The frameworks' priorities: 0 to 255, the larger goes first, as RabbitMQ has it.
PRIORITY_MAX = 255


def put_options(
    *,
    ordered: bool,
    delay: float | None = None,
    priority: Any = None,
    key: Any = None,
    window: Any = None,
    order: Any = None,
    ttl: float | None = None,
) -> dict[str, Any]:
    """Options of a put.

    Without a `key` each put gets one of its own, so that the client may repeat it until it is
    answered, over a switch-over too. `order`: tasks of the same name run one after the other, in
    tubes that were made `ordered`; there, tasks without a name run beside each other.
    """
    larger_first = min(max(int(priority or 0), 0), PRIORITY_MAX)
    options: dict[str, Any] = {
        "pri": PRIORITY_MAX - larger_first,
        "key": uuid.uuid4().hex if key is None else str(key),
    }
    if key is None:
        options["window"] = WINDOW
    elif window is not None:
        options["window"] = float(window)
    if delay is not None and delay > 0:
        options["delay"] = float(delay)
    if ttl is not None:
        options["ttl"] = max(float(ttl), 0.001)
    if ordered:
        options["utube"] = uuid.uuid4().hex if order is None else str(order)
    elif order is not None:
        raise ValueError("an order is kept by brokers that were made with ordered=True")
    return options


async def make_tube(
    client: Client, name: str, options: Mapping[str, Any], ordered: bool, dead: str | None
) -> None:
    """Create a tube for tasks, and the one for those that were given up, unless they are there."""
    kind = "utubettl" if ordered else "fifottl"
    if dead is not None:
        await client.create_tube(dead, "fifottl")
    await client.create_tube(name, kind, **{"ttr": TTR, **options})


def servers_of(urls: Iterable[str], default_port: int) -> str:
    """`host:port,...` of URLs; their schemes, users and passwords left out."""
    found = []
    for url in urls:
        parts = urlsplit(url if "://" in url else f"tandemq://{url}")
        found.append(f"{parts.hostname or '127.0.0.1'}:{parts.port or default_port}")
    return ",".join(dict.fromkeys(found))


def seconds_until(moment: Any) -> float | None:
    """Of an eta or an end of life: a number of seconds or a moment as text, UTC unless it says."""
    if moment is None:
        return None
    if isinstance(moment, int | float):
        return float(moment)
    at = moment if isinstance(moment, datetime) else datetime.fromisoformat(str(moment))
    if at.tzinfo is None:
        at = at.replace(tzinfo=UTC)
    return (at - datetime.now(UTC)).total_seconds()
