"""DormantFilling: gives every topic on disk that this broker owns its record, in the background.

A broker with a store of its own owns all topics from the start. On a shared store it owns bundles, which come and go: each
is filled once it is here, and what it lacks is filled again now and then, as partitions that another broker has made.
A topic that is closed later without a record, by an unload or a close that fails, is filled by its name, and so is one that
could not be opened.

Before the records of a namespace the policies of its topics are read: due moments follow from them. Where they cannot be
read, the records come first, and `TopicPolicies` has them planned anew when a later attempt has succeeded.

Clients that return after a start come first: they wait for their topics. Records that were made between the objects of these
topics would also scatter them in memory, and each message would cost a tenth more.
Nothing is opened for it but topics with policies, and those that a killed broker has left open: only an opening tells where
these end.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection, Iterable
from typing import Final

from broker.managed_ledger.managed_ledger_info import ROOT, read_nodes
from broker.managed_ledger.records.pulsar_records import decode_ledger_list
from broker.service.lifecycle.dormancy import Dormancy, in_groups, is_of_brokers
from broker.service.lifecycle.rounds import Defects
from broker.service.topics.stored_record import record_of_stored
from broker.service.topics.topic_registry import TopicRegistry
from foundation.model.errors import BrokerError, ServiceNotReady, TopicNotFound
from foundation.model.topic_name import PERSISTENT, TopicName, parse_topic_name
from foundation.units import NS_PER_SECOND

log = logging.getLogger("magnetar")

QUIET_S: Final = 1.0
"""Time without an opened topic after which the filling goes on."""
WAITS_MAX: Final = 30
"""So often the filling waits for such a time, at most: expiry and sums need the records."""
SHARED_PAUSE_S: Final = 0.01
"""Pause after each group of reads on a shared store: 2,000 topics a second at most, three reads each, of a server that has
others to serve."""
REFILL_NS: Final = 600 * NS_PER_SECOND
"""Time after which a broker on a shared store lists its topics again."""
POLICIES_RETRY_NS: Final = 10 * NS_PER_SECOND
"""Time until policies of topics that could not be read are tried again: another broker may have read them at that moment."""


class DormantFilling:
    """Fills the records of one broker."""

    def __init__(self, registry: TopicRegistry, dormancy: Dormancy) -> None:
        """`dormancy` opens the topics that were left open."""
        self._registry, self._dormancy = registry, dormancy
        self._loads = self._waits = 0
        self._listed_ns = self._policies_tried_ns = registry.now_ns()
        # Namespaces whose topics have policies that could not be read.
        self._unread: set[str] = set()
        self.title = "records of dormant topics"
        """Name of the work, for log lines."""
        self.running = False
        """True during a run; the next one leaves itself out."""

    async def run(self) -> None:
        """Fills what is missing; does nothing once all is filled, and where topics do not fall asleep."""
        registry, dormant = self._registry, self._registry.dormant
        if self.running:
            return
        if not registry.settings.dormant_after_s:
            # Nothing is noted: all is to be filled again once topics fall asleep.
            dormant.missing.clear()
            dormant.filled_parts.clear()
            dormant.filled = False
            return
        owned = {*registry.ownership.parts()}
        # A bundle that was divided is none any more.
        dormant.filled_parts &= owned
        parts = owned - dormant.filled_parts
        missing = dormant.missing.take(registry.now_ns())
        dormant.filled = not parts and not missing
        if registry.ownership.is_shared and registry.now_ns() - self._listed_ns >= REFILL_NS:
            self._listed_ns = registry.now_ns()
            parts = owned
        if parts or missing:
            await self._run(parts, missing)
        elif self._unread and registry.now_ns() - self._policies_tried_ns >= POLICIES_RETRY_NS:
            await self._load_unread(owned)

    async def _run(self, parts: set[str], missing: Collection[str]) -> None:
        registry, dormant = self._registry, self._registry.dormant
        self.running = True
        self._waits = 0
        # Now: one that is given up and taken again meanwhile is to be filled once more.
        dormant.filled_parts |= parts
        defects, filled = Defects(), False
        try:
            before = dormant.count
            left_open: list[str] = []
            await self._fill_topics(map(parse_topic_name, missing), None, left_open, defects)
            if parts:
                await self._fill(parts, left_open, defects)
            await self._dormancy.do_due(left_open)
            dormant.filled = dormant.filled_parts >= {*registry.ownership.parts()}
            if parts and (dormant.count != before or left_open):
                log.info("%d topics on disk are dormant, %d were left open", dormant.count, len(left_open))
            filled = True
        except BrokerError as error:
            log.warning("! %s could not be read, tried again: %s", self.title, error)
        finally:
            if not filled:
                dormant.filled_parts -= parts
                for name in missing:
                    dormant.note_missing(name, failed=True)
            dormant.reading.clear()
            self.running = False
            defects.report(self.title)

    async def _fill(self, parts: Collection[str], left_open: list[str], defects: Defects) -> None:
        """Adds the records of these parts; appends the names of topics that must be opened. Raises BrokerError."""
        metadata = self._registry.environment.metadata
        for namespace in self._namespaces_of(parts):
            await self._load_policies(namespace, defects)
            nodes = await metadata.children(f"{ROOT}/{namespace}/{PERSISTENT}")
            names = (TopicName.of_ledger_name(f"{namespace}/{PERSISTENT}/{node}") for node in nodes)
            await self._fill_topics(names, parts, left_open, defects)

    async def _fill_topics(
        self,
        names: Iterable[TopicName],
        parts: Collection[str] | None,
        left_open: list[str],
        defects: Defects,
    ) -> None:
        """Adds the records of those of the topics that are in these parts, None for all. As `_fill`."""
        registry, is_shared = self._registry, self._registry.environment.metadata.is_shared
        # A group takes a turn of the loop or more: some milliseconds.
        for group in in_groups(names):
            await self._let_openings_pass()
            # Without those that are given up by now.
            owned = {*registry.ownership.parts()}
            if parts is not None:
                owned &= {*parts}
            waiting = [name for name in group if self._lacks_record(name, owned)]
            registry.dormant.reading = {str(name) for name in waiting}
            # One number for all: each would be an object of 32 bytes.
            now_ns = registry.now_ns()
            added = [self._add(name, now_ns, left_open, defects) for name in waiting]
            # All end first: the next run may read the same topics.
            for error in await asyncio.gather(*added, return_exceptions=True):
                if error is not None:
                    raise error
            await asyncio.sleep(SHARED_PAUSE_S if waiting and is_shared else 0)

    async def _load_unread(self, owned: Collection[str]) -> None:
        self.running = True
        defects = Defects()
        # Others are deleted, or have no bundle here any more.
        unread, self._unread = self._unread.intersection(self._namespaces_of(owned)), set()
        try:
            for namespace in unread:
                await self._load_policies(namespace, defects)
        finally:
            self.running = False
            defects.report(self.title)

    async def _load_policies(self, namespace: str, defects: Defects) -> None:
        """Has the policies of the namespace's topics read, or notes that they could not be read."""
        registry = self._registry
        loads = registry.loads
        try:
            # Any topic of the namespace loads those of all.
            await registry.namespaces.stored.of_topics.load(
                TopicName.of_ledger_name(f"{namespace}/{PERSISTENT}/any")
            )
        except BrokerError as error:
            log.warning("! policies of topics of %s could not be read, tried again: %s", namespace, error)
            self._unread.add(namespace)
        except Exception as error:  # noqa: BLE001
            # As in `_add`.
            defects.add(namespace, error)
            self._unread.add(namespace)
        self._policies_tried_ns = registry.now_ns()
        # The filling does not wait for the topic that it has opened for this.
        self._loads += registry.loads - loads

    def _namespaces_of(self, parts: Collection[str]) -> list[str]:
        namespaces = self._registry.namespaces
        every = [one for tenant in namespaces.tenants() for one in namespaces.names(tenant)]
        if not self._registry.ownership.is_shared:
            return every
        wanted = {part.rpartition("/")[0] for part in parts}
        return [one for one in every if one in wanted]

    async def _let_openings_pass(self) -> None:
        """Waits while topics are opened."""
        while self._loads != self._registry.loads and self._waits < WAITS_MAX:
            self._loads = self._registry.loads
            self._waits += 1
            await asyncio.sleep(QUIET_S)

    def _lacks_record(self, name: TopicName, owned: Collection[str]) -> bool:
        registry = self._registry
        if registry.dormant.get(str(name)) is not None or is_of_brokers(name, self._dormancy.kept):
            return False
        return (
            registry.namespaces.exists(name.namespace)
            and registry.ownership.bundle_of(name) in owned
            and self._is_settled(name)
        )

    def _is_settled(self, name: TopicName) -> bool:
        """Returns True for a topic that is closed; has the next run look again at one that is being opened."""
        if self._registry.is_settled(name):
            return True
        if str(name) not in self._registry.topics:
            # The opening may fail.
            self._registry.dormant.note_missing(str(name), failed=False)
        return False

    async def _add(self, name: TopicName, now_ns: int, left_open: list[str], defects: Defects) -> None:
        registry, metadata = self._registry, self._registry.environment.metadata
        try:
            await registry.check_open(name)
        except (TopicNotFound, ServiceNotReady) as error:
            log.debug("%s has no record: %s", name, error)
            return
        nodes = await read_nodes(metadata, name.ledger_name)
        # One that was opened or deleted during the read may have other nodes by now.
        if nodes is None or str(name) not in registry.dormant.reading or not self._is_settled(name):
            return
        try:
            info = decode_ledger_list(nodes.info.value)
            if info.deleted:
                return  # The next opening finishes the deletion and makes the topic anew; nobody has asked for that.
            record = record_of_stored(info, nodes, now_ns, keeps_nodes=not metadata.is_shared)
        except BrokerError as error:
            # No broker can open it; a client is told why.
            log.debug("%s has no record: %s", name, error)
        except Exception as error:  # noqa: BLE001
            # A defect that one topic meets must not keep all later ones without a record.
            defects.add(str(name), error)
        else:
            if record is None:
                left_open.append(str(name))
            else:
                registry.dormant.add(name, record)
