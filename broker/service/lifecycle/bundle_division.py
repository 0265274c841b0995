"""The division of a bundle: its broker owns the parts before the division is stored, and the bundle until it is."""

from __future__ import annotations

from collections.abc import Sequence

from bookkeeper.metadata.documents import Beside
from broker.service.namespaces.bundles import Bundle, Bundles, bundles_of
from broker.service.namespaces.stored_forms import BUNDLES_KEY
from broker.service.topics.topic_registry import TopicRegistry
from foundation.value import Json


async def divide(
    registry: TopicRegistry, namespace: str, bundle: Bundle, at: Sequence[int], *, unloads: bool
) -> None:
    """Divides a bundle of a namespace at these hashes; with `unloads` its parts get new owners.

    Raises BundleRefused for a hash outside of the bundle, and for a bundle that was divided meanwhile; ServiceNotReady where
    this broker does not own it; MetadataError.
    """
    namespaces, ownership = registry.namespaces, registry.ownership
    known = bundles_of(namespaces, namespace)
    parts = [
        f"{namespace}/{one}" for one in known.split(bundle, at).all() if bundle.low <= one.low < bundle.high
    ]

    def divided(stored: Json) -> Json:
        # Of the newest bundles: another split may have been stored since `bundle` was found.
        newest = Bundles.stored(stored)
        return newest.split(newest.find(namespace, str(bundle)), at).json()

    async def store(condition: Beside) -> None:
        await namespaces.change_local_policy(namespace, BUNDLES_KEY, divided, known.json(), condition)

    await ownership.split(f"{namespace}/{bundle}", parts, store)
    if unloads:
        for part in parts:
            await ownership.unload(part)
