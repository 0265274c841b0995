"""Rules about the keys by which this broker proves its role to others."""

from __future__ import annotations

from typing import Final

from foundation.http.credentials import BASIC, TLS_PLUGINS, TOKEN, WITHOUT_CREDENTIALS, proof_of
from foundation.settings.settings import Settings
from foundation.tls.auth_params import parse_auth_params

PLUGIN: Final = "brokerClientAuthenticationPlugin"
"""The key of the plugin."""
PARAMETERS: Final = "brokerClientAuthenticationParameters"
"""The key of its parameters."""
PLUGINS: Final = (*WITHOUT_CREDENTIALS, *TOKEN, *BASIC, *TLS_PLUGINS)
"""Names of the plugins that are built in."""


def check_peers(settings: Settings) -> None:
    """Raises SettingsError for a plugin, or parameters of it, with which no request to another broker could be sent.

    For brokers that ask others: one with a store of its own starts with any plugin of Apache's.
    """
    plugin, parameters = settings.str(PLUGIN), settings.str(PARAMETERS)
    if plugin not in PLUGINS:
        allowed = ", ".join(names[1] for names in (WITHOUT_CREDENTIALS, TOKEN, BASIC, TLS_PLUGINS))
        raise settings.error(PLUGIN, f"no plugin that is built in; set one of {allowed}")
    try:
        if plugin in TLS_PLUGINS:
            parse_auth_params(parameters)
        elif plugin not in TOKEN or not parameters.startswith("file:"):
            # A token's file is read with each request: while it is being replaced, changes of other keys are no error.
            proof_of(plugin, parameters)
    except ValueError as error:
        raise settings.error(
            PARAMETERS, f"{error}, which {PLUGIN}={plugin} asks for; set {PARAMETERS} first, then the plugin"
        ) from None
