"""`magnetar standalone` and `magnetar broker`: the command line of the broker process.

Flags are named as `pulsar standalone` and `pulsar broker` name them. This module turns words into a `BrokerOptions`,
starts logging, and calls the composition root `magnetar/process/standalone.py`, which interprets the settings.
"""

from __future__ import annotations

import argparse
import gc
import os
from collections.abc import Mapping
from typing import TYPE_CHECKING

from magnetar.process.options import BrokerOptions, Role
from magnetar.process.shared_options import CommandParser, add_process_options, add_settings_options

if TYPE_CHECKING:
    from foundation.settings.load import Override

GC_START_OBJECTS = 500_000
"""Objects between two passes of the garbage collector during the start, which makes 70,000 that stay."""

WITHOUT_MEANING = (
    (("-nfw", "--no-functions-worker"), 0, "there is no functions worker"),
    (("-nss", "--no-stream-storage"), 0, "there is no stream storage"),
    (("--num-bookies",), 1, "there is one embedded bookie"),
    (("--bookkeeper-dir",), 1, "see --data"),
    (("--bookkeeper-port",), 1, "the embedded bookie has no port"),
    (("--zookeeper-dir",), 1, "there is no ZooKeeper"),
    (("--zookeeper-port",), 1, "there is no ZooKeeper"),
    (("--metadata-dir",), 1, "see --data"),
    (("--metadata-url",), 1, "metadata is embedded, see --data"),
)
"""Flags of `pulsar standalone` that scripts pass and that have no counterpart: (names, values taken, reason)."""

VARIABLES_WITHOUT_MEANING = (
    ("PULSAR_MEM", "but for -XX:MaxDirectMemorySize; there is no Java heap"),
    ("PULSAR_GC", "there is no Java heap"),
    ("PULSAR_EXTRA_OPTS", "there is no Java"),
    ("PULSAR_STANDALONE_USE_ZOOKEEPER", "there is no ZooKeeper"),
)
"""Variables that compose files and test containers set for Apache Pulsar: (name, reason)."""


def standalone(argv: list[str]) -> int:
    """Runs broker and bookie in one process; returns the exit code when the broker has stopped."""
    return _run("standalone", argv)


def broker(argv: list[str]) -> int:
    """Runs a broker whose ledgers are in bookies reached over TCP; returns the exit code after its stop."""
    return _run("broker", argv)


def parse(role: Role, argv: list[str]) -> tuple[BrokerOptions, str, list[str]]:
    """Returns the options, the log format, and one text for every flag that was accepted without effect.

    Wrong usage ends the process with status 2, as argparse does.
    """
    arguments = _parser(role).parse_args(argv)
    overrides: list[Override] = list(arguments.set)
    if arguments.advertised_address is not None:
        # Imported for this option alone: `--help` must not pay for it.
        from foundation.settings.load import FromOption

        # In front of the others, because of two overrides of a key the last one wins: `--set` beats this flag.
        address = FromOption("-a/--advertised-address", "advertisedAddress", arguments.advertised_address)
        overrides.insert(0, address)
    ignored = [
        f"{names[-1]} ({reason})"
        for names, _, reason in WITHOUT_MEANING
        if getattr(arguments, _attribute(names[-1])) not in (None, False)
    ]
    options = BrokerOptions(
        role=role,
        config_path=arguments.conf,
        data=arguments.data,
        memory=arguments.memory,
        overrides=tuple(overrides),
        ready_file=arguments.ready_file,
        profile=arguments.profile,
        wipe_data=arguments.wipe_data,
        test_faults=arguments.test_faults,
        until_eof=arguments.until_eof,
        allow_unknown_keys=arguments.allow_unknown_keys,
    )
    return options, arguments.log_format, ignored


def _run(role: Role, argv: list[str]) -> int:
    options, log_format, ignored = parse(role, argv)
    # No pass of the collector until the start has ended: 44 of them, 8 ms, would walk over modules, which all stay.
    gc.set_threshold(GC_START_OBJECTS)
    # Imported after `parse`, which ends the process for --help and wrong usage.
    import logging

    from magnetar.process import logs

    with logs.running(log_format):
        for text in (*ignored, *ignored_variables(os.environ)):
            logging.getLogger(__name__).info("accepted without effect: %s", text)
        from magnetar.process.standalone import run

        return run(options)


def ignored_variables(environ: Mapping[str, str]) -> list[str]:
    """Returns a text for each variable that is set and has no counterpart here."""
    return [f"{name} ({reason})" for name, reason in VARIABLES_WITHOUT_MEANING if environ.get(name)]


def _parser(role: Role) -> argparse.ArgumentParser:
    what = "a broker with its bookie in one process" if role == "standalone" else "a broker on its own"
    parser = CommandParser(
        f"magnetar {role}", description=f"Run {what}, in the foreground, until SIGTERM or Ctrl-C."
    )
    add_settings_options(parser, "--config", "--broker-conf", conf_help="configuration file")
    add_process_options(parser)
    add = parser.add_argument
    add("--memory", action="store_true", help="keep nothing on disk (for tests)")
    add("--profile", choices=("4.0", "4.2", "5.0"), help="defaults of this Pulsar version")
    add("-a", "--advertised-address", metavar="HOST", help="sets advertisedAddress")
    add("--wipe-data", action="store_true", help="empty the data folder first")
    add(
        "--test-faults",
        action="store_true",
        help="for tests of applications: /magnetar/test/clock and /magnetar/test/faults at the admin port",
    )
    add("--until-eof", action="store_true", help="stop when standard input ends, as at the end of the parent")
    others = parser.add_argument_group("accepted for scripts written for Apache Pulsar, without effect")
    for names, values, reason in WITHOUT_MEANING:
        if values:
            others.add_argument(*names, metavar="VALUE", help=reason)
        else:
            others.add_argument(*names, action="store_true", help=reason)
    return parser


def _attribute(flag: str) -> str:
    return flag.lstrip("-").replace("-", "_")
