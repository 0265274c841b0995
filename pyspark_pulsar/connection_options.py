"""Parses the options of connections: addresses, TLS, and the proof of the client's identity."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Final

from pyspark_pulsar.client.cluster import ClusterSettings, endpoints
from pyspark_pulsar.client.connection import Credentials, Security
from pyspark_pulsar.client.oauth2 import ClientCredentials, parse_account
from pyspark_pulsar.errors import OptionError
from pyspark_pulsar.given_options import GivenOptions
from tls.auth_params import PLUGINS as TLS_PLUGINS
from tls.auth_params import ClientCertificate, parse_auth_params
from tls.errors import TlsError

CONNECTION: Final = (
    "service.url",
    "admin.url",
    "pulsar.client.authPluginClassName",
    "pulsar.client.authParams",
    "pulsar.client.operationTimeoutMs",
    "pulsar.client.tlsTrustCertsFilePath",
    "pulsar.client.tlsHostnameVerificationEnable",
    "pulsar.client.tlsAllowInsecureConnection",
    "pulsar.client.tlsCertificateFilePath",
    "pulsar.client.tlsKeyFilePath",
)
"""Names of the options that source and sink share for their connections."""


def cluster_settings(given: GivenOptions) -> ClusterSettings:
    """Returns address, security and timeout. OptionError."""
    url = given.text("service.url")
    if not url:
        raise OptionError(
            'service.url is missing: give the cluster, as in .option("service.url", "pulsar://host:6650")'
        )
    shown = _certificate(given)
    security = Security(
        _credentials(given),
        given.text("pulsar.client.tlsTrustCertsFilePath"),
        given.flag("pulsar.client.tlsHostnameVerificationEnable", True),
        given.flag("pulsar.client.tlsAllowInsecureConnection", False),
        None if shown is None else str(shown.certificate),
        None if shown is None else str(shown.key),
        _account(given),
    )
    if endpoints(url)[0].tls:
        try:
            # On the driver first: a file that cannot be used must not become a retry of each task.
            security.context()
        except TlsError as error:
            raise OptionError(f"pulsar.client.tls…: {error}") from None
    return ClusterSettings(url, security, given.seconds("pulsar.client.operationTimeoutMs", 30_000))


def _certificate(given: GivenOptions) -> ClientCertificate | None:
    """Returns the files of the client's certificate: those of the plugin for TLS, else those of the two options."""
    if given.text("pulsar.client.authPluginClassName") in TLS_PLUGINS:
        try:
            return parse_auth_params(given.text("pulsar.client.authParams") or "")
        except ValueError as error:
            raise OptionError(f"pulsar.client.authParams: {error}") from None
    names = ("pulsar.client.tlsCertificateFilePath", "pulsar.client.tlsKeyFilePath")
    certificate, key = (given.text(name) for name in names)
    if certificate is None and key is None:
        return None
    if certificate is None or key is None:
        raise OptionError(f"{' and '.join(names)} belong together: give both or none")
    return ClientCertificate(Path(certificate), Path(key))


def _credentials(given: GivenOptions) -> Credentials | None:
    plugin = given.text("pulsar.client.authPluginClassName")
    params = given.text("pulsar.client.authParams") or ""
    if plugin is None:
        return None
    if plugin in _OAUTH2:
        return None
    if plugin in TLS_PLUGINS:
        # The broker reads the name in the certificate of the connection; there is no text to send.
        return Credentials("tls", b"")
    method = _METHODS.get(plugin.removeprefix("org.apache.pulsar.client.impl.auth."))
    if method is None:
        raise OptionError(
            f"pulsar.client.authPluginClassName is {plugin!r}: built in are AuthenticationToken, AuthenticationBasic and"
            " AuthenticationTls of org.apache.pulsar.client.impl.auth, and oauth2.AuthenticationOAuth2"
        )
    if method == "basic":
        return Credentials(method, _name_and_password(params).encode())
    if params.startswith("file://"):
        # Read on the driver, so that the workers need no copy of the file; the token then travels with the options.
        path = params.removeprefix("file://")
        try:
            return Credentials(method, Path(path).read_bytes().strip())
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or "it is no path"
            raise OptionError(f"pulsar.client.authParams: {path} cannot be read: {reason}") from None
    return Credentials(method, params.removeprefix("token:").encode())


def _account(given: GivenOptions) -> ClientCredentials | None:
    """Returns the account of AuthenticationOAuth2; None for another plugin."""
    if given.text("pulsar.client.authPluginClassName") not in _OAUTH2:
        return None
    return parse_account(given.text("pulsar.client.authParams") or "")


_OAUTH2: Final = (
    "org.apache.pulsar.client.impl.auth.oauth2.AuthenticationOAuth2",
    "AuthenticationOAuth2",
    "oauth2",
)
"""Names of the plugin: that of Java's class, its end, and that of the C++ client."""
_METHODS = {
    "AuthenticationToken": "token",
    "token": "token",
    "AuthenticationBasic": "basic",
    "basic": "basic",
}
"""Methods of authentication by the plugin's name, without its package."""


def _name_and_password(params: str) -> str:
    """Returns `name:password` of the client's JSON or of that text itself; the error repeats no part of it."""
    if not params.lstrip().startswith("{"):
        return params
    try:
        found = json.loads(params)
        # The Java client says userId, the C++ client username.
        return f"{found.get('userId') or found['username']}:{found['password']}"
    except (ValueError, KeyError, TypeError, AttributeError):
        raise OptionError(
            'pulsar.client.authParams of AuthenticationBasic is {"userId": "…", "password": "…"}'
        ) from None
