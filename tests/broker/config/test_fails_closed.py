"""Every rule of `docs/reference/fails_closed.md` stops a start with one line that names its key."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Final

import pytest

from broker.compose.tls_contexts import data_certificates
from broker.config import load_broker_settings
from broker.config.rules import ASK_FOR_A_SWITCH
from broker.config.security_keys import BASIC_PROVIDER, OPENID_PROVIDER, TOKEN_PROVIDER
from broker.config.tls_rules import ASK_FOR_TLS
from broker.security.authentication.make import make_authenticator
from docs.pages.fails_closed_page import BROKER_RULES
from foundation.settings.errors import SettingsError

ON: Final = "authenticationEnabled=true"
TOKENS: Final = f"{ON} authenticationProviders={TOKEN_PROVIDER}"
PASSWORDS: Final = f"{ON} authenticationProviders={BASIC_PROVIDER}"
OPENID: Final = f"{ON} authenticationProviders={OPENID_PROVIDER}"
SECRET: Final = "data:;base64," + base64.b64encode(bytes(range(32))).decode()
TLS_PORT: Final = "brokerServicePortTls=0 tlsCertificateFilePath=/c tlsKeyFilePath=/k"

VALUES: Final = {
    "authenticationProviders": TOKEN_PROVIDER,
    "tlsRequireTrustedClientCertOnConnect": "true",
    "tlsEnabled": "true",
    "authenticateOriginalAuthData": "true",
    "authenticateMetricsEndpoint": "true",
    "tlsProtocols": "TLSv1.3",
    "webServiceTlsProtocols": "TLSv1.3",
}
"""A value of each key that takes more than any text."""

CASES: Final = (
    *((key, f"{key}={VALUES.get(key, 'x')}") for names in ASK_FOR_A_SWITCH.values() for key in names),
    *((key, f"{key}={VALUES.get(key, 'x')}") for key in ASK_FOR_TLS),
    ("authenticationEnabled", ON),
    ("authorizationEnabled", "authorizationEnabled=true"),
    ("authenticationProviders", f"{ON} authenticationProviders=org.example.Mine"),
    ("authorizationProvider", "authorizationProvider=org.example.Mine"),
    ("tokenSecretKey", f"{TOKENS} tokenSecretKey=/nowhere"),
    ("tokenSecretKey", f"{TOKENS} tokenSecretKey=data:,short"),
    ("tokenSecretKey", TOKENS),
    ("tokenPublicKey", f"{TOKENS} tokenPublicKey=/nowhere"),
    ("tokenPublicKey", f"{TOKENS} tokenPublicKey={SECRET}"),
    ("tokenPublicKey", f"{TOKENS} tokenPublicKey=/nowhere tokenSecretKey={SECRET}"),
    ("basicAuthConf", PASSWORDS),
    ("basicAuthConf", f"{PASSWORDS} basicAuthConf=data:,ann:plain"),
    ("openIDAllowedTokenIssuers", f"{OPENID} openIDAllowedAudiences=a"),
    ("openIDAllowedTokenIssuers", f"{OPENID} openIDAllowedAudiences=a openIDAllowedTokenIssuers=http://a"),
    ("openIDAllowedAudiences", f"{OPENID} openIDAllowedTokenIssuers=https://a"),
    (
        "openIDTokenIssuerTrustCertsFilePath",
        f"{OPENID} openIDAllowedAudiences=a openIDAllowedTokenIssuers=https://a"
        " openIDTokenIssuerTrustCertsFilePath=/nowhere",
    ),
    ("brokerServicePortTls", "brokerServicePortTls=0"),
    ("webServicePortTls", "webServicePortTls=0"),
    ("tlsCertificateFilePath", TLS_PORT),
    ("tlsRequireTrustedClientCertOnConnect", f"{TLS_PORT} tlsRequireTrustedClientCertOnConnect=true"),
    (
        "tlsAllowInsecureConnection",
        f"{TLS_PORT} tlsRequireTrustedClientCertOnConnect=true tlsAllowInsecureConnection=true",
    ),
    ("bookkeeperTLSClientAuthentication", "bookkeeperTLSClientAuthentication=true"),
    ("bookkeeperTLSCertificateFilePath", "bookkeeperTLSCertificateFilePath=/c"),
    ("bookkeeperTLSKeyFilePath", "bookkeeperTLSKeyFilePath=/k"),
    ("metadataStoreConfigPath", "metadataStoreConfigPath=/p metadataStoreUrl=file:/m"),
)
"""The key that the line names, and the settings."""


def start(overrides: str) -> None:
    """The parts of a start that read settings of security."""
    settings = load_broker_settings(None, environ={}, overrides=overrides.split(), profile=None)
    make_authenticator(settings)
    if settings.optional_int("brokerServicePortTls") is not None:
        data_certificates(settings)


@pytest.mark.parametrize(("key", "overrides"), CASES)
def test_rule_stops_the_start_with_one_line(key: str, overrides: str) -> None:
    with pytest.raises(SettingsError) as caught:
        start(overrides)
    assert key in caught.value.line
    assert "\n" not in caught.value.line
    assert SECRET not in caught.value.line


def test_page_names_the_keys_of_the_cases_and_no_others() -> None:
    assert {key for names, _ in BROKER_RULES for key in names} == {key for key, _ in CASES}


def test_switch_that_is_written_as_false_lets_its_keys_pass_with_a_note(tmp_path: Path) -> None:
    conf = tmp_path / "broker.conf"
    conf.write_text("authenticationEnabled=false\ntokenSecretKey=/nowhere\n")
    settings = load_broker_settings(conf, environ={}, overrides=[], profile=None)
    assert "tokenSecretKey: no effect while authenticationEnabled=false" in settings.notes[-1].text
