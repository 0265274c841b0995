"""What a batch query reads: for each topic from where to where, fixed once when the query is planned."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Final

from pyspark_pulsar.client.cluster import Cluster
from pyspark_pulsar.options import SourceOptions
from pyspark_pulsar.places import PlaceChoice
from pyspark_pulsar.planning.position import FOREVER_MS, Position, TopicRange
from pyspark_pulsar.planning.range_columns import RangeColumns, columns_of
from pyspark_pulsar.planning.split import LAST_ENTRY, cut_entries_evenly, cut_ledgers, weight

ROLLBACK_SLACK_S: Final = 2
"""Brokers go back by whole seconds of their own clock."""
END_SLACK_S: Final = 10
"""How far publish times of different producers may be out of order around endingTime."""
LEDGERS_MAX: Final = 256
"""More ledgers of one topic are not told apart."""


def plan_batch(
    cluster: Cluster, topics: Sequence[str], options: SourceOptions, reader: str
) -> list[RangeColumns]:
    """The ranges of each task; `reader` is how the broker is told who asks."""
    ranges = batch_ranges(cluster, topics, options, reader)
    if ranges and len(ranges) < 2 * options.partitions_max:
        ranges = _cut_large(cluster, ranges, options.partitions_max, reader)
    return columns_of(ranges).into_tasks(options.partitions_max)


def batch_ranges(
    cluster: Cluster, topics: Sequence[str], options: SourceOptions, reader: str
) -> list[TopicRange]:
    """One per topic that has something to read. OptionError where a place is named for a topic that is not read."""
    options.start.check_names("startingOffsets", topics)
    options.end.check_names("endingOffsets", topics)
    newest = cluster.last_entries(topics, reader)
    starts = start_positions(cluster, topics, options.start, newest, reader)
    ends = _end_positions(cluster, topics, options.end, newest, reader)
    ranges = []
    for topic, start, end, last in zip(topics, starts, ends, newest, strict=True):
        if last.entry >= 0 and start < end:
            from_ms = options.start.time_of(topic) or 0
            to_ms = options.end.time_of(topic)
            ranges.append(
                TopicRange(topic, start, end, False, from_ms, FOREVER_MS if to_ms is None else to_ms)
            )
    return ranges


def start_positions(
    cluster: Cluster, topics: Sequence[str], choice: PlaceChoice, newest: Sequence[Position], reader: str
) -> list[Position]:
    """What counts as read when a query begins."""
    by_time = _by_time(cluster, topics, choice, reader, ROLLBACK_SLACK_S)
    starts: list[Position] = []
    for topic, last in zip(topics, newest, strict=True):
        place = choice.place(topic)
        if topic in by_time:
            found = by_time[topic]
            starts.append(last if found is None else Position(found.ledger, found.entry - 1))
        elif isinstance(place, Position):
            starts.append(place)
        else:
            starts.append(last)
    return starts


def _end_positions(
    cluster: Cluster, topics: Sequence[str], choice: PlaceChoice, newest: Sequence[Position], reader: str
) -> list[Position]:
    by_time = _by_time(cluster, topics, choice, reader, -END_SLACK_S)
    ends: list[Position] = []
    for topic, last in zip(topics, newest, strict=True):
        place = choice.place(topic)
        end = min(place, last) if isinstance(place, Position) else last
        found = by_time.get(topic)
        ends.append(end if found is None else min(end, found))
    return ends


def _by_time(
    cluster: Cluster, topics: Sequence[str], choice: PlaceChoice, reader: str, slack_s: int
) -> dict[str, Position | None]:
    """For topics with a time: the first entry that the broker has from about then on, None where there is none."""
    wanted = []
    for topic in topics:
        time_ms = choice.time_of(topic)
        if time_ms is not None:
            back_s = int(time.time() - time_ms / 1000) + slack_s
            if back_s > 0:
                wanted.append((topic, (-1, -1), back_s))
            elif slack_s > 0:
                wanted.append((topic, (-1, -1), 1))
    entries = cluster.first_entries(wanted, reader) if wanted else []
    return {
        topic: None if entry is None else Position(entry.ledger, entry.entry)
        for (topic, _, _), entry in zip(wanted, entries, strict=True)
    }


def _cut_large(cluster: Cluster, ranges: Sequence[TopicRange], tasks: int, reader: str) -> list[TopicRange]:
    """Pieces of about the same size where topics are fewer than tasks could share."""
    firsts = cluster.first_entries([(one.topic, one.start.first_entry(), 0) for one in ranges], reader)
    pieces: list[TopicRange] = []
    for one, first in zip(ranges, firsts, strict=True):
        # A start that stands before a ledger that is there is left as it is: whoever reads it notices what is missing.
        known = first is not None and (one.start.ledger in (-1, first.ledger))
        if not known or first is None:
            pieces.append(one)
            continue
        begun = one._replace(start=max(one.start, Position(first.ledger, first.entry - 1)))
        ledgers = _ledgers(cluster, begun, reader)
        pieces += cut_ledgers(begun, ledgers)
    total = sum(weight(piece) for piece in pieces)
    return [
        part
        for piece in pieces
        for part in cut_entries_evenly(piece, max(1, round(2 * tasks * weight(piece) / max(1, total))))
    ]


def _ledgers(cluster: Cluster, topic_range: TopicRange, reader: str) -> list[int]:
    """The ledgers of a range in order; the last one stands for all that were not looked for."""
    ledgers = [topic_range.start.ledger]
    while ledgers[-1] < topic_range.end.ledger and len(ledgers) < LEDGERS_MAX:
        following = cluster.first_entry(topic_range.topic, (ledgers[-1], LAST_ENTRY), reader)
        if following is None or following.ledger <= ledgers[-1] or following.ledger > topic_range.end.ledger:
            break
        ledgers.append(following.ledger)
    return ledgers
