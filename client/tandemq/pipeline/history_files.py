"""The folder of a history: how it is brought up to a log's end, by either engine, and its files.

Below it: tasks/ and deliveries/ (finished ones, a folder per run, then date and tube), open/
(events of the others), open-tasks/ and open-deliveries/, history.json (how far). No Spark here.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import os
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import unquote

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from tandemq.model.units import DAY_US
from tandemq.pipeline import lives as lv
from tandemq.pipeline.arrays import TEXT, as_text, encoded, numbers
from tandemq.pipeline.notes import Notes
from tandemq.pipeline.operations import TAKE
from tandemq.pipeline.packing import Surveyed
from tandemq.spark.parts import durable, parquet_file, part_name, put_text, term_at

STATE_FILE = "history.json"
#: Of a file's name of 255; characters that a longer tube's folder begins with.
LABEL_BYTES, LABEL_START = 240, 30
#: Folders of what a run leaves for the next one; `open` has events.
LEFT = ("open", "open-tasks", "open-deliveries")
TABLES = ("tasks", "deliveries", *LEFT)
#: A run's folder until it is whole: neither Spark nor a pattern of `run=*` finds it.
UNDER_WAY = ".run"
COUNTS = pa.schema([("tasks", pa.int64()), ("deliveries", pa.int64()), ("open", pa.int64())])
#: What Spark calls the folder of NULL, and which characters it writes as %XX in one's name.
NULL_FOLDER = "__HIVE_DEFAULT_PARTITION__"
_ESCAPED = {
    ord(one): f"%{ord(one):02X}" for one in (*map(chr, range(1, 32)), *"\"#%'*/:=?\\{[]^", chr(127))
}
Seen = TypeVar("Seen", bound=Surveyed)


def advance(
    paths: Sequence[str],
    out: str,
    survey: Callable[[int], AbstractContextManager[Seen]],
    write: Callable[[Seen, HistoryWriter, str | None], Iterable[Mapping[str, int]]],
    place: Callable[[], tuple[int, int]],
) -> dict[str, Any]:
    """Bring `out` up to the log's end; what was written before stays. Counts by name.

    survey: of the log from an LSN on. write: has the writer called with the lives of all parts, the
    events in a folder among them; rows of COUNTS. place: see `HistoryWriter`. A run moves the mark
    last: what one that was cut short has left is read by nobody, and the next one removes it.
    Raises `ValueError` where the log does not go on from what was written.
    """
    home = Path(out)
    state = state_of(home)
    before = int(state.get("lsn", 0))
    with survey(before + 1) as seen:
        if seen.furthest is None:
            empty = {"tasks": 0, "deliveries": 0, "open": 0}
            return {"from_lsn": before + 1, "to_lsn": before, **empty}
        last, node = seen.furthest.last, seen.furthest.node
        assert last is not None
        _goes_on(paths, out, state, seen.furthest)
        opened = str(home / "open" / state["name"]) if state else None
        name = f"run={last:020d}"
        for table in TABLES:
            (home / table).mkdir(parents=True, exist_ok=True)
            for cut_short in set((home / table).glob("*run*")).difference(runs(home, table, state)):
                shutil.rmtree(cut_short)
            (home / table / UNDER_WAY).mkdir()
        found = list(write(seen, HistoryWriter(str(home), UNDER_WAY, seen.cleared, place), opened))
    counts = {kind: sum(row[kind] for row in found) for kind in COUNTS.names}
    # The log may be trimmed as soon as this returns.
    for table in TABLES:
        run = home / table / UNDER_WAY
        for folder in (run, *(path for path in run.rglob("*") if path.is_dir())):
            durable(folder)
        os.replace(run, home / table / name)
        durable(home / table)
    told = {"lsn": last, "name": name, "node": node, "term": term_at(paths, last, node)}
    put_text(home / STATE_FILE, json.dumps(told) + "\n")
    for old in (old for table in LEFT for old in (home / table).iterdir()):
        if old.name != name:
            shutil.rmtree(old)
    return {"from_lsn": before + 1, "to_lsn": last, **counts}


def _goes_on(paths: Sequence[str], out: str, state: Mapping[str, Any], log: Notes) -> None:
    """No record was trimmed before a run saw it, none was cut off after. Raises `ValueError`."""
    before = state.get("lsn", 0)
    if before and log.first is not None and log.first > before + 1:
        raise ValueError(
            f"{out} ends at LSN {before}, and the log begins at {log.first}: "
            "read an archive of it, too, or choose another folder"
        )
    known = state.get("term")
    if known and term_at(paths, before, log.node) not in (known, None):
        raise ValueError(
            f"{out} was made of records up to LSN {before} that were cut off since: "
            "choose another folder"
        )


def state_of(home: Path) -> dict[str, Any]:
    """What the last run noted: `lsn` it came to, and its `term`, `name` of its folders, `node`.

    Empty where there was none.

    Raises `ValueError` for a folder of an earlier format.
    """
    if not (home / STATE_FILE).exists():
        return {}
    state: dict[str, Any] = json.loads((home / STATE_FILE).read_text())
    if "name" not in state:
        raise ValueError(f"{home} was written by an earlier version: choose another folder")
    return state


def runs(home: Path, table: str, state: Mapping[str, Any]) -> list[Path]:
    """Folders of one of TABLES that runs have finished, as far as `state_of` tells of them."""
    found = sorted((home / table).glob("run=*")) if state else []
    return [folder for folder in found if folder.name <= state["name"]]


def node_of(out: str) -> str | None:
    """Whose log the last run followed."""
    node: str | None = state_of(Path(out)).get("node")
    return node


def folder_label(tube: str) -> str:
    """A tube's name as a folder may have it: escaped; of a long one its beginning and a sum."""
    label = tube.translate(_ESCAPED)
    if len(label.encode()) <= LABEL_BYTES:
        return label
    start = "".join(itertools.takewhile(str.isalnum, tube))[:LABEL_START]
    return f"{start}~{hashlib.sha256(tube.encode()).hexdigest()[:32]}"


def files(out: str) -> list[tuple[str, str]]:
    """(tasks or deliveries, file) of what `read` reads, the largest files first."""
    home, state = Path(out), state_of(Path(out))
    found = []
    for table in ("tasks", "deliveries") if state else ():
        for folder in (*runs(home, table, state), home / f"open-{table}" / state["name"]):
            found += [(table, file) for file in folder.glob("**/[!_.]*.parquet")]
    found.sort(key=lambda one: (-one[1].stat().st_size, one))
    return [(table, str(file)) for table, file in found]


def rows_of(file: str, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """These columns of a history's file, with the tube its folder is named after. Texts as TEXT."""
    schema = lv.TASK if "attempts" in columns else lv.DELIVERY
    texts = [field.name for field in schema if field.type == TEXT]
    label = Path(file).parent.name
    with parquet_file(file, texts) as parquet:
        there = set(parquet.schema_arrow.names)
        for batch in parquet.iter_batches(1 << 17, columns=[n for n in columns if n in there]):
            found = {name: batch[name] for name in batch.schema.names}
            if "tube" not in there:
                tube = pa.array([unquote(label.removeprefix("tube="))])
                found["tube"] = as_text(np.zeros(batch.num_rows, np.int64), tube)
            yield pa.RecordBatch.from_pydict({name: found[name] for name in columns})


@dataclass(frozen=True)
class HistoryWriter:
    """Writes what is over of one part's tasks and deliveries; a row of COUNTS.

    place: gives the number of the part, and of the attempt at it. Every file is written aside and
    then renamed: a task of Spark that is tried again replaces its own files.
    """

    home: str
    name: str
    cleared: Mapping[str, int]
    place: Callable[[], tuple[int, int]]

    def __call__(self, part: lv.Lives) -> Iterator[pa.RecordBatch]:
        tasks, given = lv.tasks(part, self.cleared), lv.deliveries(part)
        over = ~pc.is_in(tasks["outcome"], pa.array(lv.UNFINISHED)).to_numpy()
        given_over = over[part.life[part.op == TAKE]]
        self._folders("tasks", tasks.filter(pa.array(over)), "first_lsn")
        self._folders("deliveries", given.filter(pa.array(given_over)), "lsn")
        if not over.all():
            for table, rows in zip(
                LEFT,
                (
                    part.table.filter(pa.array(~over[part.life])),
                    tasks.filter(pa.array(~over)),
                    given.filter(pa.array(~given_over)),
                ),
                strict=True,
            ):
                self._write(rows, Path(self.home) / table / self.name)
        counts = [np.count_nonzero(one) for one in (over, given_over, ~over)]
        yield pa.RecordBatch.from_arrays([pa.array([one]) for one in counts], schema=COUNTS)

    def _folders(self, name: str, rows: pa.Table, lsn: str) -> None:
        """Rows by the date of their task's put and by tube, in order of an LSN."""
        if not rows.num_rows:
            return
        tube, tubes = encoded(rows["tube"])
        day = numbers(rows["put_us"], -1) // DAY_US
        order = np.lexsort((numbers(rows[lsn]), tube, day))
        rows, tube, day = rows.drop(["tube"]).take(pa.array(order)), tube[order], day[order]
        edges = np.flatnonzero((np.diff(tube) != 0) | (np.diff(day) != 0)) + 1
        bounds = [0, *edges.tolist(), rows.num_rows]
        for start, end in itertools.pairwise(bounds):
            date = NULL_FOLDER
            if day[start] >= 0:
                date = str(np.datetime64(int(day[start]), "D"))
            part, whole = rows.slice(start, end - start), tubes[tube[start]]
            label = folder_label(whole)
            if unquote(label) != whole:
                texts = as_text(np.zeros(part.num_rows, np.int64), pa.array([whole]))
                part = part.append_column("tube", texts)
            folder = Path(self.home) / name / self.name / f"date={date}" / f"tube={label}"
            self._write(part, folder)

    def _write(self, rows: pa.Table, folder: Path) -> None:
        number, attempt = self.place()
        folder.mkdir(parents=True, exist_ok=True)
        name = part_name(number)
        aside = folder / f"_{name}.{attempt}"
        texts = [field.name for field in rows.schema if field.type == TEXT]
        pq.write_table(rows, aside, compression="zstd", use_dictionary=texts, store_schema=False)
        durable(aside)
        os.replace(aside, folder / name)
