"""A broker with transactions is alone on its store: its coordinators and the topics of a transaction are in one process.

Such a broker keeps a node that says so, and looks who else is there; one without transactions registers first, and looks for
that node. So of two that start at the same time one at least sees the other, and does not start. What a killed broker has
left ends with its session, and is waited for.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Final

from bookkeeper.metadata.metadata_store import Ephemeral, MetadataStore
from broker.cluster.records import BROKERS
from foundation.model.errors import BadVersion, MetadataError

log = logging.getLogger("magnetar")

ALONE: Final = "/loadbalance/magnetar-alone"
"""The node of a broker with transactions; its value is the broker's name."""
_LOOK_S: Final = 0.5
_REMEDY: Final = (
    "Transactions need all topics in one broker: set transactionCoordinatorEnabled=false on every broker of this metadata"
    " store, or run one broker alone"
)


async def be_alone(store: MetadataStore, name: str, wait_s: float) -> None:
    """Takes the store for the broker `name` alone. MetadataError while others are there for longer than `wait_s`."""

    async def others() -> list[str]:
        return [one for one in await store.children(BROKERS) if one != name]

    await join(store, name, wait_s)
    await _until_gone(others, wait_s)
    await _take(store, name, wait_s)
    # One that has come meanwhile did not see the node.
    await _until_gone(others, 0)


async def _take(store: MetadataStore, name: str, wait_s: float) -> None:
    """Makes the node, in place of one of an earlier life alone: another one's may have been made since `join`."""
    while True:
        try:
            await store.put_all([Ephemeral(ALONE, name.encode())])
            return
        except BadVersion:
            await join(store, name, wait_s)
            node = await store.get(ALONE)
            if node is not None and node.value == name.encode():
                # By version: its session may end meanwhile, and another broker make the next one.
                with suppress(BadVersion):
                    await store.delete(ALONE, node.version)


async def join(store: MetadataStore, name: str, wait_s: float) -> None:
    """Returns once no other broker wants to be alone. MetadataError while one does for longer than `wait_s`."""

    async def alone() -> list[str]:
        node = await store.get(ALONE)
        return [] if node is None or node.value == name.encode() else [node.value.decode(errors="replace")]

    await _until_gone(alone, wait_s)


async def _until_gone(there: Callable[[], Awaitable[list[str]]], wait_s: float) -> None:
    """Waits until nobody is there any more."""
    waited = 0.0
    while found := await there():
        if waited >= wait_s:
            raise MetadataError(f"broker {found[0]} is on this metadata store. {_REMEDY}")
        if not waited:
            log.info("waiting until broker %s has left this metadata store", found[0])
        await asyncio.sleep(_LOOK_S)
        waited += _LOOK_S
