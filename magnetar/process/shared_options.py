"""Options that several commands have, so that a word means the same in each of them.

Each function adds options to a command's parser. Imports nothing but `argparse` and `pathlib`, because every
`--help` pays for this module.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any


class CommandParser(argparse.ArgumentParser):
    """A parser, and those of the actions below it, that take options by their whole names alone."""

    def __init__(self, prog: str | None = None, **options: Any) -> None:
        """The arguments are argparse's."""
        super().__init__(prog, allow_abbrev=False, **options)


def add_settings_options(parser: argparse.ArgumentParser, *conf_flags: str, conf_help: str) -> None:
    """Adds the options that decide a process's settings; they become `conf`, `data` and `set`.

    `conf_flags` are the long names of `-c`, which differ between Pulsar's programs and BookKeeper's.
    """
    parser.add_argument("-c", *conf_flags, dest="conf", type=Path, metavar="FILE", help=conf_help)
    parser.add_argument("--data", type=Path, metavar="DIR", help="folder of everything that is kept")
    parser.add_argument(
        "--set", action="append", default=[], type=_key_value, metavar="KEY=VALUE", help="override a setting"
    )


def add_process_options(parser: argparse.ArgumentParser) -> None:
    """Adds the options of a command that runs a server.

    They become `ready_file`, `log_format` and `allow_unknown_keys`.
    """
    parser.add_argument(
        "--allow-unknown-keys",
        action="store_true",
        help="start in spite of keys that nothing knows, as in a file of another version",
    )
    parser.add_argument(
        "--ready-file", type=Path, metavar="FILE", help="write the addresses as JSON when ready"
    )
    parser.add_argument(
        "--log-format", choices=("auto", "plain", "json"), default="auto", help="auto: plain on a terminal"
    )


def add_admin_url(parser: argparse.ArgumentParser) -> None:
    """Adds the address of a running broker's admin API and the credentials for it.

    They become `admin_url`, `auth_plugin` and `auth_params`, None when left out.
    """
    parser.add_argument("--admin-url", metavar="URL", help="(client.conf, else http://localhost:8080)")
    parser.add_argument(
        "--auth-plugin", metavar="NAME", help="token or basic, or the Java class (client.conf)"
    )
    parser.add_argument(
        "--auth-params", metavar="TEXT", help="token:…, file:PATH or name:password (client.conf)"
    )


def add_tls_options(parser: argparse.ArgumentParser) -> None:
    """Adds the trust of commands that ask an admin API over https, with pulsar-admin's names.

    They become `tls_trust_cert_path`, `tls_allow_insecure` and `tls_enable_hostname_verification`.
    """
    add = parser.add_argument
    add("--tls-trust-cert-path", metavar="FILE", help="trusted certificates (client.conf)")
    add("--tls-allow-insecure", action="store_true", help="accept any certificate")
    add("--tls-enable-hostname-verification", action="store_true", help="check the host's name")


def _key_value(text: str) -> str:
    key, equals, _ = text.partition("=")
    if not equals or not key.strip():
        raise argparse.ArgumentTypeError(f"{text!r} is not of the form key=value")
    return text
