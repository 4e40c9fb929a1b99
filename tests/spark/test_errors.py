"""Errors of Python workers and of Spark's tasks reach the user as one line. No Spark here."""

from __future__ import annotations

import pytest

from tandemq.pipeline.cli import plain

WORKER = """
  An exception was thrown from the Python worker. Please see the stack trace below.
Traceback (most recent call last):
  File "/opt/venv/pyspark/worker.py", line 1960, in main
    process()
  File "/opt/jobs/kernel.py", line 7, in work
    raise KeyError(name)
KeyError: 'orders'
"""
CHAIN = """Job aborted due to stage failure: Task 0 in stage 3.0 failed 1 times, most recent \
failure: Lost task 0.0 in stage 3.0 (TID 4) (10.0.0.7 executor 1): \
org.apache.spark.api.python.PythonException: Traceback (most recent call last):
  File "/opt/venv/pyarrow/lib.py", line 3, in open
    open(path)
OSError: [Errno 28] No space left on device

The above exception was the direct cause of the following exception:

Traceback (most recent call last):
  File "/opt/jobs/write.py", line 9, in write
    raise lib.ArrowInvalid("file of 3 bytes") from error
pyarrow.lib.ArrowInvalid: file of 3 bytes

\tat org.apache.spark.api.python.BasePythonRunner.handle(PythonRunner.scala:581)
Driver stacktrace:
Traceback (most recent call last):
RuntimeError: once more
"""
CRASHED = """Job aborted due to stage failure: Task 1 in stage 0.0 failed 4 times, most recent \
failure: Lost task 1.3 in stage 0.0 (TID 7) (10.0.0.7 executor 2): \
org.apache.spark.SparkException: Python worker exited unexpectedly (crashed)
\tat org.apache.spark.api.python.BasePythonRunner.read(PythonRunner.scala:600)
"""
SOURCE = """[PYTHON_DATA_SOURCE_ERROR] Failed to create Python data source instance: Traceback \
(most recent call last):
  File "/opt/venv/tandemq/spark/options.py", line 56, in parse
    raise ValueError("no such option")
ValueError: tandemq_log has no option 'line'
 SQLSTATE: 38000
"""


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (WORKER, "KeyError: 'orders'"),
        (CHAIN, "ArrowInvalid: file of 3 bytes"),
        (CRASHED, "Python worker exited unexpectedly (crashed)"),
        (SOURCE, "tandemq_log has no option 'line'"),
        ("no such table\nat line 3", "no such table"),
        ("", "Exception"),
    ],
)
def test_one_line_says_what_is_wrong(text: str, line: str) -> None:
    assert plain(Exception(text)) == line
