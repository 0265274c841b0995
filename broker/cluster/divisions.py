"""Divisions: a broker divides a bundle of its own, and gives up the leases of bundles that a division has ended.

the parts are taken, which nobody else looks up yet -> the division is stored, in one write with a check of the lease of the
bundle and of each part -> the lease of the bundle is given up; topics stay open

So a bundle is divided by its owner alone, who has the parts from the first moment on. Whatever ends that in its middle, each
hash has one bundle before and after the write. Where its answer is lost, the leases stay until the broker has read which of
them have bundles.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import Final

from bookkeeper.metadata.documents import Beside
from bookkeeper.metadata.metadata_store import MetadataStore
from broker.cluster.leases import Leases
from broker.cluster.moves import Moves
from broker.service.namespaces.bundles import Bundle, Bundles, bundles_of
from broker.service.namespaces.namespaces import Namespaces
from broker.service.topics.topic_ownership import MoveKind
from foundation.model.errors import BadVersion, MetadataError, OwnerUncertain, ServiceNotReady

log = logging.getLogger("magnetar")

DIVIDED: Final = "the bundle was divided"
NOT_DIVIDED: Final = "the bundle was not divided"
"""Why a part is given up."""
DELETED: Final = "its namespace was deleted"


class Divisions:
    """Bundles are named `tenant/namespace/range`."""

    def __init__(self, store: MetadataStore, namespaces: Namespaces, moves: Moves) -> None:
        self._store = store
        self._namespaces = namespaces
        self._moves = moves
        self._running: set[str] = set()
        """Bundles that are being divided."""
        self._planned: set[str] = set()
        """Their parts."""

    async def exists(self, bundle: str) -> bool:
        """Reads whether a bundle is one of its namespace's, or will be as soon as this broker has divided another one.

        Raises MetadataError.
        """
        if bundle in self._planned:
            return True
        namespace, _, text = bundle.rpartition("/")
        await self._namespaces.stored.read_newest(namespace)
        return self._namespaces.exists(namespace) and text in bundles_of(self._namespaces, namespace)

    async def divide(
        self,
        bundle: str,
        parts: Sequence[str],
        leases: Leases,
        acquire: Callable[[str, str], Awaitable[object]],
        store: Callable[[Beside], Awaitable[None]],
    ) -> None:
        """Takes the parts, stores the division with its condition, and gives the bundle up.

        `acquire` takes a part for a reason. Raises ServiceNotReady where this broker does not own the bundle or its parts,
        MetadataError, and what `store` raises.
        """
        if bundle not in leases:
            raise ServiceNotReady(f"Namespace bundle {bundle} is not owned by this broker")
        if bundle in self._running:
            raise OwnerUncertain(f"Namespace bundle {bundle} is being divided")
        self._running.add(bundle)
        self._planned.update(parts)
        try:
            for part in parts:
                await acquire(part, DIVIDED)
                if part not in leases:
                    raise ServiceNotReady(f"Namespace bundle {part} has another owner")
            # Asked at each write: the session may have ended, or the bundle been unloaded.
            await store(lambda: [leases.check(one) for one in (bundle, *parts)])
        except BadVersion as error:
            raise OwnerUncertain(f"This broker has lost a lease while it divided {bundle}") from error
        finally:
            self._running.discard(bundle)
            self._planned.difference_update(parts)
        try:
            await leases.release(bundle)
        except MetadataError as error:
            # Its node is removed later.
            log.warning(
                "! the lease of bundle %s, which was divided, cannot be removed yet: %s", bundle, error
            )
        self._moves.note(MoveKind.GIVEN_UP, bundle, DIVIDED)

    async def ended(self, bundles: Sequence[str]) -> list[tuple[str, str]]:
        """Returns those owned bundles that are not there, each with the reason. Raises MetadataError."""
        unknown = list(self._unknown(bundles))
        if unknown:
            # A division whose answer was lost may be on its way to this broker's part of the store.
            await self._store.sync()
            for namespace in {bundle.rpartition("/")[0] for bundle in unknown}:
                await self._namespaces.stored.read_newest(namespace)
        return [(bundle, self._why(bundle)) for bundle in self._unknown(bundles)] if unknown else []

    def _unknown(self, bundles: Sequence[str]) -> Iterator[str]:
        known: dict[str, Bundles | None] = {}
        for bundle in bundles:
            namespace, _, text = bundle.rpartition("/")
            if namespace not in known:
                known[namespace] = self._bundles(namespace)
            found = known[namespace]
            if bundle not in self._planned and (found is None or text not in found):
                yield bundle

    def _bundles(self, namespace: str) -> Bundles | None:
        return bundles_of(self._namespaces, namespace) if self._namespaces.exists(namespace) else None

    def _why(self, bundle: str) -> str:
        namespace, _, text = bundle.rpartition("/")
        known = self._bundles(namespace)
        if known is None:
            return DELETED
        return DIVIDED if len(known.overlapping(Bundle.parsed(text))) > 1 else NOT_DIVIDED
