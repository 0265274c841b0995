"""delete_at_owner: a topic that is deleted as a part of something larger goes at its owner, with its clients."""

from __future__ import annotations

from typing import Final
from urllib.parse import quote

from broker.peers.peers import PeerRefused, Peers
from broker.service.topics.topic_ownership import TopicOwnership
from foundation.model.topic_name import TopicName

_MISSING: Final = 404


async def delete_at_owner(ownership: TopicOwnership, peers: Peers, name: TopicName) -> bool:
    """Deletes a topic, its clients included, at the broker that owns it; True once that is done.

    False where this broker has to do it: it owns the topic, or the owner does not know a topic that may be stored. A topic
    that nobody owns gets an owner first, as a lookup gives it. Raises PeerRefused, ServiceNotReady and MetadataError.
    """
    owner = await ownership.located(name)
    if owner == ownership.owner:
        return False
    path = f"/admin/v2/{name.domain}/{name.namespace}/{quote(name.local, safe='')}"
    try:
        await peers.request(owner, "DELETE", path, query={"force": "true"})
    except PeerRefused as error:
        if error.status != _MISSING:
            raise
        return False
    return True
