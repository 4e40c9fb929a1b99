"""Sound logs are quiet: every driver, facade, batch, option, policy, flip and rescue."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tandemq.pipeline.judge.local import Replay, audit
from tandemq.pipeline.judge.state import load, save
from tests.audit.rewrite import Edited
from tests.audit.scenes import SCENES

sys.path.insert(0, str(Path(__file__).parent.parent / "simulation"))

SIMULATED = 12


def quiet(*paths: Path) -> None:
    verdict = audit([str(path) for path in paths])
    assert verdict.ok, verdict.rows
    assert not verdict.warnings, verdict.rows
    assert verdict.counts["records"] > 0


def test_there_are_scenes_enough() -> None:
    assert len(SCENES) >= 40


@pytest.mark.parametrize("name", SCENES)
def test_a_sound_log_is_quiet(played: Callable[[str], Path], name: str) -> None:
    quiet(played(name))


@pytest.mark.parametrize("name", SCENES)
def test_and_so_is_its_copy_in_many_segments(
    records: Callable[[str], Edited], tmp_path: Path, name: str
) -> None:
    """What a fault is planted into is sound before: the tool that rewrites logs adds none."""
    quiet(records(name).write(tmp_path / "copy", per_segment=7))


@pytest.mark.parametrize("name", ["everyday_utubettl", "dead_letters_fifottl", "switch_over",
                                  "keys_and_headers", "truncated_and_dropped", "pauses",
                                  "records_zombies", "lanes_of_queue15", "imported"])  # fmt: skip
def test_an_audit_goes_on_from_the_last_one(
    records: Callable[[str], Edited], tmp_path: Path, name: str
) -> None:
    """However a log grows between two audits, both are quiet and the counts are those of one."""
    whole = records(name)
    directory = whole.write(tmp_path / "whole")
    wanted = audit([str(directory)]).counts
    for stop in range(3, len(whole.entries), max(1, len(whole.entries) // 5)):
        start = records(name)
        del start.entries[stop:]
        start.write(tmp_path / f"a{stop}")
        kept = Replay()
        assert audit([str(tmp_path / f"a{stop}")], kept=kept).ok
        save(kept, tmp_path / "state", "me")
        again = load(tmp_path / "state", "me")
        verdict = audit([str(directory)], kept=again)
        assert verdict.ok, verdict.rows
        assert again.last_lsn == len(whole.entries)
        same = {
            key: value for key, value in verdict.counts.items() if key not in ("records", "rows")
        }
        assert same == {key: wanted[key] for key in same}


@pytest.mark.parametrize("seed", range(1, SIMULATED + 1))
def test_logs_of_simulated_clusters_are_quiet(tmp_path: Path, seed: int) -> None:
    """Real nodes on made-up disks: flips, forced promotions, kills, rewinds, rescues, snapshots."""
    from tests.simulation.sim_plan import make_plan
    from tests.simulation.sim_scenario import Scenario

    scenario = Scenario(make_plan(seed, True))
    scenario.run()
    paths = []
    for name, node in scenario.machines.items():
        for file, data in node.disk.contents().items():
            path = tmp_path / name / file
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
        if any((tmp_path / name).glob("*.wal")):
            paths.append(tmp_path / name)
    quiet(*paths)
