"""`magnetar pipeline live`: prints hit ratios of a running broker."""

from __future__ import annotations

import argparse
import signal
import sys
from typing import TYPE_CHECKING

from magnetar.clients.client import CommandError, fail
from pipeline.remote_paths import CannotWrite, check_output, place
from pipeline.spark_errors import sentence_of
from pipeline.spark_master import master

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

    Jobs = argparse._SubParsersAction[argparse.ArgumentParser]

_POLL_S = 1
"""Seconds between two checks for Ctrl-C, and the most that its effect is late."""


def add_to(jobs: Jobs) -> None:
    """Adds the command to those of `magnetar pipeline`."""
    parser = jobs.add_parser(
        "live",
        help="follow the cache's hit ratio and report drops",
        description="Follow the topic that a broker names in entryCacheCountsTopic.",
    )
    add = parser.add_argument
    add("topic", metavar="TOPIC", help="the broker's entryCacheCountsTopic")
    add("--service-url", default="pulsar://localhost:6650", metavar="URL", help="(default %(default)s)")
    add(
        "--checkpoint",
        required=True,
        type=place,
        metavar="FOLDER",
        help="keeps the place in the topic for the next start",
    )
    add("--out", type=place, metavar="FOLDER", help="Parquet with a row per topic and minute")
    add(
        "--starting",
        choices=("earliest", "latest"),
        default="latest",
        help="place in the topic without a checkpoint (default latest)",
    )
    add(
        "--drop",
        type=float,
        default=0.1,
        metavar="X",
        help="report a ratio X below the average (default 0.1)",
    )
    add(
        "--min-reads",
        type=int,
        default=100,
        metavar="N",
        help="reads of a topic in a minute from which it is judged (default 100)",
    )
    add("--once", action="store_true", help="read the messages present now, then end")
    add("--master", type=master, default="local[*]", help="Spark's master (default local[*])")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Follows the topic. Returns 0, or 1 after one line on stderr; 130 after Ctrl-C.

    Spark itself writes checkpoint and output, so their paths may have a scheme.
    """
    try:
        from pyspark.errors import PySparkException

        from pipeline.java import NoJava
        from pipeline.live.drop_watch import DropWatch
        from pipeline.live.hit_ratio import by_minute, counts_of, start, tell_open_minutes
        from pipeline.session import start_for_command
        from pipeline.spark_master import NoMaster
    except ModuleNotFoundError as error:
        return fail("pipeline live", CommandError(f"{error}; pip install 'WHEEL[spark]'"))
    try:
        check_output(arguments.checkpoint, "--checkpoint")
        if arguments.out is not None:
            check_output(arguments.out)
        session = start_for_command(
            "live", master=arguments.master, quick_start=True, settings={"spark.sql.shuffle.partitions": "4"}
        )
    except (CannotWrite, NoJava, NoMaster) as error:
        return fail("pipeline live", CommandError(str(error)))
    try:
        counts = counts_of(session, arguments.service_url, arguments.topic, arguments.starting)
        watch = DropWatch(arguments.drop, arguments.min_reads)
        query = start(
            by_minute(counts),
            watch,
            str(arguments.checkpoint),
            out=None if arguments.out is None else str(arguments.out),
            once=arguments.once,
            tell=_print,
        )
        if not _ended_by_itself(query):
            return 130
        if arguments.once:
            tell_open_minutes(session, query, str(arguments.checkpoint), watch, _print)
    except PySparkException as error:
        return fail("pipeline live", CommandError(sentence_of(error)))
    finally:
        session.stop()
    return 0


def _ended_by_itself(query: StreamingQuery) -> bool:
    """Waits for the end of the query; returns False after Ctrl-C, which ends it between two batches.

    The checkpoint keeps the place in both cases. A second Ctrl-C kills the process.
    """
    interrupted = False

    def note(number: int, frame: object) -> None:
        nonlocal interrupted
        interrupted = True
        signal.signal(signal.SIGINT, signal.SIG_DFL)

    # In place of PySpark's handler: that one calls into Java, while the main thread is inside such a call already, and
    # both fail with a stack trace.
    signal.signal(signal.SIGINT, note)
    while not query.awaitTermination(_POLL_S):
        # Not in the middle of a batch: its tasks would fail, each with a stack trace.
        if interrupted and not query.status["isTriggerActive"]:
            query.stop()
            print("stopped; the next start continues at the checkpoint", file=sys.stderr)
            return False
    return True


def _print(line: str) -> None:
    # Flushed line by line: with output into a pipe, a minute would come when the buffer is full.
    print(line, flush=True)
