"""`compare`: compares a broker's counters with those of a replay.

They are equal unless the cache, the recorder or the machine code has a defect. This names the counters that differ;
`magnetar cache replay` then finds the first event that does.

Of two lifetimes of a broker the later one is also compared with the promise of the earlier one: the earlier one's replay
under the settings of the later one. Where the promise was not kept, the report says if readers or the event loop were later.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise

from pyspark.sql import SparkSession

from broker.recorder.record_reader import BrokerLifetime
from entry_cache.settings import CacheSettings
from pipeline.jobs.budget import POLICY_WORTH
from pipeline.jobs.lateness import Counts, Pace, later_lines, loop_share, reads_by_lag
from pipeline.jobs.report import Cell, Report, Table, percent
from pipeline.replays.grid import Overrides, affordable_rate, own_settings, replay_grid
from pipeline.replays.making import accesses_of
from pipeline.replays.objects import own_totals
from pipeline.replays.record_inputs import RecordInputs
from pipeline.replays.replay import BY_KERNEL, Outcome, replay_as_recorded
from pipeline.task_progress import collected
from pipeline.traces.checking import Checked


def compare(
    spark: SparkSession, checked: Checked, say: Callable[[str], None] = lambda text: None
) -> tuple[Report, bool]:
    """Returns the report, and True if all compared broker lifetimes are equal.

    False also where none could be compared. Table `compare`: one row per broker lifetime and counter.
    """
    report = Report("compare", "Observed and replayed", checked.summary())
    rows: list[dict[str, Cell]] = []
    compared = different = 0
    answers = _exactly(spark, checked.lifetimes, say)
    paces = [
        Pace(counts, loop_share([lifetime], checked))
        for lifetime, (_, counts) in zip(checked.lifetimes, answers, strict=True)
    ]
    for lifetime, (outcome, _), pace in zip(checked.lifetimes, answers, paces, strict=True):
        # The broker's counters run on over its files, so the last file has the totals of the lifetime.
        counted = lifetime.files[-1].facts.totals
        name = f"{lifetime.broker}, started {lifetime.start}"
        if outcome is None:
            report.text.append(f"{name}: not compared: {lifetime.why_not_exact()}")
        elif counted is None:
            report.text.append(
                f"{name}: not compared: the broker was not shut down in order, so its totals are missing"
            )
        else:
            own_rows = _rows(name, counted, outcome.totals)
            wrong = [row for row in own_rows if row["difference"]]
            compared += 1
            different += bool(wrong)
            rows += own_rows
            verdict = f"{len(wrong)} counters differ" if wrong else "every counter is equal"
            report.text.append(f"{name}: {verdict}")
        report.text += [f"  {line}" for line in pace.lines()]
    report.tables["compare"] = Table("Counters", rows, shown=1000)
    report.listed = {"compare": 60} if rows else {}
    report.text += _promises(spark, checked, [outcome for outcome, _ in answers], paces, say)
    if not compared:
        report.text.append("no broker lifetime of the access record could be compared")
    return report, compared > 0 and not different


def _exactly(
    spark: SparkSession, lifetimes: Sequence[BrokerLifetime], say: Callable[[str], None]
) -> list[tuple[Outcome | None, Counts]]:
    """Replays each broker lifetime as recorded, with its own settings, and counts its reads by their lag.

    None where the record is not complete.
    """
    say("replaying the broker's own settings as recorded")
    tasks = spark.sparkContext.parallelize(list(lifetimes), len(lifetimes))
    return collected(spark, tasks.map(_replayed), say)


def _replayed(lifetime: BrokerLifetime) -> tuple[Outcome | None, Counts]:
    accesses = accesses_of(lifetime)
    counts = reads_by_lag(accesses)
    if lifetime.why_not_exact():
        return None, counts
    settings = [CacheSettings.from_text(file.facts.settings) for file in lifetime.files]
    # With charged objects the broker evicts in several passes, which the machine code takes as one.
    if all(one.policy in BY_KERNEL and not one.charges_overhead for one in settings):
        return replay_as_recorded(accesses), counts
    return own_totals(lifetime), counts


def _promises(
    spark: SparkSession,
    checked: Checked,
    outcomes: Sequence[Outcome | None],
    paces: Sequence[Pace],
    say: Callable[[str], None],
) -> list[str]:
    """Returns lines about each lifetime that follows another one of its broker."""
    lines = []
    each = zip(checked.lifetimes, paces, outcomes, strict=True)
    for (before, was, _), (after, now, outcome) in pairwise(each):
        if before.broker != after.broker or outcome is None:
            continue
        wanted = _all_of(own_settings(after))
        own = own_settings(before)
        if before.names is None and wanted.policy not in BY_KERNEL:
            continue
        rate = affordable_rate(checked.requests, checked.entry_bytes, own, [wanted])
        (promised,) = replay_grid(RecordInputs(spark, [before], rate), [wanted], say=say)
        lines += promise_lines(after, promised.hit_ratio, outcome.hit_ratio, was, now)
    return lines


def promise_lines(
    lifetime: BrokerLifetime, promised: float, measured: float, before: Pace, after: Pace
) -> list[str]:
    """Returns the promise beside the fact, and the cause where less came than was promised."""
    lines = [
        f"{lifetime.broker}, started {lifetime.start}: the record before it promised a hit ratio of {percent(promised)} "
        f"with these settings, and it has {percent(measured)}"
    ]
    if promised - measured <= POLICY_WORTH:
        return lines
    causes = later_lines(before, after) or [
        "neither readers nor the event loop were later: compare hit-report of both for another load"
    ]
    return [*lines, *(f"  {cause}" for cause in causes)]


def _all_of(settings: CacheSettings) -> Overrides:
    """Returns overrides that make all settings those given."""
    return Overrides(
        settings.policy,
        settings.profile,
        settings.size_bytes_max,
        settings.ttl_ns,
        settings.requeues_max,
        settings.extend_recently_accessed,
    )


def _rows(name: str, counted: Mapping[str, int], replayed: Mapping[str, int]) -> list[dict[str, Cell]]:
    return [
        {
            "counter": counter,
            "difference": replayed.get(counter, 0) - value,
            "broker": value,
            "replayed": replayed.get(counter, 0),
            "lifetime": name,
        }
        for counter, value in counted.items()
    ]
