"""Carries out one long command of a client in slices, so that the loop serves others in between.

The client's connection handles nothing else meanwhile, so the order of its commands is kept. A command that has begun
ends, even when its client leaves: everything in its frame has arrived.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Final

from broker.net.ports import Connection
from protocol.errors import ProtocolError

IDS_PER_SLICE: Final = 1000
"""Positions of one ACK or REDELIVER that are handled in one turn of the loop: at most 10 ms."""

log = logging.getLogger("magnetar.net")


def run_in_slices(cnx: Connection, slices: Iterator[None]) -> None:
    """Carries out the first slice now and each other one in a turn of its own.

    A slice ends where the iterator yields. ProtocolError from the iterator closes the connection.
    """
    if not _has_more(cnx, slices):
        return
    cnx.pause()

    def go_on() -> None:
        if _has_more(cnx, slices):
            # A timer and not the end of the turn: the event loop serves other sockets in between.
            cnx.context.call_later(0, go_on)
        else:
            cnx.go_on()

    cnx.context.call_later(0, go_on)


def _has_more(cnx: Connection, slices: Iterator[None]) -> bool:
    try:
        for _ in slices:
            return True
    except ProtocolError as error:
        cnx.close(f"{type(error).__name__}: {error}")
    except Exception:  # A defect of ours may not leave the client paused for ever.
        log.exception("! %s closed: a command could not be handled", cnx.address)
        cnx.close("internal error")
    return False
