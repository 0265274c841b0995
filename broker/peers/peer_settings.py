"""How this broker proves to others who it is, by the keys brokerClient…, and whether connections to them begin with TLS."""

from __future__ import annotations

import json
from dataclasses import field
from pathlib import Path
from typing import Final

from broker.config.peer_rules import PARAMETERS, PLUGIN, PLUGINS
from broker.service.topics.topic_ownership import Addresses
from foundation.http.credentials import TLS_PLUGINS, WITHOUT_CREDENTIALS, headers_of, proof_of
from foundation.settings.errors import SettingsError
from foundation.settings.settings import Settings
from foundation.tls.auth_params import parse_auth_params
from foundation.tls.contexts import ClientFiles, client_context
from foundation.tls.errors import TlsError
from foundation.value import Value

_FILES: Final = (
    "brokerClientTrustCertsFilePath",
    "brokerClientCertificateFilePath",
    "brokerClientKeyFilePath",
)


class PeerSettings(Value, kw_only=True):
    """Values of the keys brokerClient…"""

    uses_tls: bool = False
    """True where every connection to another broker begins with TLS."""
    files: ClientFiles = field(default_factory=ClientFiles)
    """Certificates for these connections."""
    headers: dict[str, str] = field(default_factory=dict)
    """Prove the role of this broker at admin ports."""
    proof: tuple[str, str] | None = None
    """The same for CONNECT at data ports: the method, and its secret."""
    refusal: str = ""
    """Why no request may be sent; empty where one may."""

    @classmethod
    def of(cls, settings: Settings) -> PeerSettings:
        """Reads the keys. Raises SettingsError for a plugin or parameters that cannot be used."""
        plugin, parameters = settings.str(PLUGIN), settings.str(PARAMETERS)
        uses_tls = settings.bool("brokerClientTlsEnabled")
        trusted, certificate, key = (_path(settings, name) for name in _FILES)
        try:
            if plugin in TLS_PLUGINS:
                certificate, key = parse_auth_params(parameters)
            headers, proof = headers_of(plugin, parameters), proof_of(plugin, parameters)
        except (ValueError, json.JSONDecodeError) as error:
            raise settings.error(PARAMETERS if plugin in PLUGINS else PLUGIN, str(error)) from None
        refusal = ""
        if settings.bool("authenticationEnabled") and plugin in WITHOUT_CREDENTIALS:
            # Sent without credentials, a request would be refused or count as the anonymous role's.
            refusal = (
                f"set {PLUGIN} and {PARAMETERS}: the brokers of this cluster ask each other for credentials"
            )
        elif plugin in TLS_PLUGINS and not uses_tls:
            refusal = "set brokerClientTlsEnabled=true: a certificate is shown over TLS alone"
        return cls(
            uses_tls=uses_tls,
            files=ClientFiles(
                trusted=trusted,
                certificate=certificate,
                key=key,
                checks_host_name=settings.bool("tlsHostnameVerificationEnabled"),
            ),
            headers=headers,
            proof=proof,
            refusal=refusal,
        )

    def check_files(self) -> None:
        """Raises SettingsError for files with which TLS cannot begin."""
        if self.uses_tls:
            try:
                client_context(self.files)
            except TlsError as error:
                names = ", ".join(_FILES)
                raise SettingsError(f"brokerClientTlsEnabled=true: {error}; correct one of {names}") from None


def without_port(to: Addresses, kind: str, *, uses_tls: bool) -> str:
    """Returns the refusal of a request to a broker that lacks the port: `webServicePort` or `brokerServicePort`."""
    if not to.broker_id:
        return "the broker to ask has opened no port yet"
    port, value = (f"{kind}Tls", "true") if uses_tls else (kind, "false")
    return f"broker {to.broker_id} has no {port}, which brokerClientTlsEnabled={value} asks for"


def role_refused(broker: str, answered: str) -> str:
    """Returns the text of a refusal of this broker's own role; `answered`: the other broker's words."""
    return (
        f"broker {broker} refuses the role of this broker, which {PLUGIN} and {PARAMETERS} prove: "
        f"superUserRoles there must have it, and proxyRoles must not (it answered {answered})"
    )


def _path(settings: Settings, name: str) -> Path | None:
    return Path(settings.str(name)) if settings.str(name) else None
