"""`magnetar version`: prints the versions of Magnetar, Python and the libraries.

Versions come from package metadata: importing a library to ask it would take longer than the whole command.
"""

from __future__ import annotations

import argparse
import platform
from importlib.metadata import PackageNotFoundError, version
from typing import TextIO

from magnetar import __version__

LIBRARIES = ("protobuf", "crc32c", "rocksdict", "uvloop", "aiohttp", "prometheus-client", "pulsar-client")
"""Distributions that `--verbose` lists, installed or not."""


def main(argv: list[str], out: TextIO | None = None) -> int:
    """Prints one line, with `--verbose` one per library as well; `out` None means standard output."""
    parser = argparse.ArgumentParser("magnetar version", description="Print version information and exit.")
    parser.add_argument("-v", "--verbose", action="store_true", help="also Python and the libraries in use")
    arguments = parser.parse_args(argv)
    print(f"magnetar {__version__}", file=out)
    if arguments.verbose:
        print(f"python {platform.python_version()} on {platform.system()} {platform.machine()}", file=out)
        for name in LIBRARIES:
            print(f"{name} {_installed(name)}", file=out)
    return 0


def _installed(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "not installed"
