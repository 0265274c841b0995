"""Nodes of re-replication, as BookKeeper's AutoRecovery lays them out: paths and values.

    <ledgers>/underreplication/LAYOUT                                    type BASIC, version 1
    .../ledgers/0000/0000/0000/0007/urL0000000007                        a mark: ledger 7 lacks copies
    .../locks/urL0000000007                                              ephemeral: a worker has ledger 7
    .../auditorelection/V_0000000012                                     ephemeral: a candidate's vote
    .../lostBookieRecoveryDelay                                          seconds, in decimal
    .../checkallledgersctime                                             end of the last check of all ledgers
    .../disable                                                          exists while re-replication is off

Values are protobuf's text form, except the time of the check, which is binary. BookKeeper's name for the keeper of these
nodes: ZkLedgerUnderreplicationManager.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final, NamedTuple, TypeVar

from google.protobuf import text_format
from google.protobuf.message import DecodeError, Message

from protocol.bookkeeper_metadata_pb2 import (
    AuditorVoteFormat,
    CheckAllLedgersFormat,
    LedgerRereplicationLayoutFormat,
    LockDataFormat,
    UnderreplicatedLedgerFormat,
)

FOLDER: Final = "/ledgers/underreplication"
"""Key of the folder of all nodes in a metadata store whose chroot has the node `ledgers`."""
MARKS: Final = f"{FOLDER}/ledgers"
"""Key of the folder of marks, which has four levels of folders below it."""
LOCKS: Final = f"{FOLDER}/locks"
"""Key of the folder of locks."""
ELECTION: Final = f"{FOLDER}/auditorelection"
"""Key of the folder of votes; its own value names the elected auditor."""
VOTE_PREFIX: Final = "V_"
"""Beginning of a vote's name; the digits after it tell the order of the candidates."""
LAYOUT: Final = f"{FOLDER}/LAYOUT"
"""Key of the layout, which every process checks before it works."""
DELAY: Final = f"{FOLDER}/lostBookieRecoveryDelay"
"""Key of the seconds that the auditor waits for a lost bookie."""
CHECKED: Final = f"{FOLDER}/checkallledgersctime"
"""Key of the time at which all ledgers were checked last."""
DISABLED: Final = f"{FOLDER}/disable"
"""Key that exists while re-replication is switched off; BookKeeper gives it no bytes."""

_NAME: Final = re.compile("urL([0-9]+)")
_Text = TypeVar("_Text", bound=Message)


class Mark(NamedTuple):
    """The value of a mark: why a ledger lacks copies."""

    replicas: tuple[str, ...]
    """Ids of the lost bookies; a hint, because workers look at the ledger itself."""
    marked_ms: int | None = None
    """Milliseconds since the epoch; None where the auditor did not say."""


def mark_key(ledger_id: int) -> str:
    """Returns the key of a ledger's mark."""
    digits = f"{ledger_id:016x}"
    folders = "/".join(digits[place : place + 4] for place in range(0, 16, 4))
    return f"{MARKS}/{folders}/{_name(ledger_id)}"


def lock_key(ledger_id: int) -> str:
    """Returns the key of the lock that a worker takes before it touches the ledger."""
    return f"{LOCKS}/{_name(ledger_id)}"


def marked_ledger(name: str) -> int | None:
    """Returns the ledger of a mark's or lock's name, None for another name."""
    found = _NAME.fullmatch(name)
    return None if found is None else int(found[1])


def encode_mark(mark: Mark) -> bytes:
    """Returns a mark's value."""
    return _text(UnderreplicatedLedgerFormat(replica=mark.replicas, ctime=mark.marked_ms))


def decode_mark(value: bytes) -> Mark:
    """Reads a mark's value. Raises ValueError for other bytes."""
    message = _parsed(value, UnderreplicatedLedgerFormat())
    return Mark(tuple(message.replica), message.ctime if message.HasField("ctime") else None)


def with_replicas(mark: Mark, replicas: Iterable[str]) -> Mark:
    """Returns the mark with more lost bookies, each named once; the mark itself if it names all of them."""
    names = dict.fromkeys((*mark.replicas, *replicas))
    return mark if len(names) == len(mark.replicas) else mark._replace(replicas=tuple(names))


def encode_owner(bookie_id: str) -> bytes:
    """Returns the value of a lock, which names its owner for people."""
    return _text(LockDataFormat(bookieId=bookie_id))


def encode_vote(bookie_id: str) -> bytes:
    """Returns the value of a vote and of the election."""
    return _text(AuditorVoteFormat(bookieId=bookie_id))


def encode_layout() -> bytes:
    """Returns the layout that this module describes."""
    return _text(LedgerRereplicationLayoutFormat(type="BASIC", version=1))


def check_layout(value: bytes) -> None:
    """Raises ValueError for another layout than that of this module."""
    layout = _parsed(value, LedgerRereplicationLayoutFormat())
    if (layout.type, layout.version) != ("BASIC", 1):
        raise ValueError(f"layout {layout.type} {layout.version} is not BASIC 1")


def encode_checked(checked_ms: int) -> bytes:
    """Returns the value that stands for a check of all ledgers at this time."""
    return CheckAllLedgersFormat(checkAllLedgersCTime=checked_ms).SerializeToString()


def decode_checked(value: bytes) -> int:
    """Returns the milliseconds of the last check. Raises ValueError for other bytes."""
    try:
        return CheckAllLedgersFormat.FromString(value).checkAllLedgersCTime
    except DecodeError as error:
        raise ValueError(f"no time of a check: {error}") from error


def _name(ledger_id: int) -> str:
    return f"urL{ledger_id:010}"


def _text(message: Message) -> bytes:
    return text_format.MessageToString(message).encode()


def _parsed(value: bytes, message: _Text) -> _Text:
    try:
        return text_format.Parse(value, message)
    except (text_format.ParseError, UnicodeDecodeError) as error:
        raise ValueError(f"{value[:80]!r} cannot be read: {error}") from error
