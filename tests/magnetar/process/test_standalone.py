"""The bounds of the garbage collector in a broker's process."""

from __future__ import annotations

from magnetar.process.standalone import GC_FULL_PASSES, GC_MIDDLE_PASSES, GC_YOUNG_OBJECTS


def test_pass_of_the_collector_looks_at_few_new_objects() -> None:
    # The loop stands still meanwhile: a microsecond for each object or more. A middle pass has those of the young passes
    # since the last one, and those that are younger.
    assert GC_YOUNG_OBJECTS * (GC_MIDDLE_PASSES + 2) <= 10_000


def test_full_passes_of_the_collector_are_seldom() -> None:
    # They look at all topics: as many new objects lie between two as a busy hour makes.
    assert GC_YOUNG_OBJECTS * (GC_MIDDLE_PASSES + 1) * GC_FULL_PASSES >= 100_000_000
