"""`python -m bench.cache_policies`: policies x workloads x memory, five seeds each."""

from __future__ import annotations

import argparse
import time

from bench.cache_policies.simulation import PolicyChoice, Simulation
from bench.cache_policies.workloads import WORKLOADS

CHOICES = (
    PolicyChoice("fifo-ttl", "fifo-ttl", counts=False),
    PolicyChoice("mark-delete", "fifo-ttl", counts=False, by_mark_delete=True),
    PolicyChoice("pip430-stash", "pip430-stash"),
    PolicyChoice("pip430 4.2", "pip430"),
    PolicyChoice("pip430 5.0", "pip430", profile="5.0", extend_recently_accessed=False),
    PolicyChoice("magnetar", "magnetar"),
)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--only", nargs="*")
    parser.add_argument("--memory", type=float, nargs="+", default=[0.25, 0.5, 1.0, 2.0])
    options = parser.parse_args()
    print("| workload | memory |" + "".join(f" {choice.name} |" for choice in CHOICES))
    for workload in WORKLOADS:
        if options.only and workload.name not in options.only:
            continue
        for part in options.memory:
            cells = []
            begun = time.monotonic()
            for choice in CHOICES:
                ratios, peaks = [], []
                for seed in range(options.seeds):
                    outcome = Simulation(workload, choice, round(workload.base_bytes * part), seed).run()
                    ratios.append(outcome.hit_ratio)
                    peaks.append(outcome.peak_bytes)
                cells.append(f"{100 * sum(ratios) / len(ratios):.1f} ({max(peaks) / 1e6:.1f})")
            print(
                f"| {workload.name} | {part} |",
                " | ".join(cells),
                f"| {time.monotonic() - begun:.1f}s",
                flush=True,
            )


main()
