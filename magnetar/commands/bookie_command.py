"""`magnetar bookie`: the command line of a bookie process; the same as `python -m bookie_stub`, with our logs.

Usage and help are settled before anything of the bookie is imported, so that `--help` stays quick.
"""

from __future__ import annotations

import argparse

from magnetar.process.shared_options import CommandParser, add_process_options, add_settings_options

TOOLS = ("dump", "check", "index", "compact")
"""First words that name a tool for the bookie's files; `bookie_tools` runs them."""
RECOVERY = (
    "autorecovery",
    "decommission",
    "listunderreplicated",
    "recover",
    "autorecoverystatus",
    "lostbookierecoverydelay",
)
"""First words that name a command about copies of entries; `bookie_recovery` runs them."""
PASSED_ON = ("conf", "data", "ready_file")
"""Options that `python -m bookie_stub` has under the same names."""


def main(argv: list[str]) -> int:
    """Runs a bookie in the foreground until SIGTERM or Ctrl-C, or a tool for its files; returns the exit code."""
    if argv and argv[0] in TOOLS:
        from magnetar.commands.bookie_tools import main as run_tool

        return run_tool(argv)
    if argv and argv[0] in RECOVERY:
        from magnetar.commands.bookie_recovery import main as run_recovery

        return run_recovery(argv)
    arguments = _parser().parse_args(argv)
    from bookie_stub.__main__ import main as run_bookie
    from magnetar.process import logs
    from magnetar.process.bookie_companion import make_companion
    from magnetar.process.config_files import refuse_unknown_keys

    with logs.running(arguments.log_format):
        return run_bookie(words_of(arguments), make_companion, refuse_unknown_keys)


def words_of(arguments: argparse.Namespace) -> list[str]:
    """Returns the command line of `python -m bookie_stub` that says the same."""
    words = [part for setting in arguments.set for part in ("--set", setting)]
    for name in PASSED_ON:
        value = getattr(arguments, name)
        if value is not None:
            words += [f"--{name.replace('_', '-')}", str(value)]
    if arguments.allow_unknown_keys:
        words.append("--allow-unknown-keys")
    return words


def _parser() -> argparse.ArgumentParser:
    parser = CommandParser(
        "magnetar bookie",
        description="Run a bookie with BookKeeper's files and wire, in the foreground.",
        epilog="Tools for its files: magnetar bookie dump | check | index rebuild | compact. Copies of lost bookies:"
        f" magnetar bookie {' | '.join(RECOVERY)}. Each with --help.",
    )
    add_settings_options(parser, "--conf", "--config", conf_help="bookkeeper.conf")
    add_process_options(parser)
    return parser
