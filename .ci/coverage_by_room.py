"""Prints branch coverage room by room from the data file of `make coverage`.

A room is a package of the second level, such as `broker/net`, or a package of the first level without rooms. The
report has no gate: it shows where tests are thin, and a number alone says little about a test.
"""

from __future__ import annotations

import collections
import json
import subprocess
import sys
import tempfile
from pathlib import Path


def room_of(name: str) -> str:
    """Returns the room that a file belongs to; files beside the rooms count under their package."""
    return "/".join(Path(name).parts[:-1][:2])


def main() -> int:
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "coverage.json"
        subprocess.run([sys.executable, "-m", "coverage", "json", "-q", "-o", report], check=True)
        files = json.loads(report.read_text())["files"]
    rooms: dict[str, collections.Counter[str]] = collections.defaultdict(collections.Counter)
    for name, found in files.items():
        rooms[room_of(name)].update({key: found["summary"][key] for key in COUNTS})
        rooms["all"].update({key: found["summary"][key] for key in COUNTS})
    print(f"{'room':<28}{'statements':>11}{'missed':>8}{'branches':>10}{'missed':>8}{'covered':>9}")
    for room, counts in sorted(rooms.items(), key=lambda pair: (pair[0] == "all", pair[0])):
        lines, branches = counts["num_statements"], counts["num_branches"]
        covered = counts["covered_lines"] + counts["covered_branches"]
        share = 100 * covered / (lines + branches) if lines + branches else 100.0
        print(
            f"{room:<28}{lines:>11}{counts['missing_lines']:>8}"
            f"{branches:>10}{counts['missing_branches']:>8}{share:>8.1f}%"
        )
    return 0


COUNTS = (
    *("num_statements", "covered_lines", "missing_lines"),
    *("num_branches", "covered_branches", "missing_branches"),
)

if __name__ == "__main__":
    sys.exit(main())
