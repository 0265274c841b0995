"""`magnetar pipeline`: jobs on Spark, each with a command line of its own."""

from __future__ import annotations

import argparse

from magnetar import audit_command, live_command


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser("magnetar pipeline", description="Jobs on Spark.", allow_abbrev=False)
    jobs = parser.add_subparsers(dest="job", required=True, metavar="JOB")
    audit_command.add_to(jobs)
    live_command.add_to(jobs)
    arguments = parser.parse_args(argv)
    code: int = arguments.run(arguments)
    return code
