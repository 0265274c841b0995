"""The hard limit of partitions, which holds although `maxNumPartitionsPerPartitionedTopic=0` means no limit in Pulsar."""

from __future__ import annotations

from typing import Final

from foundation.model.errors import NotAllowed

PARTITIONS_MAX: Final = 10_000
"""Partitions of one topic that the broker creates at most. Each is a topic with a log of its own: about 20 KiB of memory
and three writes to the metadata store, so that 20,000,000 of them would take the whole machine."""


class TooManyPartitions(NotAllowed):
    """The number of partitions is not between 1 and the limit."""

    status = 406
    """Pulsar's HTTP status for it."""


def check_partitions(count: int, configured: int) -> None:
    """Raises TooManyPartitions for a count outside of 1 to the limit; `configured` is Pulsar's key, 0 = none."""
    most = min(configured, PARTITIONS_MAX) if configured else PARTITIONS_MAX
    if not 1 <= count <= most:
        raise TooManyPartitions(f"Number of partitions must be from 1 to {most}, not {count}")
