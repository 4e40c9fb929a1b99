"""The library that draws the charts, and the charts compiled for it: vl-convert brings both.

Making them costs seconds, so they are kept in the user's cache folder. No network is asked.
"""

from __future__ import annotations

import contextlib
import json
import os
from functools import cache
from importlib.metadata import version
from typing import Any
from zlib import crc32

from tandemq.pipeline.faststart import cache as cache_folder
from tandemq.pipeline.page import charts


@cache
def drawing() -> tuple[str, dict[str, Any]]:
    """(the script that draws, Vega by kind of chart: what the page's own script gives its rows)."""
    import vl_convert

    specs = charts.specs()
    wanted = f"{version('vl-convert-python')} {json.dumps(specs)}"
    with contextlib.suppress(OSError, RuntimeError, ValueError, KeyError):
        file = cache_folder() / f"charts-{crc32(wanted.encode()):08x}.json"
        if file.stat().st_uid == os.getuid():
            kept = json.loads(file.read_text())
            if kept["wanted"] == wanted:
                return kept["library"], kept["specs"]
    made = {name: vl_convert.vegalite_to_vega(spec) for name, spec in specs.items()}
    script = bundle()
    with contextlib.suppress(OSError, RuntimeError):
        folder = cache_folder()
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        file = folder / f"charts-{crc32(wanted.encode()):08x}.json"
        aside = file.with_suffix(f".{os.getpid()}")
        aside.write_text(json.dumps({"wanted": wanted, "library": script, "specs": made}))
        os.replace(aside, file)
    return script, made


def bundle() -> str:
    """Vega and its embedding as one script that may stand in a page."""
    import vl_convert

    found: str = vl_convert.javascript_bundle("window.vegaEmbed=vegaEmbed;")
    # A script ends at the first of these, whatever it stands in.
    found = found.replace("</script", "<\\/script").replace("<!--", "<\\!--")
    return f"(()=>{{{found}}})();"
