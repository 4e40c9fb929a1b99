"""What is sent to put a rescued task again, by the type of its tube.

Payloads stay the bytes they were, whatever they hold. Must not be here: connections, and the choice
of what to send.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import msgpack

from tandemq.model.task import NEVER_US
from tandemq.model.units import SECOND_US
from tandemq_server.facades.queue15.tasks import DATA as DATA_15
from tandemq_server.facades.queue15.tasks import TUBE as LANE_15
from tandemq_server.facades.queue15.tasks import split_array
from tandemq_server.facades.xqueue.record import EXPIRES, FIRST_OTHER, FieldPlaces
from tandemq_server.node.observe.preview import preview
from tandemq_server.replication.replay import RescuedTask

#: Where the drivers keep what `put` was given, by driver; times in microseconds.
_LAYOUTS = {
    "fifottl": {"ttl": 3, "ttr": 4, "pri": 5},
    "limfifottl": {"ttl": 3, "ttr": 4, "pri": 5},
    "utube": {"utube": 2},
    "utubettl": {"ttl": 3, "ttr": 4, "pri": 5, "utube": 7},
    "queue15": {"utube": LANE_15, "ttl": 9, "ttr": 10, "pri": 6},
}
_ENDLESS_US = 3_000_000_000_000_000
_PRI_15 = 128
#: Statuses of tasks that are kept though they are done, by driver.
_DONE = {"queue15": "*", "xqueue": "dz"}


class NotSendable(Exception):
    """A task that cannot be put as it was; str() says why."""


@dataclass(frozen=True, slots=True)
class Sending:
    """A call that puts a task, its arguments as raw MessagePack."""

    call: str
    args: list[bytes]


def is_buried(task: RescuedTask) -> bool:
    return bool(task.row[1] == "!")


def is_done(task: RescuedTask) -> bool:
    """Finished in the cut, and kept for a while or for ever."""
    return bool(task.row[1] in _DONE.get(task.driver, ""))


def sending(task: RescuedTask) -> Sending:
    """How to put it again. Raises NotSendable."""
    if not task.tube:
        raise NotSendable("the name of its tube is not known")
    options = options_of(task)
    if task.driver == "xqueue":
        ttl = {"ttl": options["ttl"]} if "ttl" in options else {}
        return Sending(f"box.space.{task.tube}:put", [_packed(record_of(task)), _packed(ttl)])
    data = _raw(task)
    if task.driver == "queue15":
        # `urgent` and what moved a task forward are of the order it was in: it is another by now.
        times = [0, options.get("ttl", 0), options.get("ttr", 0), options.get("pri", 0)]
        head = [task.tube, options["utube"], *times]
        return Sending("queue15.put", [*map(_packed, head), *_elements(data)])
    return Sending(f"queue.tube.{task.tube}:put", [data, _packed(options)])


def id_of(task: RescuedTask, answer: bytes) -> int | str | None:
    """The id of the new task, in the answer of the call; None where it found no room."""
    value = _unpacked(answer)
    if value is None:
        return None
    if isinstance(value, dict):
        value = value[_layout(task).key_name]
    elif isinstance(value, list):
        value = value[_layout(task).pk if task.driver == "xqueue" else 0]
    return value if isinstance(value, str) else int(value)


def options_of(task: RescuedTask) -> dict[str, Any]:
    """What `put` was given, in its units: seconds, priority, sub-queue. A delay is over by now."""
    found: dict[str, Any] = {}
    if task.driver == "xqueue":
        left_us = task.row[EXPIRES] - task.time_us
        if task.row[EXPIRES] and task.lsn and left_us > 0:
            found["ttl"] = left_us / SECOND_US
        return found
    for name, place in _LAYOUTS.get(task.driver, {}).items():
        value = task.row[place]
        if name in {"ttl", "ttr"}:
            if value < min(_ENDLESS_US, NEVER_US):
                found[name] = value / SECOND_US
        elif task.driver == "queue15" and name == "pri":
            if value != _PRI_15:
                found[name] = _PRI_15 - value
        elif value not in {0, ""}:
            found[name] = value
    if task.headers:
        found["headers"] = dict(task.headers)
    return found


def record_of(task: RescuedTask) -> dict[str, Any]:
    """The fields of an xqueue record that are the user's own. Raises NotSendable."""
    layout = _layout(task)
    found = dict(zip(layout.other_names, task.row[FIRST_OTHER:], strict=True))
    if task.tube_options["features"]["id"] == "required":
        found[layout.key_name] = task.row[0]
    return {name: value for name, value in found.items() if value is not None}


def shown(task: RescuedTask) -> Any:
    """The payload for a person: a value that JSON has, or its text where it has none."""
    try:
        if task.driver == "xqueue":
            data = _packed(record_of(task))
        else:
            data = _raw(task)
    except NotSendable:
        return None
    try:
        return msgpack.unpackb(data, strict_map_key=False, ext_hook=_no_extension)
    except (ValueError, msgpack.UnpackException):
        return preview(data)[0]


def _no_extension(code: int, _data: bytes) -> Any:
    raise ValueError(f"JSON does not have extensions of type {code}")


def _layout(task: RescuedTask) -> FieldPlaces:
    if not task.tube_options:
        raise NotSendable("the declaration of its tube is not known")
    return FieldPlaces(dict(task.tube_options))


def _raw(task: RescuedTask) -> bytes:
    payload = task.row[DATA_15] if task.driver == "queue15" else task.row[-1]
    if not isinstance(payload, bytes):
        raise NotSendable(f"a tube of type {task.driver} keeps its payload in a way of its own")
    return payload


def _elements(array: bytes) -> list[bytes]:
    """The elements of a MessagePack array, each as it stands."""
    count, data = split_array(array)
    reader = msgpack.Unpacker(max_buffer_size=max(len(data), 1))
    reader.feed(data)
    found, start = [], 0
    for _ in range(count):
        reader.skip()
        found.append(data[start : reader.tell()])
        start = reader.tell()
    return found


def _packed(value: Any) -> bytes:
    data: bytes = msgpack.packb(value, unicode_errors="surrogateescape")
    return data


def _unpacked(data: bytes) -> Any:
    return msgpack.unpackb(data, strict_map_key=False, unicode_errors="surrogateescape")
