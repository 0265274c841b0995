"""Rows of the broker's table: what a client may do. `server_keys.py` explains names, defaults and words."""

from __future__ import annotations

from typing import Final

from foundation.settings.keys import Key, Section

PROVIDER: Final = "org.apache.pulsar.broker.authorization.PulsarAuthorizationProvider"
"""Apache's default class, whose rules this broker has."""

_ON: Final = ("authorizationEnabled", "true")

# fmt: off
# The formatter would give each argument a line of its own; a key's facts and words read better as one row.

AUTHORIZATION = Section("Authorization", (
    Key("authorizationEnabled", "bool", False, asks_for="authorization",
        doc="Check the rights of roles for each request and each client. Needs authenticationEnabled=true."),
    Key("authorizationProvider", "string", PROVIDER, choices=(PROVIDER,), asks_for="authorization",
        doc="Rules of authorization, as Apache's class name; only those of Apache's default class are built."),
    Key("superUserRoles", "list", None, dynamic=True, needs=_ON, asks_for="authorization",
        doc="Roles that may do everything."),
    Key("proxyRoles", "list", None, needs=_ON, asks_for="authorization",
        doc="Roles that speak for other roles. A request of such a role must name the role of its client, and "
            "both need the right."),
    Key("allowAclChangesOnNonExistentTopics", "bool", False,
        doc="Read and change permissions of topics that do not exist, so that they hold from a topic's first client."),
    Key("authorizationAllowWildcardsMatching", "bool", False, needs=_ON,
        doc="Let a granted role begin or end with `*`, which stands for any characters."),
))
