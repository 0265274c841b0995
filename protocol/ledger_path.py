"""The path of a ledger's metadata below the ledgers' root. It is that of BookKeeper's hierarchical ledger manager."""

from __future__ import annotations

_SHORT_IDS_END = 2**31 - 1


def ledger_path(ledger_id: int) -> str:
    """Returns `00/1234/L5678` for ledger 12345678; ids from 2^31 - 1 on have five levels."""
    if ledger_id < _SHORT_IDS_END:
        digits = f"{ledger_id:010}"
        return f"{digits[:2]}/{digits[2:6]}/L{digits[6:]}"
    digits = f"{ledger_id:019}"
    return f"{digits[:3]}/{digits[3:7]}/{digits[7:11]}/{digits[11:15]}/L{digits[15:]}"
