"""AnswersInOrder: keeps the refusal of a SEND until the earlier SENDs of its producer are answered.

Java's client compares an answer with its oldest unanswered message alone: one that comes early would be dropped, or make the
client connect again.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field

from protocol.pulsar_api_pb2 import BaseCommand


@dataclass(slots=True)
class _Sends:
    """The SENDs of one producer."""

    passed: int = 0
    """Those that the broker got."""
    answered: int = 0
    """Those of them that it answered."""
    held: deque[tuple[int, bytes]] = field(default_factory=deque)
    """Refusals, each with the number of answers that go before it."""


class AnswersInOrder:
    """The answers to SENDs of one connection."""

    def __init__(self) -> None:
        """Knows no producer."""
        self._by_producer: dict[int, _Sends] = {}

    def passes(self, command: BaseCommand) -> None:
        """Notes a command that the broker gets."""
        if command.type == BaseCommand.PRODUCER:
            self._by_producer[command.producer.producer_id] = _Sends()
        elif command.type == BaseCommand.SEND:
            self._of(command.send.producer_id).passed += 1

    def may_refuse(self, producer_id: int, refusal: bytes) -> bool:
        """Returns True where the refusal of a SEND may go at once; else it is kept for `answered`."""
        sends = self._of(producer_id)
        if sends.answered == sends.passed:
            return True
        sends.held.append((sends.passed, refusal))
        return False

    def answered(self, command: BaseCommand) -> Iterator[bytes]:
        """Notes a command of the broker, and yields the refusals that follow it."""
        if command.type == BaseCommand.CLOSE_PRODUCER:
            # The client sends every message again that has no answer, also a refused one.
            self._by_producer.pop(command.close_producer.producer_id, None)
        elif command.type in (BaseCommand.SEND_RECEIPT, BaseCommand.SEND_ERROR):
            receipt = command.type == BaseCommand.SEND_RECEIPT
            sends = self._of((command.send_receipt if receipt else command.send_error).producer_id)
            sends.answered += 1
            while sends.held and sends.held[0][0] <= sends.answered:
                yield sends.held.popleft()[1]

    def _of(self, producer_id: int) -> _Sends:
        return self._by_producer.setdefault(producer_id, _Sends())
