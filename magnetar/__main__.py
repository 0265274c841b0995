"""`magnetar`: finds the command and hands the rest of the line to its module.

A command's module is imported only when that command runs, and it imports heavy modules (uvloop, protobuf,
aiohttp, the official client) only after its arguments are understood. So any `--help` answers in well under
0.2 s; `tests/magnetar/test_main.py` checks the imports. Exit codes: 0 done, 1 failed, 2 wrong usage,
130 interrupted.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from importlib import import_module
from types import MappingProxyType
from typing import cast

Command = Callable[[list[str]], int]
"""Takes the words after the command's name, returns the exit code."""

COMMANDS = MappingProxyType(
    {
        "standalone": (
            "magnetar.commands.broker_command:standalone",
            "a broker with its bookie in one process",
        ),
        "broker": ("magnetar.commands.broker_command:broker", "a broker that stores in bookies of their own"),
        "bookie": ("magnetar.commands.bookie_command:main", "a bookie, the service that stores"),
        "produce": ("magnetar.commands.produce:main", "send messages to a topic (as pulsar-client produce)"),
        "consume": ("magnetar.commands.consume:main", "print messages of a topic (as pulsar-client consume)"),
        "perf": ("magnetar.commands.perf:main", "measure produce or consume (as pulsar-perf)"),
        "top": (
            "magnetar.commands.top_command:main",
            "watch throughput, latency, cache and topics of any Pulsar",
        ),
        "config": (
            "magnetar.commands.config_command:main",
            "show settings and where they come from; change a running broker's",
        ),
        "admin": (
            "magnetar.commands.admin_command:main",
            "administer a cluster (as pulsar-admin); snapshot its metadata",
        ),
        "metadata": (
            "magnetar.commands.metadata_command:main",
            "show, compare, verify and share metadata stores",
        ),
        "completion": (
            "magnetar.commands.completion:main",
            "print the shell completion for bash, zsh or fish",
        ),
        "token": (
            "magnetar.commands.token_command:main",
            "make and check keys and tokens (as pulsar tokens)",
        ),
        "cache": (
            "magnetar.commands.cache_command:main",
            "ask a running broker what is in its cache, and why not",
        ),
        "subscription": (
            "magnetar.commands.subscription_command:main",
            "ask a running broker where unacknowledged and missing messages are",
        ),
        "pipeline": (
            "magnetar.commands.pipeline_command:main",
            "jobs on Spark: records, audits of metadata, live",
        ),
        "version": ("magnetar.commands.version:main", "print version information"),
    }
)
"""By name: `module:function` to import when the command runs, and its line in the usage."""

_LEFT_OUT = "pipeline"
"""The package that the container image leaves out."""


def main(argv: list[str] | None = None) -> int:
    """Runs one command line; the console script `magnetar` calls this."""
    words = sys.argv[1:] if argv is None else argv
    if not words or words[0] in ("-h", "--help", "help"):
        print(usage())
        return 0 if words else 2
    name = "version" if words[0] in ("-v", "-V", "--version") else words[0]
    if name not in COMMANDS:
        print(f"magnetar: unknown command {name!r}\n\n{usage()}", file=sys.stderr)
        return 2
    try:
        command = load(name)
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != _LEFT_OUT:
            raise
        print(
            f"magnetar {name}: the package {_LEFT_OUT} is missing, as in the container image: install Magnetar from its "
            "wheel with the extras pipeline and spark",
            file=sys.stderr,
        )
        return 1
    try:
        return command(words[1:])
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        # The reader of our output has gone (`| head`). Closing keeps Python from a second complaint at its last flush.
        sys.stderr.close()
        return 1


def load(name: str) -> Command:
    """Imports the module of a command and returns its function."""
    module, function = COMMANDS[name][0].split(":")
    return cast(Command, getattr(import_module(module), function))


def usage() -> str:
    """Returns the text of `magnetar --help`."""
    width = max(map(len, COMMANDS)) + 2
    lines = [f"  {name:<{width}}{text}" for name, (_, text) in COMMANDS.items()]
    return "\n".join(
        [
            "Usage: magnetar <command> [options]",
            "",
            "A Pulsar broker: official Pulsar clients connect to it unmodified.",
            "",
            "Commands:",
            *lines,
            "",
            "`magnetar <command> --help` shows the options of a command.",
        ]
    )


if __name__ == "__main__":
    sys.exit(main())
