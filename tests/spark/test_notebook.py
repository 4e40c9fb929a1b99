"""The notebook of the examples, run by `jupyter execute` in a kernel of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.logmaker import LogMaker

NOTEBOOK = Path(__file__).parents[2] / "examples" / "log.ipynb"


@pytest.mark.slow
def test_the_notebook_shows_what_is_in_the_log(maker: LogMaker, tmp_path: Path) -> None:
    tube = maker.tube("mail")
    for number in range(5):
        maker.put(tube, {"n": number})
    maker.turn()
    for number in range(3):
        maker.take(tube)
        maker.turn()
        tube.ack(maker.clients[1], number)
        maker.turn()
    maker.close()
    out = tmp_path / "out.ipynb"
    # A home of its own: kernels of the user's would come first.
    env = {**os.environ, "TANDEM_DATA": str(maker.directory), "TANDEM_SPARK_QUICK": "1"}
    env |= {"JUPYTER_DATA_DIR": str(tmp_path / "jupyter"), "HOME": str(tmp_path)}
    jupyter = str(Path(sys.executable).with_name("jupyter"))
    done = subprocess.run(
        [jupyter, "execute", f"--output={out}", str(NOTEBOOK)],
        env=env,
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    shown = [
        "".join(output["data"]["text/plain"])
        for cell in json.loads(out.read_text())["cells"]
        for output in cell.get("outputs", [])
        if output["output_type"] == "execute_result"
    ]
    counted, outcomes = shown
    assert [line.split()[1:] for line in counted.splitlines()[1:]] == [
        ["mail", "ack", "3"],
        ["mail", "put", "5"],
        ["mail", "take", "3"],
    ]
    assert [line.split()[1:] for line in outcomes.splitlines()[1:]] == [
        ["mail", "acked", "3", "3.0", "1.0"],
        ["mail", "waiting", "2", "NaN", "NaN"],
    ]
