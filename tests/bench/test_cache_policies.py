"""The comparison of policies runs, and gives the order that the docs claim, on one seed of the quick workloads."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.cache_policies.__main__ import CHOICES
from bench.cache_policies.report import BEGIN, END, Cell, cell_of, plots, table, write_into
from bench.cache_policies.simulation import Simulation
from bench.cache_policies.workloads import WORKLOADS

POLICIES = [choice.name for choice in CHOICES]


def cells_of(name: str, memory: float) -> dict[str, Cell]:
    workload = next(one for one in WORKLOADS if one.name == name)
    size = round(workload.base_bytes * memory)
    return {
        choice.name: cell_of(name, memory, choice.name, size, [Simulation(workload, choice, size, 0).run()])
        for choice in CHOICES
    }


@pytest.mark.parametrize(("name", "memory"), [("scan", 0.5), ("Key_Shared replay", 0.5), ("tail", 0.25)])
def test_policy_magnetar_hits_no_less_than_the_releases_and_keeps_its_size(name: str, memory: float) -> None:
    cells = cells_of(name, memory)
    ours = cells["magnetar"]
    assert ours.hit_ratio >= max(cells["pip430 4.2"].hit_ratio, cells["pip430 5.0"].hit_ratio)
    assert ours.peak <= 1.0 + 0.1
    if name == "scan":
        assert cells["pip430 4.2"].hit_ratio < 0.01 < 0.1 < ours.hit_ratio


def test_table_marks_the_best_policy_that_kept_its_size(tmp_path: Path) -> None:
    cells = [
        Cell("w", 1.0, "fifo-ttl", [0.5, 0.7], 1.0, [1.0, 2.0]),
        Cell("w", 1.0, "pip430-stash", [1.0], 3.0, [3.0, 4.0]),
    ]
    text = table(cells, ["fifo-ttl", "pip430-stash"])
    assert text.splitlines()[2] == "| w | 1 | **60.0** | 100.0 (held 3.0 times the size) |"
    page = tmp_path / "page.md"
    page.write_text(f"before\n{BEGIN}\nold\n{END}\nafter\n")
    write_into(page, text)
    assert page.read_text() == f"before\n{BEGIN}\n{text}\n{END}\nafter\n"
    page.write_text("no marks")
    with pytest.raises(ValueError, match="lacks the lines"):
        write_into(page, text)
    pytest.importorskip("matplotlib")
    assert [path.stat().st_size > 1000 for path in plots(cells, tmp_path)] == [True, True]
