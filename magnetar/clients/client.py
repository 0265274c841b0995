"""Connects commands to a broker with the official client: address, login, one clear error when it is missing.

The client (`pulsar`, an optional extra) is imported only here and only when a command needs it. Nothing here is
specific to our broker, so every command works against any Pulsar.
"""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import os
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from types import ModuleType
from typing import TYPE_CHECKING

from magnetar.process.config_files import default_file

if TYPE_CHECKING:
    import pulsar

DEFAULT_URL = "pulsar://127.0.0.1:6650"
"""Address without `--url` and without client.conf."""

KEYS_READ = frozenset(
    (
        "authParams",
        "authPlugin",
        "brokerServiceUrl",
        "serviceUrl",
        "tlsAllowInsecureConnection",
        "tlsCertificateFilePath",
        "tlsEnableHostnameVerification",
        "tlsKeyFilePath",
        "tlsTrustCertsFilePath",
        "webServiceUrl",
    )
)
"""The keys of client.conf that commands use."""


class CommandError(Exception):
    """Ends a command; the text is for the user, fits on one line and names the remedy where there is one."""


@dataclass(frozen=True, slots=True)
class ClientArguments:
    """The arguments of a client: from flags, else from `client.conf`, else Pulsar's defaults."""

    url: str = DEFAULT_URL
    """`pulsar://host:port` or `pulsar+ssl://host:port`."""
    auth_plugin: str = ""
    """Name of the authentication plugin; empty for none."""
    auth_params: str = ""
    """Parameters of the plugin, such as `token:…` or `file:///path`."""
    trust_certs: str = ""
    """File with the trusted certificates; empty for the system's."""
    certificate: str = ""
    """File with the certificate of the client; empty to show none."""
    key: str = ""
    """File with the private key of that certificate."""
    allow_insecure: bool = False
    """Accept a broker whose certificate no trusted one signed."""
    verify_hostname: bool = False
    """Compare the certificate's name with the host."""
    listener_name: str | None = None
    """The advertised listener to use; None for the broker's default."""
    io_threads: int = 1
    """Threads of the client that read and write connections."""
    listener_threads: int = 1
    """Threads of the client that call message listeners."""


def official_client() -> ModuleType:
    """Returns the module `pulsar`. Raises CommandError that names the package to install."""
    try:
        import pulsar
    except ImportError as missing:
        text = "this command needs the official Pulsar client: pip install WHEEL[client]"
        raise CommandError(f"{text} ({missing})") from missing
    module: ModuleType = pulsar
    return module


def connect(connection: ClientArguments) -> pulsar.Client:
    """Returns a client; it connects when its first topic is opened. Its warnings go to standard error."""
    pulsar = official_client()
    authentication = None
    if connection.auth_plugin:
        authentication = pulsar.Authentication(connection.auth_plugin, connection.auth_params)
    return pulsar.Client(
        connection.url,
        authentication=authentication,
        io_threads=connection.io_threads,
        message_listener_threads=connection.listener_threads,
        tls_trust_certs_file_path=connection.trust_certs or None,
        tls_certificate_file_path=connection.certificate or None,
        tls_private_key_file_path=connection.key or None,
        tls_allow_insecure_connection=connection.allow_insecure,
        tls_validate_hostname=connection.verify_hostname,
        listener_name=connection.listener_name,
        logger=_log_to_stderr(pulsar),
    )


@contextlib.contextmanager
def connected(
    arguments: argparse.Namespace, progress: Callable[[], str] = lambda: ""
) -> Iterator[pulsar.Client]:
    """Yields a client as the arguments say, and closes it. Its errors are raised as CommandError, `progress` after each."""
    client = connect(connection_of(arguments))
    try:
        yield client
    except official_client().PulsarException as error:
        raise CommandError(f"{error}{progress()}") from error
    finally:
        client.close()


def add_connection_flags(parser: argparse.ArgumentParser, url_flags: tuple[str, ...] = ("--url",)) -> None:
    """Adds the flags that pulsar-client takes before its sub-command and pulsar-perf after it."""
    group = parser.add_argument_group("connection")
    group.add_argument(*url_flags, dest="url", help=f"broker URL (client.conf, else {DEFAULT_URL})")
    group.add_argument("--auth-plugin", default=None, metavar="NAME", help="authentication plugin")
    group.add_argument("--auth-params", default=None, metavar="TEXT", help="e.g. token:… or file:///path")
    group.add_argument("--tlsTrustCertsFilePath", "--trust-cert-file", dest="trust_certs", metavar="FILE")
    group.add_argument("--tls-allow-insecure", action="store_true", default=None)
    group.add_argument("--tls-enable-hostname-verification", action="store_true", default=None)
    group.add_argument("--listener-name", default=None, metavar="NAME")


def connection_of(arguments: argparse.Namespace) -> ClientArguments:
    """Returns the connection that flags and client.conf describe.

    Raises CommandError when client.conf cannot be read.
    """
    conf = read_client_conf()

    def first(flag: str | None, *keys: str) -> str:
        return flag or next((conf[key] for key in keys if conf.get(key)), "")

    def switch(flag: bool | None, key: str) -> bool:
        return bool(flag) or conf.get(key, "").lower() == "true"

    return ClientArguments(
        url=first(arguments.url, "brokerServiceUrl", "serviceUrl") or DEFAULT_URL,
        auth_plugin=first(arguments.auth_plugin, "authPlugin"),
        auth_params=first(arguments.auth_params, "authParams"),
        trust_certs=first(arguments.trust_certs, "tlsTrustCertsFilePath"),
        certificate=first(None, "tlsCertificateFilePath"),
        key=first(None, "tlsKeyFilePath"),
        allow_insecure=switch(arguments.tls_allow_insecure, "tlsAllowInsecureConnection"),
        verify_hostname=switch(arguments.tls_enable_hostname_verification, "tlsEnableHostnameVerification"),
        listener_name=arguments.listener_name,
        io_threads=getattr(arguments, "io_threads", 1),
        listener_threads=getattr(arguments, "listener_threads", 1),
    )


def read_client_conf() -> dict[str, str]:
    """Returns the texts in the file named by `PULSAR_CLIENT_CONF`, else in `conf/client.conf` if there is one.

    Raises CommandError when the file cannot be read, and for a key that asks for a protection which commands lack.
    """
    from foundation.settings.errors import SettingsError
    from foundation.settings.properties import parse_properties

    path = default_file("client", os.environ)
    if path is None:
        return {}
    try:
        text = path.read_text(encoding="utf-8")
        conf = {entry.key: entry.value for entry in parse_properties(text, str(path))}
        if conf.keys() - KEYS_READ:
            # The table is imported only for other keys: that takes longer than reading the few that commands need.
            from magnetar.process.client_keys import load_client_settings

            load_client_settings(path, environ={})
        return conf
    except SettingsError as error:
        raise CommandError(error.line) from error
    except (OSError, UnicodeDecodeError) as error:
        raise CommandError(f"cannot read {path}: {error}") from error


def say(text: str) -> None:
    """Prints one line of output with the time in front, in the form of Pulsar's tools."""
    at = datetime.now(UTC)
    print(f"{at:%Y-%m-%dT%H:%M:%S},{at.microsecond // 1000:03d}+0000 INFO  {text}", flush=True)


def visible(text: str, kept: str = "") -> str:
    """Returns a text that is safe for a terminal: what is not printable, and not in `kept`, is escaped."""
    if text.isprintable():
        return text
    return "".join(
        one if one.isprintable() or one in kept else one.encode("unicode_escape").decode() for one in text
    )


def fail(command: str, error: Exception) -> int:
    """Prints the error on standard error; returns the exit code of a failed command."""
    # An answer of a broker may stand in it.
    text = visible(str(error), "\n")
    print(f"magnetar {command}: {text}", file=sys.stderr)
    return 1


def _log_to_stderr(pulsar: ModuleType) -> object:
    """Returns a logger of the client for warnings and errors; `PULSAR_LOG_LEVEL` chooses another level."""
    # A file logger, not Python's logging: the client's threads would ask for the interpreter while it shuts down,
    # and the process would abort. The logger opens standard error again by name; where that is a file, both
    # descriptors must append, or they overwrite each other's lines.
    with contextlib.suppress(OSError):
        fcntl.fcntl(2, fcntl.F_SETFL, fcntl.fcntl(2, fcntl.F_GETFL) | os.O_APPEND)
    levels = pulsar.LoggerLevel
    # The client has no level below debug.
    known = {"trace": levels.Debug, "debug": levels.Debug, "info": levels.Info, "error": levels.Error}
    name = os.environ.get("PULSAR_LOG_LEVEL", "warn").strip().lower()
    return pulsar.FileLogger(known.get(name, levels.Warn), "/dev/stderr")


def topic_path(text: str) -> str:
    """Returns a topic's name as the parts of a path. Raises CommandError."""
    from urllib.parse import quote

    from foundation.model.errors import InvalidTopicName
    from foundation.model.topic_name import parse_topic_name

    try:
        name = parse_topic_name(text)
    except InvalidTopicName as error:
        raise CommandError(str(error)) from None
    parts = (name.domain, name.tenant, name.namespace_local, name.local)
    return "/".join(quote(part, safe="") for part in parts)
