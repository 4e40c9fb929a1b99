"""`python -m demo.record FILE.svg [WORDS...]`: run the demo with these words, draw what it said.

The picture moves: each line appears when it came, SPEED times as fast, and then it begins again.
Where pictures do not move it shows all lines. Nothing in it is from anywhere but the run.
"""

from __future__ import annotations

import io
import re
import subprocess
import sys
import time
from pathlib import Path

from rich.console import Console
from rich.text import Text

WIDTH = 110
SPEED = 4.0
#: How long all lines stay before it begins again, in seconds of the picture.
STAY = 8.0


def watched(words: list[str]) -> tuple[list[tuple[float, str]], int]:
    """(seconds from the start, line) of all that the demo printed, and its exit code."""
    process = subprocess.Popen(
        [sys.executable, "-u", "-m", "demo", *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert process.stdout is not None
    began = time.monotonic()
    lines = [(time.monotonic() - began, line.rstrip("\n")) for line in process.stdout]
    return lines, process.wait()


def drawn(lines: list[tuple[float, str]], title: str) -> str:
    """SVG. Lines longer than WIDTH are cut."""
    console = Console(width=WIDTH, record=True, file=io.StringIO(), force_terminal=True)
    moments: list[float] = []
    for at, line in lines:
        text = Text.from_ansi(line)
        text.truncate(WIDTH, overflow="ellipsis")
        console.print(text, soft_wrap=True)
        moments.append((at - lines[0][0]) / SPEED)
    svg = console.export_svg(title=title, unique_id="demo")
    # Nothing is loaded from elsewhere: the reader's own fixed-width font.
    svg = re.sub(r"@font-face \{.*?\}\s*", "", svg, flags=re.DOTALL)
    whole = (moments[-1] if moments else 0.0) + STAY
    rules = [
        "@media (prefers-reduced-motion: no-preference) {",
        f".late {{ animation: {whole:.2f}s step-end infinite; }}",
    ]
    for number, moment in enumerate(moments):
        part = 100 * moment / whole
        rules.append(
            f"@keyframes at{number} {{ 0% {{ opacity: 0 }} {part:.2f}% {{ opacity: 1 }} }}"
        )
        rules.append(f".at{number} {{ animation-name: at{number} }}")
    rules.append("}")

    def late(found: re.Match[str]) -> str:
        return f'{found[1]} class="{found[2]} late at{found[4]}"{found[3]}{found[4]})"'

    pattern = r'(<text) class="([^"]*)"([^>]*clip-path="url\(#demo-line-)(\d+)\)"'
    svg = re.sub(pattern, late, svg)
    return svg.replace("</style>", "\n".join(rules) + "\n</style>", 1)


def main(argv: list[str]) -> int:
    """Exit code of the demo; nothing is drawn of a run that failed."""
    path, words = Path(argv[0]), argv[1:]
    lines, code = watched(words)
    if code:
        print("\n".join(line for _, line in lines), file=sys.stderr)
        return code
    path.write_text(drawn(lines, "make run"), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
