"""A real server whose configuration declares xqueue tubes and names functions."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from tests.compat.compat_server import Server
from tests.xqueue.xqueue_bench import FIELDS, FORMAT, TEXT_FORMAT

CODE = """
import threading, time

numbers = iter(range(1000, 9999))

def next_id():
    return next(numbers)

def write(line):
    with open("seen.txt", "a") as file:
        file.write(f"{line} {time.time()}\\n")

def work(task):
    write(task["payload"])
    if task["payload"] == "bad":
        raise ValueError("no good")

def by_itself(task, queue):
    if task["payload"] == "bury":
        queue.bury(update=[["=", "payload", "buried by itself"]])
    elif task["payload"] == "slow":
        queue.touch(30)
        time.sleep(0.2)
        write("slow")
    else:
        write(queue.ack()["payload"])

async def wait_for_it(task):
    import asyncio
    await asyncio.sleep(0)
    write(task["payload"])

not_a_function = 7
"""


def declared(features: dict[str, Any], **more: Any) -> dict[str, Any]:
    form = TEXT_FORMAT if features["id"] == "uuid" else FORMAT
    return {"format": form, "fields": FIELDS, "features": features, **more}


class XServer(Server):
    """With tubes `jobs`, `plain`, `itself` and `later`, each with workers."""

    def __init__(self, directory: Path) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        (directory / "my_jobs.py").write_text(CODE)
        both = {"delayed": True, "ttr": True, "zombie": True}
        own, plain = {"id": "my_jobs:next_id"}, {"id": "auto_increment"}
        tubes = {
            "jobs": declared({**own, **both}, worker="my_jobs:work", workers=2),
            "plain": declared(plain, worker="my_jobs:work"),
            "itself": declared({**plain, "ttr": 1}, worker="my_jobs:by_itself", workers=3),
        }
        config = {
            "functions": ["my_jobs:wait_for_it", "my_jobs:next_id"],
            "tubes": [
                {"name": name, "type": "xqueue", "options": options}
                for name, options in tubes.items()
            ],
        }
        (directory / "node.yaml").write_text(yaml.safe_dump(config))
        super().__init__(directory, flags=["--config", str(directory / "node.yaml")])

    def seen(self) -> list[tuple[str, float]]:
        path = self.directory / "seen.txt"
        lines = path.read_text().splitlines() if path.exists() else []
        return [(line.rpartition(" ")[0], float(line.rpartition(" ")[2])) for line in lines]
