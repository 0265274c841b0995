"""TopicQuotas: compares a topic's backlog with its quotas, and holds producers or evicts messages above them.

A look compares every `backlogQuotaCheckIntervalInSeconds`. In between a new producer is compared by size, which costs no
read; with the age, the last check counts until the slowest subscription moves on. So producers that are held come back
as soon as there is room.

Mechanism: Pulsar's BacklogQuotaManager. The backlog is that of the slowest subscription; the broker's own cursors count
for nothing, because they follow by themselves.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, NamedTuple, Protocol

from broker.service.internal_cursors import INTERNAL_CURSORS
from broker.service.policies.backlog_quota import AGE, EVICTION, EXCEPTION, SIZE, BacklogQuota
from broker.service.subscriptions.backlog.evictions import NO_EVICTIONS, QuotaEviction, QuotaEvictions
from broker.service.subscriptions.backlog.message_expiry import ExpiringTopic
from broker.service.subscriptions.backlog.sizes import bytes_after, position_leaving
from broker.service.subscriptions.subscription import Subscription
from foundation.model.errors import BrokerError, QuotaExceeded, QuotaRefused
from foundation.model.position import Position
from foundation.units import MS_PER_SECOND

log = logging.getLogger("magnetar")

_LEFT_PERCENT: Final = 90
"""Share of the limit that an eviction leaves, as in Pulsar, so that the next check does not evict again at once."""
_NONE_OLDEST: Final[Mapping[str, tuple[Position, int | None]]] = MappingProxyType({})
_TEXT: Final = "Cannot create producer on topic with backlog quota exceeded"


class QuotaTopic(ExpiringTopic, Protocol):
    """The topic, as far as its quotas use it."""

    def disconnect_producers(self) -> None:
        """Closes all producers; their clients connect again."""
        ...


class Backlog(NamedTuple):
    """The backlog of the slowest subscription."""

    subscription: str
    """Its name."""
    mark_delete: Position
    """Its mark-delete position."""
    size_bytes: int
    """Bytes after that."""


class TopicQuotas:
    """The quotas of one topic, and the result of the last check."""

    __slots__ = (
        "_oldest",
        "_too_old_after",
        "_topic",
        "age",
        "evictions",
        "oldest_age_s",
        "size",
    )

    def __init__(self, topic: QuotaTopic) -> None:
        self._topic = topic
        self._too_old_after: Position | None = None
        self._oldest = _NONE_OLDEST
        """By subscription with a backlog: its mark-delete position, and the time of the first message after that."""
        self.size = topic.policies.backlog_quota(topic.name, SIZE)
        """The quota by size that holds now."""
        self.age = topic.policies.backlog_quota(topic.name, AGE)
        """The quota by age that holds now."""
        self.oldest_age_s = -1
        """Age of the oldest unacknowledged message at the last check; -1 without one, or while it is not known."""
        self.evictions = NO_EVICTIONS
        """Entries that were taken from subscriptions. To be read only."""

    def renew(self) -> None:
        """Takes the quotas that hold now."""
        self.size = self._topic.policies.backlog_quota(self._topic.name, SIZE)
        self.age = self._topic.policies.backlog_quota(self._topic.name, AGE)

    def slowest(self) -> Backlog | None:
        """Returns the largest backlog; None while every subscription has acknowledged everything."""
        # Compared by position: a subscription with holes is as slow as its first unacknowledged message.
        slow = [one for one in self._subscriptions() if one.cursor.backlog]
        if not slow:
            return None
        one = min(slow, key=lambda subscription: subscription.cursor.mark_delete_position)
        position = one.cursor.mark_delete_position
        return Backlog(one.name, position, bytes_after(self._topic.ledger.ledgers, position))

    def check_producer(self) -> None:
        """Refuses a new producer above a quota: QuotaExceeded lets its client wait, QuotaRefused tells the application."""
        if not self._acts:
            return
        size, age = self.size, self.age
        if size.size_max < 0 and age.age_max_s < 0:
            return
        slowest = self.slowest()
        if slowest is None:
            return
        if 0 <= size.size_max <= slowest.size_bytes:
            self._refuse(size)
        if age.age_max_s >= 0 and slowest.mark_delete == self._too_old_after:
            self._refuse(age)

    @property
    def rests(self) -> bool:
        """True when a look would find nothing and change nothing, as in most topics of a large broker."""
        noted = self.oldest_age_s >= 0 or self._too_old_after is not None or self._oldest is not _NONE_OLDEST
        return not noted and not any(one.cursor.backlog for one in self._subscriptions())

    async def look(self) -> None:
        """Measures the backlog; above a quota disconnects all producers, or evicts the oldest messages."""
        if not self._acts:
            return
        slowest = self.slowest()
        seeks = {one.name: one.cursor.seeks for one in self._subscriptions()}
        size, age = self.size, self.age
        if slowest is not None and 0 <= size.size_max <= slowest.size_bytes:
            if self._reaction(size) == EVICTION:
                self._evict_by_size(size.size_max, seeks)
                slowest = self.slowest()
            else:
                self._hold(f"{slowest.size_bytes} bytes at {slowest.subscription}, quota {size.size_max}")
        stored_ms = None if slowest is None else await self._first_ms(slowest.mark_delete)
        self.oldest_age_s = self._age_s(stored_ms)
        age_ms = None if stored_ms is None else self._topic.ledger.environment.wall_ms() - stored_ms
        too_old = age_ms is not None and 0 <= age.age_max_s * MS_PER_SECOND < age_ms
        self._too_old_after = slowest.mark_delete if slowest is not None and too_old else None
        if slowest is not None and too_old:
            if self._reaction(age) == EVICTION:
                await self._evict_by_age(age.age_max_s, seeks)
            else:
                self._hold(f"oldest message of {slowest.subscription} is above {age.age_max_s} s old")
        await self._look_at_each()

    def age_of(self, subscription: str) -> int:
        """Returns the age in seconds of a subscription's oldest unacknowledged message; -1 where it is not known.

        Known with `exposeSubscriptionBacklogAgeInPrometheus` alone, from the first check on. Source: PIP-492.
        """
        _, stored_ms = self._oldest.get(subscription, (None, None))
        return self._age_s(stored_ms)

    def known_ms(self, subscription: Subscription) -> int:
        """Returns the time of the message of `age_of`; -1 where it is not known, or no longer."""
        position, stored_ms = self._oldest.get(subscription.name, (None, None))
        moved = position != subscription.cursor.mark_delete_position
        if moved or stored_ms is None or not self._topic.settings.quota_age_precise:
            return -1
        return stored_ms

    async def _look_at_each(self) -> None:
        """Finds the oldest message of each subscription; reads again only for those that have moved on."""
        before, self._oldest = self._oldest, _NONE_OLDEST
        if not self._topic.settings.subscription_ages:
            return
        found: dict[str, tuple[Position, int | None]] = {}
        for one in self._subscriptions():
            if one.cursor.backlog:
                position = one.cursor.mark_delete_position
                known = before.get(one.name)
                # An open ledger may have been closed since, so an age that was not known is asked for again.
                if known is None or known[0] != position or known[1] is None:
                    known = position, await self._first_ms(position)
                found[one.name] = known
        self._oldest = found or _NONE_OLDEST

    def _age_s(self, stored_ms: int | None) -> int:
        if stored_ms is None:
            return -1
        # A clock that went back makes messages come from the future.
        return max(0, self._topic.ledger.environment.wall_ms() - stored_ms) // MS_PER_SECOND

    @property
    def _acts(self) -> bool:
        # Pulsar's own topics keep what the broker needs; a quota must not stop it.
        return self._topic.settings.quotas_checked and not self._topic.name.is_system

    def _subscriptions(self) -> list[Subscription]:
        return [
            one
            for one in self._topic.subscriptions.values()
            if one.durable and one.name not in INTERNAL_CURSORS
        ]

    def _reaction(self, quota: BacklogQuota) -> str:
        return quota.reaction or self._topic.settings.quota_reaction

    def _refuse(self, quota: BacklogQuota) -> None:
        reaction = self._reaction(quota)
        if reaction == EXCEPTION:
            raise QuotaRefused(_TEXT)
        if reaction != EVICTION:
            raise QuotaExceeded(_TEXT)

    def _hold(self, why: str) -> None:
        topic = self._topic
        log.warning("! producers of %s are disconnected by its backlog quota: %s", topic.name, why)
        topic.disconnect_producers()

    async def _first_ms(self, mark_delete: Position) -> int | None:
        """Returns the time of the first message after a position, or of its ledger's end; None where it is not known."""
        ledger = self._topic.ledger
        first = ledger.ledgers.next_valid(mark_delete)
        if not self._topic.settings.quota_age_precise:
            info = ledger.ledgers.get(first.ledger_id)
            return None if info is None else info.closed_at_ms
        try:
            return await self._topic.positions.time_of(first)
        except BrokerError as error:
            log.warning("! the age of %s in %s is not known: %s", first, self._topic.name, error)
            return None

    def _evict_by_size(self, limit: int, seeks: Mapping[str, int]) -> None:
        target = position_leaving(self._topic.ledger.ledgers, limit * _LEFT_PERCENT // 100)
        self._evict(target, SIZE, limit, seeks)

    async def _evict_by_age(self, limit_s: int, seeks: Mapping[str, int]) -> None:
        now_ms = self._topic.ledger.environment.wall_ms()
        target = await self._topic.positions.newest_before(
            now_ms - limit_s * MS_PER_SECOND * _LEFT_PERCENT // 100
        )
        if target is not None:
            self._evict(target, AGE, limit_s, seeks)

    def _evict(self, target: Position, kind: str, limit: int, seeks: Mapping[str, int]) -> None:
        """Takes all entries through the target from the subscriptions that are before it.

        Those that a seek has moved since the check began, when they had `seeks` by name, are left to the next check.
        """
        topic = self._topic
        why = f"its size, quota {limit} bytes" if kind == SIZE else f"its age, quota {limit} s"
        for subscription in self._subscriptions():
            before, after = subscription.cursor.backlog, subscription.cursor.mark_delete_position
            unmoved = subscription.cursor.seeks == seeks.get(subscription.name)
            if before and after < target and unmoved:
                subscription.acknowledge_through(target)
                evicted = before - subscription.cursor.backlog
                now_ms = topic.ledger.environment.wall_ms()
                if self.evictions is NO_EVICTIONS:
                    self.evictions = QuotaEvictions()
                self.evictions.add(
                    QuotaEviction(now_ms, subscription.name, kind, limit, after, target, evicted)
                )
                log.warning(
                    "! %d entries through %s are taken from the backlog of %s on %s because of %s",
                    *(evicted, target, subscription.name, topic.name, why),
                )
