"""A bookie killed at some of its named points; all of them are for `python -m tests.crash --bookie`."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.crash.bookie_run import run
from tests.crash.crash_points import OFTEN, POINTS, kind_of

SOME = (
    "journal.write.half",
    "tombstones.write.half",
    "inventory.replace.before",
    "locations.sync.before",
    "compacted.link.after",
    "log.remove.after",
)


def test_killed_bookie_loses_nothing_acknowledged(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    outcomes = run(SOME, seed=3, folder=tmp_path)
    assert not [finding for outcome in outcomes for finding in outcome.findings], capsys.readouterr().out
    assert all(outcome.acknowledged > 100 for outcome in outcomes if outcome.point.startswith(OFTEN))


def test_crash_points_have_distinct_names() -> None:
    assert len(set(POINTS)) == len(POINTS) >= 20
    assert set(SOME) <= set(POINTS)


def test_crash_points_tell_the_kind_of_a_file() -> None:
    names = {
        "journal/current/19a.txn": "journal",
        "ledgers/current/1f.log": "log",
        "ledgers/current/1f.log.compacting": "compacting",
        "ledgers/current/1f.log.3.compacted": "compacted",
        "journal/current/durable": "durable",
        "ledgers/current/lastMark.tmp": "mark",
        "ledgers/current/lastId": "last-id",
        "ledgers/current/deleted.tmp": "tombstones",
        "ledgers/current/inventory": "inventory",
        "ledgers/current/locations/000012.log": "locations",
        "ledgers/current/ledgers/000004.log": "ledgers",
        "ledgers/current/DIRTY": "other",
    }
    assert {name: kind_of(Path(name)) for name in names} == names
