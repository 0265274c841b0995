"""`magnetar perf produce|consume`: measures any Pulsar with the official client, as `pulsar-perf` does.

This module only finds the sub-command, so that the help costs no import of the client.
"""

from __future__ import annotations

import sys
from importlib import import_module

_COMMANDS = {
    "produce": "publish and report rate and receipt latency",
    "consume": "consume and report rate and age",
}


def main(argv: list[str]) -> int:
    """Runs the sub-command that `argv` begins with. Returns its exit code; 2 for an unknown one."""
    if argv and argv[0] in _COMMANDS:
        result: int = import_module(f"magnetar.commands.perf_{argv[0]}").main(argv[1:])
        return result
    lines = [f"  {name:<10}{text}" for name, text in _COMMANDS.items()]
    text = "\n".join(["Usage: magnetar perf <command> [options] TOPIC…", "", "Commands:", *lines])
    if argv and argv[0] in ("-h", "--help"):
        print(text)
        return 0
    print(text, file=sys.stderr)
    return 2
