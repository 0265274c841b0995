"""Cold readers on real entry logs in small, what the tables make of the numbers, and the picture."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.bookie_plot import plot
from bench.bookie_tables import Results, knee
from bench.cold_readers import Cell, demand_bytes, measure, simulate, write_ledgers
from bench.writer_beside import AddTimes, measure_adds
from bookie_stub.disk.read_cache import POLICIES


def cell(policy: str, readers: int, disk_reads: float, batch: int = 50) -> Cell:
    return Cell(policy, batch, readers, 16 / readers, 100, disk_reads, 2 * disk_reads, 1000.0)


async def test_measured_disk_reads_equal_the_simulated_rule(tmp_path: Path) -> None:
    """On the disk as by the rule alone: the ring thrashes, served-first does not."""
    await write_ledgers(tmp_path, 408)
    found = {
        policy: await measure(tmp_path, 408, policy, 50, 20, int(0.9 * demand_bytes(20, 50)), seconds=20)
        for policy in POLICIES
    }
    assert found["ring"].disk_reads_per_entry > 10
    assert found["served-first"].disk_reads_per_entry <= 1.3
    for policy, each in found.items():
        assert each.share == pytest.approx(0.9, abs=0.01)
        assert each.disk_reads_per_entry == pytest.approx(simulate(policy, 50, 20, 0.9, 1), rel=0.25)
        if each.device_bytes_per_byte:  # 0 on a file system without a device
            assert each.device_bytes_per_byte > each.disk_reads_per_entry * 0.9


async def test_measure_adds_times_adds_beside_each_policy(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    await write_ledgers(tmp_path, 30)
    found = await measure_adds(tmp_path, 30, seconds=0.1, rounds=1)
    assert len(found) == 2 + len(POLICIES)
    assert all(0 < times.p50_ms <= times.p99_ms <= times.highest_ms for times in found.values())
    assert [times.read_per_s > 0 for times in found.values()] == [False, False, True, True, True]
    assert "round 1" in capsys.readouterr().out


def test_knee_is_the_lowest_count_from_which_all_thrash() -> None:
    curve = [
        cell("ring", readers, reads) for readers, reads in ((1, 1), (8, 3), (15, 1.2), (17, 9), (64, 40))
    ]
    assert knee(curve, "ring", 50) == 17
    assert knee(curve, "lru", 50) is None
    assert knee([cell("ring", 4, 1.9)], "ring", 50) is None


def test_results_become_tables_and_a_plot(tmp_path: Path) -> None:
    curve = [
        cell(policy, readers, 1.5 * readers, batch)
        for policy in POLICIES
        for readers in (1, 64)
        for batch in (50, 100)
    ]
    shares = [(1, 7.25, cell(policy, 20, 7.5)) for policy in POLICIES]
    results = Results(curve, shares, {"nobody": AddTimes(1.234, 2, 3, 0.5, 4000, 5)})
    text = "\n".join(results.tables())
    assert "| 64 | 0.25 | 96.0 · 96.0 · 96.0 | 96.0 · 96.0 · 96.0 |" in text
    assert "| 64 | 0.25 | 192 · 192 · 192 |" in text
    assert "readahead of 50: ring 64, lru 64, served-first 64" in text
    assert "| 1 | 0.80 | 7.25 · 7.50 · 15.00 | 7.25" in text
    assert "| nobody | 1.23 | 2.00 | 3.0 | 0.50 | 4,000 | 5.0 |" in text
    assert len(results.as_json()["curve"]) == 12  # type: ignore[arg-type]
    path = tmp_path / "curve.svg"
    plot(curve, 16, path)
    first = path.read_bytes()
    assert all(f">{policy}<".encode() in first for policy in POLICIES)
    plot(curve, 16, path)
    assert path.read_bytes() == first
