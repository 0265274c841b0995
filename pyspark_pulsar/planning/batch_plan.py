"""Plans a batch query: a range per topic, fixed once, then cut into pieces for the tasks.

Runs on the driver while Spark plans the query. Every range ends at the newest message of that moment at the latest, so
the result stays the same however long the tasks take.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Final

from pyspark_pulsar.client.cluster import Cluster, ReaderStart
from pyspark_pulsar.options import SourceOptions
from pyspark_pulsar.places import PlaceChoice
from pyspark_pulsar.planning.range_columns import RangeColumns, columns_of
from pyspark_pulsar.planning.split import LAST_ENTRY, cut_entries_evenly, cut_ledgers, weight
from pyspark_pulsar.position import FOREVER_MS, MessagePosition, TopicRange

CLOCK_SLACK_S: Final = 10
"""Seconds to read before startingTime and past endingTime, whose rows the tasks then leave out.

The driver's clock counts back from now, the broker's clock counts back from its own, and the producers' clocks have
written the publish times. Rows would be lost where they differ by more.
"""
LEDGERS_MAX: Final = 256
"""Ledgers of one topic that are looked up, one request each; the last piece holds all that follow."""


def plan_batch(
    cluster: Cluster, topics: Sequence[str], options: SourceOptions, reader: str
) -> list[RangeColumns]:
    """Returns the ranges of each task, `numPartitions` tasks at most.

    `reader` is the prefix of the short-lived subscriptions with which the driver looks at topics. OptionError where
    startingOffsets or endingOffsets names a topic that the query does not read.
    """
    options.start.check_names("startingOffsets", topics)
    options.end.check_names("endingOffsets", topics)
    ranges = batch_ranges(cluster, topics, options, reader)
    if ranges and len(ranges) < 2 * options.partitions_max:
        ranges = _cut_large(cluster, ranges, options.partitions_max, reader)
    return columns_of(ranges).into_tasks(options.partitions_max)


def batch_ranges(
    cluster: Cluster, topics: Sequence[str], options: SourceOptions, reader: str
) -> list[TopicRange]:
    """Returns one range per topic that has something to read."""
    # Read the ends first: messages that arrive while the starts are looked up must not make a range grow.
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
    cluster: Cluster,
    topics: Sequence[str],
    choice: PlaceChoice,
    newest: Sequence[MessagePosition],
    reader: str,
) -> list[MessagePosition]:
    """Returns for each topic the position after which the query begins to read.

    `newest` holds the newest position of each topic; it is the start where `choice` says latest, or names a time after
    the newest message.
    """
    by_time = _by_time(cluster, topics, choice, reader, CLOCK_SLACK_S)
    starts: list[MessagePosition] = []
    for topic, last in zip(topics, newest, strict=True):
        place = choice.place(topic)
        if topic in by_time:
            found = by_time[topic]
            # No entry from that time on: everything counts as read. Else stand before the entry that was found.
            starts.append(last if found is None else MessagePosition(found.ledger, found.entry - 1))
        elif isinstance(place, MessagePosition):
            starts.append(place)
        else:
            starts.append(last)
    return starts


def _end_positions(
    cluster: Cluster,
    topics: Sequence[str],
    choice: PlaceChoice,
    newest: Sequence[MessagePosition],
    reader: str,
) -> list[MessagePosition]:
    by_time = _by_time(cluster, topics, choice, reader, -CLOCK_SLACK_S)
    ends: list[MessagePosition] = []
    for topic, last in zip(topics, newest, strict=True):
        place = choice.place(topic)
        end = min(place, last) if isinstance(place, MessagePosition) else last
        found = by_time.get(topic)
        ends.append(end if found is None else min(end, found))
    return ends


def _by_time(
    cluster: Cluster, topics: Sequence[str], choice: PlaceChoice, reader: str, slack_s: int
) -> dict[str, MessagePosition | None]:
    """Returns for topics with a time the first entry from about then on; None where the topic has none.

    Only narrows the range: tasks still compare each message's publish time, so `slack_s` costs reads, never rows.
    """
    wanted = []
    for topic in topics:
        time_ms = choice.time_of(topic)
        if time_ms is not None:
            back_s = int(time.time() - time_ms / 1000) + slack_s
            if back_s > 0:
                wanted.append(ReaderStart(topic, (-1, -1), back_s))
            # A start in the future still needs a look at the newest second; an end in the future needs no limit.
            elif slack_s > 0:
                wanted.append(ReaderStart(topic, (-1, -1), 1))
    entries = cluster.first_entries(wanted, reader) if wanted else []
    return {
        topic: None if entry is None else MessagePosition(entry.ledger, entry.entry)
        for (topic, _, _), entry in zip(wanted, entries, strict=True)
    }


def _cut_large(cluster: Cluster, ranges: Sequence[TopicRange], tasks: int, reader: str) -> list[TopicRange]:
    """Cuts ranges into pieces of about the same size, for queries with fewer topics than tasks."""
    firsts = cluster.first_entries(
        [ReaderStart(one.topic, one.start.first_entry()) for one in ranges], reader
    )
    pieces: list[TopicRange] = []
    for one, first in zip(ranges, firsts, strict=True):
        # Leave a start whose own ledger is gone unchanged: the task that reads it must find and report the data loss.
        known = first is not None and (one.start.ledger in (-1, first.ledger))
        if not known or first is None:
            pieces.append(one)
            continue
        begun = one._replace(start=max(one.start, MessagePosition(first.ledger, first.entry - 1)))
        ledgers = _ledgers(cluster, begun, reader)
        pieces += cut_ledgers(begun, ledgers)
    total = sum(weight(piece) for piece in pieces)
    return [
        part
        for piece in pieces
        for part in cut_entries_evenly(piece, max(1, round(2 * tasks * weight(piece) / max(1, total))))
    ]


def _ledgers(cluster: Cluster, topic_range: TopicRange, reader: str) -> list[int]:
    """Returns the ledgers of a range in order; the last one stands for all after it that were not looked up."""
    ledgers = [topic_range.start.ledger]
    # The protocol has no request for a topic's ledgers: read after the end of each one to find the next.
    while ledgers[-1] < topic_range.end.ledger and len(ledgers) < LEDGERS_MAX:
        following = cluster.first_entry(topic_range.topic, (ledgers[-1], LAST_ENTRY), reader)
        if following is None or following.ledger <= ledgers[-1] or following.ledger > topic_range.end.ledger:
            break
        ledgers.append(following.ledger)
    return ledgers
