"""What the jobs compute in Python workers, without Spark: exchange, order of queues, figures."""

from __future__ import annotations

import math
import random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from benchmarks.logmaker import LogMaker, fill
from tandemq.pipeline import figures
from tandemq.pipeline.arrays import TEXT, encoded
from tandemq.pipeline.exchange import bucket_of, buckets_for, marks, packed, unpacked
from tandemq.pipeline.queues import TAKEN, Queues, across, edges, in_order, in_pieces
from tandemq.pipeline.rules import stretch_of
from tandemq.spark import mapped
from tandemq.spark.options import LOG_OPTIONS, parse
from tandemq.spark.source import LogReader

FAR = 2**62


def test_what_is_packed_comes_out_bucket_by_bucket() -> None:
    rng = random.Random(5)
    texts = [f"t{number}" for number in range(300)]
    rows = [
        {"text": rng.choice([None, *texts[: rng.choice([1, 300])]]), "task": rng.randrange(10**6)}
        for _ in range(2000)
    ]
    table = pa.Table.from_pylist(rows, pa.schema([("text", TEXT), ("task", pa.int64())]))
    bucket = bucket_of(table["task"].to_numpy(), 16)
    there, bodies = packed(table, bucket, 16)
    assert there == sorted(set(bucket.tolist()))
    for one, found in zip(there, unpacked([bodies]), strict=True):
        assert found.to_pylist() == [
            row for row, place in zip(rows, bucket.tolist(), strict=True) if place == one
        ]
        # Nobody pays for texts of another bucket.
        dictionary = found["text"].chunk(0).dictionary
        assert len(dictionary) <= max(len(found) // 4, len(set(found["text"].to_pylist())))


def test_buckets_are_powers_of_two_and_even() -> None:
    assert [buckets_for(parts) for parts in (0, 1, 64, 68, 1000)] == [16, 16, 16, 32, 256]
    # Packing sorts them as numbers of 16 bits.
    assert buckets_for(10**9) == 2**16
    counts = np.bincount(bucket_of(np.arange(100_000) + marks(["orders"])[0], 16), minlength=16)
    assert counts.min() > 5_000


def test_chunks_with_other_dictionaries_are_one_text_one_number() -> None:
    parts = [pa.array(["a", None, "b"]), pa.array(["b", "a"])]
    codes, texts = encoded(pa.chunked_array([part.dictionary_encode() for part in parts]))
    assert [None if code < 0 else texts[code] for code in codes] == ["a", None, "b", "b", "a"]
    assert encoded(pa.chunked_array([], pa.string()))[1] == []


# -- order of queues ---------------------------------------------------------------------------


def takes(rng: random.Random) -> list[dict[str, Any]]:
    """Takes of a few queues, some against the rules."""
    rows = []
    for lsn in range(1, 200):
        rows.append(
            {
                "tube": "q",
                "task": rng.randrange(30),
                "lsn": lsn,
                "utube": f"u{lsn % 3}",
                "queue": lsn % 3,
                "rank": rng.randrange(3),
                "due": lsn - rng.choice([1, 2, 7]),
                "until": lsn + rng.choice([1, 2, 3, 9, FAR - lsn]) if rng.random() < 0.5 else lsn,
                "sub": lsn % 3 > 0,
            }
        )
    return rows


def expected(rows: list[dict[str, Any]]) -> set[tuple[str, int]]:
    """The rules, one take after the other."""
    found = set()
    for queue in range(3):
        last: dict[str, Any] | None = None
        longest = (-1, -1)
        for row in (row for row in rows if row["queue"] == queue):
            if last is not None:
                earlier = (last["rank"], last["task"]) > (row["rank"], row["task"])
                if earlier and last["lsn"] > row["due"]:
                    found.add(("order_break", row["lsn"]))
                if row["sub"] and longest[0] > row["lsn"] and longest[1] != row["task"]:
                    found.add(("utube_overlap", row["lsn"]))
            last, longest = row, max(longest, (row["until"], row["task"]))
    return found


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("size", [1, 7, 1000])
def test_queues_are_judged_alike_at_once_and_in_stretches(seed: int, size: int) -> None:
    rows = takes(random.Random(seed))
    columns = {name: [row[name] for row in rows] for name in TAKEN.names}
    columns["sub"] = [int(one) for one in columns["sub"]]
    table = in_order(pa.table({n: pa.array(columns[n], TAKEN.field(n).type) for n in TAKEN.names}))
    rules, found = Queues(), []
    for start in range(0, table.num_rows, size):
        found += rules.findings(table.slice(start, size))
    assert {(one["check"], one["lsn"]) for one in found} == expected(rows)
    assert len(found) == len(expected(rows)) > 3


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("stretch", [1, 7, 64])
def test_queues_are_judged_alike_whole_and_in_pieces(seed: int, stretch: int) -> None:
    """In any order of pieces; of a tube, and of another whose sub-queues are never cut."""
    rng = random.Random(seed)
    rows = takes(rng)
    columns = {name: [row[name] for row in rows] for name in TAKEN.names}
    columns["sub"] = [int(one) for one in columns["sub"]]
    # Takes of one record have one LSN.
    table = pa.table({n: pa.array(columns[n], TAKEN.field(n).type) for n in TAKEN.names})
    cut = np.where(table["sub"].to_numpy() > 0, 0, table["lsn"].to_numpy() // stretch)
    pieces = in_pieces(table["queue"].to_numpy(), cut)
    table = table.set_column(table.column_names.index("queue"), "queue", pa.array(pieces))
    found, cuts = [], []
    for piece in rng.sample(list(set(pieces.tolist())), len(set(pieces.tolist()))):
        part = in_order(table.filter(pa.array(pieces == piece)))
        found += Queues().findings(part)
        cuts.append(edges(part))
    found += Queues().findings(across(pa.concat_tables(cuts).unify_dictionaries()))
    assert sorted((one["check"], one["lsn"]) for one in found) == sorted(expected(rows))


@pytest.mark.parametrize("quiet", [0, 1_400_000])
def test_a_tube_with_nearly_all_takes_is_everybody_s_work(quiet: int) -> None:
    """99 % of the takes are of one tube, evenly, or all in the last third of the log."""
    lsns, buckets = 2_000_000, 16
    cut = np.arange(quiet, lsns) // stretch_of(lsns, buckets)
    hot = (bucket_of(np.array([7]), buckets) + cut) % buckets
    rest = np.repeat(bucket_of(np.arange(3), buckets), (lsns - quiet) // 300)
    counts = np.bincount(np.concatenate((hot, rest)), minlength=buckets)
    assert counts.max() < 2 * np.median(counts)


# -- figures -------------------------------------------------------------------------------------


def quantiles(parts: list[list[int]]) -> tuple[int, int, int]:
    bodies = []
    for values in parts:
        count = len(values)
        rows = {
            "tube": pa.array(["q"] * count).dictionary_encode(),
            "consumer": pa.array(["c"] * count),
            "taken_us": [0] * count,
            "waited_us": pa.array(values, pa.int64()),
            "ran_us": pa.nulls(count, pa.int64()),
            "outcome": ["acked"] * count,
            "put_lsn": [1] * count,
        }
        for batch in figures.of_deliveries(pa.table(rows), 16):
            bodies += batch.to_pylist()
    body = pa.array([row["body"] for row in bodies if row["what"] == "bins"], pa.binary())
    wait, run = figures.quantiles([body])
    assert run.num_rows == 0
    (row,) = wait.to_pylist()
    return row["a"], row["b"], row["c"]


def test_quantiles_of_parts_are_those_of_the_whole() -> None:
    rng = random.Random(3)
    values = [int(rng.lognormvariate(12, 3)) for _ in range(4000)]
    found = quantiles([values[:100], values[100:2500], values[2500:]])
    values.sort()
    for quantile, value in zip(figures.QUANTILES, found, strict=True):
        exact = values[math.ceil(len(values) * quantile) - 1]
        assert value == pytest.approx(exact, rel=0.001)


def test_one_value_is_its_own_quantile() -> None:
    for value in (0, 1, 2047, 2048, 1_000_000, 10**15):
        assert quantiles([[value] * 3, [value]]) == (value,) * 3


@pytest.mark.parametrize("value", [0, 1, 2**11 - 1, 2**11, 2**11 + 1, 10**9, 2**52])
def test_a_bin_is_a_thousandth_wide(value: int) -> None:
    width = max(value // 1000, 1)
    same, other = figures.bins(np.array([value, value + width]))
    assert other > same


def test_of_many_that_failed_the_worst_are_kept() -> None:
    lsns = pa.array([5, 3, 5, 9, 3, 5], pa.int64())
    _, body = packed(pa.table({"lsn": lsns}), np.zeros(6, np.int64), 1)
    assert [one.tolist() for one in figures.failed([body], 10)] == [[3, 5, 9], [2, 3, 1]]
    assert [one.tolist() for one in figures.failed([body], 2)] == [[3, 5], [2, 3]]
    assert [one.tolist() for one in figures.failed([], 2)] == [[], []]


# -- parts of a log by task ------------------------------------------------------------------------


def test_small_parts_of_a_log_are_one_task_and_large_ones_are_not(maker: LogMaker) -> None:
    fill(maker, 3000)
    maker.close()
    segments = len(list(maker.directory.glob("*.wal")))
    sizes = []
    for split in ("16777216", "65536"):
        given = {"path": str(maker.directory), "splitBytes": split}
        reader = LogReader(parse("tandemq_log", LOG_OPTIONS, given), ("lsn",))
        groups = mapped._planned(reader)
        parts = [found.part for found in reader.partitions()]
        assert [part for group in groups for part in group] == parts
        for group in groups:
            held = [part.end - part.start[1] for part in group if part.start is not None]
            # The last one may reach over the edge by no more than itself.
            assert sum(held[:-1]) <= int(split)
        sizes.append(len(groups))
    assert sizes[0] == 1 < sizes[1] <= segments
