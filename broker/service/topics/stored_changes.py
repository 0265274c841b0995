"""StoredChanges: announces the topics that other brokers of a cluster create and delete.

    watch of a namespace's stored names -> the names read again -> differences to the last read -> TopicEvents

Only namespaces that somebody follows are watched. Most changes are this broker's own and have been announced already, so
watchers of `TopicEvents` receive these twice.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Final

from bookkeeper.metadata.metadata_store import MetadataStore, Stop
from broker.managed_ledger.managed_ledger_info import ROOT
from broker.service.topics.topic_events import TopicEvents
from broker.service.transactions.coordinator import Spawn
from foundation.loop.clock import CallLater
from foundation.model.errors import BrokerError, InvalidTopicName
from foundation.model.topic_name import PERSISTENT, TopicName, parse_topic_name

log = logging.getLogger(__name__)

REST_S: Final = 1.0
"""Seconds between two reads of a namespace's names: a store sends all of them, and 100,000 names are some MB."""


class StoredChanges:
    """The followed namespaces of one broker."""

    def __init__(
        self, metadata: MetadataStore, events: TopicEvents, spawn: Spawn, call_later: CallLater
    ) -> None:
        """Follows none."""
        self._metadata, self._events = metadata, events
        self._spawn, self._call_later = spawn, call_later
        self._followed: dict[str, _Followed] = {}

    async def follow(self, namespace: str) -> Stop:
        """Announces each change that comes after this call; returns a function that ends it.

        A broker alone on its store has nothing to follow. Raises MetadataError.
        """
        if not self._metadata.is_shared:
            return _nothing
        followed = self._followed.get(namespace)
        if followed is None:
            announce = partial(self._announce, namespace)
            followed = _Followed(self._metadata, namespace, announce, self._spawn, self._call_later)
            self._followed[namespace] = followed
        followed.followers += 1
        stop = partial(self._leave, namespace, followed)
        try:
            await followed.open()
        except BaseException:
            # A cancelled request, too, follows no more.
            stop()
            raise
        return stop

    def _leave(self, namespace: str, followed: _Followed) -> None:
        followed.followers -= 1
        if not followed.followers:
            del self._followed[namespace]
            followed.close()

    def _announce(self, namespace: str, quoted: str, exists: bool) -> None:
        local = TopicName.local_from_ledger_name(quoted)
        # Another program may have stored a name that no client can use.
        with suppress(InvalidTopicName):
            name = parse_topic_name(f"{PERSISTENT}://{namespace}/{local}")
            self._events.announce(name, exists=exists)


class _Followed:
    """The stored names of one namespace, as read last."""

    def __init__(
        self,
        metadata: MetadataStore,
        namespace: str,
        announce: Callable[[str, bool], None],
        spawn: Spawn,
        call_later: CallLater,
    ) -> None:
        self.followers = 0
        self._metadata, self._key = metadata, f"{ROOT}/{namespace}/{PERSISTENT}"
        self._announce, self._spawn, self._call_later = announce, spawn, call_later
        self._names: set[str] = set()
        self._stop: Stop | None = None
        self._due = False
        self._busy = False
        # A second follower has to wait for the names of the first one's read.
        self._one_read = asyncio.Lock()

    async def open(self) -> None:
        """Returns once the names are known and watched. Raises MetadataError."""
        async with self._one_read:
            if self._stop is None:
                stop = await self._metadata.watch_children(self._key, self._changed)
                try:
                    self._names = set(await self._metadata.children(self._key))
                except BaseException:
                    stop()
                    raise
                self._stop = stop

    def close(self) -> None:
        """Ends the watch."""
        if self._stop is not None:
            self._stop()

    def _changed(self) -> None:
        self._due = True
        if not self._busy:
            self._busy = True
            self._spawn(self._read(), "topics of other brokers")

    async def _read(self) -> None:
        try:
            async with self._one_read:
                # Changes from here on need another read.
                self._due = False
                names = set(await self._metadata.children(self._key))
                before, self._names = self._names, names
                for name in sorted(before ^ names):
                    self._announce(name, name in names)
        except BrokerError as error:
            log.warning("! topics of other brokers below %s cannot be read: %s", self._key, error)
            self._due = True
        finally:
            # Also after a defect, or no later change would be read.
            self._call_later(REST_S, self._rested)

    def _rested(self) -> None:
        self._busy = False
        if self._due and self.followers:
            self._changed()


def _nothing() -> None:
    """Ends what was not begun."""
