"""Ports are on the loopback unless a setting says otherwise, and the log tells of the difference."""

from __future__ import annotations

import socket
from collections.abc import Callable

import pytest

from bookie_stub.config.rules import load_bookie_settings
from broker.config import changed_settings, load_broker_settings
from foundation.settings.addresses import is_loopback
from foundation.settings.errors import SettingsError
from foundation.settings.settings import Settings


@pytest.mark.parametrize(
    "host", ["localhost", "LocalHost.", "a.localhost", "127.0.0.1", "127.9.8.7", "::1", "[::1]"]
)
def test_loopback_is_told_by_name_and_address(host: str) -> None:
    assert is_loopback(host)


@pytest.mark.parametrize(
    "host",
    [
        "0.0.0.0",
        "::",
        "10.0.0.1",
        "127.0.0.1.example",
        "127.example",
        "localhost.example",
        "broker",
        "1127.0.0.1",
    ],
)
def test_other_hosts_are_no_loopback(host: str) -> None:
    assert not is_loopback(host)


@pytest.mark.parametrize("load", [load_broker_settings, load_bookie_settings])
def test_default_is_the_loopback_which_is_also_what_others_are_told(load: object) -> None:
    assert callable(load)
    settings = load(None, environ={})
    assert settings.str("bindAddress") == "127.0.0.1"
    assert settings.str("advertisedAddress") == "localhost"
    assert settings.origin("advertisedAddress") == "computed: bindAddress is the loopback"
    assert settings.notes == ()


@pytest.mark.parametrize(
    ("load", "ports"),
    [
        (load_broker_settings, "brokerServicePort and webServicePort"),
        (load_bookie_settings, "bookiePort and prometheusStatsHttpPort"),
    ],
)
def test_ports_that_the_network_reaches_are_noted_once(load: object, ports: str) -> None:
    assert callable(load)
    settings = load(None, environ={}, overrides=["bindAddress=0.0.0.0"])
    assert settings.str("advertisedAddress") == socket.getfqdn()
    assert [note.text for note in settings.notes] == [
        f"--set: bindAddress=0.0.0.0: without authentication, everyone who reaches {ports} can read, write and"
        " delete everything; bindAddress=127.0.0.1 admits this machine only"
    ]


def test_note_is_not_new_when_a_setting_changes_at_run_time() -> None:
    started = load_broker_settings(None, environ={}, overrides=["bindAddress=0.0.0.0"])
    assert changed_settings(started, {"managedLedgerCacheSizeMB": "70"}).notes == started.notes


def test_address_that_others_cannot_reach_is_noted() -> None:
    (note,) = load_broker_settings(None, environ={"advertisedAddress": "broker-1.example"}).notes[1:]
    assert note.text == (
        "environment advertisedAddress: advertisedAddress=broker-1.example: other machines cannot connect there while"
        " bindAddress=127.0.0.1; 0.0.0.0 admits all of them"
    )
    assert load_broker_settings(None, environ={}, overrides=["advertisedAddress=127.0.0.1"]).notes == ()


@pytest.mark.parametrize(
    "host", ["broker-1", "broker-1.example.", "10.0.0.1", "my_service.ns", "[::1]", "[fe80::1]"]
)
@pytest.mark.parametrize("load", [load_broker_settings, load_bookie_settings])
def test_host_that_can_stand_in_a_url_is_taken(load: Callable[..., Settings], host: str) -> None:
    settings = load(None, environ={}, overrides=[f"advertisedAddress={host}"])
    assert settings.str("advertisedAddress") == host


@pytest.mark.parametrize(
    "host", ["bad_host:1", "a b", "http://x", "x/y", "::1", "x..y", ".", "é", "a,b", "u@h", "x?y", "x#y"]
)
@pytest.mark.parametrize("load", [load_broker_settings, load_bookie_settings])
def test_host_that_would_break_urls_is_refused(load: Callable[..., Settings], host: str) -> None:
    with pytest.raises(SettingsError) as refused:
        load(None, environ={"advertisedAddress": host})
    assert "environment advertisedAddress: " in str(refused.value)
    assert f"advertisedAddress={host}" in str(refused.value)
    assert "without scheme, port and path" in str(refused.value)


@pytest.mark.parametrize("host", ["bad host", "a/b", "::1", ""])
def test_listener_whose_host_would_break_urls_is_refused(host: str) -> None:
    with pytest.raises(SettingsError, match="name:pulsar://host:port"):
        load_broker_settings(None, environ={}, overrides=[f"advertisedListeners=x:pulsar://{host}:6650"])


def test_identity_of_a_bookie_does_not_follow_its_bind_address() -> None:
    """Its directories remember it: a bookie that is bound anew must still be the same."""
    ids = {
        load_bookie_settings(None, environ={}, overrides=[f"bindAddress={address}"]).str("bookieId")
        for address in ("127.0.0.1", "0.0.0.0")
    }
    assert ids == {f"{socket.getfqdn()}:3181"}
    named = load_bookie_settings(None, environ={}, overrides=["advertisedAddress=b1"])
    assert named.str("bookieId") == "b1:3181"


def test_embedded_bookie_is_not_noted_because_it_has_no_port() -> None:
    settings = load_bookie_settings(None, environ={}, overrides=["bindAddress=0.0.0.0"], standalone=True)
    assert settings.notes == ()
