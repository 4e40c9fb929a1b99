"""What a declaration must say, each refusal in the words of the original (section 14)."""

from __future__ import annotations

import time
from typing import Any

import pytest

from tandemq_server.engine import admin
from tandemq_server.facades.registered import KNOWN
from tandemq_server.facades.xqueue.declaration import check
from tandemq_server.facades.xqueue.record import FieldPlaces
from tests.engine.engine_bench import Bench, text
from tests.xqueue.xqueue_bench import FIELDS, FORMAT, TEXT_FORMAT, options

PK = {"parts": ["id"]}
XQ = {"parts": ["status", "priority", "id"]}
TUBE = {"parts": ["tube", "status", "priority", "id"]}
UUID_FORMAT = [{"name": "id", "type": "uuid"}, *FORMAT[1:]]
NO_RUNAT = {name: name for name in ("status", "priority")}
BARE: dict[str, Any] = {"id": "time64"}


def bare(**more: Any) -> dict[str, Any]:
    return {"format": FORMAT, "fields": FIELDS, "features": BARE, **more}


REFUSALS = [
    ({}, "opts.fields required"),
    (bare(fields={}), "opts.fields required"),
    (bare(fields={"status": "nope"}), "unknown field nope for status"),
    (bare(fields={"status": 17}), "unknown field 17 for status"),
    (
        bare(fields={"status": True}),
        "wrong type boolean for field status, number or string required",
    ),
    (bare(fields={"status": "runat"}), "type mismatch for field runat, required str, got number"),
    (
        bare(fields={"status": "status", "runat": "tube"}),
        "type mismatch for field tube, required num, got string",
    ),
    (
        bare(indexes=[{"parts": ["id", "tube"]}]),
        "Composite primary keys are not supported yet",
    ),
    (bare(format=UUID_FORMAT), "Unknown key type uuid"),
    (bare(indexes=[PK]), "not found index by status + priority + id"),
    (
        bare(indexes=[PK], fields={"status": "status"}),
        "not found index by status + id",
    ),
    (bare(indexes=[PK, XQ]), "not found index by tube + status + priority + id"),
    (
        bare(indexes=[PK, XQ, {"parts": ["tube"]}]),
        "not found index by tube + status + priority + id",
    ),
    (
        bare(
            indexes=[PK, {"parts": ["status", "id"]}], fields={"status": "status", "tube": "tube"}
        ),
        "not found index by tube + status + id",
    ),
    (
        bare(indexes=[PK, XQ, TUBE]),
        "fields.runat requires tree index with this first field in it",
    ),
    (
        bare(format=TEXT_FORMAT, features={"id": "auto_increment"}),
        "For auto_increment numeric pk is mandatory",
    ),
    (
        bare(format=TEXT_FORMAT, features={"id": "time64"}),
        "For time64 numeric pk is mandatory",
    ),
    (bare(features={}), "For uuid string pk is mandatory"),
    (
        bare(features={"id": "nope"}),
        "Wrong type for features.id nope, may be 'auto_increment' | 'time64' | 'uuid' | "
        "'required' | function",
    ),
    (
        bare(fields=NO_RUNAT, features={**BARE, "delayed": True}),
        "Delayed feature requires runat field and index",
    ),
    *(
        (
            bare(fields=NO_RUNAT, features={**BARE, feature: True}),
            f"feature {feature} requires runat field and index",
        )
        for feature in ("zombie", "ttl", "ttr")
    ),
    (
        bare(fields=NO_RUNAT, features={**BARE, "keep": True, "zombie": True}),
        "features keep and zombie are mutually exclusive",
    ),
    (bare(workers=2), "workers requires worker"),
    (bare(worker="print"), "Wrong type for worker print: expected 'module:function'"),
    (bare(worker="a:b", workers=0), "Wrong type for workers 0: expected 1 to 1000"),
    (bare(worker="a:b"), "a:b: this node loads no functions"),
    (bare(max_attempts=3), "xqueue does not support option max_attempts"),
    (bare(compat="both"), "Invalid value of compat: both (expected fixed or strict)"),
]


@pytest.mark.parametrize(("opts", "refusal"), REFUSALS)
def test_refusals_make_nothing(opts: dict[str, Any], refusal: str) -> None:
    bench = Bench(KNOWN)
    bench.start()
    before = len(bench.log)
    outcome = bench.call(admin.create_tube, bench.engine, "q", "xqueue", opts)
    assert text(outcome) == refusal
    assert len(bench.log) == before
    assert not bench.engine.tubes


def test_declared_indexes_that_serve_are_accepted_and_the_key_may_stand_anywhere() -> None:
    bench = Bench(KNOWN)
    bench.start()
    form = [*FORMAT[1:], FORMAT[0]]
    runat = {"parts": [{"field": "runat"}]}
    opts = bare(format=form, indexes=[PK, XQ, TUBE, runat])
    tube = bench.create("q", "xqueue", **opts)
    assert tube.opts["pk"] == 5
    worker = bench.worker()
    task = {"priority": 1, "tube": "a", "payload": "x"}
    bench.call(tube.put_record, worker, 1, task)  # type: ignore[attr-defined]
    (row,) = tube.space.rows.values()
    shown = tube.space.view(row)  # type: ignore[attr-defined]
    assert shown == ["R", 0, 1, "a", "x", row[0]]


def test_the_declaration_is_logged_and_served_elsewhere() -> None:
    bench = Bench(KNOWN)
    bench.start()
    bench.create("q", "xqueue", **options())
    other = bench.replica()
    assert other.engine.tubes["q"].opts == bench.engine.tubes["q"].opts
    assert not other.reports


def test_options_without_effect() -> None:
    bench = Bench(KNOWN)
    bench.start()
    plain = bench.create("plain", "xqueue", **options())
    more = options({"zombie_delay": 5}, debug=True, retval="tuple")
    assert bench.create("more", "xqueue", **more).opts == plain.opts


def test_a_wide_declaration_costs_what_its_fields_do() -> None:
    """The square of 32,000 fields took minutes."""
    form = [["id", "string"], ["status", "string"], *([f"f{n}", "any"] for n in range(32_000))]
    parts = [{"parts": ["id"]}, {"parts": ["status", "id"]}]
    parts += [{"parts": [f"f{n}"]} for n in range(4_000)]
    opts = {"fields": {"status": "status"}, "format": form, "indexes": parts}
    began = time.process_time()
    found = check(opts)
    assert len(found["format"]) == 32_002
    layout = FieldPlaces(found)
    task = {"f7": "seven"}
    row = layout.fresh("key", task)
    assert layout.table(row)["f7"] == "seven"
    assert layout.table(row)["status"] == layout.view(row)[1]
    assert time.process_time() - began < 5
