"""Keys of the quarantine: leaks that were taken out of use and can be put back.

    /admin/quarantine/ledgers/<id>             a ledger that stays as it is; {"since": ms, "reason": text}
    /admin/quarantine/nodes/<quoted path>      a node that was moved here; {"since": ms, "reason": text, "value": base64}

A ledger's metadata stays where it is, because bookies give up the entries of a ledger as soon as it is gone.
"""

from __future__ import annotations

from typing import Final
from urllib.parse import quote

LEDGERS: Final = "/admin/quarantine/ledgers"
"""Above the records of ledgers."""
NODES: Final = "/admin/quarantine/nodes"
"""Above the moved nodes."""


def ledger_record_key(ledger_id: int) -> str:
    """Returns the key of a ledger's record."""
    return f"{LEDGERS}/{ledger_id}"


def node_record_key(path: str) -> str:
    """Returns the key under which a node is kept."""
    return f"{NODES}/{quote(path, safe='')}"
