"""Which of the names that the stock dashboards ask for a scrape has, and which it lacks.

    python -m tests.metrics_check http://127.0.0.1:8080/metrics     a running broker
    python -m tests.metrics_check scrape.txt                        a saved scrape
    python -m tests.metrics_check --core bookie http://127.0.0.1:8000/metrics

Ends with exit code 1 when a core name is missing.
"""

from __future__ import annotations

import argparse
import csv
import re
import sys
import urllib.request
from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families

SAMPLE = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*")
NAMES = Path(__file__).resolve().parent / "data" / "dashboard-metrics.tsv"


def core_names(core: str) -> list[str]:
    """The names in the dashboards' list whose core is `core` (`broker` or `bookie`), sorted."""
    with NAMES.open(newline="") as file:
        return sorted(row["name"] for row in csv.DictReader(file, delimiter="\t") if row["core"] == core)


def names_in(text: str) -> set[str]:
    """The names of all samples, as they are written; ValueError when the text does not parse."""
    for _ in text_string_to_metric_families(text):
        pass  # The parser renames some counters, so it only judges.
    return {match[0] for match in map(SAMPLE.match, text.splitlines()) if match}


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="tests.metrics_check", description=__doc__.splitlines()[0])
    parser.add_argument("source", help="URL or file of a scrape in the text format")
    parser.add_argument("--core", choices=("broker", "bookie"), default="broker")
    options = parser.parse_args(arguments)
    if options.source.startswith(("http://", "https://")):
        with urllib.request.urlopen(options.source, timeout=60) as answer:
            text = answer.read().decode()
    else:
        text = Path(options.source).read_text()
    there = names_in(text)
    wanted = core_names(options.core)
    missing = [name for name in wanted if name not in there]
    for name in wanted:
        print(f"{'missing' if name in missing else 'present'}  {name}")
    print(f"{len(wanted) - len(missing)} of {len(wanted)} core names present, {len(missing)} missing")
    return 1 if missing else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
