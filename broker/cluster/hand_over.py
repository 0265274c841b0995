"""HandOver: a bundle that this broker gives up gets its next owner, and clients of its topics are told which.

topics are closed, their clients hear nothing yet -> the lease is given up -> another broker takes the bundle
-> clients are told its addresses, and connect without a lookup (PIP-307)
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Final

from broker.cluster.leases import Leases
from broker.peers.peers import Peers
from broker.service.namespaces.bundles import bundles_of, topic_with_hash
from broker.service.namespaces.namespaces import Namespaces
from broker.service.successor import NOBODY, ServiceUrls, Successor
from broker.service.topics.topic_ownership import Addresses, Owner
from foundation.model.errors import BrokerError, OwnerUncertain
from foundation.model.topic_name import TopicName, parse_topic_name

log = logging.getLogger("magnetar")

HAND_OVER_S: Final = 2.0
"""Longest wait for the next owner of a bundle that is given up; clients of its topics wait as long."""

CloseBundle = Callable[[str, Successor | None], Awaitable[None]]
"""Closes the topics of a bundle, whose clients wait for the successor."""
FindOwner = Callable[[str, bool], Awaitable[Owner]]
"""(bundle, whether this broker shall take it) -> the answer to a lookup here."""


class HandOver:
    """Bundles are named `tenant/namespace/range`."""

    def __init__(self, leases: Leases, peers: Peers, namespaces: Namespaces, find_owner: FindOwner) -> None:
        self.leaving: set[str] = set()
        """Bundles that are given up: nobody opens a topic of them here."""
        self.is_stop = False
        """True once the broker stops: it repeats no request that had no answer within HAND_OVER_S."""
        self._unanswered: set[tuple[str, bool]] = set()
        """Of a stop: the brokers asked, and whether they were to take a bundle."""
        self._leases = leases
        self._peers = peers
        self._namespaces = namespaces
        self._find_owner = find_owner

    def staying(self) -> list[str]:
        """Returns the bundles of this broker without those that it gives up."""
        return [bundle for bundle in self._leases if bundle not in self.leaving]

    def check(self, bundle: str) -> None:
        """Raises OwnerUncertain for a bundle that is given up, in Apache's words."""
        if bundle in self.leaving:
            raise OwnerUncertain(f"Namespace bundle {bundle} is being unloaded")

    def is_silent(self, broker_id: str, *, authoritative: bool) -> bool:
        """Returns True for a broker that gave no answer in this stop, as the one to take a bundle or as the leader."""
        return (broker_id, authoritative) in self._unanswered

    async def give_up(
        self,
        bundle: str,
        close: CloseBundle,
        own: Addresses,
        to: Addresses | None,
        given_up: Callable[[], None],
    ) -> None:
        """Closes the topics and gives the bundle up: `to` a broker, or where None to any; `own`: this one.

        `given_up` is called before another broker is asked to take it. Raises MetadataError, and OwnerUncertain while
        that is done already.
        """
        self.check(bundle)
        self.leaving.add(bundle)
        successor, found = Successor(), NOBODY
        try:
            try:
                await close(bundle, successor)
                await self._leases.release(bundle)
                given_up()
            finally:
                self.leaving.discard(bundle)
            if successor.is_awaited or to is not None:
                found = await self._next_owner(bundle, own, to)
        finally:
            # Also after an error: clients wait.
            successor.known(found)

    async def _next_owner(self, bundle: str, own: Addresses, to: Addresses | None) -> ServiceUrls:
        """Has a broker take the bundle; NOBODY where that fails, or its URLs may be wrong: the next lookup finds one."""
        owner = None
        try:
            async with asyncio.timeout(HAND_OVER_S):
                if to is None or to == own:
                    owner = await self._find_owner(bundle, to is not None)
                else:
                    owner = Owner(to, is_redirect=True, authoritative=True)
                found = owner.addresses
                if owner.is_redirect:
                    topic, flag = self._topic_in(bundle), owner.authoritative
                    found = await self._peers.find_owner(topic, owner.addresses, authoritative=flag)
        except (BrokerError, TimeoutError) as error:
            if self.is_stop and isinstance(error, TimeoutError) and owner is not None:
                self._unanswered.add((owner.addresses.broker_id, owner.authoritative))
            reason = str(error) or "no answer"
            log.warning("! nobody has taken bundle %s yet; clients look it up: %s", bundle, reason)
            return NOBODY
        if to is not None and found.broker_id != to.broker_id:
            log.warning(
                "! bundle %s was to move to %s, which says that its owner is %s",
                bundle,
                to.broker_id,
                found.broker_id,
            )
        if found.broker_id == own.broker_id and bundle not in self._leases:
            # The asked broker has not read yet that this one gave the bundle up.
            return NOBODY
        if own.has_further_urls or found.has_further_urls:
            # A connection does not say which listener the client's lookup named, perhaps at another broker.
            return NOBODY
        return found.service_urls

    def _topic_in(self, bundle: str) -> TopicName:
        """Returns a topic of the bundle, which need not exist: a lookup names one."""
        namespace, _, text = bundle.rpartition("/")
        found = bundles_of(self._namespaces, namespace).find(namespace, text)
        # Computed, not searched for: of a bundle at named positions one name in 2**32 may be.
        return parse_topic_name(topic_with_hash(namespace, found.low))
