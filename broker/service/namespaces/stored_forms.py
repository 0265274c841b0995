"""The forms of policies in the metadata store, where they are not one value under one key. Pure functions.

Everything here is Pulsar's form; `earlier_policies.py` brings stores of versions up to 0.2.0 into it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Final, TypeAlias

from foundation.model.errors import BrokerError
from foundation.value import Json

Document: TypeAlias = "dict[str, Json]"
"""All values of a tenant, a namespace or a topic: what is stored under one key."""
CLUSTERS_ROOT: Final = "/admin/clusters"
"""Pulsar's path of clusters."""
ISOLATION: Final = "namespaceIsolationPolicies"
"""Name of the isolation policies below a cluster."""
CLUSTER_POLICIES: Final = "policies"
"""Name of the policies of a cluster below it, which have its migration."""
EARLIER_OF_CLUSTERS: Final[Mapping[str, str]] = {ISOLATION: ISOLATION, "migration": CLUSTER_POLICIES}
"""Names below a cluster under which versions up to 0.2.0 had one more level of the same name, and the names now."""
REPLICATION: Final = "replication_clusters"
"""Key of the clusters of a namespace, in the stored policies and in Pulsar's JSON."""
DELETED: Final = "deleted"
"""Key of the mark of a namespace that is being deleted, in the stored policies and in Pulsar's JSON."""
BUNDLES_KEY: Final = "bundles"
"""Key of the bundles, in the policies and in the local policies. Those of the local ones count."""
LOCAL: Final = frozenset({BUNDLES_KEY, "bookieAffinityGroup", "namespaceAntiAffinityGroup"})
"""Keys of the local policies of a namespace, which hold in one cluster alone."""
RATES: Final[Mapping[str, tuple[str, ...]]] = {
    "topicDispatchRate": ("topicDispatchRate", "clusterDispatchRate"),
    "subscriptionDispatchRate": ("subscriptionDispatchRate",),
    "replicatorDispatchRate": ("replicatorDispatchRate",),
    "clusterSubscribeRate": ("clusterSubscribeRate",),
    "publishMaxMessageRate": ("publishMaxMessageRate",),
}
"""Keys of policies that are stored as maps from clusters to rates, and the keys that have the same value."""
DOCUMENT_BYTES_MAX: Final = 1_000_000
"""Bytes of all values of one tenant, namespace or topic, which are stored together; a node of ZooKeeper has 1 MiB."""
_EARLIER: Final = ("antiAffinityGroup", "bookieAffinityGroup")
"""Keys of policies that versions up to 0.2.0 had in the place of local policies."""


class DocumentTooLarge(BrokerError):
    """A tenant, namespace or topic would get more values than one node of ZooKeeper holds."""

    status = 413
    """HTTP status of the answer."""


def dump(value: Mapping[str, object]) -> bytes:
    """Returns the stored form."""
    return json.dumps(dict(value), separators=(",", ":")).encode()


def dump_bounded(value: Mapping[str, object], before: Mapping[str, object] | None) -> bytes:
    """Returns the stored form. Raises DocumentTooLarge: each later change would write, and copy, all of it.

    A value that is smaller than the one before may pass, or nothing could be taken out of a large one; so may the mark of
    a deletion.
    """
    data = dump(value)
    if len(data) > DOCUMENT_BYTES_MAX and len(data) > len(dump(before or {})) and DELETED not in value:
        raise DocumentTooLarge(
            f"{len(data)} bytes of roles, policies and properties; {DOCUMENT_BYTES_MAX} are allowed: remove some first"
        )
    return data


def is_bare_rate(value: object) -> bool:
    """Returns True for a rate of the own cluster alone, as versions up to 0.2.0 stored it."""
    return isinstance(value, dict) and not all(isinstance(one, dict) for one in value.values())


def is_earlier(policies: Mapping[str, object]) -> bool:
    """Returns True for policies of a namespace that such a version has stored."""
    return any(key in policies for key in _EARLIER) or any(is_bare_rate(policies.get(key)) for key in RATES)
