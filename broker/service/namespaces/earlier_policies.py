"""Takes over policies of namespaces and clusters that an earlier version wrote in another form than Pulsar's.

Versions up to 0.2.0 stored the rate of their own cluster in the place of a map from clusters to rates, the anti-affinity
group and the groups of bookies among the policies in the place of the local policies, and policies of clusters one level
too low.
"""

from __future__ import annotations

import contextlib
import json
import logging
from collections.abc import Mapping

from bookkeeper.metadata.metadata_store import ABSENT, MetadataStore, Put
from broker.service.namespaces.bundles import Bundles
from broker.service.namespaces.stored_forms import (
    BUNDLES_KEY,
    CLUSTERS_ROOT,
    EARLIER_OF_CLUSTERS,
    RATES,
    Document,
    dump,
    is_bare_rate,
)
from foundation.model.errors import BadVersion
from foundation.value import Json

log = logging.getLogger("magnetar.namespaces")


async def take_over(store: MetadataStore, key: str, local_key: str, cluster: str) -> None:
    """Writes the policies under `key`, and local ones under `local_key`, in Pulsar's form. Raises MetadataError."""
    while (found := await store.get(key)) is not None:
        policies, local = _present_form(json.loads(found.value), cluster)
        writes = [Put(key, dump(policies), found.version)]
        if local:
            present = await store.get(local_key)
            known = {} if present is None else json.loads(present.value)
            version = ABSENT if present is None else present.version
            writes.append(Put(local_key, dump({**local, **known}), version))
        try:
            await store.put_all(writes)
        except BadVersion:
            # Another broker starts on the store, too.
            continue
        log.info("%s is stored in Pulsar's form now", key)
        return


async def move_up(store: MetadataStore, cluster: str, name: str) -> None:
    """Moves policies of a cluster, both given by their parts of the path, to Pulsar's path. Raises MetadataError."""
    earlier, key = (
        f"{CLUSTERS_ROOT}/{cluster}/{name}/{name}",
        f"{CLUSTERS_ROOT}/{cluster}/{EARLIER_OF_CLUSTERS[name]}",
    )
    if (found := await store.get(earlier)) is None:
        return
    # Another broker that starts on the store may have written it; the copies are equal.
    with contextlib.suppress(BadVersion):
        await store.put(key, found.value, ABSENT)
    await store.delete(earlier)
    log.info("%s stands at Pulsar's path now", key)


def _present_form(policies: Document, cluster: str) -> tuple[Document, Document]:
    """Returns the policies and the local policies; {} for none of these."""
    present = dict(policies)
    for key, names in RATES.items():
        if is_bare_rate(rate := policies.get(key)):
            present.update({name: {cluster: rate} for name in names})
    local: Document = {
        "bookieAffinityGroup": present.pop("bookieAffinityGroup", None),
        "namespaceAntiAffinityGroup": present.pop("antiAffinityGroup", None),
    }
    local = {key: value for key, value in local.items() if value is not None}
    if local:
        local = {BUNDLES_KEY: _bundles(policies), **local, "migrated": False}
    return present, local


def _bundles(policies: Mapping[str, Json]) -> Json:
    return Bundles.stored(policies.get(BUNDLES_KEY)).json()
