"""Where the entries of a ledger stand in its ensemble, and what answers of bookies prove. Pure.

Entry e goes to the positions e, e + 1, ... e + Qw - 1, each modulo E (its write set). An entry that was acknowledged is
on Qa bookies of its write set; both proofs below follow from that alone.
"""

from __future__ import annotations

from collections.abc import Sequence


def write_set(entry_id: int, ensemble_size: int, write_quorum: int) -> tuple[int, ...]:
    """The positions of the ensemble that get the entry, in the order in which readers should ask them."""
    return tuple((entry_id + number) % ensemble_size for number in range(write_quorum))


def is_covered(answered: Sequence[bool], write_quorum: int, ack_quorum: int) -> bool:
    """Whether no entry can be acknowledged any more without a bookie that has `answered` (that is fenced):
    in every write set fewer than Qa have not."""
    return all(
        sum(not answered[position] for position in write_set(first, len(answered), write_quorum)) < ack_quorum
        for first in range(len(answered))
    )


def proves_absence(negatives: int, write_quorum: int, ack_quorum: int) -> bool:
    """Whether so many fenced bookies of a write set that say "I do not have it" leave fewer than Qa that might."""
    return write_quorum - negatives < ack_quorum
