"""Nonsense for every policy of backlogs, lives and holes: 4xx, the policy stays as it was, no traceback."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Final
from urllib.parse import quote

import pytest
from aiohttp import ClientSession

from broker.compose.broker_service import BrokerService
from tests.broker.admin.publishing import publish_plain
from tests.broker.admin.test_rest import PERSISTENT

NAMESPACE: Final = "/admin/v2/namespaces/public/default"
TOPIC: Final = "/admin/v2/persistent/public/default/t"
NUMBERS: Final = ["100000000000000000000000", '"x"', "NaN", "-Infinity", "[]", "{}", "true", "1e400"]
MEMBERS: Final = ["100000000000000000000000", '"x"', "NaN", "-Infinity", "[]", "{}", "1e400"]
QUOTA: Final = "backlogQuota?backlogQuotaType=destination_storage"


@pytest.fixture(autouse=True)
def no_traceback(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    yield
    assert [record for record in caplog.records if record.exc_info] == []
    assert [record for record in caplog.records if record.levelno >= logging.ERROR] == []


async def sent(admin: ClientSession, method: str, path: str, text: str | None = None) -> tuple[int, str]:
    async with admin.request(method, path, data=text) as answer:
        return answer.status, await answer.text()


async def policy_set(admin: ClientSession, base: str, name: str, value: str) -> tuple[int, str]:
    if (base, name) == (TOPIC, "messageTTL"):
        return await sent(admin, "POST", f"{base}/{name}?messageTTL={quote(value, safe='')}")
    return await sent(admin, "POST", f"{base}/{name}", value)


def bodies(name: str) -> list[str]:
    """Values that are refused for a policy."""
    if name == "messageTTL":
        return [*NUMBERS, "-1", str(-(10**23))]
    forms = {
        "retention": [
            '{"retentionTimeInMinutes": %s, "retentionSizeInMB": 1}',
            '{"retentionTimeInMinutes": 1, "retentionSizeInMB": %s}',
        ],
        "unackedHoleRedelivery": ['{"enabled": true, "periodSeconds": %s}'],
        QUOTA: ['{"limitSize": %s, "policy": "producer_exception"}'],
    }
    found = [form % value for form in forms[name] for value in [*MEMBERS, "-100000000000000000000000"]]
    if name == "retention":
        found.append('{"retentionTimeInMinutes": -2, "retentionSizeInMB": 1}')
    if name == QUOTA:
        found.append('{"limitSize": 1, "policy": "give_up"}')
    if name == "unackedHoleRedelivery":
        found += ['{"enabled": "often"}', '{"enabled": true, "periodSeconds": 0}']
    return found


GOOD: Final = {
    "messageTTL": "3600",
    "retention": '{"retentionTimeInMinutes": 60, "retentionSizeInMB": 100}',
    "unackedHoleRedelivery": '{"enabled": true, "periodSeconds": 60}',
    QUOTA: '{"limitSize": 1000, "policy": "producer_exception"}',
}


@pytest.mark.parametrize(
    ("base", "name"),
    [
        # The redelivery of lost entries is a policy of topics alone.
        *[(NAMESPACE, name) for name in GOOD if name != "unackedHoleRedelivery"],
        *[(TOPIC, name) for name in GOOD],
    ],
)
async def test_nonsense_is_refused_and_changes_nothing(
    admin: ClientSession, broker: BrokerService, base: str, name: str
) -> None:
    await publish_plain(broker, f"{PERSISTENT}/t", 1)
    status, text = await policy_set(admin, base, name, GOOD[name])
    assert status == 204, text
    shown = f"{base}/backlogQuotaMap" if name == QUOTA else f"{base}/{name}"
    before = await sent(admin, "GET", shown)
    assert before[0] == 200
    wrong = []
    for body in bodies(name):
        status, text = await policy_set(admin, base, name, body)
        if not 400 <= status < 500:
            wrong.append((body, status, text))
    assert wrong == []
    assert await sent(admin, "GET", shown) == before
