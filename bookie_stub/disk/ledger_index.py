"""The ledger index: what the bookie knows of a ledger besides its entries. RocksDB directory `ledgers`.

Key: ledger id as big-endian int64. Value: protobuf LedgerData { exists = 1, fenced = 2, masterKey = 3,
explicitLac = 4, limbo = 5 }. All of it is in memory while the bookie runs; changes are written at
checkpoints, before the mark passes the journal records that carry them.
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
"""BookKeeper keeps storage flags under this id; it is no ledger."""
_LOSSY = 1
"""The flag for "needs an integrity check": ledgers may have been lost. The flags are a big-endian int64."""
_FORGOTTEN_KNOWN = 2
"""Ours: since then the cluster was asked which ledgers these can be, and each has a row in limbo."""
_BUFFER_BYTES = 1 << 20


class LedgerData(NamedTuple):
    master_key: bytes
    fenced: bool = False
    explicit_lac: bytes | None = None
    limbo: bool = False


def encode(data: LedgerData) -> bytes:
    out = bytearray((0x08, 1, 0x10, data.fenced, 0x1A))
    out += varint(len(data.master_key)) + data.master_key
    if data.explicit_lac is not None:
        out += b"\x22" + varint(len(data.explicit_lac)) + data.explicit_lac
    if data.limbo:
        out += b"\x28\x01"
    return bytes(out)


def decode(value: bytes) -> LedgerData:
    """Raises BookieStorageError for what is no LedgerData."""
    numbers: dict[int, int] = {}
    texts: dict[int, bytes] = {}
    offset = 0
    try:
        while offset < len(value):
            tag, offset = read_varint(value, offset)
            number, offset = read_varint(value, offset)
            if tag & 7 == 0:
                numbers[tag >> 3] = number
            elif tag & 7 == 2 and offset + number <= len(value):
                texts[tag >> 3] = value[offset : offset + number]
                offset += number
            else:
                raise BookieStorageError(f"ledger index: field {tag >> 3} of wire type {tag & 7}")
        return LedgerData(texts[3], bool(numbers[2]), texts.get(4), bool(numbers.get(5, 0)))
    except (IndexError, KeyError, ValueError) as error:
        raise BookieStorageError(f"ledger index: damaged value {value.hex()}") from error


class LedgerIndex:
    def __init__(self, path: Path, file_system: FileSystem | None = None) -> None:
        self._rocks = Rocks(path, buffer_bytes=_BUFFER_BYTES, file_system=file_system)

    def load(self) -> tuple[dict[int, LedgerData], bool]:
        """All ledgers, and whether there may have been others, nobody knows which."""
        found = {}
        flags = 0
        for key, value in self._rocks.items_from(b""):
            (ledger_id,) = _KEY.unpack(key)
            if ledger_id == FLAGS_KEY:
                flags = int.from_bytes(value, "big")
            else:
                found[ledger_id] = decode(value)
        return found, flags & (_LOSSY | _FORGOTTEN_KNOWN) == _LOSSY

    def note_lossy(self) -> None:
        """For this and later starts, until `note_lost_ledgers_known`; durable on return."""
        self._write_flags(self._flags() & ~_FORGOTTEN_KNOWN | _LOSSY)

    def note_lost_ledgers_known(self) -> None:
        """What was lost has its rows by now. The need for a check stays, nothing came back. Durable on return."""
        self._write_flags(self._flags() | _FORGOTTEN_KNOWN)

    def _flags(self) -> int:
        return int.from_bytes(self._rocks.get(_KEY.pack(FLAGS_KEY)) or b"", "big")

    def _write_flags(self, flags: int) -> None:
        self._rocks.write([(_KEY.pack(FLAGS_KEY), _KEY.pack(flags))], deletes=[], ranges=[])

    def write(self, changed: Mapping[int, LedgerData], deleted: Iterable[int]) -> None:
        """Delete, then put; durable on return. Raises BookieStorageError."""
        puts = [(_KEY.pack(ledger_id), encode(data)) for ledger_id, data in changed.items()]
        self._rocks.write(puts, deletes=[_KEY.pack(ledger_id) for ledger_id in deleted], ranges=[])

    @property
    def sequence(self) -> int:
        """How many changes it has seen."""
        return self._rocks.sequence

    def close(self) -> None:
        self._rocks.close()
