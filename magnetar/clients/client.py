"""The official client for our commands: which broker, how to log in, one clear error when it is missing.

Law of the place: the client (`pulsar`, an optional extra) is imported only here and only when a command
needs it; nothing here is specific to our broker, so every command works against any Pulsar.
"""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import os
import sys
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pulsar

DEFAULT_URL = "pulsar://127.0.0.1:6650"
CLIENT_CONF = Path("conf/client.conf")


class CommandError(Exception):
    """A command cannot go on; the text is for the user and stands alone on one line."""


@dataclass(frozen=True, slots=True)
class Connection:
    """Where and how to connect; flags first, then `client.conf`, then Pulsar's defaults."""

    url: str
    auth_plugin: str
    auth_params: str
    trust_certs: str
    allow_insecure: bool
    verify_hostname: bool
    listener_name: str | None
    io_threads: int = 1
    listener_threads: int = 1


def official_client() -> ModuleType:
    """The module `pulsar`. Raises CommandError naming what to install."""
    try:
        import pulsar
    except ImportError as missing:
        text = "this command needs the official Pulsar client: pip install magnetar[client]"
        raise CommandError(f"{text} ({missing})") from missing
    module: ModuleType = pulsar
    return module


def connect(connection: Connection) -> pulsar.Client:
    """A client; it opens its connection with the first topic. Its warnings go to standard error."""
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
        tls_allow_insecure_connection=connection.allow_insecure,
        tls_validate_hostname=connection.verify_hostname,
        listener_name=connection.listener_name,
        logger=_log_to_stderr(pulsar),
    )


def add_connection_flags(parser: argparse.ArgumentParser, url_flags: tuple[str, ...] = ("--url",)) -> None:
    """The flags that pulsar-client takes before its sub-command and pulsar-perf after it."""
    group = parser.add_argument_group("connection")
    group.add_argument(*url_flags, dest="url", help=f"broker URL (client.conf, else {DEFAULT_URL})")
    group.add_argument("--auth-plugin", default=None, metavar="NAME", help="authentication plugin")
    group.add_argument("--auth-params", default=None, metavar="TEXT", help="e.g. token:… or file:///path")
    group.add_argument("--tlsTrustCertsFilePath", "--trust-cert-file", dest="trust_certs", metavar="FILE")
    group.add_argument("--tls-allow-insecure", action="store_true", default=None)
    group.add_argument("--tls-enable-hostname-verification", action="store_true", default=None)
    group.add_argument("--listener-name", default=None, metavar="NAME")


def connection_of(arguments: argparse.Namespace) -> Connection:
    """Raises CommandError when client.conf was named and cannot be read."""
    conf = read_client_conf()

    def first(flag: str | None, *keys: str) -> str:
        return flag or next((conf[key] for key in keys if conf.get(key)), "")

    def switch(flag: bool | None, key: str) -> bool:
        return bool(flag) or conf.get(key, "").lower() == "true"

    return Connection(
        url=first(arguments.url, "brokerServiceUrl", "serviceUrl") or DEFAULT_URL,
        auth_plugin=first(arguments.auth_plugin, "authPlugin"),
        auth_params=first(arguments.auth_params, "authParams"),
        trust_certs=first(arguments.trust_certs, "tlsTrustCertsFilePath"),
        allow_insecure=switch(arguments.tls_allow_insecure, "tlsAllowInsecureConnection"),
        verify_hostname=switch(arguments.tls_enable_hostname_verification, "tlsEnableHostnameVerification"),
        listener_name=arguments.listener_name,
        io_threads=getattr(arguments, "io_threads", 1),
        listener_threads=getattr(arguments, "listener_threads", 1),
    )


def read_client_conf() -> dict[str, str]:
    """The file named by `PULSAR_CLIENT_CONF`, else `conf/client.conf` here if there is one."""
    from settings.errors import SettingsError
    from settings.properties import parse_properties

    named = os.environ.get("PULSAR_CLIENT_CONF")
    path = Path(named) if named else CLIENT_CONF
    if not named and not path.is_file():
        return {}
    try:
        text = path.read_text(encoding="utf-8")
        return {entry.key: entry.value for entry in parse_properties(text, str(path))}
    except (OSError, UnicodeDecodeError, SettingsError) as error:
        raise CommandError(f"cannot read {path}: {error}") from error


def say(text: str) -> None:
    """One line of a tool's output, with the time in front as Pulsar's tools print it."""
    at = datetime.now(UTC)
    print(f"{at:%Y-%m-%dT%H:%M:%S},{at.microsecond // 1000:03d}+0000 INFO  {text}", flush=True)


def fail(command: str, error: Exception) -> int:
    """Says on standard error what went wrong; the exit code of a failed command."""
    print(f"magnetar {command}: {error}", file=sys.stderr)
    return 1


def _log_to_stderr(pulsar: ModuleType) -> object:
    """Warnings and worse of the client's own threads; `PULSAR_LOG_LEVEL` shows more.

    Not through Python's logging: the client's threads would ask for the interpreter while it shuts down,
    and the process would abort. The client opens standard error anew, so that where it is a file, writers
    that share it have to append or they would overwrite each other.
    """
    with contextlib.suppress(OSError):
        fcntl.fcntl(2, fcntl.F_SETFL, fcntl.fcntl(2, fcntl.F_GETFL) | os.O_APPEND)
    levels = pulsar.LoggerLevel
    known = {"trace": levels.Debug, "debug": levels.Debug, "info": levels.Info, "error": levels.Error}
    name = os.environ.get("PULSAR_LOG_LEVEL", "warn").strip().lower()
    return pulsar.FileLogger(known.get(name, levels.Warn), "/dev/stderr")
