"""The ledger index: key, fence and state of each ledger (BookKeeper: `LedgerMetadataIndex`).

RocksDB directory `ledgers`. Key: ledger id, big-endian int64. Value: BookKeeper's protobuf LedgerData { exists = 1,
fenced = 2, masterKey = 3, explicitLac = 4, limbo = 5 }.

All rows are in memory while the bookie runs (`ledgers/ledger.py`). The law: a checkpoint writes the rows that changed
before the marks pass the journal records that carry the changes, also when no entry was added. BookKeeper 4.17 skips that
when the write cache is empty, and forgets fences by it.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

from bookie_stub.base.errors import BookieStorageError
from bookie_stub.base.file_system import FileSystem
from bookie_stub.disk.rocks import Rocks
from protocol.varint import read_varint, varint

_KEY = struct.Struct(">q")
FLAGS_KEY = -0xEEFD
"""The id under which BookKeeper keeps its storage flags, a big-endian int64; it is no ledger."""
_LOSSY = 1
"""Flag of BookKeeper's, "integrity check needed": whole ledgers may be lost (BP-46)."""
_LOST_LEDGERS_KNOWN = 2
"""Flag of ours: since then the cluster was asked which ledgers may be lost, and each has a row in limbo."""
_BUFFER_BYTES = 1 << 20


class LedgerData(NamedTuple):
    """One row of the ledger index."""

    master_key: bytes
    """The key that adds must present; UNSET_KEY or empty while it is unknown."""
    fenced: bool = False
    """True once a client has fenced the ledger: only adds with the recovery flag are taken."""
    explicit_lac: bytes | None = None
    """The body of the highest WRITE_LAC, as its writer sent it."""
    limbo: bool = False
    """True when entries may be lost: an entry that is not here is unknown, not absent."""


def encode(data: LedgerData) -> bytes:
    """Returns the protobuf of a row, with its fields in BookKeeper's order."""
    # exists = true and fenced, both required fields of the protobuf, then the tag of masterKey.
    out = bytearray((0x08, 1, 0x10, data.fenced, 0x1A))
    out += varint(len(data.master_key)) + data.master_key
    if data.explicit_lac is not None:
        out += b"\x22" + varint(len(data.explicit_lac)) + data.explicit_lac
    if data.limbo:
        out += b"\x28\x01"
    return bytes(out)


def decode(value: bytes) -> LedgerData:
    """Returns the row in a protobuf. BookieStorageError for anything else."""
    numbers: dict[int, int] = {}
    texts: dict[int, bytes] = {}
    offset = 0
    try:
        while offset < len(value):
            # Fields that we do not know are read and dropped, as protobuf demands of a reader.
            tag, offset = read_varint(value, offset)
            number, offset = read_varint(value, offset)
            # Wire type 0 is a varint, 2 has its length before it; BookKeeper uses no other for LedgerData.
            if tag & 7 == 0:
                numbers[tag >> 3] = number
            elif tag & 7 == 2 and offset + number <= len(value):
                texts[tag >> 3] = value[offset : offset + number]
                offset += number
            else:
                raise BookieStorageError(
                    f"ledger index: field {tag >> 3} of wire type {tag & 7} in value {value.hex()};"
                    " run `magnetar bookie index rebuild`"
                )
        # Fields 2 and 3 are required: a row without them is damage, and must not read as "not fenced".
        return LedgerData(texts[3], bool(numbers[2]), texts.get(4), bool(numbers.get(5, 0)))
    except (IndexError, KeyError, ValueError) as error:
        raise BookieStorageError(
            f"ledger index: damaged value {value.hex()}; run `magnetar bookie index rebuild`"
        ) from error


class LedgerIndex:
    """The database of one ledger directory. One thread writes at a time."""

    def __init__(self, path: Path, file_system: FileSystem | None = None) -> None:
        """Opens the database, or makes it. Raises BookieInUse and BookieStorageError."""
        self._rocks = Rocks(path, buffer_bytes=_BUFFER_BYTES, file_system=file_system)

    def load(self) -> tuple[dict[int, LedgerData], bool]:
        """Returns all rows by ledger id, and the flag "lossy".

        The flag says that other ledgers may be lost of which no row tells.
        BookieStorageError for a row that cannot be read: it might have been a fence.
        """
        found = {}
        flags = 0
        for key, value in self._rocks.items_from(b""):
            (ledger_id,) = _KEY.unpack(key)
            if ledger_id == FLAGS_KEY:
                flags = int.from_bytes(value, "big")
            else:
                found[ledger_id] = decode(value)
        return found, flags & (_LOSSY | _LOST_LEDGERS_KNOWN) == _LOSSY

    def note_lossy(self) -> None:
        """Sets the flag that whole ledgers may be lost; durable on return. BookieStorageError."""
        self._write_flags(self._flags() & ~_LOST_LEDGERS_KNOWN | _LOSSY)

    def note_lost_ledgers_known(self) -> None:
        """Sets the flag that every possibly lost ledger has a row.

        Durable on return. BookieStorageError.
        BookKeeper's own flag stays, since the entries did not come back and its integrity check would copy them.
        """
        self._write_flags(self._flags() | _LOST_LEDGERS_KNOWN)

    def _flags(self) -> int:
        return int.from_bytes(self._rocks.get(_KEY.pack(FLAGS_KEY)) or b"", "big")

    def _write_flags(self, flags: int) -> None:
        self._rocks.write([(_KEY.pack(FLAGS_KEY), _KEY.pack(flags))], deletes=[], ranges=[])

    def write(self, changed: Mapping[int, LedgerData], deleted: Iterable[int]) -> None:
        """Deletes rows, then puts rows; durable on return. BookieStorageError; then it must be repeated."""
        puts = [(_KEY.pack(ledger_id), encode(data)) for ledger_id, data in changed.items()]
        self._rocks.write(puts, deletes=[_KEY.pack(ledger_id) for ledger_id in deleted], ranges=[])

    @property
    def sequence(self) -> int:
        """The number of changes since the database was made; see `Rocks.sequence`."""
        return self._rocks.sequence

    def close(self) -> None:
        """Closes the database."""
        self._rocks.close()
