"""The page of the cluster: the brokers on the metadata store, their bundles, and the moves of bundles with their reasons."""

from __future__ import annotations

from typing import Final

from broker.service.namespaces.namespaces import Json
from broker.service.topics.topic_ownership import TopicOwnership

BUNDLES_MAX: Final = 200
"""Bundles of one broker that are listed; the others are counted."""
MOVES_MAX: Final = 100
"""Moves that are listed, the newest."""


async def cluster_page(ownership: TopicOwnership) -> dict[str, Json]:
    """Returns the answer. Raises MetadataError while the metadata store does not answer."""
    seen, counts = await ownership.seen(), ownership.counts
    brokers: list[Json] = [
        {
            "name": name,
            "isSelf": name == ownership.owner.broker_id,
            "leads": name == seen.leader,
            "adminUrl": one.addresses.admin_url or one.addresses.admin_url_tls,
            "serviceUrl": one.addresses.service_url or one.addresses.service_url_tls,
            "used": one.used,
            "messageRate": one.rate,
            "reportAgeMs": one.age_ms,
            "bundleCount": len(one.bundles),
            "bundles": list(one.bundles[:BUNDLES_MAX]),
        }
        for name, one in sorted(seen.brokers.items())
    ]
    moves: list[Json] = [
        {
            "atMs": move.at_ms,
            "bundle": move.bundle,
            "broker": move.broker,
            "kind": str(move.kind),
            "why": move.why,
        }
        for move in seen.moves[:MOVES_MAX]
    ]
    return {
        "isShared": ownership.is_shared,
        "leader": seen.leader,
        "isServing": counts.is_serving,
        "sessionsEnded": counts.sessions_ended,
        "brokers": brokers,
        "moves": moves,
    }
