"""The division of a bundle: which parts its ownership takes, and on which condition it is stored."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

import pytest

from bookkeeper.metadata.documents import Beside
from bookkeeper.metadata.metadata_store import Check
from broker.service.lifecycle.bundle_division import divide
from broker.service.namespaces.bundles import Bundle, BundleRefused, bundles_of
from broker.service.topics.topic_ownership import TopicOwnership
from foundation.model.errors import MetadataError
from tests.fakes.stage import Stage

NAMESPACE = "public/default"
BUNDLE = Bundle(0, 0x40000000)


class AskedOwnership(TopicOwnership):
    """Divides on a condition, and notes what it is asked for."""

    def __init__(self, condition: Beside = tuple) -> None:
        super().__init__()
        self.asked: list[object] = []
        self._condition = condition

    async def split(
        self, bundle: str, parts: Sequence[str], store: Callable[[Beside], Awaitable[None]]
    ) -> None:
        self.asked.append((bundle, list(parts)))
        await store(self._condition)

    async def unload(self, bundle: str, destination: str = "") -> None:
        self.asked.append(bundle)


async def staged(ownership: TopicOwnership) -> Stage:
    stage = Stage()
    await stage.open()
    stage.registry.ownership = ownership
    return stage


async def test_parts_of_a_divided_bundle_are_taken_and_unloaded() -> None:
    ownership = AskedOwnership()
    stage = await staged(ownership)
    await divide(stage.registry, NAMESPACE, BUNDLE, [0x10000000, 0x20000000], unloads=True)
    ends = ("0x00000000_0x10000000", "0x10000000_0x20000000", "0x20000000_0x40000000")
    parts = [f"{NAMESPACE}/{text}" for text in ends]
    assert ownership.asked == [(f"{NAMESPACE}/{BUNDLE}", parts), *parts]
    assert [str(one) for one in bundles_of(stage.registry.namespaces, NAMESPACE).all()[:3]] == list(ends)


async def test_division_is_not_stored_where_its_condition_does_not_hold() -> None:
    stage = await staged(AskedOwnership(lambda: [Check("/namespace/a/lease", 0)]))
    before = bundles_of(stage.registry.namespaces, NAMESPACE)
    with pytest.raises(MetadataError):
        await divide(stage.registry, NAMESPACE, BUNDLE, [BUNDLE.middle()], unloads=False)
    assert bundles_of(stage.registry.namespaces, NAMESPACE) == before


async def test_bundle_that_was_divided_meanwhile_is_refused() -> None:
    stage = await staged(AskedOwnership())
    await divide(stage.registry, NAMESPACE, BUNDLE, [BUNDLE.middle()], unloads=False)
    with pytest.raises(BundleRefused):
        await divide(stage.registry, NAMESPACE, BUNDLE, [0x10000000], unloads=False)
