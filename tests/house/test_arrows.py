"""The drawing of imports counts what it says it does, and stays as untied as it is."""

from __future__ import annotations

from pathlib import Path

from tests.house.arrows import ROOT, circles, counted, drawing, floors, upward


def test_circles_floors_and_arrows_of_a_small_drawing() -> None:
    graph = {"top": {"mid": 1, "low": 1}, "mid": {"low": 2}, "low": {"mid": 1}, "alone": {}}
    assert sorted(map(sorted, circles(graph))) == [["alone"], ["low", "mid"], ["top"]]
    assert floors(graph) == [["alone", "low", "mid"], ["top"]]
    assert len(upward(graph)) == 1


def test_a_type_only_import_counts(tmp_path: Path) -> None:
    for name, text in {
        "engine/one.py": "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n"
        "    from wire.two import T\n",
        "wire/two.py": "def f():\n    from engine import one\n",
    }.items():
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    found = counted(tmp_path)
    assert (found["rooms"], found["of these upward"], found["circles of rooms"]) == (2, 1, 1)
    assert found["largest circle of modules"] == 2


def test_no_room_imports_upward_and_the_engine_has_no_circle() -> None:
    inner, rooms = drawing(ROOT)
    # A folder within a room is a part of it, and may ask the whole.
    assert [(one, two) for one, two in upward(rooms) if not two.startswith(one)] == []
    knots = [circle for circle in circles(inner) if len(circle) > 1]
    assert not [circle for circle in knots if circle[0].startswith("tandemq_server.engine.")]
