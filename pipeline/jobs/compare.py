"""`compare`: what the broker counted, what its events add up to, and what its own settings should have given.

All three are equal unless the cache, the recorder or the machine code has a defect; where they are not, this names
the counter. `magnetar cache replay` then finds the first event.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from pyspark.sql import SparkSession

from pipeline.jobs.answer import Answer, Cell, Table, as_text
from pipeline.jobs.what_if import exactly
from pipeline.traces.checking import Checked


def compare(
    spark: SparkSession, checked: Checked, say: Callable[[str], None] = lambda text: None
) -> tuple[Answer, bool]:
    """The answer, and whether every run that could be compared is equal and there was one."""
    answer = Answer("compare", "Observed and replayed", checked.summary())
    rows: list[dict[str, Cell]] = []
    compared = different = 0
    for run, outcome in zip(checked.runs, exactly(spark, checked.runs, say), strict=True):
        counted = run.files[-1].facts.totals
        name = f"{run.broker}, started {run.start}"
        if outcome is None:
            answer.text.append(f"{name}: not compared: {run.why_not_exact()}")
        elif counted is None:
            answer.text.append(
                f"{name}: not compared: the broker did not end in good order, its totals are missing"
            )
        else:
            own_rows = _rows(name, counted, outcome.totals)
            wrong = [row for row in own_rows if row["difference"]]
            compared += 1
            different += bool(wrong)
            rows += own_rows
            verdict = f"{len(wrong)} counters differ" if wrong else "every counter is equal"
            answer.text.append(f"{name}: {verdict}")
    answer.tables["compare"] = Table("Counters", rows, shown=1000)
    answer.text += ["", *as_text(rows, 60)] if rows else []
    if not compared:
        answer.text.append("no run of the record could be compared")
    return answer, compared > 0 and not different


def _rows(name: str, counted: Mapping[str, int], replayed: Mapping[str, int]) -> list[dict[str, Cell]]:
    return [
        {
            "run": name,
            "counter": counter,
            "broker": value,
            "replayed": replayed.get(counter, 0),
            "difference": replayed.get(counter, 0) - value,
        }
        for counter, value in counted.items()
    ]
