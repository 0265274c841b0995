"""The limits of a micro-batch in rows and bytes hold, whatever the sizes of entries; no Spark is needed."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest

pytest.importorskip("pulsar", reason="needs the official client, pip install pulsar-client")

from pyspark_pulsar.client import entry_sizes
from pyspark_pulsar.client.cluster import open_cluster
from pyspark_pulsar.options import BatchLimits, source_options
from pyspark_pulsar.planning import known_sizes
from pyspark_pulsar.planning.offsets import Offsets
from pyspark_pulsar.planning.stream_plan import BatchAdmission
from pyspark_pulsar.position import EARLIEST, MessagePosition
from tests.pyspark_pulsar.conftest import Publish

SETTINGS = {"managedLedgerMaxEntriesPerLedger": "50", "managedLedgerMinLedgerRolloverTimeMinutes": "0"}
Batches = list[tuple[Offsets, Offsets]]


def mixed(publish: Publish, topic: str, large: int) -> int:
    """Writes one entry of one message, as our sink does, then large ones; returns the rows."""
    publish(topic, [b"first"], batching_enabled=False)
    bodies = [b"%06d" % number for number in range(large * 100)]
    publish(topic, bodies, batching_enabled=True, batching_max_messages=100)
    publish(topic, bodies[:30], batching_enabled=False)
    return 1 + len(bodies) + 30


def batches(url: str, names: list[str], limits: BatchLimits) -> Batches:
    """All micro-batches of a stream over the topics, as begin and end."""
    topics = sorted(f"persistent://public/default/{name}" for name in names)
    options = source_options({"service.url": url, "topic": topics[0]}, streaming=True)
    found: Batches = []
    with open_cluster(options.cluster) as cluster:
        start = Offsets.at("id", topics, [EARLIEST] * len(topics))
        last = Offsets.at("id", topics, cluster.last_entries(topics, "test"))
        admission = BatchAdmission(cluster, "test-peek")
        while not start.same_as(last):
            end = admission.next_offsets(start, last, limits)
            assert start.is_before(end).any(), "a batch without an end would never end"
            found.append((start, end))
            start = end
    return found


def entries_of(client: Any, name: str) -> dict[MessagePosition, int]:
    """Rows of each entry, as the official client reads them."""
    import pulsar

    reader = client.create_reader(name, pulsar.MessageId.earliest)
    rows: dict[MessagePosition, int] = {}
    while reader.has_message_available():
        found = reader.read_next(60_000).message_id()
        position = MessagePosition(found.ledger_id(), found.entry_id())
        rows[position] = rows.get(position, 0) + 1
    reader.close()
    return rows


def rows_in(counts: dict[str, dict[MessagePosition, int]], begin: Offsets, end: Offsets) -> list[int]:
    """The rows of each entry of the batch."""
    return [
        rows
        for row, topic in enumerate(begin.topics)
        for position, rows in counts[topic.rpartition("/")[2]].items()
        if begin.position(row) < position <= end.position(row)
    ]


@pytest.mark.parametrize("limit", [150, 1000, 3000])
def test_batches_keep_the_limit_of_rows_when_the_first_entries_are_small(
    broker_url: str, client: Any, publish: Publish, topic: str, limit: int
) -> None:
    """Also over ledgers: 50 entries fill one."""
    names = [f"{topic}-{number}" for number in range(3)]
    total = sum(mixed(publish, name, large) for name, large in zip(names, (120, 10, 3), strict=True))
    counts = {name: entries_of(client, name) for name in names}
    sizes = [
        sum(rows_in(counts, begin, end))
        for begin, end in batches(broker_url, names, BatchLimits(None, None, limit))
    ]
    assert sum(sizes) == total
    assert max(sizes) <= limit
    assert len(sizes) <= 1.5 * total / limit + 3, "and use it"


def test_batches_keep_the_limit_of_bytes(broker_url: str, client: Any, publish: Publish, topic: str) -> None:
    publish(topic, [b"first"], batching_enabled=False)
    publish(topic, [bytes(20_000)] * 40, batching_enabled=False)
    counts = {topic: entries_of(client, topic)}
    found = [
        len(rows_in(counts, begin, end))
        for begin, end in batches(broker_url, [topic], BatchLimits(100_000, None, None))
    ]
    assert found == [5, *[5] * 7, 1]


def test_batch_of_one_entry_is_made_when_no_entry_fits(
    broker_url: str, client: Any, publish: Publish, topic: str
) -> None:
    mixed(publish, topic, 5)
    counts = {topic: entries_of(client, topic)}
    found = [
        rows_in(counts, begin, end)
        for begin, end in batches(broker_url, [topic], BatchLimits(None, None, 20))
    ]
    assert [1] in found
    assert all(sum(rows) <= 20 or len(rows) == 1 for rows in found), "one entry may exceed the limit"


def test_every_entry_is_read_once_on_the_driver(
    broker_url: str, client: Any, publish: Publish, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[tuple[MessagePosition, MessagePosition]] = []
    real: Callable[..., Any] = entry_sizes.read_sizes

    def noting(*arguments: Any) -> Any:
        found = real(*arguments)
        read.extend(
            (MessagePosition(int(one.sizes.ledgers[0]), int(one.sizes.entries[0])), one.sizes.last())
            for one in found
            if len(one.sizes)
        )
        return found

    monkeypatch.setattr(known_sizes, "read_sizes", noting)
    mixed(publish, topic, 60)
    assert len(batches(broker_url, [topic], BatchLimits(None, None, 500))) > 10
    assert read == sorted(read)
    assert all(last < first for (_, last), (first, _) in pairwise(read))


def test_topics_are_read_in_groups_and_all_have_their_turn(
    broker_url: str, client: Any, publish: Publish, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(known_sizes, "TOPICS_TOGETHER", 2)
    names = [f"{topic}-{number}" for number in range(5)]
    for name in names:
        mixed(publish, name, 3)
    counts = {name: entries_of(client, name) for name in names}
    found = batches(broker_url, names, BatchLimits(None, None, 250))
    assert max(sum(rows_in(counts, begin, end)) for begin, end in found) <= 250
    first_moves = [
        next(number for number, (begin, end) in enumerate(found) if begin.position(row) < end.position(row))
        for row in range(5)
    ]
    assert max(first_moves) <= 3, "a group that fills the limit does not keep the others waiting"


def test_topic_moves_to_its_end_when_its_entries_are_gone(
    broker_url: str, client: Any, publish: Publish, topic: str
) -> None:
    """Its task then looks for them and reports the data loss; a silent topic would stop the stream unexplained."""
    publish(topic, [b"only"], batching_enabled=False)
    name = f"persistent://public/default/{topic}"
    options = source_options({"service.url": broker_url, "topic": name}, streaming=True)
    with open_cluster(options.cluster) as cluster:
        (newest,) = cluster.last_entries([name], "test")
        start = Offsets.at("id", [name], [newest])
        trimmed = Offsets.at("id", [name], [newest._replace(entry=newest.entry + 5)])
        end = BatchAdmission(cluster, "test-peek").next_offsets(start, trimmed, BatchLimits(None, None, 10))
    assert end.same_as(trimmed)
