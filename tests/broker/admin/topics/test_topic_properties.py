"""Properties of topics: given at creation, merged, removed, kept by a restart, and never the broker's own."""

from __future__ import annotations

import pytest
from aiohttp import ClientSession

from broker.compose.broker_service import BrokerService
from foundation.model.topic_name import parse_topic_name
from tests.broker.admin.test_rest import call, refusal

TOPIC = "/admin/v2/persistent/public/default/props"
PROPERTIES = f"{TOPIC}/properties"


async def test_properties_are_given_merged_removed_and_kept(
    broker: BrokerService, admin: ClientSession
) -> None:
    assert await call(admin, f"PUT {TOPIC}", {"k": "v"}) == (204, "")
    assert await call(admin, f"PUT {PROPERTIES}", {"z": "y"}) == (204, "")
    assert await call(admin, f"GET {PROPERTIES}") == (200, {"k": "v", "z": "y"})
    assert await call(admin, f"DELETE {PROPERTIES}?key=k") == (204, "")
    assert await call(admin, f"DELETE {PROPERTIES}?key=unknown") == (204, "")
    await broker.registry.unload(parse_topic_name("persistent://public/default/props"))
    assert await call(admin, f"GET {PROPERTIES}") == (200, {"z": "y"})


async def test_partitioned_topic_has_properties_of_its_own(admin: ClientSession) -> None:
    await call(admin, f"PUT {TOPIC}/partitions", 2)
    assert await call(admin, f"PUT {PROPERTIES}", {"a": "b"}) == (204, "")
    assert await call(admin, f"GET {PROPERTIES}") == (200, {"a": "b"})
    status, shown = await call(admin, f"GET {TOPIC}/partitions")
    assert isinstance(shown, dict)
    assert (status, shown["partitions"], shown["properties"]) == (200, 2, {"a": "b"})


@pytest.mark.parametrize(
    ("body", "status"), [({"k": 1}, 400), ([], 400), ({"index": "5"}, 412), ({"topicEpoch": "9"}, 412)]
)
async def test_bad_properties_are_refused_and_leave_no_topic(
    admin: ClientSession, body: object, status: int
) -> None:
    assert (await call(admin, f"PUT {TOPIC}", body))[0] == status
    assert (await refusal(admin, f"GET {PROPERTIES}"))[0] == 404
    await call(admin, f"PUT {TOPIC}")
    assert (await call(admin, f"PUT {PROPERTIES}", body))[0] == status
    assert await call(admin, f"GET {PROPERTIES}") == (200, {})


async def test_removal_without_a_key_or_of_the_brokers_own_is_refused(admin: ClientSession) -> None:
    await call(admin, f"PUT {TOPIC}")
    assert (await refusal(admin, f"DELETE {PROPERTIES}"))[0] == 412
    assert (await refusal(admin, f"DELETE {PROPERTIES}?key=index"))[0] == 412
    name = TOPIC.replace("persistent", "non-persistent", 1)
    await call(admin, f"PUT {name}")
    assert (await refusal(admin, f"PUT {name}/properties", {"a": "b"}))[0] == 406
