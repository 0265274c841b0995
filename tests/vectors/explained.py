"""Recorded scripts whose answers this broker does not give, each with the reason.

Law of the place: an entry says what is missing or different on purpose, docs/compatibility.md says it at
length (a test compares the names), and an entry whose script passes is an error: take it out.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

EXPLAINED: Final[Mapping[str, str]] = {}
"""Scenarios of wire/, by name."""

_REQUESTS_BY_REASON: Final[Mapping[str, str]] = {
    "/metrics is answered at once, without a redirect to /metrics/.": "metrics-redirect",
    "The recorded body is the message of a Java JSON parser.": """
        tenants-wrong-json-type
    """,
    "An unknown action of a permission is refused with 400.": "ns-permissions-bad-action",
    "Magnetar's own keys that change at run time are listed beside Pulsar's.": "brokers-configuration",
    "The settings in force are shown for the keys in use, with figures of this machine; Pulsar shows all.": """
        brokers-runtime
    """,
}

EXPLAINED_REQUESTS: Final[Mapping[str, str]] = {
    name: reason for reason, names in _REQUESTS_BY_REASON.items() for name in names.split()
}
"""Records of rest/, by name."""

EXPLAINED_BOOKIE: Final[Mapping[str, str]] = {
    "v2-negative-entry": "an add of a negative entry id is refused (100): BookKeeper says OK and loses it in a replay",
    "v2-short-add": "an add refused as too short does not create its ledger, so a read says no ledger, not no entry",
    "v3-hand-id-mismatch": "an add whose ids differ from those in the entry is refused: BookKeeper confirms a lost entry",
    "v3-list-of-entries": "the list of entries is answered, where BookKeeper leaves the client waiting",
    "v3-read-lac": "an explicit LAC never goes back, and one without an entry is an answer, not an I/O error",
}
"""Scenarios of bookie/, by name."""
