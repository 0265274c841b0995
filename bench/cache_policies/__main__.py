"""Which cache policy needs the fewest storage reads, by workload and size of the cache?

`python -m bench.cache_policies [--quick] [--only NAME ...] [--seeds N] [--docs] [--json FILE]`

Every policy of `CHOICES` on every workload (`workloads.py`) with several sizes of the cache, five seeds each, by
simulation with a fake clock (`simulation.py`). Columns: workload, size in parts of its base size, and for each policy the
percentage of consumed entries that needed no storage read. `--docs` writes the table and the plots into docs/.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

from bench.cache_policies.report import Cell, cell_of, plots, table, write_into
from bench.cache_policies.simulation import Outcome, PolicyChoice, Simulation
from bench.cache_policies.workloads import WORKLOADS

ROOT = Path(__file__).resolve().parents[2]
MEMORY = (0.25, 0.5, 1.0, 2.0)
"""Sizes of the cache, in parts of a workload's base size."""
CHOICES = (
    PolicyChoice("fifo-ttl", "fifo-ttl", counts=False),
    PolicyChoice("mark-delete", "fifo-ttl", counts=False, by_mark_delete=True),
    PolicyChoice("pip430-stash", "pip430-stash"),
    PolicyChoice("pip430 4.2", "pip430"),
    PolicyChoice("pip430 5.0", "pip430", profile="5.0", extend_recently_accessed=False),
    PolicyChoice("magnetar", "magnetar"),
)
"""The columns of the table: all policies, `pip430` with both profiles."""
Task = tuple[str, float, str, int]
"""(workload, memory, policy, seed)"""


def simulate(task: Task) -> Outcome:
    """Executes one simulation, in a process of the pool."""
    name, memory, policy, seed = task
    workload = next(one for one in WORKLOADS if one.name == name)
    choice = next(one for one in CHOICES if one.name == policy)
    return Simulation(workload, choice, round(workload.base_bytes * memory), seed).run()


def main() -> None:
    """Prints the table; writes docs and JSON where asked to."""
    parser = argparse.ArgumentParser("python -m bench.cache_policies", description="Policies side by side.")
    parser.add_argument("--seeds", type=int, default=5, help="runs of each, default 5")
    parser.add_argument("--quick", action="store_true", help="one seed, two sizes")
    parser.add_argument("--only", nargs="+", metavar="NAME", choices=[one.name for one in WORKLOADS])
    parser.add_argument("--memory", type=float, nargs="+", default=MEMORY, help="parts of each base size")
    parser.add_argument("--docs", action="store_true", help="write table and plots into docs/")
    parser.add_argument("--json", type=Path, metavar="FILE", help="keep all numbers")
    options = parser.parse_args()
    seeds, sizes = (1, (0.5, 1.0)) if options.quick else (options.seeds, tuple(options.memory))
    cells = run([one.name for one in WORKLOADS if not options.only or one.name in options.only], sizes, seeds)
    print(table(cells, [choice.name for choice in CHOICES]))
    if options.json:
        options.json.write_text(json.dumps([cell._asdict() for cell in cells], indent=1) + "\n")
    if options.docs:
        write_into(ROOT / "docs/reference/benchmarks.md", table(cells, [choice.name for choice in CHOICES]))
        for path in plots(cells, ROOT / "docs/images"):
            print(f"wrote {path.relative_to(ROOT)}", file=sys.stderr)


def run(workloads: list[str], sizes: tuple[float, ...], seeds: int) -> list[Cell]:
    """Executes all simulations, a process per CPU; `sizes` are parts of the base size."""
    tasks = [
        (name, memory, choice.name, seed)
        for name in workloads
        for memory in sizes
        for choice in CHOICES
        for seed in range(seeds)
    ]
    begun = time.monotonic()
    outcomes: dict[Task, Outcome] = {}
    with ProcessPoolExecutor(os.cpu_count()) as pool:
        for done, (task, outcome) in enumerate(zip(tasks, pool.map(simulate, tasks), strict=True), 1):
            outcomes[task] = outcome
            if done == len(tasks) or task[2:] == (CHOICES[-1].name, seeds - 1):
                spent = time.monotonic() - begun
                print(f"{done}/{len(tasks)} runs, {spent:.0f} s: {task[0]} at {task[1]:g}", file=sys.stderr)
    cells = []
    for name in workloads:
        base = next(one for one in WORKLOADS if one.name == name).base_bytes
        for memory in sizes:
            for choice in CHOICES:
                own = [outcomes[name, memory, choice.name, seed] for seed in range(seeds)]
                cells.append(cell_of(name, memory, choice.name, round(base * memory), own))
    return cells


if __name__ == "__main__":
    main()
