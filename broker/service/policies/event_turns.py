"""EventTurns: brokers change the policies of a namespace's topics one after the other.

Each broker opens the topic with the events for a change, which takes it from the broker that had it. Brokers that do so at
once would end each other's changes, again and again.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from typing import Final

from bookkeeper.metadata.metadata_store import MetadataStore
from bookkeeper.metadata.turns import Turns
from foundation.model.errors import MetadataError, ServiceNotReady

ROOT: Final = "/loadbalance/magnetar-policy-turns"
"""Below it a queue for each namespace that has policies of topics."""
CHANGE_S: Final = 20.0
"""Seconds for a change, with the wait for its turn: less than brokers wait for each other's answers."""
_NAME_S: Final = 2.0
"""Seconds in which the broker that has the turn is looked up, for the text of an error."""


class EventTurns:
    """The turns of one broker."""

    def __init__(self, store: MetadataStore, broker: Callable[[], str]) -> None:
        """`broker`: returns the name of this broker."""
        self._turns = Turns(store)
        self._broker = broker
        self.close = self._turns.close
        """Ends the work for the turns."""

    @contextlib.asynccontextmanager
    async def turn(self, namespace: str, *, bounded: bool) -> AsyncIterator[None]:
        """Waits for the turn, which ends with the block. Raises ServiceNotReady after `CHANGE_S`.

        `bounded`: the block is cancelled at that time too. Raises ServiceNotReady where the metadata store fails.
        """
        queue = f"{ROOT}/{namespace}"
        try:
            async with asyncio.timeout(CHANGE_S) as limit, self._turns.turn(queue, self._broker()):
                if not bounded:
                    limit.reschedule(None)
                yield
        except TimeoutError:
            why = await self._why_late(queue)
            raise ServiceNotReady(
                f"Policies of topics of {namespace} could not be changed within {CHANGE_S:g} s: {why}. Try again"
            ) from None
        except MetadataError as error:
            raise ServiceNotReady(
                f"Policies of topics of {namespace} cannot be read or changed now, try again: {error}"
            ) from error

    async def forget(self, namespace: str) -> None:
        """Removes the queue of a namespace that was deleted."""
        # A queue that is left costs a node, and nobody needs it.
        with contextlib.suppress(MetadataError):
            await self._turns.forget(f"{ROOT}/{namespace}")

    async def _why_late(self, queue: str) -> str:
        try:
            async with asyncio.timeout(_NAME_S):
                holder = await self._turns.holder(queue)
        except (TimeoutError, MetadataError):
            return "the metadata store does not answer"
        if holder and holder != self._broker():
            return f"broker {holder} has been changing some for long"
        return "there are too many changes, or the storage is slow"
