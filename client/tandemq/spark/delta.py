"""A stream of `tandemq_archive` into a Delta table, on any file system: each batch is one commit.

Tasks write Parquet files into the table's folder, where nobody sees them; the batch's end adds them
to the table with the batch's number in one transaction, which Delta takes once.
"""

from __future__ import annotations

import datetime
import json
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pyarrow.fs as pafs
import pyarrow.parquet as pq

from tandemq.spark.changes import ChangesReader, ChangesWriter
from tandemq.spark.columns import ALL, arrow_schema
from tandemq.spark.folder import ArrowFolder
from tandemq.spark.parts import durable

#: Columns whose bounds are told, so that queries leave out files.
_BOUNDED = ("lsn", "time")


class DeltaFolder(ArrowFolder):
    """A table's folder."""

    @property
    def is_local(self) -> bool:
        return isinstance(self.system, pafs.LocalFileSystem)

    @contextmanager
    def file(self, name: str) -> Iterator[Any]:
        """A new file of the folder; it is as durable as there when this ends."""
        if self.is_local:
            Path(self.base).mkdir(parents=True, exist_ok=True)
        with self.named("write", name), self.system.open_output_stream(self.path(name)) as sink:
            yield sink
        if self.is_local:
            durable(Path(self.path(name)))

    def settled(self) -> None:
        """The files' names are on the disk."""
        if self.is_local:
            durable(Path(self.base))

    def parquet(self, name: str) -> tuple[int, pq.FileMetaData]:
        """(bytes, what the file says of itself)."""
        path = self.path(name)
        with self.named("read", name), self.system.open_input_file(path) as file:
            return int(self.system.get_file_info(path).size), pq.read_metadata(file)


class DeltaChanges:
    """The table that the changes of one cluster go into, from one checkpoint."""

    def __init__(self, url: str) -> None:
        """Raises `ModuleNotFoundError` where deltalake is not installed."""
        import deltalake

        self.url = url
        self.folder = DeltaFolder(url)
        self._lib = deltalake
        self._at = _for_delta(url, self.folder.base)

    def prepare(self, cluster: str, feed: str) -> None:
        """Make the table, or see that it has changes of this cluster from this checkpoint.

        Raises `ValueError` where it has not: what another checkpoint wrote would come twice.
        """
        where, options = self._at
        if self._lib.DeltaTable.is_deltatable(where, options):
            known = self._told()
            if known.get("cluster") != cluster:
                raise ValueError(f"{self.url} has no changes of cluster {cluster}")
            if known.get("feed") != feed:
                raise ValueError(
                    f"{self.url} is written from another checkpoint: name that, or another table"
                )
            return
        self._lib.DeltaTable.create(
            where,
            self._lib.Schema.from_arrow(arrow_schema(ALL)),
            description=json.dumps({"version": 1, "cluster": cluster, "feed": feed}),
            storage_options=options,
        )

    def _told(self) -> dict[str, Any]:
        try:
            told = json.loads(self._table().metadata().description or "")
        except ValueError:
            return {}
        return told if isinstance(told, dict) else {}

    def _table(self) -> Any:
        where, options = self._at
        return self._lib.DeltaTable(where, storage_options=options)

    def batch(self, feed: str) -> int:
        """The last one that is in the table, -1 for none."""
        return _batch_in(self._table(), feed)

    def add(self, files: Sequence[str], feed: str, batch: int) -> None:
        """The files are in the table as this batch, unless a batch of this number is."""
        table = self._table()
        if not files or _batch_in(table, feed) >= batch:
            return
        self.folder.settled()
        from deltalake.transaction import AddAction

        actions, rows, lsn = [], 0, 0
        for name in sorted(files):
            size, told = self.folder.parquet(name)
            stats = _stats(told)
            rows, lsn = rows + stats["numRecords"], max(lsn, stats["maxValues"]["lsn"])
            moment = int(time.time() * 1000)
            actions.append(AddAction(name, size, {}, moment, True, json.dumps(stats)))
        about = {"batch": str(batch), "rows": str(rows), "to_lsn": str(lsn)}
        # Another driver of the same query that was first makes this one fail, by Delta's rules.
        table.create_write_transaction(
            actions,
            "append",
            table.schema(),
            commit_properties=self._lib.CommitProperties(
                custom_metadata=about, app_transactions=[self._lib.Transaction(feed, batch)]
            ),
        )

    def batches(self, after: int) -> list[tuple[int, int, int]]:
        """(number, rows, last LSN) of batches beyond this one, oldest first."""
        found = []
        for one in self._table().history():
            if "batch" not in one:
                continue
            if int(one["batch"]) <= after:
                break
            found.append((int(one["batch"]), int(one["rows"]), int(one["to_lsn"])))
        return found[::-1]


class DeltaReader(ChangesReader):
    """What is new; its files go straight into the table's folder."""

    @property
    def folder(self) -> DeltaFolder:
        return DeltaFolder(self.values["into"])


class DeltaWriter(ChangesWriter):
    def __init__(self, url: str, feed: str) -> None:
        self.url, self.feed = url, feed

    def commit(self, messages: Sequence[Any], batchId: int) -> None:
        files = [name for one in messages for name in one.files]
        DeltaChanges(self.url).add(files, self.feed, batchId)

    def abort(self, messages: Sequence[Any], batchId: int) -> None:
        """What was written is in no table; Delta's `vacuum` removes it."""


def _batch_in(table: Any, feed: str) -> int:
    found = table.transaction_version(feed)
    return -1 if found is None else int(found)


def _stats(told: pq.FileMetaData) -> dict[str, Any]:
    """What Delta keeps of a file: rows, and the bounds by which queries leave it out."""
    lows: dict[str, Any] = {}
    highs: dict[str, Any] = {}
    for name in _BOUNDED:
        column = told.schema.names.index(name)
        groups = [told.row_group(at).column(column).statistics for at in range(told.num_row_groups)]
        lows[name] = _plain(min(group.min for group in groups), down=True)
        highs[name] = _plain(max(group.max for group in groups), down=False)
    return {
        "numRecords": told.num_rows,
        "minValues": lows,
        "maxValues": highs,
        "nullCount": dict.fromkeys(_BOUNDED, 0),
    }


def _plain(value: Any, down: bool) -> Any:
    """As Delta writes it: moments in milliseconds, a bound on the outer side."""
    if not isinstance(value, datetime.datetime):
        return value
    whole = value.replace(microsecond=value.microsecond // 1000 * 1000)
    if not down and whole != value:
        whole += datetime.timedelta(milliseconds=1)
    return whole.astimezone(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%S.%f")[:-3] + "Z"


def _for_delta(url: str, base: str) -> tuple[str, dict[str, str]]:
    """(address, options) by which deltalake finds what PyArrow finds under a URI.

    Keys come from where both look: the environment, or the machine's own identity.
    """
    parts = urlsplit(url)
    if parts.scheme in ("", "file"):
        return base, {}
    asked = {name: values[-1] for name, values in parse_qs(parts.query).items()}
    options = {}
    if endpoint := asked.get("endpoint_override"):
        scheme = asked.get("scheme", "https")
        options = {"aws_endpoint": f"{scheme}://{endpoint}"}
        if scheme == "http":
            options["aws_allow_http"] = "true"
    if region := asked.get("region"):
        options["aws_region"] = region
    return f"{parts.scheme}://{parts.netloc}{parts.path}", options
