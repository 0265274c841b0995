"""Ledgers that the bookie inside a stopped broker has and the metadata store does not, or the other way round.

The audits look at the metadata store alone. Without ZooKeeper no bookie compares its ledgers with it, so entries of a ledger
whose deletion was lost between both would stay for ever, and no audit would find them.
"""

from __future__ import annotations

import re
from pathlib import Path

from bookie_stub.tools.dump import ledger_lines
from magnetar.audit.facts import gather
from magnetar.snapshot.node_sources import nodes_of


def left_on_bookie(data: Path) -> list[str]:
    """Returns a line for each ledger without metadata. `data` is the data folder of a broker that was stopped."""
    known = gather(nodes_of(f"file:{data / 'metadata.sqlite'}")).ledgers
    lines = "\n".join(ledger_lines(data / "bookie" / "ledgers"))
    stored = {int(text) for text in re.findall(r"^ +ledger (\d+) ", lines, re.M)}
    return [f"the bookie has ledger {one}, which has no metadata" for one in sorted(stored - known.keys())]
