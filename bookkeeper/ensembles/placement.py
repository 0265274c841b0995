"""Placement: the positions of entries in an ensemble, and what answers of bookies prove. Pure.

The law: entry e goes to the positions e, e + 1, … e + Qw - 1, each modulo E: its write set. An entry that was confirmed
is on at least Qa bookies of its write set. Both proofs of a recovery follow from that alone. BookKeeper's names:
RoundRobinDistributionSchedule, and its QuorumCoverageSet.

    E = 3, Qw = 2      entry   0    1    2    3
                       set    0 1  1 2  2 0  0 1
"""

from __future__ import annotations

from collections.abc import Sequence


def write_set(entry_id: int, ensemble_size: int, write_quorum: int) -> tuple[int, ...]:
    """Returns the positions that get the entry. Readers should ask them in this order."""
    return tuple((entry_id + number) % ensemble_size for number in range(write_quorum))


def is_covered(answered: Sequence[bool], write_quorum: int, ack_quorum: int) -> bool:
    """Returns True when fenced bookies prevent every further confirmed add.

    That is so when in every write set fewer than Qa bookies have not answered. `answered`: by position.
    """
    return all(
        sum(not answered[position] for position in write_set(first, len(answered), write_quorum)) < ack_quorum
        for first in range(len(answered))
    )


def proves_absence(negatives: int, write_quorum: int, ack_quorum: int) -> bool:
    """Returns True when so many negative answers exclude a confirmed entry.

    The answers are of fenced bookies of the entry's write set. The rest of its write set is then fewer than Qa bookies.
    """
    return write_quorum - negatives < ack_quorum
