"""Writes the text of the families of topics by hand, because these can be tens of thousands of series.

prometheus-client takes 12 µs for a series, this module 0.3 µs. The Prometheus text formats want every family in one
piece, but the broker has one topic after the other. So each topic becomes one flat row of numbers; some dozens of rows at
a time are turned into columns, and each column is appended to the text of its family. A few list comprehensions stand in
place of an object per series.

`TopicExposition.slices` yields after each 128 rows, about 2 ms, so that the scrape of a large broker never holds the
event loop. The module is pure: no clock, no I/O. `tests/broker/metrics/test_exposition.py` compares its text with that
of prometheus-client's registry.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from heapq import heappush, heapreplace
from mmap import MAP_PRIVATE, mmap
from operator import add
from typing import Final

from broker.numbers.columns import Columns, Row
from broker.numbers.ended_sums import DELETED
from broker.numbers.family import Family
from broker.numbers.namespace_sums import NamespaceSums, evictions_of, printed_share
from broker.numbers.readings import (
    BUFFERS,
    COMPACTIONS,
    CONSUMERS,
    EVICTIONS,
    PRODUCERS,
    SUBSCRIPTIONS,
    TOPICS,
    PartReading,
    TopicReading,
)
from broker.numbers.topic_families import (
    BACKLOG_AGE,
    BROKER_QUOTAS,
    CACHE_SUBSCRIPTIONS_LEFT_OUT,
    COMPACTION,
    CONSUMER,
    NAMESPACE,
    NAMESPACE_BUCKETS,
    OUT_TOTALS,
    PRODUCER,
    QUOTAS,
    REDELIVER,
    SUBSCRIPTION,
    SUBSCRIPTION_CACHE,
    TOPIC,
    TOPICS_COUNT,
    TOTALS,
    TRANSACTIONS,
    overflow_of,
)
from broker.numbers.windows import TopicWindow, TopicWindows, Window, printed_row
from foundation.model.topic_name import PERSISTENT

SLICE_ROWS: Final = 128
"""Rows between two pauses, of topics and of their subscriptions and clients: about 2 ms. A topic is not divided."""
BYTES_PER_CHUNK: Final = 1 << 18
"""Size of the pieces in which the text is sent."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpositionSettings:
    """The settings of a scrape, fixed at the start of the broker."""

    cluster: str
    """clusterName, a label of every series."""
    topic_level: bool = True
    """exposeTopicLevelMetricsInPrometheus; False prints sums per namespace in place of topics."""
    idle_topics: bool = True
    """exposeIdleTopicsInPrometheus; False leaves topics out that have no client and count nothing."""
    sums: bool = True
    """False for a scrape of chosen topics, which has neither sums over topics nor the broker's own families."""
    consumer_level: bool = False
    """exposeConsumerLevelMetricsInPrometheus"""
    producer_level: bool = False
    """exposeProducerLevelMetricsInPrometheus"""
    managed_ledger: bool = True
    """exposeManagedLedgerMetricsInPrometheus"""
    split_partition: bool = False
    """splitTopicAndPartitionLabelInPrometheus: a label `partition` beside `topic`, "-1" for none."""
    cache_subscriptions_max: int = 100
    """entryCacheSubscriptionMetricsMax"""


QUOTA_TYPES: Final = ("size", "time")
"""Values of the label `quota_type`, in the order of `TopicReading.quotas`."""
_READS: Final = tuple(SUBSCRIPTIONS.place(family) for family in SUBSCRIPTION_CACHE)
"""Places of the entries that a subscription has read."""
_NO_DELIVERIES: Final = Window(SUBSCRIPTIONS.no_window)


class Busiest:
    """The subscriptions that have read most, up to a number; a heap keeps the memory at that number."""

    def __init__(self, count_max: int) -> None:
        """`count_max` 0 keeps none and counts all as left out."""
        self._count_max = count_max
        self._heap: list[tuple[float, str, Row]] = []
        self.left_out = 0
        """Subscriptions that were offered and are not kept."""

    def offer(self, reads: float, label: str, row: Row) -> None:
        """Keeps the subscription if it has read more than one of those kept so far."""
        if len(self._heap) < self._count_max:
            heappush(self._heap, (reads, label, row))
            return
        self.left_out += 1
        if self._heap and reads > self._heap[0][0]:
            heapreplace(self._heap, (reads, label, row))

    def labels_and_rows(self) -> tuple[list[str], list[Row]]:
        """Returns labels and rows in the same order, the busiest first."""
        ordered = sorted(self._heap, reverse=True)
        return [label for _, label, _ in ordered], [row for _, _, row in ordered]


class FamilyText:
    """Growing text of one family, outside of the C heap where it is long.

    glibc gives free memory at the end of its heap back in one piece, once the last block after it is free: 0.1 ms for each
    MB, whoever frees that block. The text of 100,000 topics would hold the loop for 25 to 95 ms so, some time after it was
    sent.
    """

    __slots__ = ("_pieces", "_rest", "_rest_bytes")

    def __init__(self, begin: bytes = b"") -> None:
        self._pieces: list[mmap] = []
        self._rest = [begin] if begin else []
        self._rest_bytes = len(begin)

    def __bool__(self) -> bool:
        return bool(self._pieces or self._rest)

    def append(self, part: bytes) -> None:
        """Appends a part."""
        self._rest.append(part)
        self._rest_bytes += len(part)
        if self._rest_bytes >= BYTES_PER_CHUNK:
            piece = mmap(-1, self._rest_bytes, MAP_PRIVATE)
            for each in self._rest:
                piece.write(each)
            self._pieces.append(piece)
            self._rest, self._rest_bytes = [], 0

    def read(self, is_last: Callable[[], bool]) -> Iterator[bytes]:
        """Yields the text in pieces. Frees each long one while `is_last` says that nobody else reads it."""
        for piece in self._pieces:
            text = piece[:]
            if is_last():
                piece.close()
            yield text
        yield from self._rest


class Block:
    """The growing text of some families that share their rows."""

    def __init__(self, families: Sequence[Family], columns: Columns, zero: str = "") -> None:
        """`zero` = the labels of the series that families with `zero` always print as 0; none without it."""
        self.columns = columns
        """The numbers of a row."""
        self._families = families
        self._places = [columns.place(family) for family in families]
        begins = [f"{family.name}{zero} 0\n".encode() if zero and family.zero else b"" for family in families]
        self._texts = [FamilyText(begin) for begin in begins]
        # Counted with each part: to look at all of 100,000 topics at the end would hold the loop for 10 ms.
        self._bytes = sum(map(len, begins))

    def add(self, labels: Sequence[str], rows: Sequence[Row]) -> None:
        """Appends one line per row and family. `labels[i]`, with its braces, belongs to `rows[i]`."""
        if not rows:
            return
        columns = list(zip(*rows, strict=True))
        for family, place, text in zip(self._families, self._places, self._texts, strict=True):
            lines = _lines(family.name, labels, columns[place]).encode()
            text.append(lines)
            self._bytes += len(lines)

    def add_known(self, labels: Sequence[str], rows: Sequence[Row | None]) -> None:
        """Appends the rows that are not None; `labels` are without their closing brace."""
        known = [(f"{label}}}", row) for label, row in zip(labels, rows, strict=True) if row is not None]
        self.add([label for label, _ in known], [row for _, row in known])

    def size(self, openmetrics: bool) -> int:
        """Returns the bytes of `text`."""
        families = zip(self._families, self._texts, strict=True)
        return self._bytes + sum(len(_head(family, openmetrics)) for family, text in families if text)

    def text(self, openmetrics: bool, is_last: Callable[[], bool]) -> Iterator[bytes]:
        """Yields the text family by family; nothing for a family without a series.

        `is_last`: see `FamilyText.read`.
        """
        for family, text in zip(self._families, self._texts, strict=True):
            if text:
                yield _head(family, openmetrics)
                yield from text.read(is_last)


def _lines(name: str, labels: Sequence[str], values: Row) -> str:
    first = values[0]
    # Mostly all values are 0: one join then, ten times as fast as a line at a time.
    if values.count(first) == len(values):
        between = f" {first}\n{name}"
        return f"{name}{between.join(labels)} {first}\n"
    return "".join([f"{name}{label} {value}\n" for label, value in zip(labels, values, strict=True)])


def escape(value: str) -> str:
    """Returns a label value with quotes, backslashes and line ends escaped, as the text formats want it."""
    # Nearly no name has such a character, so look first.
    if '"' in value or "\\" in value or "\n" in value:
        return value.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
    return value


def _head(family: Family, openmetrics: bool) -> bytes:
    # OpenMetrics names a counter's family without the `_total` that its samples have.
    name = family.name.removesuffix("_total") if openmetrics and family.kind == "counter" else family.name
    return f"# HELP {name} {family.help}\n# TYPE {name} {family.kind}\n".encode()


class TopicExposition:
    """The text of one scrape: topics, subscriptions, consumers, producers, namespaces and totals."""

    def __init__(self, settings: ExpositionSettings, windows: TopicWindows) -> None:
        """`windows` has the rates. When they roll between two slices, later topics show the new window."""
        self.readers = 0
        """Scrapes that share the text and have not read all of it; 0 keeps all of the text."""
        self._settings = settings
        self._windows = windows
        self._cluster = f'{{cluster="{escape(settings.cluster)}"'
        zero = self._cluster + "}" if settings.sums else ""
        sums = (*(family for family in TOPIC if family.sums), *OUT_TOTALS)
        topic = TOPIC if settings.topic_level else sums
        self._topics = Block(topic, TOPICS, zero)
        # A stock board asks for the redelivery rate at subscriptions too; with consumers it would count twice.
        per_subscription = SUBSCRIPTION if settings.consumer_level else (*SUBSCRIPTION, REDELIVER)
        self._subscriptions = Block(per_subscription, SUBSCRIPTIONS)
        self._ages = Block((BACKLOG_AGE,), SUBSCRIPTIONS)
        self._compactions = Block(COMPACTION, COMPACTIONS)
        self._transactions = Block(TRANSACTIONS, BUFFERS)
        self._quotas = Block(QUOTAS, EVICTIONS)
        self._broker_quotas = Block((BROKER_QUOTAS,), EVICTIONS)
        self._evictions: dict[str, Row] = dict.fromkeys(QUOTA_TYPES, EVICTIONS.nothing)
        self._cache_readers = Block(SUBSCRIPTION_CACHE, SUBSCRIPTIONS)
        self._busiest = Busiest(settings.cache_subscriptions_max)
        self._consumers = Block(CONSUMER, CONSUMERS)
        self._producers = Block(PRODUCER, PRODUCERS)
        self._counts = Block((TOPICS_COUNT,), TOPICS, zero)
        self._ledgers = Block(NAMESPACE if settings.managed_ledger else (), TOPICS)
        self._totals = Block(TOTALS, TOPICS)
        self._buckets: list[tuple[Family, list[bytes]]] = []
        self._sums: dict[str, Row] = {}
        self._deleted = TOPICS.nothing
        """Of deleted namespaces, for the sums of the broker alone."""

    def slices(
        self,
        topics: Iterable[TopicReading],
        kept: NamespaceSums | None = None,
        ended: Callable[[], Mapping[str, Row]] = dict,
    ) -> Iterator[None]:
        """Writes everything; yields after SLICE_ROWS rows. At its end the text is complete.

        `kept` has the sums over all topics, of which `topics` may then be a part; without it they are added up here.
        `ended` returns the counters of closed topics as `EndedSums.rows` does.
        """
        batch: list[TopicReading] = []
        rows = 0
        add_up = kept is None and self._settings.sums
        for reading in topics:
            batch.append(reading)
            rows += reading.rows
            if rows >= SLICE_ROWS:
                self._write(batch, sums=add_up)
                batch, rows = [], 0
                yield
        self._write(batch, sums=add_up)
        if kept is not None:
            self._sums = kept.by_namespace(self._windows)
            self._evictions = dict(zip(QUOTA_TYPES, kept.evictions(), strict=True))
        for namespace, share in ended().items():
            self._add_ended(namespace, share)
        if self._settings.sums:
            self._write_sums()
        self._cache_readers.add(*self._busiest.labels_and_rows())

    def size(self, openmetrics: bool) -> int:
        """Returns the bytes of all chunks, for the header `Content-Length`."""
        blocks = (*self._blocks_of_topics(), self._ledgers, self._totals)
        others = (*self._left_out(openmetrics), *self._bucket_texts(openmetrics))
        return sum(block.size(openmetrics) for block in blocks) + sum(map(len, others))

    def chunks(self, openmetrics: bool) -> Iterator[bytes]:
        """Yields the text in pieces of about 256 KiB, without the `# EOF` that ends an OpenMetrics answer.

        The last reader frees the text on its way: to free that of 100,000 topics in one piece takes 25 ms.
        """
        pending: list[bytes] = []
        pending_bytes = 0
        try:
            for part in self._parts(openmetrics):
                pending.append(part)
                pending_bytes += len(part)
                if pending_bytes >= BYTES_PER_CHUNK:
                    yield b"".join(pending)
                    pending = []
                    pending_bytes = 0
            yield b"".join(pending)
        finally:
            self.readers -= 1

    def _is_last(self) -> bool:
        return self.readers == 1

    def _parts(self, openmetrics: bool) -> Iterator[bytes]:
        for block in self._blocks_of_topics():
            yield from block.text(openmetrics, self._is_last)
        yield from self._left_out(openmetrics)
        yield from self._ledgers.text(openmetrics, self._is_last)
        yield from self._bucket_texts(openmetrics)
        yield from self._totals.text(openmetrics, self._is_last)

    def _blocks_of_topics(self) -> tuple[Block, ...]:
        return (
            self._counts,
            self._topics,
            self._subscriptions,
            self._ages,
            self._consumers,
            self._producers,
            self._compactions,
            self._transactions,
            self._quotas,
            self._broker_quotas,
            self._cache_readers,
        )

    def _left_out(self, openmetrics: bool) -> Iterator[bytes]:
        if self._settings.sums:
            yield _head(CACHE_SUBSCRIPTIONS_LEFT_OUT, openmetrics)
            yield f"{CACHE_SUBSCRIPTIONS_LEFT_OUT.name}{self._cluster}}} {self._busiest.left_out}\n".encode()

    def _bucket_texts(self, openmetrics: bool) -> Iterator[bytes]:
        for family, parts in self._buckets:
            yield _head(family, openmetrics)
            yield from parts

    def _write(self, batch: Sequence[TopicReading], *, sums: bool) -> None:
        windows = [self._windows.of(reading.topic) for reading in batch]
        rows: list[Row] = [
            (*reading.row, *printed_row(window), 1) for reading, window in zip(batch, windows, strict=True)
        ]
        if sums:
            self._add_to_sums(batch, rows)
        if self._settings.topic_level:
            self._write_topics(batch, rows, windows)

    def _add_to_sums(self, batch: Sequence[TopicReading], rows: Sequence[Row]) -> None:
        by_namespace: dict[str, list[Row]] = {}
        for reading, row in zip(batch, rows, strict=True):
            by_namespace.setdefault(reading.namespace, []).append(row)
        for namespace, of_it in by_namespace.items():
            so_far = self._sums.get(namespace, TOPICS.nothing)
            # Whole rows are added, limits and means too: families without `sums` are not printed from them.
            self._sums[namespace] = tuple(map(sum, zip(so_far, *of_it, strict=True)))
        for place, word in enumerate(QUOTA_TYPES):
            of_type = [reading.quotas[place] for reading in batch]
            self._evictions[word] = tuple(map(sum, zip(self._evictions[word], *of_type, strict=True)))

    def _add_ended(self, namespace: str, share: Row) -> None:
        for word, row in zip(QUOTA_TYPES, evictions_of(share), strict=True):
            self._evictions[word] = tuple(map(add, self._evictions[word], row))
        if namespace == DELETED:
            self._deleted = printed_share(share)
        else:
            so_far = self._sums.get(namespace, TOPICS.nothing)
            self._sums[namespace] = tuple(map(add, so_far, printed_share(share)))

    def _write_topics(
        self, batch: Sequence[TopicReading], rows: Sequence[Row], windows: Sequence[TopicWindow]
    ) -> None:
        # Without the closing brace, so that subscriptions, consumers and producers append labels of their own.
        labels = [
            f'{self._cluster},namespace="{escape(t.namespace)}",{self._topic_labels(t.topic)}' for t in batch
        ]
        self._topics.add([f"{label}}}" for label in labels], rows)
        self._compactions.add_known(labels, [topic.compaction for topic in batch])
        self._transactions.add_known(labels, [topic.transactions for topic in batch])
        for place, word in enumerate(QUOTA_TYPES):
            typed = [f'{label},quota_type="{word}"}}' for label in labels]
            self._quotas.add(typed, [reading.quotas[place] for reading in batch])
        self._write_subscriptions(labels, batch, windows)
        if self._settings.producer_level:
            for label, topic, window in zip(labels, batch, windows, strict=True):
                self._write_clients(self._producers, "producer", label, topic.producers, window.producers)

    def _topic_labels(self, topic: str) -> str:
        if not self._settings.split_partition:
            return f'topic="{escape(topic)}"'
        base, _, partition = topic.rpartition("-partition-")
        if not base or not partition.isdecimal():  # A name such as `a-partition-x` is no partition's.
            base, partition = topic, "-1"
        return f'topic="{escape(base)}",partition="{partition}"'

    def _write_subscriptions(
        self, labels: Sequence[str], batch: Sequence[TopicReading], windows: Sequence[TopicWindow]
    ) -> None:
        of: list[str] = []
        rows: list[Row] = []
        for label, topic, topic_window in zip(labels, batch, windows, strict=True):
            known = topic_window.subscriptions
            for reading in topic.subscriptions:
                window = known.get(reading.key, _NO_DELIVERIES)
                label_here = f'{label},subscription="{escape(reading.key[0])}"'
                row = reading.row + window.row
                of.append(label_here + "}")
                rows.append(row)
                # A subscription that has read nothing is neither printed nor counted as left out.
                reads = sum([row[place] for place in _READS])
                if reads:
                    self._busiest.offer(reads, label_here + "}", row)
                if self._settings.consumer_level:
                    self._write_clients(self._consumers, "consumer", label_here, reading.parts, window.parts)
        self._subscriptions.add(of, rows)
        place = SUBSCRIPTIONS.place(BACKLOG_AGE)
        known_ages = [(label, row) for label, row in zip(of, rows, strict=True) if row[place] >= 0]
        self._ages.add([label for label, _ in known_ages], [row for _, row in known_ages])

    def _write_clients(
        self,
        block: Block,
        word: str,
        label: str,
        readings: Sequence[PartReading],
        windows: Mapping[tuple[str, int], Window],
    ) -> None:
        """Writes the consumers of a subscription or the producers of a topic."""
        none = Window(block.columns.no_window)
        of = [
            f'{label},{word}_name="{escape(name)}",{word}_id="{number}"}}'
            for (name, number), _, _ in readings
        ]
        block.add(of, [one.row + windows.get(one.key, none).row for one in readings])

    def _write_sums(self) -> None:
        labels = [f'{self._cluster},namespace="{escape(namespace)}"' for namespace in self._sums]
        closed = [f"{label}}}" for label in labels]
        rows = list(self._sums.values())
        self._counts.add(closed, rows)
        if not self._settings.topic_level:
            # Never beside the series of topics: boards sum over a name, and would count everything twice.
            self._topics.add(closed, rows)
        # Pulsar takes this label from the names of managed ledgers, which have the domain after the namespace.
        of_ledgers = [
            f'{self._cluster},namespace="{escape(namespace)}/{PERSISTENT}"' for namespace in self._sums
        ]
        self._ledgers.add([f"{label}}}" for label in of_ledgers], rows)
        if self._settings.managed_ledger and rows:
            self._write_buckets(of_ledgers, rows)
        types = [f'{self._cluster},quota_type="{word}"}}' for word in self._evictions]
        self._broker_quotas.add(types, list(self._evictions.values()))
        self._totals.add([self._cluster + "}"], [tuple(map(sum, zip(self._deleted, *rows, strict=True)))])

    def _write_buckets(self, labels: Sequence[str], rows: Sequence[Row]) -> None:
        # Before the first whole window all counts are 0.
        seconds = self._windows.seconds or 1.0
        for family, names in NAMESPACE_BUCKETS:
            first = TOPICS.place(replace(family, source=f"{family.source}.0"))
            lines = [
                f'{family.name}{label},quantile="{name}"}} {row[first + place] / seconds}\n'
                for label, row in zip(labels, rows, strict=True)
                for place, name in enumerate(names)
            ]
            self._buckets.append((family, ["".join(lines).encode()]))
            last = overflow_of(family)
            lines = [
                f"{last.name}{label}}} {row[first + len(names)] / seconds}\n"
                for label, row in zip(labels, rows, strict=True)
            ]
            self._buckets.append((last, ["".join(lines).encode()]))
