"""publish_at_owner: a text of this broker for a topic that another one owns."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import Final
from urllib.parse import quote

from broker.peers.peers import PeerRefused, Peers
from broker.service.namespaces.namespaces import Json
from broker.service.topics.topic_ownership import Addresses
from foundation.model.errors import ServiceNotReady
from foundation.model.topic_name import TopicName

_MISSING: Final = 404
_BYTES: Final = json.dumps({"name": "", "schema": "", "type": "BYTES", "properties": {}})
"""No schema: that of texts would be stored with the topic."""


async def publish_at_owner(peers: Peers, to: Addresses, name: TopicName, producer: str, text: str) -> None:
    """Returns once the text is stored; a topic that is missing is created.

    Raises PeerRefused and ServiceNotReady.
    """
    rest = f"{name.domain}/{name.namespace}/{quote(name.local, safe='')}"
    body: Json = {"producerName": producer, "valueSchema": _BYTES, "messages": [{"payload": text}]}
    try:
        found = await peers.request(to, "POST", f"/topics/{rest}", body=body)
    except PeerRefused as error:
        if error.status != _MISSING:
            raise
        with suppress(PeerRefused):  # Another broker was quicker.
            await peers.request(to, "PUT", f"/admin/v2/{rest}")
        found = await peers.request(to, "POST", f"/topics/{rest}", body=body)
    answer = found.body if isinstance(found.body, dict) else {}
    results = answer.get("messagePublishResults")
    for one in results if isinstance(results, list) else ():
        if isinstance(one, dict) and one.get("errorCode"):
            raise ServiceNotReady(f"broker {to.broker_id} did not store it: {one.get('errorMsg')}")
