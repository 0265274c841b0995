"""The policies of topics that Apache Pulsar 5.0 keeps in the metadata store where it is told to (PIP-469).

    /admin/topic-policies/<local or global>/<tenant>/<namespace>/<domain>/<topic>

A node has `TopicPolicies` as JSON, whose members are the fields of an event, and some that follow from these. Pulsar 5.0
obeys them in namespaces that have no topic `__change_events`. Magnetar never writes them.
"""

from __future__ import annotations

import json
import logging
from typing import Final, NamedTuple
from urllib.parse import unquote_plus

from bookkeeper.metadata.metadata_store import MetadataStore
from broker.service.namespaces.stored_policies import TOPICS_ROOT
from broker.service.policies.topic_events import EventKey, fields_of_json
from foundation.model.errors import InvalidTopicName
from foundation.model.topic_name import parse_topic_name
from foundation.value import Json

log = logging.getLogger("magnetar")

_SCOPES: Final = ("local", "global")


class PolicyNode(NamedTuple):
    """The policies of one topic."""

    path: str
    """Key of the metadata store."""
    key: EventKey
    """The topic."""
    fields: dict[str, Json]
    """The fields of its event."""


async def namespaces_with_nodes(store: MetadataStore) -> list[str]:
    """Returns the namespaces with such nodes. Raises MetadataError."""
    found: dict[str, None] = {}
    for scope in _SCOPES:
        for tenant in await store.children(f"{TOPICS_ROOT}/{scope}"):
            for namespace in await store.children(f"{TOPICS_ROOT}/{scope}/{tenant}"):
                found[f"{tenant}/{namespace}"] = None
    return list(found)


async def nodes_of(store: MetadataStore, namespace: str) -> list[PolicyNode]:
    """Returns the nodes of a namespace; one that is no JSON object is told in the log. Raises MetadataError."""
    nodes = []
    for scope in _SCOPES:
        root = f"{TOPICS_ROOT}/{scope}/{namespace}"
        for domain in await store.children(root):
            for name in await store.children(f"{root}/{domain}"):
                path = f"{root}/{domain}/{name}"
                found = await store.get(path)
                if found is None:
                    continue
                try:
                    topic = str(parse_topic_name(f"{domain}://{namespace}/{unquote_plus(name)}").base)
                    key = EventKey(topic, scope == "global")
                    fields = fields_of_json(json.loads(found.value), is_global=key.is_global)
                except (ValueError, InvalidTopicName) as error:
                    log.error("! %s is not taken over: %s", path, error)
                else:
                    nodes.append(PolicyNode(path, key, fields))
    return nodes
