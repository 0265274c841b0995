"""DormantTopic: the record of a topic that is closed and counts as a topic all the same.

    PersistentTopic -> close -> record_of -> DormantTopics
    a start -> record_of_stored (`stored_record.py`) -> DormantTopics
    a client's lookup, a client, a request, a due time -> TopicRegistry.get -> opened from the record -> restore

The record has what the metadata store has of the topic, so that opening it needs no read of the store; the levels that
metrics show, while counters begin anew as after each opening; and the facts from which `due_ns_of` computes when something
falls due. A change of policies computes anew. Versions stand beside their values: a `Versioned` for each would be an
object of 56 bytes more.
A topic is open, dormant, or neither: with the setting off, until the start has filled its record, and after an unload.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from bookkeeper.metadata.metadata_store import ABSENT, Versioned
from broker.managed_ledger.ledger_list import LedgerInfo, LedgerList
from broker.managed_ledger.managed_ledger_info import StoredNodes
from broker.service.consumer import SubscriptionType
from broker.service.settings import ServiceSettings
from broker.service.subscriptions.backlog.sizes import bytes_after
from broker.service.topics.persistent_topic import PersistentTopic
from foundation.model.position import Position
from foundation.units import MS_PER_SECOND

NEVER: Final = -1
"""In the place of a moment: nothing falls due."""
NOT_KNOWN: Final = -1
"""In the place of a time."""
IN_USE: Final = -1
"""In the place of the time of the last use: a subscription or a backlog keeps the topic in use."""
NO_NODE: Final = None, ABSENT
"""In the place of a `Versioned` that a record does not keep."""
_NO_SUBSCRIPTIONS: Final[tuple[DormantSubscription, ...]] = ()


class OffloadTimes(NamedTuple):
    """The part of a list of ledgers from which the next copy or deletion of a ledger follows, while no entry is added."""

    closed_ms: int = NEVER
    """When the first ledger was closed that has no copy."""
    size_bytes: int = 0
    """Of that ledger and all after it."""
    copied_ms: int = NEVER
    """When the first copy was made of those whose ledger is in the bookies too."""
    copied_bytes: int = 0
    """Of all ledgers with a complete copy."""

    @classmethod
    def of(cls, infos: Sequence[LedgerInfo]) -> OffloadTimes:
        """Returns the times of a list."""
        closed = [place for place, one in enumerate(infos) if one.closed_at_ms and not one.is_offloaded]
        copied = [
            one.offload.at_ms
            for one in infos
            if one.offload is not None and one.offload.complete and not one.offload.bookkeeper_deleted
        ]
        return cls(
            min((infos[place].closed_at_ms or 0 for place in closed), default=NEVER),
            sum(one.size_bytes for one in infos[closed[0] :]) if closed else 0,
            min(copied, default=NEVER),
            sum([one.size_bytes for one in infos if one.is_offloaded]),
        )


class Waiting(NamedTuple):
    """A backlog: what stands after one mark-delete position."""

    size_bytes: int = 0
    """Its bytes."""
    oldest_ms: int = NOT_KNOWN
    """Time of its first entry; NOT_KNOWN without a backlog, or if it could not be read.
    Of a record that a start has filled it is a time before that."""
    closed_ms: int = NOT_KNOWN
    """When the ledger of that entry was closed; NOT_KNOWN without a backlog."""

    @classmethod
    def after(cls, ledgers: LedgerList, mark: Position, oldest_ms: int) -> Waiting:
        """Returns that after a position before the last entry."""
        info = ledgers.get(ledgers.next_valid(mark).ledger_id)
        closed_ms = None if info is None else info.closed_at_ms
        return cls(bytes_after(ledgers, mark), oldest_ms, NOT_KNOWN if closed_ms is None else closed_ms)

    def age_s(self, settings: ServiceSettings, wall_ms: int) -> int:
        """Returns the age of the first entry in seconds as `TopicQuotas` finds it, -1 without one or if it is not known."""
        since_ms = self.oldest_ms if settings.quota_age_precise else self.closed_ms
        if since_ms == NOT_KNOWN or not settings.quotas_checked:
            return -1
        # A clock that went back makes messages come from the future.
        return max(0, wall_ms - since_ms) // MS_PER_SECOND


NOTHING_WAITS: Final = Waiting()
"""The backlog of a subscription that has acknowledged everything."""


class DormantSubscription(NamedTuple):
    """A durable subscription of a dormant topic."""

    name: str
    """Its name."""
    node: bytes | None
    """Its cursor as the metadata store has it; None on a shared store."""
    backlog: int
    """Entries not acknowledged."""
    left_at_ns: int
    """When its last consumer left; monotonic."""
    kind: SubscriptionType
    """Type of the last consumer."""
    replicated: bool
    """It never counts as unused."""
    version: int = ABSENT
    """That of the cursor in the metadata store."""


@dataclass(slots=True)
class DormantTopic:
    """The record of one dormant topic."""

    info: bytes | None
    """The list of its ledgers as the metadata store has it; None on a shared store."""
    subscriptions: tuple[DormantSubscription, ...]
    """In the order of their creation."""
    looked_ns: int
    """When it fell asleep, after all that was due had been done; monotonic."""
    used_at_ns: int
    """`Topic.used_at_ns`, or IN_USE."""
    entries: int
    """Stored entries."""
    size_bytes: int
    """Their bytes."""
    backlog_bytes: int
    """Bytes after the mark-delete position of the slowest subscription; 0 without a backlog."""
    oldest_ms: int
    """`Waiting.oldest_ms` after that position."""
    oldest_closed_ms: int
    """`Waiting.closed_ms` after that position."""
    acked_closed_ms: int
    """When the first ledger was closed, if there is a subscription and each has acknowledged it; else NOT_KNOWN.
    Without a subscription a dormant topic keeps its ledgers, like a closed one."""
    offload: OffloadTimes | None
    """From which the next copy of a ledger follows; None while no policy names a storage and no ledger has a copy, so that
    most records are small."""
    due_ns: int = NEVER
    """When it is to be opened for what falls due; monotonic, or NEVER."""
    version: int = ABSENT
    """That of the list in the metadata store."""
    backlogs: tuple[Waiting, ...] | None = None
    """Those of the subscriptions, in their order; None where each is that of the slowest or empty, so that most records are
    small."""

    @property
    def slowest(self) -> Waiting:
        """Returns the backlog of the slowest subscription."""
        return Waiting(self.backlog_bytes, self.oldest_ms, self.oldest_closed_ms)

    def by_subscription(self) -> Iterator[tuple[DormantSubscription, Waiting]]:
        """Yields the subscriptions with their backlogs."""
        slowest = self.slowest
        for place, one in enumerate(self.subscriptions):
            if self.backlogs is not None:
                yield one, self.backlogs[place]
            else:
                yield one, slowest if one.backlog else NOTHING_WAITS

    @property
    def backlog(self) -> int:
        """Returns the entries that wait, of all subscriptions together."""
        return sum([one.backlog for one in self.subscriptions])

    @property
    def has_backlog(self) -> bool:
        """True while a subscription has an entry to read."""
        return any(one.backlog for one in self.subscriptions)

    def take_nodes(self) -> StoredNodes | None:
        """Returns the topic as the metadata store has it; None where the store must be asked, and from the second call on.

        An opening may write before it fails, and the next one needs what was written.
        """
        info, self.info = self.info, None
        if info is None:
            return None
        cursors = [
            (one.name, Versioned(one.node, one.version)) for one in self.subscriptions if one.node is not None
        ]
        return StoredNodes(Versioned(info, self.version), tuple(cursors))


class Levels(NamedTuple):
    """The part of a record that follows from the list of ledgers and the places of the cursors."""

    entries: int
    """That of the record."""
    size_bytes: int
    """That of the record."""
    backlog_bytes: int
    """That of the record."""
    oldest_closed_ms: int
    """That of the record."""
    acked_closed_ms: int
    """That of the record."""
    has_backlog: bool
    """That of the record."""
    offload: OffloadTimes
    """That of the record."""

    @classmethod
    def of(
        cls,
        ledgers: LedgerList,
        marks: Collection[Position],
        *,
        is_terminated: bool,
        waiting: Collection[DormantSubscription],
    ) -> Levels:
        """Computes them; `marks`: mark-delete positions of all cursors."""
        slowest = min(marks, default=None)
        first = ledgers.infos()[0]
        # The last ledger of a terminated topic stays the current one, which is never removed.
        removable = first.entries and not (is_terminated and len(ledgers) == 1)
        acked = removable and waiting and slowest and slowest >= (first.ledger_id, first.entries - 1)
        acked_closed_ms = first.closed_at_ms if acked else None
        has_backlog = slowest is not None and any(one.backlog for one in waiting)
        behind = Waiting.after(ledgers, slowest, NOT_KNOWN) if slowest and has_backlog else NOTHING_WAITS
        return cls(
            ledgers.entries,
            ledgers.size_bytes,
            behind.size_bytes,
            behind.closed_ms,
            NOT_KNOWN if acked_closed_ms is None else acked_closed_ms,
            has_backlog,
            OffloadTimes.of(ledgers.infos()),
        )

    def record(
        self,
        info: Versioned | None,
        subscriptions: Sequence[DormantSubscription],
        *,
        looked_ns: int,
        used_at_ns: int,
        oldest_ms: int,
        backlogs: Sequence[Waiting],
    ) -> DormantTopic:
        """Returns the record with these levels; `info`: list and version, the other arguments as in the record."""
        value, version = NO_NODE if info is None else info
        record = DormantTopic(
            info=value,
            subscriptions=tuple(subscriptions) or _NO_SUBSCRIPTIONS,
            looked_ns=looked_ns,
            used_at_ns=used_at_ns,
            entries=self.entries,
            size_bytes=self.size_bytes,
            backlog_bytes=self.backlog_bytes,
            oldest_ms=oldest_ms,
            oldest_closed_ms=self.oldest_closed_ms,
            acked_closed_ms=self.acked_closed_ms,
            offload=self.offload,
            version=version,
        )
        if any(one not in (record.slowest, NOTHING_WAITS) for one in backlogs):
            record.backlogs = tuple(backlogs)
        return record


async def record_of(topic: PersistentTopic, oldest_ms: int) -> DormantTopic:
    """Returns the record of a topic that has just been closed. Raises MetadataError.

    `oldest_ms`: time of the first entry that a subscription has not acknowledged, or NOT_KNOWN.
    """
    log = topic.ledger
    nodes = await log.stored_nodes()
    cursors = dict(nodes.cursors) if nodes is not None else {}
    subscriptions, backlogs = [], []
    waiting = [one.cursor.mark_delete_position for one in topic.subscriptions.values() if one.cursor.backlog]
    slowest = min(waiting, default=None)
    for one in topic.subscriptions.values():
        mark = one.cursor.mark_delete_position
        one_ms = oldest_ms if mark == slowest else topic.quotas.known_ms(one)
        backlogs.append(Waiting.after(log.ledgers, mark, one_ms) if one.cursor.backlog else NOTHING_WAITS)
        node, version = cursors.get(one.name, NO_NODE)
        subscriptions.append(
            DormantSubscription(
                one.name, node, one.cursor.backlog, one.left_at_ns, one.kind, one.replicated, version
            )
        )
    marks = [one.cursor.mark_delete_position for one in topic.subscriptions.values()]
    levels = Levels.of(log.ledgers, marks, is_terminated=topic.is_terminated, waiting=subscriptions)
    if log.source is not None:
        # Its source's ledgers are the source's to copy.
        levels = levels._replace(offload=OffloadTimes(copied_bytes=levels.offload.copied_bytes))
    return levels.record(
        None if nodes is None else nodes.info,
        subscriptions,
        looked_ns=log.environment.now_ns(),
        used_at_ns=topic.used_at_ns,
        oldest_ms=oldest_ms,
        backlogs=backlogs,
    )


async def restore(topic: PersistentTopic, record: DormantTopic) -> None:
    """Gives an opened topic what its record has and the store has not."""
    # A request is no use. One that is in use is used at this moment; so is a source, which the record does not tell.
    if record.used_at_ns != IN_USE and not topic.ledger.trimming.has_shadows:
        topic.used_at_ns = record.used_at_ns
    for kept in record.subscriptions:
        subscription = topic.subscriptions.get(kept.name)
        # Another broker may have deleted it, on a shared store.
        if subscription is not None:
            subscription.left_at_ns, subscription.kind = kept.left_at_ns, kept.kind
    if record.has_backlog and topic.quotas.age.age_max_s >= 0:
        # Before its first producer, which the quota may have to refuse.
        await topic.quotas.look()
