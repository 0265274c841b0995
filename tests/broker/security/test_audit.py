"""Lines of the audit trail: their fields, their bound, and texts that would forge a line."""

from __future__ import annotations

import logging

import pytest
from aiohttp import ClientSession
from yarl import URL

from broker.security.audit import LINES_AT_ONCE, PEERS_MAX, AuditTrail, shown
from broker.security.principal import NOBODY, Principal
from tests.support.memory_broker import memory_broker


@pytest.fixture(autouse=True)
def lines_are_captured(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "magnetar.audit")


def test_line_says_who_from_where_what_and_the_outcome(caplog: pytest.LogCaptureFixture) -> None:
    AuditTrail(lambda: 0).wrote(Principal("proxy", "bob"), "1.2.3.4:5", "PUT", "/admin/x", 204, failed=False)
    (line,) = caplog.records
    fields = vars(line)
    assert [
        fields[name] for name in ("role", "original", "peer", "action", "target", "status", "outcome")
    ] == [
        *("proxy", "bob", "1.2.3.4:5", "PUT", "/admin/x", 204, "done"),
    ]


def test_unprintable_characters_are_escaped_and_long_texts_cut() -> None:
    assert shown("a\nb\r\x00\u2028\u202e") == "a\\nb\\r\\x00\\u2028\\u202e"
    assert shown("Ünïcode роль") == "Ünïcode роль"
    assert len(shown("x" * 10_000)) < 600


def test_refused_lines_of_a_peer_are_bounded_and_counted(caplog: pytest.LogCaptureFixture) -> None:
    now = [0]
    audit = AuditTrail(lambda: now[0])
    for port in range(1000):
        audit.refused(NOBODY, f"1.2.3.4:{port}", "GET", "/admin/x", 401)
    assert len(caplog.records) == LINES_AT_ONCE
    audit.refused(NOBODY, "5.6.7.8:1", "GET", "/admin/x", 401)
    assert len(caplog.records) == LINES_AT_ONCE + 1
    now[0] += 10**9
    audit.refused(NOBODY, "1.2.3.4:1", "GET", "/admin/x", 401)
    assert vars(caplog.records[-1])["left_out"] == 1000 - LINES_AT_ONCE
    assert audit.refused_count == 1002


def test_peers_beyond_the_limit_share_one_bound(caplog: pytest.LogCaptureFixture) -> None:
    audit = AuditTrail(lambda: 0)
    for number in range(2 * PEERS_MAX):
        audit.refused(NOBODY, f"peer-{number}:1", "GET", "/admin/x", 401)
    assert len(caplog.records) == PEERS_MAX + LINES_AT_ONCE


@pytest.mark.parametrize(
    "path",
    [
        "/brokers/configuration/brokerClientAuthenticationParameters/token:abc/SEKRIT",
        "/brokers/configuration/brokerClientAuthenticationParameters/token:SEKRIT/",
        "/brokers//configuration/brokerClientAuthenticationParameters/token:SEKRIT",
        "/brokers/configuration//brokerClientAuthenticationParameters//token:SEKRIT",
        "/brokers/Configuration/brokerClientAuthenticationParameters/token:SEKRIT",
        "/brokers/%63onfiguration%2FbrokerClientAuthenticationParameters/token:SEKRIT/x",
        "/brokers/configuration/brokerClientAuthenticationParameters/%0Atoken:SEKRIT/x",
        "/brokers/configuration/brokerClientAuthenticationParameters/token:SEKRIT",
        "/brokers/configuration/brokerClientAuthenticationParameters/token:a%2FSEKRIT",
    ],
)
@pytest.mark.parametrize("method", ["POST", "DELETE"])
async def test_value_of_a_key_is_masked_in_each_form_of_its_path(
    path: str, method: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with memory_broker() as broker, ClientSession(broker.addresses.admin_url) as session:
        url = URL(f"{broker.addresses.admin_url}/admin/v2{path}", encoded=True)
        async with session.request(method, url) as response:
            assert response.status < 500
    targets = [vars(line)["target"] for line in caplog.records if line.name == "magnetar.audit"]
    assert len(targets) == 1
    assert "brokerClientAuthenticationParameters" in targets[0]
    assert not [line for line in caplog.records if "SEKRIT" in line.getMessage() + str(vars(line))]


async def test_other_path_without_a_route_is_shown_as_it_was_sent(caplog: pytest.LogCaptureFixture) -> None:
    async with memory_broker() as broker, ClientSession(broker.addresses.admin_url) as session:
        await session.post(URL(f"{broker.addresses.admin_url}/admin/v2/a%2Fb/c", encoded=True))
    assert [vars(line)["target"] for line in caplog.records if line.name == "magnetar.audit"] == [
        "/admin/v2/a%2Fb/c"
    ]
