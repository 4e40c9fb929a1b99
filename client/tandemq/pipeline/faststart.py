"""What makes a session's Python workers start fast, where it is known to work.

Here: Spark's home without its zip, and the daemon that loads once what all workers need.
"""

from __future__ import annotations

import contextlib
import os
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path
from zlib import crc32

DAEMON = "tandemq.spark.daemon"
#: What Spark's scripts look for in its home. A link to what is not there is as good as none.
ENTRIES = ("bin", "conf", "jars", "licenses", "sbin")


def own_workers(master: str) -> bool:
    """Whether workers will be this very interpreter with these very packages."""
    import pyspark

    here = Path(pyspark.__file__).parent.parent
    return (
        (master == "local" or master.startswith("local["))
        and os.environ.get("PYSPARK_PYTHON") == sys.executable
        and "PYSPARK_DRIVER_PYTHON" not in os.environ
        and here == Path(sysconfig.get_path("purelib"))
        and sys.platform == "linux"
    )


def cache() -> Path:
    """A folder of this user's. Raises `OSError` or `RuntimeError` where there is none."""
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "tandemq"


def linked_home() -> Path | None:
    """A home for Spark that has all of the installed one but Python's zip; None if none can be.

    That zip comes first on a worker's path and has sources only: each daemon and worker would
    compile PySpark again, a second and more, though it is installed with its byte code.
    """
    import pyspark

    real = Path(pyspark.__file__).parent
    number = crc32(f"{real} {pyspark.__version__}".encode())
    try:
        home = cache() / f"spark-{number:08x}"
        home.mkdir(parents=True, exist_ok=True, mode=0o700)
        if home.stat().st_uid != os.getuid():
            return None
        for name in ENTRIES:
            with contextlib.suppress(FileExistsError):
                (home / name).symlink_to(real / name)
            if (home / name).readlink() != real / name:
                return None
    except (OSError, RuntimeError):
        return None
    return home


@contextlib.contextmanager
def spark_home(master: str) -> Iterator[bool]:
    """While the JVM is started: SPARK_HOME without the zip, unless somebody chose one.

    Yields whether workers are our own.
    """
    own = own_workers(master)
    home = linked_home() if own and "SPARK_HOME" not in os.environ else None
    if home is not None:
        os.environ["SPARK_HOME"] = str(home)
    try:
        yield own
    finally:
        if home is not None:
            del os.environ["SPARK_HOME"]
