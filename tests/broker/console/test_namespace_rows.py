"""The page of namespaces: open topics with their rates and backlog, and the policies that differ from the broker's."""

from __future__ import annotations

import asyncio

from aiohttp import ClientSession

from broker.compose.broker_service import BrokerService
from tests.broker.console.test_console_stream import publish_and_receive

NAMESPACE = "/admin/v2/namespaces/public/default"


async def test_namespaces_have_topics_rates_backlog_and_differing_policies(
    broker: BrokerService, admin: ClientSession
) -> None:
    client = await asyncio.to_thread(publish_and_receive, broker.addresses.service_url, 3)
    # The last one is the broker's own setting, as a copy of a whole namespace brings it.
    for path, value in (
        ("messageTTL", 77),
        ("maxUnackedMessagesPerConsumer", 5),
        ("maxProducersPerTopic", 0),
    ):
        async with admin.post(f"{NAMESPACE}/{path}", json=value) as answer:
            assert answer.status == 204, await answer.text()
    async with admin.get("/admin/v2/magnetar/console/namespaces") as answer:
        rows = {row["namespace"]: row for row in (await answer.json())["namespaces"]}
    row = rows["public/default"]
    assert row["topics"] == 1
    # Acknowledgements may still be on their way.
    assert 0 <= row["backlog"] <= 3
    assert "messagesIn" in row
    assert {title: value for title, value in row["policies"].items() if isinstance(value, int)} == {
        "seconds until an unread message expires": 77,
        "unacknowledged messages of a consumer": 5,
    }
    await asyncio.to_thread(client.close)
