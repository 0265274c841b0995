"""Port of a replicator: receipts name the position of a message in its source cluster.

Pulsar's replicators compare it with the position of their oldest unanswered message, and close the connection when the two
differ. Markers of replicated subscriptions have no position; their receipts have a highest sequence id that no message has.
"""

from __future__ import annotations

from typing import ClassVar, Final

from broker.net.ports import ProducerOnConnection
from broker.service.ports import ReplicatedSends, Sends
from protocol.message_metadata import read_replicated

MARKER: Final = 1 << 63
"""Highest sequence id in the receipt of a marker: Java's smallest number of 64 bits, as the wire has it."""


class ReplicatorOnConnection(ProducerOnConnection):
    """A ProducerPort for the replicator of another cluster."""

    __slots__ = ()

    replicates: ClassVar[bool] = True

    def replicated(self, body: memoryview) -> Sends | None:
        """Returns a run with the source's position; None for a message without one, which is then a plain one."""
        message = read_replicated(body)
        if message is None or (message.position is None and not message.marker):
            return None
        sends = ReplicatedSends()
        sends.source = None if message.marker else message.position
        return sends

    def stored(self, sends: Sends, count: int, ledger_id: int, entry_id: int) -> None:
        """Writes the SEND_RECEIPT with the source's position and the one here."""
        if not isinstance(sends, ReplicatedSends):
            super().stored(sends, count, ledger_id, entry_id)
            return
        sequence_id, _, size = sends.settle(1)
        first, second = _numbers(sends, sequence_id)
        self._write(self._receipts.write(first, second, ledger_id, entry_id), 1, size)
        if self._watched:
            self._answered(1)

    def _duplicate(self, sends: Sends, sequence_id: int, highest_sequence_id: int) -> bytes:
        if isinstance(sends, ReplicatedSends):
            sequence_id, highest_sequence_id = _numbers(sends, sequence_id)
        return super()._duplicate(sends, sequence_id, highest_sequence_id)


def _numbers(sends: ReplicatedSends, sequence_id: int) -> tuple[int, int]:
    return sends.source or (sequence_id, MARKER)
