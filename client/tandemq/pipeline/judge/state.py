"""Where an audit ended, as a file: the next one goes on from there."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

import msgpack
import numpy as np

from tandemq.model.errors import StorageError
from tandemq.pipeline.judge import words as w
from tandemq.pipeline.judge.counts import Counts
from tandemq.pipeline.judge.local import Replay
from tandemq.pipeline.judge.world import LoggedTube, World
from tandemq.spark.parts import put_bytes

VERSION = 1
#: What is kept of an older version of the replay means something else.
_SHAPE = [VERSION, w.COLUMNS, w.FIELDS]


def save(replay: Replay, path: Path, cluster: str) -> None:
    """Write it, all or nothing. cluster: whose log it is."""
    world = replay.world
    value = {
        "shape": _SHAPE,
        "cluster": cluster,
        "last_lsn": replay.last_lsn,
        "term_id": replay.term_id,
        "counts": [replay.counts.tasks, replay.counts.ended],
        "complete": world.complete,
        "settings": world.settings,
        "tubes": [asdict(tube) for tube in world.tubes],
        "states": {name: lines.tobytes() for name, lines in world.states.items()},
    }
    put_bytes(path, msgpack.packb(value, unicode_errors="surrogateescape"))


def load(path: Path, cluster: str) -> Replay:
    """What `save` wrote. Raises `StorageError` for what is none, or of another cluster."""
    try:
        value: dict[str, Any] = msgpack.unpackb(
            path.read_bytes(), strict_map_key=False, unicode_errors="surrogateescape"
        )
        shape, owner = value["shape"], value["cluster"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise StorageError(str(path), 0, f"is no state of an audit: {error}") from error
    if shape != _SHAPE:
        raise StorageError(str(path), 0, "was written by another version: remove it")
    if owner != cluster:
        raise StorageError(str(path), 0, f"belongs to cluster {owner}")
    world = World(value["complete"], settings=value["settings"])
    for fields in value["tubes"]:
        tube = LoggedTube(**fields)
        world.tubes.append(tube)
        world.by_space[tube.space] = tube
    for name, data in value["states"].items():
        world.states[name] = np.frombuffer(data, np.int64).reshape(w.COLUMNS, -1).copy()
    tasks, ended = value["counts"]
    return Replay(world, value["last_lsn"], value["term_id"], Counts(tasks, ended))
