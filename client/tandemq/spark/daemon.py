"""PySpark's daemon of Python workers, with what every worker here needs loaded before it forks.

For `spark.python.daemon.module` where workers run this installation; `pipeline/session.py` sets
it. Linux only: elsewhere, and where loading started a thread, PySpark's own daemon takes over,
since a thread does not live on in a fork.
"""

from __future__ import annotations

import ctypes
import gc
import importlib
import os
import sys
from pathlib import Path

from tandemq.model.units import MIB

#: What a task that reads a log, or writes into a queue, imports before its first row.
MODULES = (
    "pyspark.worker",
    "pyarrow.compute",
    "pyarrow.parquet",
    "pandas",
    "tandemq.spark.mapped",
    "tandemq.spark.sink",
    # Its kernels, where it is installed.
    "tandemq.pipeline.checks",
    "tandemq.pipeline.report",
)
THREADS = Path("/proc/self/task")
#: glibc's names of what `mallopt` sets, and the bytes up to which memory that was freed is kept.
#: The columns of every batch would come as fresh pages otherwise, a tenth of the time to make them.
M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3
KEPT_BYTES = 256 * MIB


def alone() -> bool:
    """Whether this process has one thread, and can tell."""
    return THREADS.is_dir() and len(list(THREADS.iterdir())) == 1


def keep_memory() -> None:
    """Have this process, and what is forked from it, use freed memory again."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        for name in (M_TRIM_THRESHOLD, M_MMAP_THRESHOLD):
            mallopt(name, KEPT_BYTES)


def load() -> bool:
    """Import all of it; False where forking would not be safe then."""
    if not THREADS.is_dir():
        return False
    # Arrow's allocator would begin a thread of its own, and numpy's BLAS one for each core: a
    # worker has them begun when it uses them.
    os.environ.setdefault("JE_ARROW_MALLOC_CONF", "background_thread:false")
    os.environ.setdefault("OPENBLAS_NUM_THREADS", os.environ.get("OMP_NUM_THREADS", "1"))
    for name in MODULES:
        try:
            importlib.import_module(name)
        except ImportError:
            continue  # a worker that needs it says so
    if not alone():
        return False
    random = sys.modules.get("numpy.random")
    if random is not None:
        # As without us: each worker draws numbers of its own.
        os.register_at_fork(after_in_child=random.seed)
    gc.collect()
    gc.freeze()
    return True


def main() -> None:
    keep_memory()
    if not load():
        os.execv(sys.executable, [sys.executable, "-m", "pyspark.daemon", *sys.argv[1:]])
    from pyspark.daemon import manager

    manager()


if __name__ == "__main__":
    main()
