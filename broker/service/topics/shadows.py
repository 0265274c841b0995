"""Shadows: shadow topics and their sources on this broker (PIP-180).

    opening a shadow   opens its source, and lets it read the source's log; follows that of a source on another broker
    closing a source   closes its open shadows first; their clients come back and open both
    trimming a source  keeps what its shadows need: the open ones tell by their cursors, the others of `shadowTopics` by
                       what the metadata store has of them

The topic policy `shadowTopics` of a source is the one list of its shadows. The property `PULSAR.SHADOW_SOURCE` of a shadow
names its source.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine, Mapping
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Protocol

from broker.managed_ledger.environment import ManagedLedgerEnvironment
from broker.managed_ledger.ledger_list import LedgerList
from broker.managed_ledger.managed_ledger import ManagedLedger
from broker.managed_ledger.managed_ledger_info import NO_PROPERTIES, SHADOW_SOURCE, managed_ledger_key
from broker.managed_ledger.records.pulsar_records import decode_ledger_list, encode_ledger_list
from broker.managed_ledger.settings import ManagedLedgerSettings
from broker.managed_ledger.trimming import Keeper
from broker.service.internal_cursors import TRANSACTIONS_CURSOR
from broker.service.namespaces.namespaces import Namespaces
from broker.service.namespaces.partitioned_metadata import (
    NO_PARTITIONS,
    PartitionedMetadata,
    StoredPartitions,
)
from broker.service.policies.effective_policies import EffectivePolicies, shadows_in
from broker.service.topics.persistent_topic import PersistentTopic
from broker.service.topics.topic import Topic
from broker.service.topics.topic_ownership import TopicOwnership
from foundation.loop.clock import CallLater
from foundation.model.errors import (
    BrokerError,
    MetadataError,
    NoSuchLedger,
    NotAllowed,
    ServiceNotReady,
    TopicNotFound,
)
from foundation.model.topic_name import TopicName, parse_topic_name
from foundation.value import Json

if TYPE_CHECKING:
    from broker.managed_ledger.shadows.followed_ledger import FollowedLedger

log = logging.getLogger("magnetar")


class HasShadows(MetadataError):
    """A topic cannot be deleted while others read its log."""

    status = 422
    """HTTP status of the answer."""


class TopicsOfBroker(Protocol):
    """The registry, as far as shadows use it."""

    topics: dict[str, Topic]
    """Open topics by full name."""
    namespaces: Namespaces
    """Has the policies of topics."""
    ownership: TopicOwnership
    """Says which broker serves a topic."""
    partitions: PartitionedMetadata
    """Partitions and properties of topics that have them."""
    policies: EffectivePolicies
    """The values in force."""

    def ledger_settings_of(self, name: TopicName) -> ManagedLedgerSettings:
        """Returns the settings of the topic's managed ledger."""
        ...

    async def get(self, name: TopicName, *, create: bool) -> Topic:
        """Returns the topic, opened if need be."""
        ...

    async def unload(self, name: TopicName) -> None:
        """Closes the topic."""
        ...


class Shadows:
    """Ties the shadow topics of one registry to their sources."""

    def __init__(
        self,
        registry: TopicsOfBroker,
        environment: ManagedLedgerEnvironment,
        call_later: CallLater,
        openings: Mapping[str, asyncio.Task[Topic]],
    ) -> None:
        """`openings`: those of the registry that are under way, by full name."""
        self._registry = registry
        self._openings = openings
        self._environment = environment
        self._call_later = call_later
        self._waking: set[asyncio.Task[None]] = set()
        self._followed: dict[TopicName, FollowedLedger] = {}
        """Logs of sources that other brokers own."""
        self._beginning = asyncio.Lock()

    # Opening and closing

    async def source_of(self, shadow: TopicName, source_text: str) -> ManagedLedger:
        """Returns the log that a shadow reads, opened. Raises BrokerError.

        The caller ties the shadow to it before it waits again: the source may close at any moment.
        """
        source = source_name(shadow, source_text)
        ownership = self._registry.ownership
        if ownership.is_shared:
            owner = await ownership.owner_of(source)
            if owner.is_redirect or owner.addresses != ownership.owner:
                return await self._follow(source)
        topic = await self._registry.get(source, create=False)
        if not isinstance(topic, PersistentTopic) or topic.ledger.source is not None:
            raise NotAllowed(f"The source {source} of {shadow} is no persistent topic with a log of its own")
        if topic.closed:
            raise ServiceNotReady(f"The source {source} of {shadow} is being closed")
        return topic.ledger

    async def _follow(self, source: TopicName) -> ManagedLedger:
        """Returns the log of a source that another broker owns."""
        # One at a time: two openings would make two caches of one log.
        async with self._beginning:
            followed = self._followed.get(source)
            if followed is None or followed.ended:
                # Imported late, as the others of the room: most brokers have no shadow topics.
                from broker.managed_ledger.shadows.followed_ledger import FollowedLedger

                settings = self._registry.ledger_settings_of(source)
                followed = FollowedLedger(source.ledger_name, self._environment, settings)
                try:
                    await followed.open()
                except NoSuchLedger:
                    raise TopicNotFound(f"Topic {source} does not exist") from None
                await self._hide_transactions(source, followed)
                self._followed[source] = followed
        followed.begin(partial(self._unfollowed, source))
        return followed.ledger

    async def _hide_transactions(self, source: TopicName, followed: FollowedLedger) -> None:
        """Lets shadows read what the source's own readers see."""
        from broker.managed_ledger.shadows.stored_marks import stored_cursor
        from broker.service.transactions.shadow_transactions import FollowedTransactions

        info = await stored_cursor(self._environment, followed.ledger.name, TRANSACTIONS_CURSOR)
        settings = self._registry.policies.settings
        if info is None and not settings.transactions:
            return
        transactions = FollowedTransactions(source, followed.ledger, settings, call_later=self._call_later)
        if info is None:
            # No transaction has come yet, so the entries before this one need no look.
            await transactions.restore({}, followed.ledger.last_confirmed)
        else:
            await transactions.restore(info.cursor_properties, info.mark_delete)
        followed.before_growth = transactions.look

    async def _unfollowed(self, source: TopicName) -> None:
        """Closes the shadows that are left when a source cannot be followed any more."""
        followed = self._followed.get(source)
        if followed is not None:
            await self._close_shadows(followed.ledger)
            if self._followed.get(source) is followed:
                del self._followed[source]

    async def end_following(self, source: TopicName) -> None:
        """Closes the shadows of a source that this broker owns from now on; they come back to the open source."""
        if (followed := self._followed.get(source)) is not None:
            await self._close_shadows(followed.ledger)
            followed.close()
            self._followed.pop(source, None)

    async def close_first(self, source: PersistentTopic, work: Coroutine[object, object, None]) -> None:
        """Closes the open shadows of a source, then runs `work`, which closes the source."""
        await self._close_shadows(source.ledger)
        await work

    def close(self) -> None:
        """Follows no source any more: all topics are closed."""
        for followed in self._followed.values():
            followed.close()
        self._followed.clear()

    async def _close_shadows(self, ledger: ManagedLedger) -> None:
        for ledger_name in list(ledger.shadows):
            name = TopicName.of_ledger_name(ledger_name)
            if (opening := self._openings.get(str(name))) is not None:
                await asyncio.wait((opening,))
            if str(name) in self._registry.topics:
                # The registry logs the error. The source must be closed all the same.
                with suppress(BrokerError):
                    await self._registry.unload(name)

    def opened(self, source: Topic) -> None:
        """Opens the shadows of a source that has woken: what comes to it may fall due for them."""
        if isinstance(source, PersistentTopic) and source.settings.dormant_after_s:
            for shadow in self._registry.policies.shadow_topics(source.name):
                if str(shadow) not in self._registry.topics:
                    task = asyncio.ensure_future(self._wake(shadow))
                    self._waking.add(task)
                    task.add_done_callback(self._waking.discard)

    async def _wake(self, shadow: TopicName) -> None:
        # The shadow stays dormant; a client that asks for the shadow is told why.
        with suppress(BrokerError):
            await self._registry.get(shadow, create=False)

    async def properties_of_partitions(self, name: TopicName) -> Mapping[str, str]:
        """Returns what new partitions get of the properties of their topic: the source of a shadow. Raises MetadataError."""
        return shadow_properties(await self._registry.partitions.find(name.base) or NO_PARTITIONS)

    # Trimming

    async def trim(self, topic: PersistentTopic, *, without_retention: bool = False) -> list[int]:
        """Removes ledgers that neither the topic nor a shadow of it keeps, as of now in the metadata store.

        `without_retention`: as for `Trimming.trim`.
        """
        trimming = topic.ledger.trimming
        # Used before the next wait, and forgotten: a subscription that is made later at another broker needs more.
        stored = await self.refresh(topic) if trimming.shadows else {}
        now_ms = self._environment.wall_ms()
        return trimming.trim(now_ms, without_cursors=True, without_retention=without_retention, stored=stored)

    async def refresh(self, source: PersistentTopic) -> Mapping[str, Keeper]:
        """Returns what those shadows need that are not open here, by name, as the metadata store has it.

        Keeps nothing more for those that are not listed any more. One that cannot be read is left out, and keeps all.
        """
        log_, trimming = source.ledger, source.ledger.trimming
        listed = {one.ledger_name: one for one in self._registry.policies.shadow_topics(source.name)}
        for ledger_name in trimming.shadows:
            if ledger_name not in listed and ledger_name not in log_.shadows:
                await self._give_up(source, ledger_name)
        read: dict[str, tuple[Keeper, Keeper]] = {}
        for ledger_name, shadow in listed.items():
            if ledger_name in log_.shadows:
                continue
            held = trimming.hold(ledger_name)
            try:
                keeper = await self._stored_keeper(source.name, shadow)
            except BrokerError as error:
                log.warning(
                    "! %s: the positions of its shadow %s cannot be read: %s", source.name, shadow, error
                )
                continue
            # One that was opened meanwhile tells by its cursors, or has changed them.
            if trimming.shadows.get(ledger_name) is not held:
                continue
            held.exists = keeper is not None
            # The name stays: its topic may be made at another broker, which does not change the list.
            read[ledger_name] = held, keeper or Keeper()
        return {name: keeper for name, (held, keeper) in read.items() if trimming.shadows.get(name) is held}

    async def _give_up(self, source: PersistentTopic, ledger_name: str) -> None:
        """Keeps nothing more for a topic that is not listed any more, and says what may be lost by that, before it is."""
        log_ = source.ledger
        await self._warn(source.name, TopicName.of_ledger_name(ledger_name), log_.ledgers)
        if ledger_name not in log_.shadows:
            log_.trimming.set_shadow(ledger_name, None)

    async def before_removal(self, source: TopicName, listed: Json) -> None:
        """Says what may be lost when a source that is not open here gets this list of shadow topics.

        Its next opening keeps nothing for the others, and does not know them. Raises BrokerError.
        """
        from broker.managed_ledger.shadows.stored_marks import stored_ledgers

        left = shadows_in(listed, source)
        removed = [one for one in self._registry.policies.shadow_topics(source) if one not in left]
        if removed and (ledgers := await stored_ledgers(self._environment, source.ledger_name)):
            for shadow in removed:
                await self._warn(source, shadow, ledgers)

    async def _warn(self, source: TopicName, shadow: TopicName, ledgers: LedgerList) -> None:
        """Names the subscriptions for which the source keeps nothing more; `ledgers`: the source's."""
        from broker.managed_ledger.shadows.stored_marks import stored_marks

        if not await self._is_shadow(shadow, source):
            return
        for cursor_name, mark in (await stored_marks(self._environment, shadow.ledger_name)).items():
            if left := ledgers.entries_between(mark, ledgers.last()):
                log.warning(
                    "! %s keeps nothing more for %s, which is not among its shadow topics: subscription %s may"
                    " lose %d entries",
                    *(source, shadow, cursor_name, left),
                )

    async def _is_shadow(self, shadow: TopicName, source: TopicName) -> bool:
        from broker.managed_ledger.shadows.stored_marks import source_in_store

        found = await source_in_store(self._environment, shadow.ledger_name)
        return found is not None and source_name(shadow, found) == source

    async def _stored_keeper(self, source: TopicName, shadow: TopicName) -> Keeper | None:
        from broker.managed_ledger.shadows.stored_marks import stored_marks

        if not await self._is_shadow(shadow, source):
            return None
        await self._registry.namespaces.stored.of_topics.load(shadow)
        keeper = Keeper((await stored_marks(self._environment, shadow.ledger_name)).values())
        self._registry.policies.retain(shadow, keeper)
        return keeper

    # Deleting

    async def own_partition(self, name: TopicName) -> None:
        """Takes the source's ledgers out of the list of a shadow's partition, before the partition is deleted.

        Apache's broker lists them there, and names the source in the metadata of the partitioned topic alone. Raises
        MetadataError.
        """
        metadata = self._environment.metadata
        if name.partition < 0 or not metadata.is_shared:
            return
        properties = await self.properties_of_partitions(name)
        found = await metadata.get(managed_ledger_key(name.ledger_name)) if properties else None
        if found is not None:
            info = decode_ledger_list(found.value)
            if not info.deleted and SHADOW_SOURCE not in info.properties:
                info.ledgers, info.properties = [], {**info.properties, **properties}
                await metadata.put(
                    managed_ledger_key(name.ledger_name), encode_ledger_list(info), found.version
                )

    async def check_deletable(self, source: TopicName, deleted: str = "") -> None:
        """Raises HasShadows for a source of shadow topics, except those below `deleted`, which are deleted too.

        `deleted`: a tenant or a namespace.
        """
        registry = self._registry
        await registry.namespaces.stored.of_topics.load(source)
        shadows = []
        for shadow in registry.policies.shadow_topics(source.base):
            from broker.managed_ledger.shadows.stored_marks import source_in_store

            partitions = await registry.partitions.find(shadow)
            if partitions is None:
                found = await source_in_store(self._environment, shadow.ledger_name)
            else:
                found = partitions.properties.get(SHADOW_SOURCE)
            if found is not None and parse_topic_name(found).base == source.base:
                shadows.append(shadow)
        left = [
            str(one) for one in shadows if not deleted or not f"{one.namespace}/".startswith(f"{deleted}/")
        ]
        if left:
            # Pulsar's text, and the names.
            raise HasShadows(
                f"Delete forbidden. Topic {source} is replicated to shadow topics. Delete these first: {', '.join(left)}"
            )


def shadow_properties(partitioned: StoredPartitions) -> Mapping[str, str]:
    """Returns the properties of a partitioned topic that each of its partitions has, too: the source of a shadow."""
    source = partitioned.properties.get(SHADOW_SOURCE)
    return NO_PROPERTIES if source is None else {SHADOW_SOURCE: source}


def source_name(shadow: TopicName, source_text: str) -> TopicName:
    """Returns the source of a shadow; that of a partition is the same partition of the named topic."""
    source = parse_topic_name(source_text)
    return source.with_partition(shadow.partition) if shadow.partition >= 0 > source.partition else source
