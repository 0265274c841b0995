"""Checks the address of Spark's master before a session starts.

Spark itself answers a wrong one with stack traces of Java, and one that nobody listens at after a minute.
"""

from __future__ import annotations

import re
import socket
from argparse import ArgumentTypeError
from typing import Final

_MASTERS: Final = re.compile(
    r"local(\[(\*|[1-9]\d*)(,[1-9]\d*)?\])?"
    r"|local-cluster\[[1-9]\d*,[1-9]\d*,[1-9]\d*\]"
    r"|spark://[^\s,:/]+:\d+(,[^\s,:/]+:\d+)*"
    r"|yarn"
    r"|k8s://\S+"
)
_WAIT_S: Final = 10.0


class NoMaster(Exception):
    """No master of Spark listens at the given address; the message is one sentence."""


def master(text: str) -> str:
    """Returns the address of a master that a word of the command line names. ArgumentTypeError for another word."""
    if not _MASTERS.fullmatch(text):
        raise ArgumentTypeError(
            f"{text!r} is no master of Spark: give local[*], local[2], spark://HOST:PORT, yarn or k8s://https://HOST:PORT"
        )
    return text


def on_this_machine(master: str) -> bool:
    """Returns True for `local`, `local[…]` and `local-cluster[…]`, whose tasks see this machine's files."""
    return master.startswith("local")


def in_one_process(master: str) -> bool:
    """Returns True for a master whose tasks run in the driver's own Java process."""
    return on_this_machine(master) and not master.startswith("local-cluster")


def check_master(address: str) -> None:
    """Raises NoMaster where no master of a standalone cluster accepts a connection; others are left to Spark."""
    scheme, _, hosts = address.partition("://")
    if scheme != "spark":
        return
    reasons = []
    for one in hosts.split(","):
        host, _, port = one.rpartition(":")
        try:
            socket.create_connection((host, int(port)), timeout=_WAIT_S).close()
        except (OSError, OverflowError) as error:
            reasons.append(f"{one}: {error}")
        else:
            # One is enough: the others may be standing by.
            return
    raise NoMaster(
        f"no master of Spark answers at {address} ({'; '.join(reasons)}): start it, or give another --master"
    )
