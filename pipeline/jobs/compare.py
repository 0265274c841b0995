"""`compare`: compares a broker's counters with those of a replay.

They are equal unless the cache, the recorder or the machine code has a defect. This names the counters that differ;
`magnetar cache replay` then finds the first event that does.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from pyspark.sql import SparkSession

from broker.entry_cache.settings import EntryCacheSettings
from broker.recorder.record_reader import BrokerLifetime
from pipeline.jobs.report import Cell, Report, Table
from pipeline.replays.making import accesses_of
from pipeline.replays.objects import own_totals
from pipeline.replays.replay import BY_KERNEL, Outcome, replay_as_recorded
from pipeline.traces.checking import Checked


def compare(
    spark: SparkSession, checked: Checked, say: Callable[[str], None] = lambda text: None
) -> tuple[Report, bool]:
    """Return the report, and True if all compared broker lifetimes are equal.

    False also where none could be compared.

    Table `compare`: one row per broker lifetime and counter.
    """
    report = Report("compare", "Observed and replayed", checked.summary())
    rows: list[dict[str, Cell]] = []
    compared = different = 0
    for lifetime, outcome in zip(checked.lifetimes, _exactly(spark, checked.lifetimes, say), strict=True):
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
    report.tables["compare"] = Table("Counters", rows, shown=1000)
    report.listed = {"compare": 60} if rows else {}
    if not compared:
        report.text.append("no broker lifetime of the access record could be compared")
    return report, compared > 0 and not different


def _exactly(
    spark: SparkSession, lifetimes: Sequence[BrokerLifetime], say: Callable[[str], None]
) -> list[Outcome | None]:
    """Replay each broker lifetime as recorded, with its own settings.

    None where the record is not complete.
    """
    say("replaying the broker's own settings as recorded")
    return spark.sparkContext.parallelize(list(lifetimes), len(lifetimes)).map(_replayed).collect()


def _replayed(lifetime: BrokerLifetime) -> Outcome | None:
    if lifetime.why_not_exact():
        return None
    settings = [EntryCacheSettings.from_text(file.facts.settings) for file in lifetime.files]
    if all(one.policy in BY_KERNEL for one in settings):
        return replay_as_recorded(accesses_of(lifetime))
    return own_totals(lifetime)


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
