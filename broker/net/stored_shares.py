"""StoredShares: keeps the shares of partitions in the metadata store, so that a restart of the broker moves none.

    /partition-shares/<topic>:<subscription>:<type>    JSON: the numbers of the partitions of each consumer, by its name

Shares are written soon after they have changed, the newest alone. No answer waits for the store: a crash may lose the change
of the last moments, and partitions may then move.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Mapping
from typing import Final, NamedTuple
from urllib.parse import quote, unquote

from bookkeeper.metadata.metadata_store import MetadataStore
from broker.service.transactions.coordinator import Spawn
from foundation.model.errors import MetadataError
from protocol.scalable_answers import HashSegment

ROOT: Final = "/partition-shares"
"""Path in the metadata store."""

Share = tuple[HashSegment, ...]
"""The partitions of one consumer, by number."""

log = logging.getLogger("magnetar.net")


class GroupKey(NamedTuple):
    """The consumers that share one topic."""

    topic: str
    """Full name without a partition."""
    subscription: str
    """Name of the subscription, or of the group of checkpoint consumers."""
    consumer_type: int
    """STREAM or CHECKPOINT of the wire."""


class StoredShares:
    """The shares of all groups in the store."""

    def __init__(self, store: MetadataStore, spawn: Spawn) -> None:
        self._store = store
        self._spawn = spawn
        self._unwritten: dict[GroupKey, Mapping[str, Share]] = {}
        self._one_at_a_time = asyncio.Lock()

    async def read(self) -> dict[GroupKey, dict[str, Share]]:
        """Returns the share of each consumer by its name. MetadataError when the store cannot be read.

        The segments have their numbers alone: ranges and topics are those of the next consumer that joins.
        """
        found = {}
        for name in await self._store.children(ROOT):
            node = await self._store.get(f"{ROOT}/{name}")
            if node is None:
                continue
            try:
                found[_group_of(name)] = _parse(node.value)
            except ValueError as error:
                log.warning("The stored shares %s/%s are damaged and left out: %s", ROOT, name, error)
        return found

    def put(self, group: GroupKey, shares: Mapping[str, Share]) -> None:
        """Writes the shares of a group soon; without any, removes the group."""
        if not self._unwritten:
            self._spawn(self.flush(), "shares of partitions")
        self._unwritten[group] = shares

    async def flush(self) -> None:
        """Writes all changes up to now."""
        async with self._one_at_a_time:
            while self._unwritten:
                group, shares = next(iter(self._unwritten.items()))
                await self._write_one(group, shares)
                # A newer change that came meanwhile is written next.
                if self._unwritten[group] is shares:
                    del self._unwritten[group]

    async def _write_one(self, group: GroupKey, shares: Mapping[str, Share]) -> None:
        key = f"{ROOT}/{_name_of(group)}"
        try:
            if shares:
                numbers = {name: [segment.number for segment in share] for name, share in shares.items()}
                await self._store.put(key, json.dumps(numbers).encode())
            else:
                await self._store.delete(key)
        except MetadataError as error:
            log.warning(
                "The shares of %s, subscription %s, are not stored, so consumers may change partitions at the next "
                "restart: %s",
                group.topic,
                group.subscription,
                error,
            )


def _name_of(group: GroupKey) -> str:
    return f"{quote(group.topic, safe='')}:{quote(group.subscription, safe='')}:{group.consumer_type}"


def _group_of(name: str) -> GroupKey:
    topic, subscription, consumer_type = name.split(":")
    return GroupKey(unquote(topic), unquote(subscription), int(consumer_type))


def _parse(value: bytes) -> dict[str, Share]:
    """Returns the shares by name. ValueError for a value that is none of `_write_one`."""
    shares = json.loads(value)
    if not isinstance(shares, dict):
        raise ValueError("an object is expected")
    for name, numbers in shares.items():
        if not isinstance(numbers, list) or not all(
            type(number) is int and number >= 0 for number in numbers
        ):
            raise ValueError(f"a list of numbers is expected for {name}")
    return {
        name: tuple(HashSegment(number, 0, 0, "") for number in numbers) for name, numbers in shares.items()
    }
