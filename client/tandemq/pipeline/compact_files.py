"""The folder of an archive: what of a log belongs into it, and how that gets there whole.

An archive is a folder with a mark, and below it node=<uuid>/lsn=<first>-<last>/*.parquet. A part
is written aside and renamed, so a reader sees all of it or nothing. No Spark here.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any
from uuid import uuid4

from tandemq.log.meta import read_commit
from tandemq.log.segment import SegmentReader, segment_names
from tandemq.model.units import MIB
from tandemq.spark.disk import ArrowDisk
from tandemq.spark.logs import (
    ARCHIVE_MARK,
    ARCHIVE_PART,
    ARCHIVE_SPACES,
    LogQuery,
    meta_of,
    node_name,
    plan,
)
from tandemq.spark.parts import durable, put_text
from tandemq.spark.scan import scan

#: Called with directories and archives, what of them is wanted and a folder: Parquet files of these
#: rows are in it once their number is returned.
Copy = Callable[[Sequence[str], LogQuery, Path], int]


def archived_until(archive: Path) -> dict[str, int]:
    """Last archived LSN of each node."""
    found: dict[str, int] = {}
    for path in archive.glob("node=*/lsn=*/*.parquet"):
        match = ARCHIVE_PART.match(path.relative_to(archive).as_posix())
        if match is not None:
            found[match[1]] = max(found.get(match[1], 0), int(match[3]))
    return found


def sealed_until(path: str, include_open: bool = False) -> tuple[str, int, int]:
    """(node, first LSN of the log, last LSN of its newest sealed segment, 0 if none is sealed).

    include_open: the last committed LSN instead, as far as the log goes; no rewind cuts it off.
    """
    disk = ArrowDisk(path)
    meta = meta_of(disk, disk.list())
    names = segment_names(disk)
    first = last = 0
    for name in names:
        reader = SegmentReader(disk, name, meta)
        footer = reader.peek_footer()
        first = first or reader.first_lsn
        if footer is None:
            if include_open:
                commit, problem = read_commit(disk)
                end = scan(disk, meta, name, {}, MIB).last_lsn
                last = max(last, 0 if problem is not None else min(commit, end))
            break
        last = footer.last_lsn
    return node_name(meta.node), first, last


def advance(
    paths: Sequence[str], archive: str, copy: Copy, include_open: bool = False
) -> dict[str, Any]:
    """Archive what is sealed and not yet archived, node by node. Counts and LSNs by directory.

    The newest segment may still be cut by a rewind: it is left out, or with `include_open` taken up
    to the commit LSN the node published. What a later run finds archived it does not take again.
    """
    home = Path(archive)
    home.mkdir(parents=True, exist_ok=True)
    mark = home / ARCHIVE_MARK
    if not mark.exists():
        put_text(mark, json.dumps({"version": 1}) + "\n")
    done: dict[str, Any] = {}
    for path in paths:
        node, first, last = sealed_until(path, include_open)
        start = max(archived_until(home).get(node, 0) + 1, first)
        if last < start:
            done[path] = {"node": node, "records": 0, "rows": 0, "to_lsn": start - 1}
            continue
        wanted = LogQuery(first_lsn=start, last_lsn=last)
        spaces = plan([str(home), path], wanted)[-1].spaces
        aside = home / f"_tmp-{uuid4().hex}"
        aside.mkdir()
        rows = copy([str(home), path], wanted, aside.resolve())
        target = home / f"node={node}" / f"lsn={start:020d}-{last:020d}"
        target.parent.mkdir(exist_ok=True)
        # The log may be trimmed as soon as this returns.
        put_text(target.parent / ARCHIVE_SPACES, json.dumps(spaces) + "\n")
        durable(aside)
        os.replace(aside, target)
        for folder in (target.parent, home):
            durable(folder)
        done[path] = {"node": node, "records": last - start + 1, "rows": rows, "to_lsn": last}
    for left in home.glob("_tmp-*"):
        shutil.rmtree(left)
    return done
