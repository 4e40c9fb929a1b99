"""What test_cluster.py gives to spark-submit: the commands of the pipeline in one session.

Then the same once more, by a client of its own, through the Spark Connect server in this driver.
Arguments: log, folder for the results, zip of the packages, URL of the server; `client` where this
file is that client.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any


def commands(log: str, out: str) -> list[list[str]]:
    return [
        ["audit", log, "--json", "--engine", "spark"],
        ["history", log, "--out", f"{out}/history", "--json"],
        ["report", log, "--out", f"{out}/report", "--key", "body", "--json"],
        ["compact", log, "--archive", f"{out}/archive", "--json"],
        ["follow", log, "--out", f"{out}/changes", "--once", "--json"],
    ]


def where(batches: Iterator[Any]) -> Iterator[Any]:
    """Runs in an executor: the file our package was imported from there."""
    import pyarrow as pa

    import tandemq.spark

    for _ in batches:
        yield pa.RecordBatch.from_pydict({"file": [tandemq.spark.__file__]})


def main(log: str, out: str, packed: str, url: str, role: str = "driver") -> None:
    from tandemq.pipeline import cli
    from tandemq.pipeline.session import build_session

    if role == "client":
        spark = build_session()  # SPARK_REMOTE
        spark.addArtifacts(packed, pyfile=True)
    else:
        spark = build_session()
        files = [
            row[0] for row in spark.range(0, 1, 1, 1).mapInArrow(where, "file string").collect()
        ]
        told = {"driver": cli.__file__, "executor": files[0]}
        print(json.dumps({**told, "app": spark.sparkContext.applicationId}))
    for words in commands(log, out):
        words += ["--master", url] if role == "client" else []
        code = cli.app(words, standalone_mode=False)
        assert code == (1 if words[0] == "audit" else None), (words, code)
    if role == "client":
        return
    # As on a machine without Spark: only the server's address is known.
    gone = ("SPARK", "PYSPARK", "PYTHON", "MASTER")
    env = {name: value for name, value in os.environ.items() if not name.startswith(gone)}
    env["SPARK_REMOTE"] = url
    words = [sys.executable, __file__, log, f"{out}-connect", packed, url, "client"]
    Path(f"{out}-connect").mkdir()
    subprocess.run(words, env=env, check=True, timeout=600)
    # Else the server would wait for clients for ever.
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
