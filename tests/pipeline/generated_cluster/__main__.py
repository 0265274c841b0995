"""`python -m tests.pipeline.generated_cluster FOLDER [--topics N] [--seed N]`: writes a snapshot with planted leaks."""

from __future__ import annotations

import argparse
from pathlib import Path

from tests.pipeline.generated_cluster.generator import generate


def main() -> None:
    """Writes the snapshot and prints how many leaks it has."""
    parser = argparse.ArgumentParser("python -m tests.pipeline.generated_cluster", allow_abbrev=False)
    parser.add_argument("folder", type=Path, metavar="FOLDER")
    parser.add_argument("--topics", type=int, default=600_000, metavar="N", help="(default %(default)s)")
    parser.add_argument("--seed", type=int, default=1, metavar="N", help="(default %(default)s)")
    arguments = parser.parse_args()
    cluster = generate(arguments.folder, arguments.topics, arguments.seed)
    print(f"{arguments.folder}: {arguments.topics:,} topics, {len(cluster.planted):,} leaks planted")


if __name__ == "__main__":
    main()
