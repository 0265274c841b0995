"""Parses the options of connections: addresses, TLS, and the proof of the client's identity."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Final

from foundation.tls.auth_params import PLUGINS as TLS_PLUGINS
from foundation.tls.auth_params import ClientCertificate, parse_auth_params
from foundation.tls.errors import TlsError
from pyspark_pulsar.client.cluster import ClusterSettings, endpoints
from pyspark_pulsar.client.oauth2 import ClientCredentials, parse_account
from pyspark_pulsar.client.security import ConnectCredentials, Security, TokenFile
from pyspark_pulsar.errors import OptionError
from pyspark_pulsar.given_options import GivenOptions

CONNECTION: Final = (
    "service.url",
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


def cluster_settings(given: GivenOptions, *, url_needed: bool = True) -> ClusterSettings:
    """Returns address, security and timeout. OptionError.

    Without `url_needed` the query may never ask a broker; then a missing address is reported when it does.
    """
    url = given.text("service.url") or ""
    if not url and url_needed:
        raise OptionError(
            'service.url is missing: give the cluster, as in .option("service.url", "pulsar://host:6650")'
        )
    shown = _certificate(given)
    security = Security(
        _credentials(given),
        _here(given.text("pulsar.client.tlsTrustCertsFilePath")),
        given.flag("pulsar.client.tlsHostnameVerificationEnable", True),
        given.flag("pulsar.client.tlsAllowInsecureConnection", False),
        None if shown is None else _here(str(shown.certificate)),
        None if shown is None else _here(str(shown.key)),
        _account(given),
        _token_file(given),
    )
    if url and endpoints(url)[0].tls:
        try:
            # On the driver first: a file that cannot be used must not become a retry of each task.
            security.context()
        except TlsError as error:
            raise OptionError(f"pulsar.client.tls…: {error}") from None
    return ClusterSettings(url, security, given.seconds("pulsar.client.operationTimeoutMs", 30_000))


def _here(path: str | None) -> str | None:
    """Returns a path of the driver as an absolute one, since workers have working directories of their own."""
    return None if path is None else os.path.abspath(path)


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


def _credentials(given: GivenOptions) -> ConnectCredentials | None:
    plugin = given.text("pulsar.client.authPluginClassName")
    params = given.text("pulsar.client.authParams") or ""
    if plugin is None:
        if params:
            raise OptionError(
                "pulsar.client.authParams is given without pulsar.client.authPluginClassName, so nothing would be "
                "proven: name the plugin, as in AuthenticationToken"
            )
        return None
    if plugin in _OAUTH2:
        return None
    if plugin in TLS_PLUGINS:
        if (given.text("service.url") or "").startswith("pulsar://"):
            raise OptionError(
                "AuthenticationTls shows its certificate over TLS alone: write pulsar+ssl:// in service.url"
            )
        # The broker reads the name in the certificate of the connection; there is no text to send.
        return ConnectCredentials("tls", b"")
    method = _METHODS.get(plugin.removeprefix(_PACKAGE))
    if method is None:
        raise OptionError(
            f"pulsar.client.authPluginClassName is {plugin!r}: built in are AuthenticationToken, AuthenticationBasic and"
            " AuthenticationTls of org.apache.pulsar.client.impl.auth, and oauth2.AuthenticationOAuth2"
        )
    if method == "basic":
        return ConnectCredentials(method, _name_and_password(params).encode())
    if params.startswith("file:"):
        return None
    token = _token_in(params)
    if not token:
        raise OptionError(
            "pulsar.client.authParams of AuthenticationToken is empty: token:TEXT or file:///PATH is expected"
        )
    return ConnectCredentials(method, token.encode())


def _token_in(params: str) -> str:
    """Returns the token of `token:TEXT`, of the JSON `{"token": "TEXT"}`, or the text itself, as Java's client does."""
    if not params.lstrip().startswith("{"):
        return params.removeprefix("token:").strip()
    try:
        return str(json.loads(params)["token"])
    except (ValueError, KeyError, TypeError):
        raise OptionError('pulsar.client.authParams of AuthenticationToken is {"token": "…"}') from None


def _token_file(given: GivenOptions) -> TokenFile | None:
    """Returns the file that authParams of AuthenticationToken name; None for another way."""
    plugin = (given.text("pulsar.client.authPluginClassName") or "").removeprefix(_PACKAGE)
    params = given.text("pulsar.client.authParams") or ""
    if _METHODS.get(plugin) != "token" or not params.startswith("file:"):
        return None
    path = params.removeprefix("file:").removeprefix("//")
    try:
        # The workers may have no copy of the file: they then use the token that is read here.
        token = Path(path).read_bytes().strip()
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "it is no path"
        raise OptionError(f"pulsar.client.authParams: {path} cannot be read: {reason}") from None
    if not token:
        raise OptionError(f"pulsar.client.authParams: {path} is empty: a token is expected")
    return TokenFile(os.path.abspath(path), token)


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
_PACKAGE: Final = "org.apache.pulsar.client.impl.auth."
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
