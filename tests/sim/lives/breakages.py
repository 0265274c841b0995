"""Rules of expiry, trimming, compaction, deletion and quarantine, each broken on purpose: the simulation must notice it."""

from __future__ import annotations

from collections.abc import Callable
from unittest import mock
from urllib.parse import quote

from bookkeeper.metadata.metadata_store import MetadataStore
from broker.managed_ledger import trimming
from broker.managed_ledger.ledger_list import LedgerList
from broker.managed_ledger.ledger_list_store import LedgerListStore
from broker.managed_ledger.managed_ledger_info import StoredNodes
from broker.service.compaction import compaction_source
from broker.service.compaction.compacted_ledger import CompactedLedger
from broker.service.compaction.compaction_source import SourceSegment, segments_of
from broker.service.lifecycle.deletion.intents import Intent
from broker.service.lifecycle.deletion.steps import DeletionSteps
from broker.service.limits.publish_limit import PublishLimit
from broker.service.policies.values import PublishRate
from broker.service.subscriptions.backlog import message_expiry
from broker.service.subscriptions.backlog.message_expiry import MessageExpiry
from broker.service.topics.dormant_topic import DormantTopic
from foundation.model.errors import BrokerError
from foundation.model.position import LATEST, Position
from magnetar.audit import quarantine
from magnetar.audit.facts import AuditFinding, gather, judge
from tests.sim.lives.operator import Operator
from tests.sim.lives.store import walk

_plain_trim = trimming.ledgers_to_trim
_plain_segments = segments_of


def _trims_what_is_needed() -> object:
    """A ledger goes although a cursor needs it."""

    def trim(
        ledgers: LedgerList, slowest: Position, now_ms: int, *, keep_ms: int, keep_bytes: int
    ) -> list[int]:
        return _plain_trim(ledgers, LATEST, now_ms, keep_ms=keep_ms, keep_bytes=keep_bytes)

    return mock.patch.object(trimming, "ledgers_to_trim", trim)


def _retention_is_ignored() -> object:
    def trim(
        ledgers: LedgerList, slowest: Position, now_ms: int, *, keep_ms: int, keep_bytes: int
    ) -> list[int]:
        return _plain_trim(ledgers, slowest, now_ms, keep_ms=0, keep_bytes=0)

    return mock.patch.object(trimming, "ledgers_to_trim", trim)


def _shadows_are_forgotten() -> object:
    """A source goes by its own cursors alone."""
    return mock.patch.object(trimming.Trimming, "set_shadow", return_value=None)


def _trims_nothing_at_the_end() -> object:
    """A ledger goes only while two others are behind it, so the last closed one of each topic stays."""

    def trim(
        ledgers: LedgerList, slowest: Position, now_ms: int, *, keep_ms: int, keep_bytes: int
    ) -> list[int]:
        return _plain_trim(ledgers, slowest, now_ms, keep_ms=keep_ms, keep_bytes=keep_bytes)[:-1]

    return mock.patch.object(trimming, "ledgers_to_trim", trim)


def _expires_at_once() -> object:
    """The time to live is a thousandth of what the policy says."""
    return mock.patch.object(message_expiry, "MS_PER_SECOND", 1)


def _expires_the_whole_topic() -> object:
    async def newest(self: MessageExpiry, slowest: Position, before_ms: int) -> Position:
        return self._topic.ledger.last_confirmed

    return mock.patch.object(MessageExpiry, "_newest_old_enough", newest)


def _deletions_without_intent() -> object:
    """The intent is kept in memory alone, so a crash leaves a half deleted topic."""
    key = property(lambda intent: f"/test/ignored/{intent.kind}/{quote(intent.name, safe='')}")
    return mock.patch.object(Intent, "key", key)


def _policies_stay() -> object:
    """A deletion forgets the policies of the topic."""

    async def nothing(self: DeletionSteps, intent: Intent) -> None:
        """Deletes nothing."""

    return mock.patch.object(DeletionSteps, "_forget_policies", nothing)


def _beginnings_are_certain() -> object:
    """A ledger whose beginning was not answered counts as not begun."""
    plain = LedgerListStore.start_current

    async def start(self: LedgerListStore, copies: None) -> object:
        try:
            return await plain(self, copies)
        except BrokerError:
            self.current_started = False
            raise

    return mock.patch.object(LedgerListStore, "start_current", start)


def _one_look() -> object:
    """An audit believes what one walk shows, although the store changes under it."""

    async def look(self: Operator) -> list[AuditFinding]:
        return sorted(judge(gather(await walk(self._store))))

    return mock.patch.object(Operator, "look", look)


def _deletes_without_export() -> object:
    return mock.patch.object(quarantine, "_differs", return_value="")


def _moves_without_copy() -> object:
    """A node leaves its place before its copy is stored."""

    async def put_in(store: MetadataStore, found: AuditFinding) -> str:
        if found.audit == "metadata":
            await store.delete(found.subject)
        return await plain(store, found)

    plain = quarantine.put_in
    return mock.patch.object(quarantine, "put_in", put_in)


def _horizon_passes_the_unread() -> object:
    """A compaction leaves out the last ledger below its horizon."""

    def segments(
        ledgers: LedgerList, former: CompactedLedger | None, through: Position
    ) -> list[SourceSegment]:
        found = _plain_segments(ledgers, former, through)
        return found[:-1] if len(found) > 1 else found

    return mock.patch.object(compaction_source, "segments_of", segments)


def _records_without_cursors() -> object:
    """A topic wakes without its subscriptions."""
    plain = DormantTopic.take_nodes

    def take(self: DormantTopic) -> StoredNodes | None:
        nodes = plain(self)
        return None if nodes is None else nodes._replace(cursors=())

    return mock.patch.object(DormantTopic, "take_nodes", take)


def _rates_are_ignored() -> object:
    """A SEND without a token left pauses nothing."""
    return mock.patch.object(PublishLimit, "count", return_value=False)


def _set_rates_begin_anew() -> object:
    """A rate that is set again comes with a full bucket."""
    plain = PublishLimit.change

    def change(self: PublishLimit, rate: PublishRate) -> None:
        self.rate = PublishRate()
        plain(self, rate)

    return mock.patch.object(PublishLimit, "change", change)


def _paused_producers_stay() -> object:
    """A connection that waits for a rate is forgotten."""
    return mock.patch.object(PublishLimit, "_release", return_value=None)


RATE_BREAKAGES: dict[str, Callable[[], object]] = {
    "rates-are-ignored": _rates_are_ignored,
    "set-rates-begin-anew": _set_rates_begin_anew,
    "paused-producers-stay": _paused_producers_stay,
}
"""Noticed in histories with publish rates."""
LIVES_BREAKAGES: dict[str, Callable[[], object]] = {
    "trims-what-is-needed": _trims_what_is_needed,
    "retention-is-ignored": _retention_is_ignored,
    "shadows-are-forgotten": _shadows_are_forgotten,
    "trims-nothing-at-the-end": _trims_nothing_at_the_end,
    "expires-at-once": _expires_at_once,
    "expires-the-whole-topic": _expires_the_whole_topic,
    "deletions-without-intent": _deletions_without_intent,
    "policies-stay": _policies_stay,
    "beginnings-are-certain": _beginnings_are_certain,
    "one-look": _one_look,
    "records-without-cursors": _records_without_cursors,
    "deletes-without-export": _deletes_without_export,
    "moves-without-copy": _moves_without_copy,
    "horizon-passes-the-unread": _horizon_passes_the_unread,
}
