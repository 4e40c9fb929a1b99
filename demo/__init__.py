"""The main job as a demonstration: a polite crawl frontier over real URLs, run on real nodes.

Here: reading URLs, the crowd of producers and workers, their logs, the verdict, the live table.
Must not be here: anything the server needs; this talks to it through a stock connector only.
"""

from __future__ import annotations


def main(argv: list[str]) -> int:
    """Run the demonstration with these command-line words; returns the process's exit code."""
    if argv[:1] == ["cluster"]:
        from demo.stay import run as stay

        return stay(argv[1:])
    if argv[:1] == ["pipeline"]:
        from demo.pipeline import main as pipeline

        return pipeline(argv[1:])
    from demo.command import run

    return run(argv)


__all__ = ["main"]
