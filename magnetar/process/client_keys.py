"""The table of the keys in `conf/client.conf`, and the call that loads them.

`magnetar produce`, `consume`, `perf` and the commands for the admin API read them. Names and defaults are Pulsar's.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from foundation.settings.keys import Key, KeyTable, Section
from foundation.settings.load import load_settings
from foundation.settings.settings import Settings
from foundation.settings.unused import UnusedKeys

# fmt: off
# The formatter would give each argument a line of its own; a key's facts and words read better as one row.

ADDRESSES = Section("Addresses", (
    Key("brokerServiceUrl", "string", "pulsar://localhost:6650/",
        doc="Address of the broker."),
    Key("webServiceUrl", "string", "http://localhost:8080/",
        doc="Address of the admin API and of `/metrics`."),
))

SECURITY = Section("Security", (
    Key("authPlugin", "string", None,
        doc="Name of the authentication plugin, as in the official client."),
    Key("authParams", "string", None,
        doc="Parameters of the plugin, such as `token:...` or `file:///path`."),
    Key("tlsTrustCertsFilePath", "string", None,
        doc="File with the certificates that are trusted to vouch for brokers."),
    Key("tlsCertificateFilePath", "string", None,
        doc="File with the certificate that commands show to brokers."),
    Key("tlsKeyFilePath", "string", None,
        doc="File with the private key of that certificate."),
    Key("tlsAllowInsecureConnection", "bool", False,
        doc="Also accept certificates without such a voucher."),
    Key("tlsEnableHostnameVerification", "bool", False,
        doc="Compare the certificate's name with the host."),
))

# fmt: on

CLIENT_KEYS = KeyTable(
    "client", (ADDRESSES, SECURITY), unused=UnusedKeys(Path(__file__).with_name("unused_client_keys.tsv"))
)


def load_client_settings(
    path: str | Path | None, *, environ: Mapping[str, str], overrides: Sequence[str] = ()
) -> Settings:
    """Returns the client's settings; path None means the defaults. Raises SettingsError."""
    return load_settings(CLIENT_KEYS, path, environ=environ, overrides=overrides)
