"""`magnetar pipeline JOB …`: jobs on access records, audits of snapshots, live hit ratios.

The arguments are understood before anything heavy is imported. A missing extra, a missing Java and a folder without
a record are one sentence each.
"""

from __future__ import annotations

import argparse
import math
import re
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from difflib import get_close_matches
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from entry_cache.policy_names import PIP430, POLICY_NAMES
from magnetar.clients.client import CommandError, fail
from magnetar.commands import audit_command, live_command
from magnetar.process.shared_options import CommandParser
from pipeline.remote_paths import CannotWrite, LocalOrRemote, check_output, local_folder, place, refuse_inside
from pipeline.spark_errors import own_sentence_of, sentence_of
from pipeline.spark_master import master

if TYPE_CHECKING:
    from pipeline.jobs.report import Report
    from pipeline.jobs.run import Session

    Jobs = argparse._SubParsersAction[argparse.ArgumentParser]

_POLICIES = (f"{PIP430}-4.2", f"{PIP430}-5.0", *(name for name in POLICY_NAMES if name != PIP430))
"""`pip430` follows the rules of two releases."""
JOBS = {
    "hit-report": "hits and misses by topic, subscription and minute, reuse, causes of misses",
    "what-if": "the same requests under other policies, sizes, times to live and extensions",
    "miss-ratio-curve": "the hit ratio over the size of the cache, from a sample, with error bars",
    "recommend": "the setting that limits the hit ratio, and the lines of broker.conf to change",
    "compare": "the broker's counters beside those of a replay with its own settings",
    "thrashing": "entries read from bookies more than once, and the readahead to set",
    "history": "the hit ratio over days: each run reads new files alone, and names what caused drops",
}
"""By name of the job, its help text."""


def main(argv: list[str]) -> int:
    """Runs a job. Returns 0, or 1 after one line on stderr; `compare` returns 1 for a difference too."""
    arguments = _parsed(argv)
    code: int = arguments.run(arguments)
    return code


def _parsed(argv: list[str]) -> argparse.Namespace:
    """Returns the understood words; a misspelled job or option ends with the nearest name."""
    parser, jobs = _parsers()
    if argv and argv[0] not in jobs and not argv[0].startswith("-"):
        near = _nearest(argv[0], jobs) or f"; there are {', '.join(jobs)}"
        parser.error(f"there is no job {argv[0]!r}{near}")
    arguments, unknown = parser.parse_known_args(argv)
    if unknown:
        job = jobs[arguments.job]
        near = _nearest(unknown[0].partition("=")[0], re.findall(r"--[a-z-]+", job.format_usage()))
        # By the parser of the job, whose usage lists the options that there are.
        job.error(f"unrecognized arguments: {' '.join(unknown)}{near}")
    return arguments


def _nearest(given: str, names: Iterable[str]) -> str:
    """Returns the question for the name that was probably meant; an empty text if none is near."""
    found = get_close_matches(given, list(names), 1)
    return f"; did you mean {found[0]}?" if found else ""


def _parser() -> argparse.ArgumentParser:
    return _parsers()[0]


def _parsers() -> tuple[argparse.ArgumentParser, Mapping[str, argparse.ArgumentParser]]:
    """Returns the parser of the command, and those of the jobs by name."""
    parser: argparse.ArgumentParser = CommandParser(
        "magnetar pipeline",
        description="Jobs on Spark: on access records (entryCacheRecordDirectory), on snapshots of metadata, and live.",
    )
    jobs = parser.add_subparsers(dest="job", required=True, metavar="JOB")
    for name, text in JOBS.items():
        _add_record_job(jobs, name, text)
    audit_command.add_to(jobs)
    live_command.add_to(jobs)
    return parser, jobs.choices


def _add_record_job(jobs: Jobs, name: str, text: str) -> None:
    job = jobs.add_parser(name, help=text, description=f"{text[0].upper()}{text[1:]}.")
    job.add_argument(
        "paths",
        nargs="+",
        type=place,
        metavar="PATH",
        help="an access record, a part of it, or single files; s3a://… and the like through Spark",
    )
    job.add_argument(
        "--out",
        type=local_folder,
        metavar="DIR",
        default=Path("pipeline-report"),
        help="where the page and the Parquet files go (default pipeline-report)",
    )
    job.add_argument(
        "--format",
        choices=("text", "json"),
        default="text",
        help="of the report on standard output (default text)",
    )
    job.add_argument("--master", type=master, default="local[*]", help="Spark's master (default local[*])")
    if name in ("what-if", "miss-ratio-curve", "recommend"):
        job.add_argument(
            "--sample",
            type=_share,
            metavar="SHARE",
            help="replay this share of the entries, 0.01 = 1 %% (default: all, for recommend and a curve as many as a "
            "minute or two allow)",
        )
    if name in ("what-if", "miss-ratio-curve"):
        job.add_argument(
            "--sizes-mb",
            type=partial(_numbers, most=_MIB_MAX),
            metavar="N,…",
            help="cache sizes (default the broker's)",
        )
    if name == "what-if":
        _grid_options(job)
    if name == "recommend":
        _budget_options(job)
    if name in ("hit-report", "history"):
        job.add_argument(
            "--min-hit-ratio",
            type=_share,
            metavar="SHARE",
            help="exit with 3 if the hit ratio is lower; of a history, that of the newest day",
        )
    if name == "history":
        _history_options(job)
    job.set_defaults(run=_run_record_job)


def _history_options(job: argparse.ArgumentParser) -> None:
    job.add_argument(
        "--max-drop",
        type=_share,
        metavar="SHARE",
        help="exit with 3 if the newest day's hit ratio is so much below that of the seven days before: 0.05",
    )
    job.add_argument(
        "--drop",
        type=_share,
        default=0.05,
        metavar="SHARE",
        help="the lost hit ratio from which a day is explained as a drop (default 0.05)",
    )
    job.add_argument(
        "--keep-days",
        type=_days,
        default=90,
        metavar="N",
        help="remove the counts of runs whose days are all older than this (default 90)",
    )


_DAYS_MAX = 36_500
"""A hundred years; dates do not reach back much farther."""


def _days(text: str) -> int:
    if not text.isdecimal() or not 1 <= int(text) <= _DAYS_MAX:
        raise argparse.ArgumentTypeError(f"{text!r} is no number of days: give 1 to {_DAYS_MAX}")
    return int(text)


def _budget_options(job: argparse.ArgumentParser) -> None:
    one_of = job.add_mutually_exclusive_group()
    one_of.add_argument(
        "--memory",
        type=_memory,
        metavar="SIZE",
        help="the best settings, policy included, with at most this cache on each broker: 8MiB, 2GiB",
    )
    one_of.add_argument(
        "--reads",
        type=_rate,
        metavar="N/s",
        help="the smallest cache with which all brokers together read at most so many entries from bookies: 1000/s",
    )
    job.add_argument("--price", type=_price, metavar="N", help="of one GiB of memory for a month: adds costs")


_MIB_MAX = 1 << 30
"""A petabyte; the bytes of a larger cache would not fit into 64 bits in all settings that are tried."""
_MS_MAX = 10**11
"""Three years; the same in nanoseconds."""
_TIMES_MAX = 10**6


def _memory(text: str) -> int:
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*(m|mb|mib|g|gb|gib)", text.strip().lower())
    # Rounded down: a budget is never exceeded.
    size = 0 if match is None else int(float(match[1]) * (1 if match[2][0] == "m" else 1024))
    if not 1 <= size <= _MIB_MAX:
        raise argparse.ArgumentTypeError(
            f"{text!r} is no size of a cache: give MiB or GiB, as 8MiB or 2GiB, from 1 MiB to {_MIB_MAX >> 20} TiB"
        )
    return size << 20


def _rate(text: str) -> float:
    match = re.fullmatch(r"(\d+(?:\.\d+)?)(?:/s)?", text.strip())
    if match is None or not float(match[1]):
        raise argparse.ArgumentTypeError(f"{text!r} is no rate above 0: give entries per second, as 1000/s")
    return float(match[1])


def _price(text: str) -> float:
    try:
        price = float(text)
    except ValueError:
        price = -1.0
    if not 0 <= price < math.inf:
        raise argparse.ArgumentTypeError(f"{text!r} is no price of a GiB for a month: give a number, as 4.50")
    return price


def _grid_options(job: argparse.ArgumentParser) -> None:
    job.add_argument("--policies", type=_policies, metavar="NAME,…", help=f"of {', '.join(_POLICIES)}")
    job.add_argument(
        "--ttl-ms",
        type=partial(_numbers, most=_MS_MAX),
        metavar="N,…",
        help="times to live (default the broker's)",
    )
    job.add_argument(
        "--extensions",
        type=_whole_numbers,
        metavar="N,…",
        help="how often a pass may requeue an entry with expected reads",
    )
    job.add_argument(
        "--extend-accessed",
        type=_truths,
        metavar="BOOL,…",
        help="requeue entries that were read for another time to live: true,false",
    )


def _whole_numbers(text: str) -> list[float]:
    found = _numbers(text, most=_TIMES_MAX)
    if not all(one.is_integer() for one in found):
        raise argparse.ArgumentTypeError(f"{text!r} has a number that is not whole")
    return found


def _numbers(text: str, most: float = math.inf) -> list[float]:
    try:
        found = [float(part) for part in text.split(",")]
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"{text!r} is not a list of numbers with commas in between"
        ) from None
    if min(found) < 0:
        raise argparse.ArgumentTypeError(f"{text!r} has a number below 0")
    if not all(map(math.isfinite, found)):
        raise argparse.ArgumentTypeError(f"{text!r} has a number without an end")
    if max(found) > most:
        raise argparse.ArgumentTypeError(f"{text!r} has a number above {most:,}")
    return found


def _share(text: str) -> float:
    (share,) = _numbers(text) if "," not in text else [0.0]
    if not 0 < share <= 1:
        raise argparse.ArgumentTypeError(f"{text!r} is no share: above 0 and at most 1")
    return share


def _policies(text: str) -> list[str]:
    found = text.split(",")
    for name in found:
        if name not in _POLICIES:
            near = _nearest(name, _POLICIES) or f"; there are {', '.join(_POLICIES)}"
            raise argparse.ArgumentTypeError(f"no such policy: {name!r}{near}")
    return found


def _truths(text: str) -> list[bool]:
    words = text.split(",")
    if not set(words) <= {"true", "false"}:
        raise argparse.ArgumentTypeError(f"{text!r} is not true, false or true,false")
    return [word == "true" for word in words]


def _run_record_job(arguments: argparse.Namespace) -> int:
    try:
        return _run(arguments)
    except CommandError as error:
        return fail("pipeline", error)


def _run(arguments: argparse.Namespace) -> int:
    places: list[LocalOrRemote] = arguments.paths
    missing = [str(path) for path in places if isinstance(path, Path) and not path.exists()]
    if missing:
        raise CommandError(f"there is no {', '.join(missing)}")
    try:
        check_output(arguments.out)
        refuse_inside(arguments.out, places)
    except CannotWrite as error:
        raise CommandError(str(error)) from None
    session, job = _session_and_job(arguments)
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    from broker.recorder.errors import RecordError
    from pipeline.java import NoJava
    from pipeline.jobs.report import FAILED
    from pipeline.remote_paths import CannotFetch
    from pipeline.spark_master import NoMaster

    began = time.monotonic()
    try:
        with session:
            arguments.paths = session.local(places)
            report, good = job(session, arguments)
            page = session.write(report, arguments.out)
    except (RecordError, CannotFetch, NoJava, NoMaster, ValueError, OSError) as error:
        raise CommandError(str(error)) from None
    except (Py4JError, PySparkException) as error:
        if (own := own_sentence_of(error)) is not None:
            raise CommandError(own) from None
        # Not our own error: its trace is needed, but the sentence comes first.
        fail("pipeline", CommandError(sentence_of(error)))
        raise
    if arguments.format == "json":
        print(report.as_json())
    else:
        print("\n".join(report.lines()))
        print(f"\n{page} ({time.monotonic() - began:.0f} s)")
    if report.failed:
        return FAILED
    return 0 if good else 1


def _session_and_job(
    arguments: argparse.Namespace,
) -> tuple[Session, Callable[[Session, argparse.Namespace], tuple[Report, bool]]]:
    """Imports Spark and the jobs, which takes a second that `--help` should not take."""
    try:
        from pipeline.jobs.run import JOB_FUNCTIONS, Session
    except ImportError as error:
        extra = "WHEEL[pipeline,spark]"
        raise CommandError(f"{error.name} is not installed: pip install '{extra}'") from None
    return Session(arguments.master, _say), JOB_FUNCTIONS[arguments.job]


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
