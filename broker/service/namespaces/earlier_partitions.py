"""Moves the metadata of partitioned topics that an earlier version wrote to Pulsar's path.

Versions up to 0.2.0 had the domain before the tenant: `/admin/partitioned-topics/<domain>/<tenant>/<namespace>/<topic>`. One
write makes the new key and empties the old one, which is then removed; so at no time are there two counts of a topic, and
a start after a crash goes on. A store without old keys costs two reads.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from typing import Final

from bookkeeper.metadata.metadata_store import ABSENT, MetadataStore, Put, Versioned
from foundation.model.errors import BadVersion
from foundation.model.topic_name import NON_PERSISTENT, PERSISTENT

_MOVED: Final = b'{"moved":true}'
"""Value of an old key whose new one is written; earlier versions refuse to read it."""
_DOMAINS: Final = (PERSISTENT, NON_PERSISTENT)
_SLICE: Final = 100
"""Topics that are moved at once."""

log = logging.getLogger("magnetar.namespaces")


async def move_earlier_partitions(store: MetadataStore, root: str) -> None:
    """Moves all of them below `root`. Raises MetadataError; a later call goes on."""
    moved = 0
    for domain in _DOMAINS:
        async for namespace, names in _earlier(store, root, domain):
            for start in range(0, len(names), _SLICE):
                part = names[start : start + _SLICE]
                await asyncio.gather(*(_move(store, root, domain, namespace, name) for name in part))
            moved += len(names)
    if moved:
        log.info("the metadata of %d partitioned topics now stands at Pulsar's path", moved)


async def _earlier(store: MetadataStore, root: str, domain: str) -> AsyncIterator[tuple[str, list[str]]]:
    """Yields each namespace with old keys, and the last parts of these keys."""
    for tenant in await store.children(f"{root}/{domain}"):
        for name in await store.children(f"{root}/{domain}/{tenant}"):
            if name not in _DOMAINS or await _is_namespace(store, domain, tenant, name):
                yield (
                    f"{tenant}/{name}",
                    await store.children(f"{root}/{domain}/{tenant}/{name}"),
                )


async def _is_namespace(store: MetadataStore, domain: str, tenant: str, name: str) -> bool:
    """Tells an old key of the namespace `tenant/persistent` from a new one of the namespace `persistent/tenant`."""
    old, new = await asyncio.gather(
        store.get(f"/admin/policies/{tenant}/{name}"), store.get(f"/admin/policies/{domain}/{tenant}")
    )
    return old is not None and new is None


async def _move(store: MetadataStore, root: str, domain: str, namespace: str, name: str) -> None:
    old = f"{root}/{domain}/{namespace}/{name}"
    new = f"{root}/{namespace}/{domain}/{name}"
    while (found := await store.get(old)) is not None:
        try:
            if found.value != _MOVED:
                await _copy(store, old, new, found)
                found = Versioned(_MOVED, found.version + 1)
            await store.delete(old, found.version)
        except BadVersion:
            # Another broker starts on the store, too.
            continue
        return


async def _copy(store: MetadataStore, old: str, new: str, found: Versioned) -> None:
    """Writes the new key and empties the old one. BadVersion when another broker changes one of them."""
    emptied = Put(old, _MOVED, found.version)
    if (present := await store.get(new)) is None:
        await store.put_all([Put(new, found.value, ABSENT), emptied])
        return
    log.warning("%s counts, and %s is removed: %r and %r", new, old, present.value, found.value)
    await store.put_all([emptied])
