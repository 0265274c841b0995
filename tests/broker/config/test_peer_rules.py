"""The proof of a broker's role, at a start and changed at run time."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from broker.config import changed_settings, load_broker_settings
from broker.config.peer_rules import PARAMETERS, PLUGIN
from foundation.settings.errors import SettingsError
from foundation.settings.settings import Settings

JAVA = "org.apache.pulsar.client.impl.auth.Authentication"


def started(*overrides: str) -> Settings:
    return load_broker_settings(None, environ={}, overrides=list(overrides))


@pytest.mark.parametrize(
    "texts",
    [
        {PLUGIN: "x.y.Z"},
        {PLUGIN: f"{JAVA}Token"},
        {PLUGIN: f"{JAVA}Basic", PARAMETERS: "name"},
        {PLUGIN: f"{JAVA}Tls", PARAMETERS: "token:abc"},
    ],
    ids=str,
)
def test_proof_that_cannot_be_made_is_refused_at_run_time_and_in_a_cluster(texts: Mapping[str, str]) -> None:
    with pytest.raises(SettingsError):
        changed_settings(started(), texts)
    with pytest.raises(SettingsError):
        started("metadataStoreUrl=zk:localhost:2181", *(f"{key}={text}" for key, text in texts.items()))


@pytest.mark.parametrize(
    "texts",
    [
        {PLUGIN: ""},
        {PLUGIN: f"{JAVA}Disabled"},
        {PLUGIN: f"{JAVA}Token", PARAMETERS: "token:abc"},
        # Read with each request: while the file is being replaced, changes of other keys are allowed.
        {PLUGIN: "token", PARAMETERS: "file:/missing"},
        {PLUGIN: f"{JAVA}Basic", PARAMETERS: "name:password"},
        {PLUGIN: f"{JAVA}Tls", PARAMETERS: "tlsCertFile:/c,tlsKeyFile:/k"},
    ],
    ids=str,
)
def test_proof_that_can_be_made_is_accepted(texts: Mapping[str, str]) -> None:
    assert changed_settings(started(), texts).str(PLUGIN) == texts[PLUGIN]


def test_broker_of_its_own_starts_with_any_plugin() -> None:
    assert started(f"{PLUGIN}=x.y.Z").str(PLUGIN) == "x.y.Z"
