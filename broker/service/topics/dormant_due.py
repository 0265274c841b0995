"""When something of a dormant topic falls due: a pure function of its record and the policies in force.

| falls due | computed from |
|---|---|
| the time to live of the oldest message | its time |
| a backlog quota that evicts | by age: that time, or the end of its ledger; by size: at once |
| a copy of a ledger in other storage, the end of its time in the bookies | `OffloadTimes`; at once while not known |
| removal of a ledger that everyone has acknowledged | the end of the ledger, the retention |
| a compaction by its threshold | at once, when more bytes are not compacted |
| deletion of a subscription without consumers | when the last consumer left |
| deletion of the topic | when it was last in use, unless it is still (`used_at_ns_of`) |

Delayed messages need no moment: nothing can be delivered without a consumer, and a consumer opens the topic. Nor do quotas
that hold producers: the topic is compared with them when it opens.

A moment is never earlier than one interval of the round that checks open topics after the last check. So a dormant topic
is opened at most as often as an open one is looked at, also where a look finds nothing to do.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from broker.managed_ledger.settings import OffloadRules
from broker.service.internal_cursors import COMPACTION_CURSOR
from broker.service.policies import table
from broker.service.policies.backlog_quota import AGE, EVICTION, SIZE
from broker.service.policies.effective_policies import EffectivePolicies
from broker.service.policies.values import WITHOUT_SUBSCRIPTIONS
from broker.service.settings import ServiceSettings
from broker.service.topics.dormant_topic import IN_USE, NEVER, NOT_KNOWN, DormantTopic, OffloadTimes
from foundation.model.topic_name import TopicName
from foundation.units import MIB, MS_PER_SECOND, NS_PER_MINUTE, NS_PER_MS, NS_PER_SECOND

_MS_PER_MINUTE: Final = 60 * MS_PER_SECOND


def settings_that_count(settings: ServiceSettings, rules: OffloadRules) -> tuple[object, ...]:
    """Returns the part of the broker's settings from which moments follow: they stay while it is the same.

    `rules`: the broker's, about copies of ledgers.
    """
    return (
        rules,
        settings.topic_policies,
        settings.ttl_s,
        settings.ttl_interval_min,
        settings.quotas_checked,
        settings.quota_interval_s,
        settings.quota_bytes,
        settings.quota_age_s,
        settings.quota_age_precise,
        settings.quota_reaction,
        settings.retention_minutes,
        settings.retention_mib,
        settings.trim_interval_s,
        settings.subscription_expires_min,
        settings.subscription_interval_min,
        settings.delete_inactive,
        settings.inactive_mode,
        settings.inactive_after_s,
        settings.inactive_frequency_s,
        settings.close_inactive,
        settings.compaction_threshold_bytes,
    )


def used_at_ns_of(name: TopicName, record: DormantTopic, policies: EffectivePolicies, now_ns: int) -> int:
    """Returns the record's `used_at_ns` by the policies in force: while a topic is open, the rounds renew it."""
    mode = policies.inactive_mode(name)
    if mode is not None and (record.subscriptions if mode == WITHOUT_SUBSCRIPTIONS else record.has_backlog):
        return IN_USE
    # By the former policies it was in use until now.
    return now_ns if record.used_at_ns == IN_USE else record.used_at_ns


def due_ns_of(
    name: TopicName,
    record: DormantTopic,
    policies: EffectivePolicies,
    rules: OffloadRules,
    now_ns: int,
    wall_ms: int,
) -> int:
    """Returns the moment at which the topic is to be opened, of the monotonic clock, or NEVER.

    `rules`: the topic's, about copies of its ledgers. `now_ns`, `wall_ms`: the two clocks at this moment.
    """
    moments = [
        *_of_messages(name, record, policies, rules, now_ns, wall_ms),
        *_of_use(name, record, policies),
    ]
    # Once: it stays open then.
    if 0 < policies.of(name, table.COMPACTION) < _uncompacted_bytes(record):
        moments.append(now_ns)
    return min(moments, default=NEVER)


def _of_messages(
    name: TopicName,
    record: DormantTopic,
    policies: EffectivePolicies,
    rules: OffloadRules,
    now_ns: int,
    wall_ms: int,
) -> Iterator[int]:
    settings = policies.settings

    def moment(at_ms: int, interval_ns: int) -> int:
        # A time that is not known may have come.
        at_ns = now_ns if at_ms < 0 else now_ns + (at_ms - wall_ms) * NS_PER_MS
        return max(at_ns, record.looked_ns + interval_ns)

    if record.has_backlog:
        ttl_s = policies.of(name, table.MESSAGE_TTL)
        oldest_ms = record.oldest_ms
        if ttl_s > 0:
            # A message expires once it is older.
            at_ms = NOT_KNOWN if oldest_ms < 0 else oldest_ms + ttl_s * MS_PER_SECOND + 1
            yield moment(at_ms, settings.ttl_interval_min * NS_PER_MINUTE)
        if settings.quotas_checked:
            interval_ns = settings.quota_interval_s * NS_PER_SECOND
            size, age = policies.backlog_quota(name, SIZE), policies.backlog_quota(name, AGE)
            if 0 <= size.size_max <= record.backlog_bytes and _evicts(size.reaction, policies):
                yield moment(wall_ms, interval_ns)
            since_ms = oldest_ms if settings.quota_age_precise else record.oldest_closed_ms
            if age.age_max_s >= 0 and _evicts(age.reaction, policies):
                at_ms = NOT_KNOWN if since_ms < 0 else since_ms + age.age_max_s * MS_PER_SECOND + 1
                yield moment(at_ms, interval_ns)
    if record.acked_closed_ms != NOT_KNOWN:
        retention = policies.of(name, table.RETAINED)
        interval_ns = settings.trim_interval_s * NS_PER_SECOND
        if 0 <= retention.mib * MIB < record.size_bytes:
            yield moment(wall_ms, interval_ns)
        elif retention.minutes >= 0:
            yield moment(record.acked_closed_ms + retention.minutes * _MS_PER_MINUTE, interval_ns)
    # A record without times is from before the policy: one opening tells.
    copies_ms = [wall_ms] if rules.place.driver else []
    if record.offload is not None:
        copies_ms = [*copies_due_ms(record.offload, rules, wall_ms)]
    for at_ms in copies_ms:
        yield moment(at_ms, settings.trim_interval_s * NS_PER_SECOND)


def copies_due_ms(times: OffloadTimes, rules: OffloadRules, wall_ms: int) -> Iterator[int]:
    """Yields when a ledger is copied by the size of the topic, when by its age, and when the bookies lose one."""
    if times.closed_ms != NEVER and rules.place.driver:
        if 0 <= rules.threshold_bytes < times.size_bytes:
            yield wall_ms
        if rules.threshold_s >= 0:
            yield times.closed_ms + rules.threshold_s * MS_PER_SECOND
    if times.copied_ms != NEVER and rules.deletion_lag_ms >= 0:
        yield times.copied_ms + rules.deletion_lag_ms


def _uncompacted_bytes(record: DormantTopic) -> int:
    """Returns `TopicCompaction.backlog_bytes`."""
    for one in record.subscriptions:
        if one.name == COMPACTION_CURSOR:
            return record.size_bytes * one.backlog // max(record.entries, 1)
    return record.size_bytes


def _evicts(reaction: str | None, policies: EffectivePolicies) -> bool:
    return (reaction or policies.settings.quota_reaction) == EVICTION


def _of_use(name: TopicName, record: DormantTopic, policies: EffectivePolicies) -> Iterator[int]:
    settings = policies.settings
    minutes = policies.of(name, table.SUBSCRIPTION_EXPIRATION)
    unused = [one.left_at_ns for one in record.subscriptions if not one.replicated]
    if minutes > 0 and unused:
        interval_ns = settings.subscription_interval_min * NS_PER_MINUTE
        yield max(min(unused) + minutes * NS_PER_MINUTE, record.looked_ns + interval_ns)
    inactive = policies.of(name, table.INACTIVE)
    retained_minutes = policies.of(name, table.RETAINED).minutes
    # One that is to be closed is closed already.
    acts = inactive.enabled and not settings.close_inactive and retained_minutes >= 0
    if acts and record.used_at_ns != IN_USE:
        after_ns = max(inactive.after_s * NS_PER_SECOND, retained_minutes * NS_PER_MINUTE)
        interval_ns = settings.inactive_frequency_s * NS_PER_SECOND
        yield max(record.used_at_ns + after_ns, record.looked_ns + interval_ns)
