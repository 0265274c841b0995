"""Keys of `conf/client.conf`: what `magnetar produce`, `consume` and `perf` connect to.

Data and the call that loads it; the commands read the values. The other keys of Pulsar's file are accepted
and not used.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from settings.keys import Key, KeyTable, Section
from settings.load import load_settings
from settings.settings import Settings

ADDRESSES: Section = (
    "Addresses",
    [
        Key("brokerServiceUrl", "string", "pulsar://localhost:6650/", "Where clients connect to the broker."),
        Key(
            "webServiceUrl",
            "string",
            "http://localhost:8080/",
            "Where the admin API and `/metrics` are.",
        ),
    ],
)

SECURITY: Section = (
    "Security",
    [
        Key(
            "authPlugin", "string", None, "Name of the authentication plugin, as the official client has it."
        ),
        Key("authParams", "string", None, "What the plugin is given, such as `token:...` or `file:///path`."),
        Key("tlsTrustCertsFilePath", "string", None, "File with the certificates that a broker may show."),
        Key("tlsAllowInsecureConnection", "bool", False, "Also accept certificates that nobody vouches for."),
        Key("tlsEnableHostnameVerification", "bool", False, "Compare the certificate's name with the host."),
    ],
)

UNUSED = """
proxyProtocol proxyServiceUrl tlsCertificateFilePath tlsKeyFilePath tlsKeyStorePassword tlsKeyStorePath
tlsKeyStoreType=JKS tlsTrustStorePassword tlsTrustStorePath tlsTrustStoreType=JKS useKeyStoreTls=false
webserviceTlsProvider
"""

CLIENT_KEYS = KeyTable("client", (ADDRESSES, SECURITY), unused=UNUSED)


def load_client_settings(
    path: str | Path | None, *, environ: Mapping[str, str], overrides: Sequence[str] = ()
) -> Settings:
    """The client's settings; None as path: the defaults. Raises SettingsError, whose text is one line."""
    return load_settings(CLIENT_KEYS, path, environ=environ, overrides=overrides)
