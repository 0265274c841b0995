"""Makes `docs/reference/fails_closed.md` from the tables of keys and from the rules below; `generate.py` writes it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from bookie_stub.config.keys import BOOKIE_KEYS
from broker.config.keys import BROKER_KEYS
from broker.config.rules import ASK_FOR_A_SWITCH
from broker.config.tls_rules import ASK_FOR_TLS
from foundation.settings.keys import KeyTable, format_value
from magnetar.process.client_keys import CLIENT_KEYS

INTRODUCTION: Final = """\
# Settings that fail closed

Written by `make generate` from the tables of keys. It says of each setting that asks for a protection what happens at the
start if the protection would be missing: the start stops. Tests take this page at its word:
`tests/broker/config/test_fails_closed.py` sets what the rules name, and `tests/broker/config/test_no_silent_keys.py`
every key of the tables. A line about a secret shows no secret; `tests/magnetar/test_planted_secrets.py` plants marked ones
in every place that takes one, and searches all output for them.

A value that asks for a protection which Magnetar lacks stops the start: one line with the place, the key, the value
and the remedy, and exit status 2. A broker that ignored such a value would be open while its owner believes that it
is closed. The rule holds for file, environment and `--set`, for `magnetar config show`, for changes at run time (412
with the reason), and for changes that another broker has stored in the metadata store.

The value decides. An empty value passes, and so do those in the column *passes*; numbers and switches may be spelt
differently (`0.0`, `FALSE`). A misspelt name of such a key stops the start too. Keys that refine a protection without
asking for it, such as the size of a cache of tokens, pass and are named in the log.

To go without the protection, leave the key at a value that passes, and keep the ports on the loopback or on a network that
you trust ([security](../../SECURITY.md)).
"""

BROKER_RULES: Final[tuple[tuple[tuple[str, ...], str], ...]] = (
    (ASK_FOR_A_SWITCH["authenticationEnabled"], "without a line `authenticationEnabled`"),
    (ASK_FOR_A_SWITCH["authorizationEnabled"], "without a line `authorizationEnabled`"),
    (("authenticationEnabled",), "if it is true and `authenticationProviders` is empty"),
    (("authorizationEnabled",), "if it is true without `authenticationEnabled=true`"),
    (("authenticationProviders", "authorizationProvider"), "for a class that is not built"),
    (("tokenSecretKey",), "for a file that cannot be read, fewer than 32 bytes, or a key of a pair"),
    (
        ("tokenPublicKey",),
        "for a file that cannot be read, a key of another family, or beside `tokenSecretKey`",
    ),
    (("basicAuthConf",), "if it is missing, or a line of it cannot be used"),
    (("openIDAllowedTokenIssuers",), "if it is empty, or for a URL without `https`"),
    (("openIDAllowedAudiences",), "if it is empty"),
    (("openIDTokenIssuerTrustCertsFilePath",), "for a file that cannot be read"),
    (("brokerServicePortTls", "webServicePortTls"), "without `tlsCertificateFilePath` and `tlsKeyFilePath`"),
    (("tlsCertificateFilePath",), "for files that cannot be used"),
    (("tlsRequireTrustedClientCertOnConnect",), "without `tlsTrustCertsFilePath`, or beside the next key"),
    (("tlsAllowInsecureConnection",), "beside the former key"),
    (ASK_FOR_TLS, "if no port has TLS"),
    (("bookkeeperTLSClientAuthentication",), "without certificate and key"),
    (("bookkeeperTLSCertificateFilePath", "bookkeeperTLSKeyFilePath"), "if one of both is missing"),
    (("metadataStoreConfigPath",), "if metadata is not in ZooKeeper"),
)
"""Keys of the broker, and when a value of theirs stops the start although the key is built."""
BOOKIE_RULES: Final[tuple[tuple[tuple[str, ...], str], ...]] = (
    (("tlsKeyStore", "tlsCertificatePath", "tlsTrustStore", "tlsClientAuthentication"), "while TLS is off"),
    (("tlsKeyStoreType", "tlsTrustStoreType"), "if TLS is on and the form is not PEM"),
)
"""The same of the bookie."""


def fails_closed_page() -> str:
    """Makes the page with every key whose value may ask for a missing protection."""
    parts = [INTRODUCTION]
    for title, table in (("Broker", BROKER_KEYS), ("Bookie", BOOKIE_KEYS), ("Client", CLIENT_KEYS)):
        parts += _protections(title, table)
    parts += ["## By a rule\n"]
    for process, rules in (("broker", BROKER_RULES), ("bookie", BOOKIE_RULES)):
        parts += [f"| setting of the {process} | is refused |", "|---|---|"]
        parts += [f"| {', '.join(f'`{name}`' for name in names)} | {when} |" for names, when in rules]
        parts += [""]
    return "\n".join(parts)


def _protections(title: str, table: KeyTable) -> Iterator[str]:
    """Yields a table of keys by missing protection."""
    by_protection: dict[str, list[tuple[str, str]]] = {}
    planned = [key for key in table.keys.values() if not key.used]
    rows = [(row.asks_for, row.name, row.defaults) for row in table.unused.rows]
    rows += [(key.asks_for, key.name, (format_value(key.default),)) for key in planned]
    for protection, name, harmless in rows:
        if protection:
            passes = ", ".join(f"`{value}`" for value in harmless if value)
            by_protection.setdefault(protection, []).append((name, passes))
    yield f"## {title}\n"
    yield "| key | passes | asks for |\n|---|---|---|"
    for protection, keys in sorted(by_protection.items(), key=lambda pair: pair[0].lower()):
        for name, passes in sorted(keys, key=lambda pair: pair[0].lower()):
            yield f"| `{name}` | {passes} | {protection} |"
    yield ""
