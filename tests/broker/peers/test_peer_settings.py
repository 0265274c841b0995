"""The keys brokerClient…: which proof they make, and when no request may be sent."""

from __future__ import annotations

from pathlib import Path

import pytest

from broker.config import load_broker_settings
from broker.peers.peer_settings import PeerSettings, without_port
from broker.service.topics.topic_ownership import Addresses
from foundation.settings.errors import SettingsError

_JAVA = "org.apache.pulsar.client.impl.auth."


def settings_of(*overrides: str) -> PeerSettings:
    return PeerSettings.of(load_broker_settings(None, environ={}, overrides=list(overrides), profile=None))


def test_cluster_without_authentication_needs_no_proof() -> None:
    found = settings_of()
    assert (found.headers, found.refusal, found.uses_tls) == ({}, "", False)


@pytest.mark.parametrize(
    ("plugin", "parameters", "header"),
    [
        ("AuthenticationToken", "token:abc", "Bearer abc"),
        ("AuthenticationBasic", '{"userId": "a", "password": "b"}', "Basic YTpi"),
    ],
)
def test_plugin_makes_a_header(plugin: str, parameters: str, header: str) -> None:
    found = settings_of(
        f"brokerClientAuthenticationPlugin={_JAVA}{plugin}",
        f"brokerClientAuthenticationParameters={parameters}",
    )
    assert found.headers == {"Authorization": header}
    assert found.refusal == ""


def test_certificate_needs_tls() -> None:
    plugin = (
        f"brokerClientAuthenticationPlugin={_JAVA}AuthenticationTls",
        "brokerClientAuthenticationParameters=tlsCertFile:/c.pem,tlsKeyFile:/k.pem",
    )
    assert "brokerClientTlsEnabled=true" in settings_of(*plugin).refusal
    found = settings_of(*plugin, "brokerClientTlsEnabled=true")
    assert found.refusal == ""
    assert (found.files.certificate, found.files.key) == (Path("/c.pem"), Path("/k.pem"))


@pytest.mark.parametrize("plugin", [f"{_JAVA}AuthenticationAthenz", "AuthenticationSasl"])
def test_unknown_plugin_ends_the_start(plugin: str) -> None:
    with pytest.raises(
        SettingsError, match=f"brokerClientAuthenticationPlugin={plugin}: .*no plugin that is built in"
    ):
        settings_of(f"brokerClientAuthenticationPlugin={plugin}")


@pytest.mark.parametrize(
    ("to", "uses_tls", "expected"),
    [
        (Addresses(), False, "the broker to ask has opened no port yet"),
        (
            Addresses(admin_url_tls="https://b:8443"),
            False,
            "broker b:8443 has no webServicePort, which brokerClientTlsEnabled=false asks for",
        ),
        (
            Addresses(admin_url="http://b:8080"),
            True,
            "broker b:8080 has no webServicePortTls, which brokerClientTlsEnabled=true asks for",
        ),
    ],
)
def test_refusal_without_a_port_names_the_broker_and_the_value(
    to: Addresses, uses_tls: bool, expected: str
) -> None:
    assert without_port(to, "webServicePort", uses_tls=uses_tls) == expected


def test_broken_token_ends_the_start_and_is_not_shown() -> None:
    with pytest.raises(SettingsError, match="empty or broken") as raised:
        settings_of(
            f"brokerClientAuthenticationPlugin={_JAVA}AuthenticationToken",
            "brokerClientAuthenticationParameters=token:sec\x01ret",
        )
    assert "ret" not in str(raised.value).partition("is empty")[0].partition("token")[0]
